"""The demo's job: trains a small character-level language model on a text. Standard library only.

    python charmodel.py TEXT OUTPUT_FOLDER

Three characters of context, an embedding for each, one softmax layer, stochastic gradient descent.
Writes `model.json` (weights in millionths) and `loss.txt` (loss on held-out text, in bits for each
character, before and after). Equal inputs give equal bytes.
"""

import json
import math
import random
import sys
from pathlib import Path

CONTEXT = 3
WIDTH = 12
STEPS = 6_000
REPORT_EVERY = 1_000
HELD_OUT = 400
RATE = 0.15
ALPHABET = " \nabcdefghijklmnopqrstuvwxyz0123456789.,:;-_()[]{}'\"`|/*#<>=+"


class Model:
    """Embeddings and one layer; all state is in two lists of lists."""

    def __init__(self, dice: random.Random) -> None:
        size = len(ALPHABET)
        self.embedding = [
            [dice.uniform(-0.5, 0.5) for _ in range(WIDTH)] for _ in range(size * CONTEXT)
        ]
        self.output = [[dice.uniform(-0.1, 0.1) for _ in range(WIDTH + 1)] for _ in range(size)]

    def hidden(self, context: list[int]) -> list[float]:
        """The sum of the context's embeddings, and a constant one for the bias."""
        rows = [self.embedding[i * len(ALPHABET) + c] for i, c in enumerate(context)]
        return [sum(column) for column in zip(*rows, strict=True)] + [1.0]

    def probabilities(self, hidden: list[float]) -> list[float]:
        """Of each next character."""
        scores = [sum(w * h for w, h in zip(row, hidden, strict=True)) for row in self.output]
        top = max(scores)
        weights = [math.exp(score - top) for score in scores]
        total = sum(weights)
        return [weight / total for weight in weights]

    def learn(self, context: list[int], target: int) -> None:
        """One step of gradient descent on one character."""
        hidden = self.hidden(context)
        errors = self.probabilities(hidden)
        errors[target] -= 1.0
        gradient = [0.0] * WIDTH
        for row, error in zip(self.output, errors, strict=True):
            for i in range(WIDTH):
                gradient[i] += error * row[i]
            for i, value in enumerate(hidden):
                row[i] -= RATE * error * value
        for place, character in enumerate(context):
            row = self.embedding[place * len(ALPHABET) + character]
            for i, slope in enumerate(gradient):
                row[i] -= RATE * slope


def loss(model: Model, codes: list[int]) -> float:
    """Bits for each character of the text."""
    bits = 0.0
    for at in range(CONTEXT, len(codes)):
        chances = model.probabilities(model.hidden(codes[at - CONTEXT : at]))
        bits -= math.log2(chances[codes[at]])
    return bits / (len(codes) - CONTEXT)


def main() -> None:
    """Train, and write what was learnt."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8").lower()
    codes = [ALPHABET.index(c) for c in text if c in ALPHABET]
    training, held_out = codes[:-HELD_OUT], codes[-HELD_OUT:]
    dice = random.Random(1)
    model = Model(dice)
    before = loss(model, held_out)
    print(f"{len(training)} characters, held-out loss {before:.4f} bits each", flush=True)
    for step in range(1, STEPS + 1):
        at = dice.randrange(CONTEXT, len(training))
        model.learn(training[at - CONTEXT : at], training[at])
        if step % REPORT_EVERY == 0:
            print(f"step {step}  held-out loss {loss(model, held_out):.4f}", flush=True)
    after = loss(model, held_out)
    folder = Path(sys.argv[2])
    folder.joinpath("loss.txt").write_text(f"before {before:.6f}\nafter {after:.6f}\n")
    weights = {
        "alphabet": ALPHABET,
        "embedding": [[round(w * 1e6) for w in row] for row in model.embedding],
        "output": [[round(w * 1e6) for w in row] for row in model.output],
    }
    folder.joinpath("model.json").write_text(json.dumps(weights))


if __name__ == "__main__":
    main()
