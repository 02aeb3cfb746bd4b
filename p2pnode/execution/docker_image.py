"""An image with this very Python and nothing else, so that a demo needs no registry.

The same interpreter gives the same bytes, and the image's id is known before an engine sees it.
"""

import io
import os
import platform
import re
import stat
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from protocol.errors import LocalFault

_LEFT_OUT: Final = re.compile(
    r"(__pycache__|site-packages|dist-packages|test|tests|idlelib|tkinter|turtledemo|ensurepip"
    r"|lib2to3|pydoc_data|config-.*|.*\.a|_test.*|_tkinter.*)"
)
_FILES: Final = {
    "/etc/passwd": b"root:x:0:0::/:/sbin/nologin\nnobody:x:65534:65534::/:/sbin/nologin\n",
    "/etc/group": b"root:x:0:\nnogroup:x:65534:\n",
}
_FOLDERS: Final = ("/dev", "/proc", "/sys", "/tmp", "/usr/bin")  # noqa: S108 - in the image
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_LDD_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageArchive:
    """An image as `docker save` writes it."""

    id: str
    """What it has in every engine: "sha256:" and the digest of its configuration."""
    archive: bytes


def build_python_image() -> ImageArchive:
    """The image of the running interpreter; /usr/bin/python3 starts it. Takes about a second.

    Raises LocalFault if the interpreter's files cannot be found or read.
    """
    try:
        layer = _layer()
    except (OSError, subprocess.SubprocessError) as error:
        raise LocalFault(f"the image of this Python cannot be built: {error}") from error
    config = msgspec.json.encode(
        {
            "architecture": _MACHINES.get(platform.machine(), platform.machine()),
            "config": {"Cmd": ["python3"], "Env": ["PATH=/usr/bin", "LANG=C.UTF-8"]},
            "created": "1970-01-01T00:00:00Z",
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "p2pnode"}],
            "os": "linux",
            "rootfs": {"diff_ids": ["sha256:" + sha256(layer).hexdigest()], "type": "layers"},
        },
        order="sorted",
    )
    name = sha256(config).hexdigest()
    manifest = [{"Config": f"{name}.json", "Layers": ["layer.tar"], "RepoTags": None}]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        _add_file(tar, "/layer.tar", layer)
        _add_file(tar, f"/{name}.json", config)
        _add_file(tar, "/manifest.json", msgspec.json.encode(manifest))
    return ImageArchive(id=f"sha256:{name}", archive=archive.getvalue())


def _layer() -> bytes:
    """The tar of the root file system; each file has the path that it has here."""
    python = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib")).resolve()
    files = {python, *_files_under(library)}
    files |= _libraries(python, *(file for file in files if file.suffix == ".so"))
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder in sorted({*_FOLDERS, *_parents(files), *_parents(map(Path, _FILES))}):
            _add_folder(tar, folder)
        for path, content in _FILES.items():
            _add_file(tar, path, content)
        for file in sorted(files):
            _add_file(tar, str(file), file.read_bytes(), is_program=os.access(file, os.X_OK))
        if str(python) != "/usr/bin/python3":
            link = tarfile.TarInfo("usr/bin/python3")
            link.type, link.linkname = tarfile.SYMTYPE, str(python)
            tar.addfile(link)
    return layer.getvalue()


def _files_under(folder: Path) -> set[Path]:
    found: set[Path] = set()
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _LEFT_OUT.fullmatch(name)]
        paths = (Path(root, name) for name in names if not _LEFT_OUT.fullmatch(name))
        found.update(path for path in paths if stat.S_ISREG(path.stat().st_mode))
    return found


def _libraries(*programs: Path) -> set[Path]:
    """The shared libraries and the loader that these need, as the loader itself finds them."""
    told = subprocess.run(  # noqa: S603 - our own interpreter's files
        ["/usr/bin/ldd", *map(str, programs)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_LDD_S,
    )
    return {
        Path(path) for path in re.findall(r"(?:^\s+|=> )(/\S+) \(0x", told.stdout, re.MULTILINE)
    }


def _parents(files: Iterable[Path]) -> set[str]:
    return {str(folder) for file in files for folder in file.parents if folder != Path("/")}


def _add_folder(tar: tarfile.TarFile, path: str) -> None:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    tar.addfile(entry)


def _add_file(tar: tarfile.TarFile, path: str, content: bytes, *, is_program: bool = False) -> None:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.size, entry.mode = len(content), 0o755 if is_program else 0o644
    tar.addfile(entry, io.BytesIO(content))
