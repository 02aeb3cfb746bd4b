"""What people call a GPU, and how its driver reports it: `RTX4090` is "NVIDIA GeForce RTX 4090".

A name is taken apart into words, and means each GPU whose reported name has all of them. So a
GPU that no table knows is found by the name that it is shown under.
"""

import re
from functools import lru_cache
from typing import Final

from protocol.units import Mebibytes

_SAME: Final = {
    "ampere": "", "hopper": "", "ada": "ada", "blackwell": "", "lovelace": "",
    "generation": "", "nvidia": "", "amd": "", "geforce": "", "tesla": "", "instinct": "",
    "quadro": "", "rtx": "", "gtx": "", "graphics": "", "gpu": "",
    "sxm2": "sxm", "sxm3": "sxm", "sxm4": "sxm", "sxm5": "sxm", "sxm6": "sxm",
    "hbm2": "", "hbm2e": "", "hbm3": "sxm", "hbm3e": "",
    "server": "", "workstation": "", "edition": "",
    "6000ada": "6000 ada", "5000ada": "5000 ada", "4500ada": "4500 ada", "4000ada": "4000 ada",
    "pro6000": "pro 6000", "gh200": "gh200", "gb200": "gb200",
    "mobile": "laptop",
}  # fmt: skip
"""Word -> the words that stand for it; makers, series and memory kinds stand for none.

NVML calls the SXM form of the H100 "NVIDIA H100 80GB HBM3", and the others by PCIe and NVL.
"""

_VARIANTS: Final = ("ti", "super", "d", "laptop", "max", "ada", "pro", "lhr")
"""Words that make another chip of the same number: a 4070 is no 4070 Ti, and must not be."""

_GLUED: Final = re.compile(
    r"(?:nvidia|geforce|rtx|gtx|tesla|quadro)*([a-z]*[0-9]+[sx]?)"
    r"(ti|super|d|ada|laptop)?(super|laptop)?(sxm[0-9]?|pcie|nvl)?"
)
"""`rtx4070tisuper`, `h100sxm`: what people write without spaces."""
_PLAIN: Final = re.compile(r"[a-z0-9]+")
_MEMORY: Final = re.compile(r"([0-9]{1,4})(?:gi?b)")


def is_model(model: str, name: str, vram: Mebibytes) -> bool:
    """Whether people would call a GPU that reports this model, and has so much memory, by the name.

    A size in the name, as in `A100-80GB`, is held to the memory that is there: not every model
    bears it in its name.
    """
    there = [*words_of(model), *_PLAIN.findall(model.lower())]
    wanted = words_of(name)
    if not wanted:
        return False
    sizes = [word for word in wanted if _MEMORY.fullmatch(word)]
    if not all(word in there or _is_size(word, vram) for word in sizes):
        return False
    others = [word for word in wanted if word not in sizes]
    variants = [word for word in there if word in _VARIANTS and word not in others]
    is_chip = any(any(letter.isdigit() for letter in word) for word in others)
    return all(word in there for word in others) and not (is_chip and variants)


def may_be(model: str, name: str) -> bool:
    """Whether a GPU that reports this model may be meant, whatever memory it has."""
    wanted = [word for word in words_of(name) if not _MEMORY.fullmatch(word)]
    there = [*words_of(model), *_PLAIN.findall(model.lower())]
    return all(word in there for word in wanted)


@lru_cache(4_096)
def words_of(name: str) -> tuple[str, ...]:
    """The words by which a GPU is told from others; of a maker or a series alone, its own."""
    plain: list[str] = _PLAIN.findall(name.lower())
    words = [part for word in plain for part in _parts(word)]
    return tuple(dict.fromkeys(words)) or tuple(plain)


def _parts(word: str) -> list[str]:
    if word in _SAME:
        return _SAME[word].split()
    if _MEMORY.fullmatch(word):
        return [word.replace("gib", "gb")]
    found = _GLUED.fullmatch(word)
    glued = [part for part in found.groups() if part] if found else [word]
    return [same for part in glued for same in _SAME.get(part, part).split()]


def _is_size(word: str, vram: Mebibytes) -> bool:
    """Drivers report up to 8 % less than the name says, which counts in either kind of gigabyte."""
    found = _MEMORY.fullmatch(word)
    assert found is not None
    named = int(found[1]) * 1_024
    return named * 92 <= vram * 100 <= named * 102
