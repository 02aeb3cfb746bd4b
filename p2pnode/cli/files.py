"""Files that people name on the command line, read whole and bounded."""

from pathlib import Path
from typing import Final

import click

from p2pnode.home import read_if_there
from protocol.errors import LocalFault

EXIT_NOT_FOUND: Final = 3


class NotFoundError(click.ClickException):
    """What was named is not there."""

    exit_code = EXIT_NOT_FOUND


def read_file(file: Path, *, size_max: int, what: str) -> bytes:
    """The bytes of the file, at least one.

    `what` says what it should hold. Raises NotFoundError, or LocalFault for what is no such file.
    """
    if file.exists() and not file.is_file():
        raise LocalFault(f"{file} is no file.", f"name a file that holds {what}")
    raw = read_if_there(file, size_max=size_max)
    if raw is None:
        raise NotFoundError(f"there is no file {file}.")
    if not raw:
        raise LocalFault(f"{file} is empty.", f"name a file that holds {what}")
    return raw
