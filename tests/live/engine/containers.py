"""Programs and engines for the tests of the Docker engine."""

from pathlib import Path

import trio

from p2pnode.clock import SystemClock
from p2pnode.execution.docker_engine import DockerEngine
from p2pnode.execution.docker_image import ImageArchive
from p2pnode.execution.engine import Run
from tests import engine_suite as suite


def python(text: str) -> suite.Argv:
    return ("python3", "-c", text)


class Python:
    """See Programs."""

    def exits(self, code: int) -> suite.Argv:
        return python(f"raise SystemExit({code})")

    def kills_itself(self) -> suite.Argv:
        return python("import os; os.kill(os.getpid(), 9)")

    def says(self, text: str) -> suite.Argv:
        return python(f"print({text!r})")

    def counts(self, lines: int) -> suite.Argv:
        return python(f"for line in range(1, {lines + 1}): print(f'{{line:07}}')")

    def sleeps(self) -> suite.Argv:
        return python(f"import time; time.sleep({suite.LONG_S})")

    def ignores_term(self) -> suite.Argv:
        return python(
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
            f"print('ready', flush=True); time.sleep({suite.LONG_S})"
        )

    def is_missing(self) -> suite.Argv:
        return ("no-such-program",)

    def is_no_program(self) -> suite.Argv:
        return ("/etc/passwd",)


def make_engine(jobs: Path, socket: Path, image: ImageArchive) -> DockerEngine:
    return DockerEngine(
        jobs,
        docker_socket=socket,
        node="test",
        clock=SystemClock(),
        files=trio.CapacityLimiter(4),
        default_image=image.id,
    )


async def output_of(engine: DockerEngine, run: Run) -> str:
    ending = await suite.ending_of(engine, run)
    text = await suite.text_of(engine, run.id)
    assert (ending.cause, ending.exit_code) == ("exit", 0), (ending, text)
    return text
