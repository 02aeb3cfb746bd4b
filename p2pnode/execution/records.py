"""Small durable facts about a run, as lines "key value"; written whole or not at all.

The standard library alone: the supervisor of a process loads this, which is why p2pnode.home does
not serve here. Nothing in it comes from a peer.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

RECORD_BYTES_MAX = 4_096
"""The largest takes about 300."""


def write_record(path: Path, facts: dict[str, str]) -> None:
    """The file holds these facts, durably; or what it held. Raises OSError."""
    aside = _written_aside(path, facts)
    aside.replace(path)
    _sync_folder(path.parent)


def claim_record(path: Path, facts: dict[str, str]) -> bool:
    """Whether the file is ours now: with these facts, durably. False if there was one already.

    Raises OSError. Of several who try at once, one succeeds.
    """
    aside = _written_aside(path, facts)
    try:
        path.hardlink_to(aside)
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


def read_record(path: Path) -> dict[str, str] | None:
    """The facts in the file; None if there is no file. Raises OSError."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        lines = file.read(RECORD_BYTES_MAX).decode("utf-8", "replace").splitlines()
        return {key: value for key, _, value in (line.partition(" ") for line in lines)}
    return None


def _written_aside(path: Path, facts: dict[str, str]) -> Path:
    text = "".join(f"{key} {' '.join(value.split())}\n" for key, value in facts.items())
    descriptor, aside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8", "replace"))
        file.flush()
        os.fsync(file.fileno())
    return Path(aside)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
