"""How much of the disk a directory takes. The standard library alone: a supervisor loads this."""

import os
from contextlib import suppress
from pathlib import Path

ENTRY_BYTES_MIN = 4_096
"""An empty file costs something too: the number of files is bounded by the same limit."""


def disk_bytes(folder: Path) -> int:
    """What the directory and all in it take on disk: holes count nothing, hard links once.

    Whatever changes or goes meanwhile may be missed. Other file systems mounted inside count.
    """
    total = 0
    seen: set[tuple[int, int]] = set()
    folders = [os.fspath(folder)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if is_folder:
                        folders.append(entry.path)
                    elif status.st_nlink > 1:
                        if (status.st_dev, status.st_ino) in seen:
                            continue
                        seen.add((status.st_dev, status.st_ino))
                    total += max(status.st_blocks * 512, ENTRY_BYTES_MIN)
    return total
