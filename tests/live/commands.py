"""Runs the commands that people type."""

import json
import os
import subprocess
import sys
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
