"""A disk that loses power: what a process has written and not synced is lost.

power_loss.c, preloaded into the process, keeps a shadow of what is durable. The model is that of
ext4, and meant to be the harsher one where ext4 leaves a choice:

* the content of a file is that of its last fsync or fdatasync; of what was written later nothing,
  or any first part, is there;
* a new file's name is durable with its first fsync, every other change of names (a rename, an
  unlink, a new name of a synced file) with an fsync of the directory; or else all of them are;
* a file whose name outlives its content is empty.

What is left out: a size that grows without its bytes (a tail of zeros), bits that rot, and a drive
that lies about its cache.
"""

import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.errors import LocalFault

SOURCE: Final = Path(__file__).parent / "power_loss.c"
_COMPILERS: Final = ("cc", "gcc", "clang")
_FLAGS: Final = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread")
_CONTENTS: Final = ".inodes"


def build_shim(folder: Path) -> Path:
    """The library to be preloaded, made in this folder. Raises LocalFault without a compiler."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise LocalFault(
            "a loss of power is played by a library in C, and there is no C compiler.",
            "install gcc, or leave out --power-loss",
        )
    library = folder / "power_loss.so"
    command = [compiler, *_FLAGS, "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise LocalFault(f"{SOURCE.name} does not compile: {done.stderr.strip()}")
    return library


@dataclass(frozen=True, slots=True, kw_only=True)
class LossyDisk:
    """One directory that can lose power. Its subdirectories are there before `begin`."""

    live: Path
    """What processes see; absolute and without links, as they name it."""
    shadow: Path
    """What is durable of it."""
    shim: Path

    def environment(self) -> dict[str, str]:
        """What a process that writes here must be started with."""
        return {
            "LD_PRELOAD": str(self.shim),
            "POWER_LIVE": str(self.live),
            "POWER_SHADOW": str(self.shadow),
        }

    def begin(self) -> None:
        """All that is there is durable."""
        shutil.rmtree(self.shadow, ignore_errors=True)
        shutil.copytree(self.live, self.shadow)
        contents = self.shadow / _CONTENTS
        contents.mkdir()
        for path in _files(self.live):
            durable = self.shadow / path.relative_to(self.live)
            (contents / str(path.stat().st_ino)).hardlink_to(durable)

    def lose_power(self, dice: random.Random) -> None:
        """What was not durable is lost, as the dice will; nobody may be writing any more."""
        found = self._with_all_names() if dice.randrange(2) else self._with_durable_names()
        is_torn = dice.randrange(2)
        after = {
            name: _torn(durable, written, dice) if is_torn else durable
            for name, (durable, written) in sorted(found.items())
        }
        for path in _files(self.live):
            path.unlink()
        for name, content in after.items():
            (self.live / name).write_bytes(content)
            (self.live / name).chmod(0o600)
        self.begin()

    def _with_all_names(self) -> dict[Path, tuple[bytes, bytes]]:
        """By name: what is durable of the file, and what was written to it."""
        found = {}
        for path in _files(self.live):
            content = self.shadow / _CONTENTS / str(path.stat().st_ino)
            if content.exists():
                found[path.relative_to(self.live)] = (content.read_bytes(), path.read_bytes())
        return found

    def _with_durable_names(self) -> dict[Path, tuple[bytes, bytes]]:
        written = {str(path.stat().st_ino): path for path in _files(self.live)}
        contents = self.shadow / _CONTENTS
        numbers = {path.stat().st_ino: path.name for path in _files(contents)}
        found = {}
        for path in _files(self.shadow):
            if contents in path.parents:
                continue
            durable = path.read_bytes()
            live = written.get(numbers.get(path.stat().st_ino, ""))
            found[path.relative_to(self.shadow)] = (
                durable,
                durable if live is None else live.read_bytes(),
            )
        return found


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def _torn(durable: bytes, written: bytes, dice: random.Random) -> bytes:
    """The durable bytes, of which a first part of what differs has been overwritten."""
    shared = min(len(durable), len(written))
    same = next((n for n in range(shared) if durable[n] != written[n]), shared)
    cut = dice.randint(same, max(same, len(written)))
    return written[:cut] + durable[cut:]
