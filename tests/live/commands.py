"""Runs the commands that people type."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def p2pnode(*arguments: str, code: int = 0) -> str:
    """What the command prints on stdout; it must end with this exit code, without a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "p2pnode", *arguments],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def document(*arguments: str, code: int = 0) -> Any:
    """The one document that the command prints with --json."""
    if "--" in arguments:
        at = arguments.index("--")
        arguments = (*arguments[:at], "--json", *arguments[at:])
    else:
        arguments = (*arguments, "--json")
    return json.loads(p2pnode(*arguments, code=code))


@contextmanager
def up(home: str, variables: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A node of this home while the block runs, on loopback and without multicast.

    The block may kill it.
    """
    node = subprocess.Popen(
        [sys.executable, "-m", "p2pnode", "up", "--json", "--home", home],
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "P2PNODE_NETWORK__LISTEN": "/ip4/127.0.0.1/tcp/0",
            "P2PNODE_NETWORK__MDNS": "false",
            **(variables or {}),
        },
    )
    assert node.stdout is not None
    try:
        assert b"p2pnode.up/1" in b"".join(iter(node.stdout.readline, b"}\n"))
        yield node
    finally:
        node.terminate()
        assert node.wait(30) in {0, 130, -15, -9}
        node.stdout.close()


def processes_of(folder: Path) -> list[int]:
    """Every process that has a file in the folder open, or works in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            links = [str(link.readlink()) for link in (entry / "fd").iterdir()]
            links.append(str((entry / "cwd").readlink()))
        except OSError:
            continue
        if any(link.startswith(str(folder)) for link in links):
            found.append(int(entry.name))
    return found
