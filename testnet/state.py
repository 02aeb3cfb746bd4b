"""A testnet that is up: what its state folder says, whether it lives, how it ends. Kept light."""

import json
import os
import select
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import platformdirs

from protocol.errors import LocalFault

STOP_S: Final = 10
"""A node that has not stopped this long after SIGTERM is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningNode:
    """One process of a testnet."""

    index: int
    name: str
    roles: tuple[str, ...]
    pid: int
    home: str
    peer: str
    socket: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A testnet that is up, as `testnet.json` in its state folder tells."""

    schema: str = "p2pnode.testnet/1"
    name: str
    supervisor: int
    started: int
    """The supervisor's start in kernel ticks: with its pid it names the process for good."""
    invite: str
    nodes: tuple[RunningNode, ...]


def state_folder(name: str, chosen: Path | None) -> Path:
    """Where the testnet of this name keeps everything it has."""
    return chosen or platformdirs.user_state_path("p2pnode") / "testnet" / name


def save(state: Path, running: Running) -> None:
    """Write down who runs."""
    (state / "testnet.json").write_text(dump(running))


def dump(running: Running) -> str:
    """The testnet as one line of JSON."""
    return json.dumps(asdict(running))


def parse(text: str) -> Running:
    """The inverse of `dump`."""
    document: dict[str, Any] = json.loads(text)
    nodes = tuple(
        RunningNode(
            **{**node, "roles": tuple(node["roles"]), "addresses": tuple(node["addresses"])}
        )
        for node in document.pop("nodes")
    )
    return Running(**document, nodes=nodes)


def load(state: Path) -> Running | None:
    """The testnet of this folder if it is up."""
    try:
        running = parse((state / "testnet.json").read_text())
    except FileNotFoundError:
        return None
    return running if is_up(running) else None


def must_load(state: Path) -> Running:
    """As `load`. Raises LocalFault if it is not up."""
    running = load(state)
    if running is None:
        raise LocalFault(f"no testnet is up in {state}", "p2pnode testnet up")
    return running


def is_up(running: Running) -> bool:
    """Whether its supervisor lives."""
    return started_ticks(running.supervisor) == running.started


def started_ticks(pid: int) -> int:
    """When the process was started, in kernel ticks since boot; 0 if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    state, *fields = stat.rpartition(")")[2].split()
    return 0 if state == "Z" else int(fields[18])


def stop(running: Running) -> None:
    """End a testnet that is up: its supervisor stops every node. Returns when all are gone."""
    if not is_up(running):
        return
    with _watched(running.supervisor) as has_ended:
        os.kill(running.supervisor, signal.SIGTERM)
        if not has_ended(STOP_S + 5):
            os.kill(running.supervisor, signal.SIGKILL)
            has_ended(STOP_S)


@contextmanager
def _watched(pid: int) -> Iterator[Callable[[float], bool]]:
    """has_ended(seconds): whether the process has ended within them."""
    handle = os.pidfd_open(pid)
    try:
        yield lambda wait_s: bool(select.select([handle], [], [], wait_s)[0])
    finally:
        os.close(handle)


def remove(state: Path) -> None:
    """Delete the folder of a testnet that has ended."""
    shutil.rmtree(state, ignore_errors=True)
