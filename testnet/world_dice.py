"""The one source of chance in a world: dice by name, the same in every process."""

import random


def dice_of(name: str) -> random.Random:
    """The dice of this name; they depend on nothing else."""
    return random.Random(name)  # noqa: S311 - a world has no secrets
