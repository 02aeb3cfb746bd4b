"""A cluster that is none, as a program, and the template that speaks to it.

It keeps what it is told and when, and says what it is set to say: `FOLDER/says` has its answer to
a start, which is `sent`, `no stock` or `hangs`. A job that was sent has ended when it is looked at.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

EXIT_CODE: Final = 3
"""Of every job that it runs."""


@dataclass(frozen=True, slots=True)
class Told:
    """One call of the program."""

    at_s: float
    """Of the wall clock, when it answered."""
    verb: str
    name: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StandIn:
    """The cluster, from outside."""

    folder: Path

    def says(self, text: str) -> None:
        """From now on, to each start."""
        (self.folder / "says").write_text(text)

    def told(self) -> list[Told]:
        """All that it was asked, in order."""
        file = self.folder / "told"
        lines = file.read_text().splitlines() if file.exists() else []
        return [
            Told(at_s=at, verb=verb, name=name, words=tuple(words))
            for at, verb, name, *words in map(json.loads, lines)
        ]

    @property
    def template(self) -> Path:
        """What goes under `[primary]`."""
        return self.folder / "template.toml"


def make_stand_in(folder: Path) -> StandIn:
    """One that has no job yet."""
    folder.mkdir()
    cluster = StandIn(folder)

    def command(verb: str, *words: str) -> str:
        program = (sys.executable, "-I", "-S", str(Path(__file__)))
        return json.dumps([*program, verb, str(folder), "{name}", *words])

    cluster.template.write_text(f"""
about = "A cluster that is none."
start = {command("start", "{file}", "gpus={gpus}", "vram={vram_gib}")}
state = {command("state")}
stop = {command("stop")}
log = {command("log")}
start_within = "30s"
poll = "200ms"
[says]
out_of_stock = "no stock"
ended = 'ended (?P<exit>\\d+)'
absent = "nothing"
[file]
argv = "{{argv}}"
image = "{{image}}"
""")
    cluster.says("sent")
    return cluster


def _now_s() -> float:
    return time.time()  # noqa: TID251 - another program compares it with its own


def main(verb: str, folder: Path, name: str, *words: str) -> int:
    """The exit code of one call."""
    job, answer, code = folder / name, "", 0
    match verb:
        case "start":
            answer = (folder / "says").read_text()
            while answer == "hangs":
                time.sleep(1)  # noqa: TID251 - it is to hang
            if answer == "sent":
                job.write_bytes(Path(words[0]).read_bytes())
            else:
                code = 75
        case "stop":
            job.unlink(missing_ok=True)
        case "log":
            answer = "hello from the cluster"
        case _:
            answer = f"ended {EXIT_CODE}" if job.exists() else "nothing"
    with (folder / "told").open("a") as told:
        told.write(json.dumps([_now_s(), verb, name, *words]) + "\n")
    sys.stdout.write(f"{answer}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
