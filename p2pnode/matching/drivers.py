"""Which driver a CUDA version needs, and versions as numbers."""

import re
from typing import Final

from protocol.errors import LocalFault

CUDA: Final = {
    (11, 0): (450, 36, 6),
    (11, 1): (455, 23),
    (11, 2): (460, 27, 3),
    (11, 3): (465, 19, 1),
    (11, 4): (470, 42, 1),
    (11, 5): (495, 29, 5),
    (11, 6): (510, 39, 1),
    (11, 7): (515, 43, 4),
    (11, 8): (520, 61, 5),
    (12, 0): (525, 60, 13),
    (12, 1): (530, 30, 2),
    (12, 2): (535, 54, 3),
    (12, 3): (545, 23, 6),
    (12, 4): (550, 54, 14),
    (12, 5): (555, 42, 2),
    (12, 6): (560, 28, 3),
    (12, 8): (570, 26),
    (12, 9): (575, 51, 3),
    (13, 0): (580, 65, 6),
}
"""CUDA version -> the least Linux driver that it came with: NVIDIA's CUDA Toolkit Release Notes,
table "CUDA Toolkit and Corresponding Driver Versions", first release of each version. Containers
of a version ask the driver for it, so that what minor version compatibility allows is not enough.
"""


def version_of(text: str) -> tuple[int, ...] | None:
    """`570.86.15` as numbers; None if it is no such version."""
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}", text):
        return None
    return tuple(int(part) for part in text.split("."))


def version_text(version: tuple[int, ...]) -> str:
    """As NVIDIA writes it: every number but the first has two digits at least."""
    first, *others = version
    return ".".join([str(first), *(f"{part:02}" for part in others)])


def driver_for(cuda: str) -> tuple[int, ...]:
    """The least driver for this version of CUDA, or for the next one in the table.

    Raises LocalFault if it is no version, or newer than all that this program knows.
    """
    wanted = version_of(cuda)
    if wanted is None or len(wanted) != 2:
        raise LocalFault(f"{cuda[:20]!a} is no CUDA version.", "--cuda 12.4")
    found = [driver for version, driver in CUDA.items() if version >= wanted]
    if not found:
        newest = ".".join(map(str, max(CUDA)))
        raise LocalFault(
            f"CUDA {cuda} is newer than {newest}, the newest that is known here.",
            "name the driver that it needs: --driver 580.65.06",
        )
    return found[0]


def compute_of(text: str) -> tuple[int, int]:
    """`8.9` as numbers. Raises LocalFault."""
    found = version_of(text)
    if found is None or len(found) != 2:
        raise LocalFault(f"{text[:20]!a} is no compute capability.", "--compute 8.9")
    return found[0], found[1]
