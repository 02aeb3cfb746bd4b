"""Archives: equal trees give equal bytes, and nothing hostile is written anywhere."""

import hashlib
import io
import os
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.execution.archive import Packed, pack, pack_now, unpack, unpack_now
from p2pnode.execution.archive_form import END, MEMBERS_MAX, Member, header_of, padding
from protocol.errors import LocalFault, PeerFault
from protocol.units import Digest

PLENTY = 1 << 20
Tree = dict[str, bytes | str | None]
"""path -> content, target of a link, or None for a directory"""


def unchecked() -> None:
    """Never breaks off."""


def grow(root: Path, tree: Tree) -> Path:
    """Make the tree in `root`."""
    root.mkdir()
    for name, what in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if what is None:
            path.mkdir(exist_ok=True)
        elif isinstance(what, str):
            path.symlink_to(what)
        else:
            path.write_bytes(what)
    return root


def look(root: Path) -> Tree:
    """What `grow` would need to make this again."""
    found: Tree = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = path.readlink().as_posix()
        elif path.is_dir():
            found[name] = None
        else:
            found[name] = path.read_bytes()
    return found


def packed(root: Path) -> bytes:
    """The archive of the tree."""
    target = root.with_name(f"{root.name}.tar")
    pack_now(root, target, bytes_max=64 << 20, check=unchecked)
    return target.read_bytes()


def tar(*members: tuple[Member, bytes]) -> bytes:
    """An archive as pack would write it, of whatever members."""
    pieces = [
        header_of(member) + content + bytes(padding(len(content))) for member, content in members
    ]
    return b"".join(pieces) + END


def info(name: str, kind: bytes = tarfile.REGTYPE, *, target: str = "", size: int = 0) -> bytes:
    """A header as other programs may write it."""
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, size
    return made.tobuf(tarfile.GNU_FORMAT)


def refusal(folder: Path, raw: bytes, *, bytes_max: int = PLENTY) -> str:
    """The rule by which the archive is refused, having left nothing behind."""
    inner = folder / "inner"
    inner.mkdir()
    (inner / "a.tar").write_bytes(raw)
    before = look(folder)
    with pytest.raises(PeerFault) as caught:
        unpack_now(inner / "a.tar", inner / "tree", bytes_max=bytes_max, check=unchecked)
    assert look(folder) == before
    return caught.value.rule


NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="/"),
    min_size=1,
    max_size=40,
).filter(lambda name: name not in {".", ".."})
FLAT: st.SearchStrategy[dict[str, bytes | None]] = st.dictionaries(
    NAMES, st.binary(max_size=1_500) | st.none(), max_size=6
)


@given(outer=NAMES, flat=FLAT, deep=FLAT)
def test_what_is_packed_comes_out_again(
    tmp_path_factory: pytest.TempPathFactory,
    outer: str,
    flat: dict[str, bytes | None],
    deep: dict[str, bytes | None],
) -> None:
    folder = tmp_path_factory.mktemp("round")
    tree: Tree = {outer: None, **{f"{outer}/{name}": what for name, what in deep.items()}}
    tree |= {name: what for name, what in flat.items() if name != outer}
    raw = packed(grow(folder / "a", tree))
    unpack_now(folder / "a.tar", folder / "b", bytes_max=PLENTY, check=unchecked)
    assert look(folder / "b") == look(folder / "a") == dict(sorted(tree.items()))
    assert packed(folder / "b") == raw


@given(raw=st.binary(max_size=2_000), at=st.integers(0, 4_000))
def test_whatever_bytes_come_it_is_a_tree_or_a_peers_fault(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes, at: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    good = tar((Member(path="a" * 120, kind="file", size=3), b"abc"), (LINK, b""))
    hurt = good[:at] + raw + good[at + len(raw) :]
    (folder / "a.tar").write_bytes(hurt)
    with suppress(PeerFault):
        unpack_now(folder / "a.tar", folder / "b", bytes_max=PLENTY, check=unchecked)
    assert not (folder / "b").exists() or packed(folder / "b") == hurt
    assert {path.name for path in folder.iterdir()} <= {"a.tar", "b", "b.tar"}


FILE = Member(path="a", kind="file")
FOLDER = Member(path="a", kind="folder")
LINK = Member(path="l", kind="link", target="x")


def member(path: str, size: int = 0) -> tuple[Member, bytes]:
    return Member(path=path, kind="file", size=size), bytes(size)


def link(path: str, target: str) -> tuple[Member, bytes]:
    return Member(path=path, kind="link", target=target), b""


def folder_member(path: str) -> tuple[Member, bytes]:
    return Member(path=path, kind="folder"), b""


GOLDEN = "8b9b278e62d9fb6246f5bf365cffe1613d533dd030e857f835a1ef825920fe45"
HOSTILE = {
    "absolute": (tar(member("/etc/x")), "archive.path"),
    "climbing": (tar(member("../x")), "archive.path"),
    "climbing inside": (tar(folder_member("a"), member("a/../../x")), "archive.path"),
    "dot": (tar(member("./x")), "archive.path"),
    "no name": (tar(member("")), "archive.path"),
    "control character": (tar(member("a\x1b[2J")), "archive.path"),
    "no directory": (tar(member("a/x")), "archive.path"),
    "long name": (tar(member("n" * 256)), "archive.path"),
    "long path": (tar(member("/".join(["n" * 200] * 6))), "archive.path"),
    "deep": (tar(member("/".join("n" * 33))), "archive.path"),
    "absolute link": (tar(link("a", "/etc/passwd")), "archive.path"),
    "climbing link": (tar(link("a", "../x")), "archive.path"),
    "climbing link deeper": (tar(folder_member("a"), link("a/l", "../../x")), "archive.path"),
    # By its letters it stays inside, but if b is a link to a directory higher up, it does not.
    "link that climbs later": (
        tar(folder_member("a"), folder_member("a/b"), link("a/b/l", "x/../../..")),
        "archive.path",
    ),
    "empty link": (tar(link("a", "")), "archive.path"),
    "file under a link": (tar(link("a", "b"), member("a/x")), "archive.path"),
    "link in place of a directory": (tar(folder_member("a"), link("a", "b")), "archive.form"),
    "a name twice": (tar(member("a"), member("a")), "archive.form"),
    "out of order": (tar(member("b"), member("a")), "archive.form"),
    "hard link": (info("a", tarfile.LNKTYPE, target="/etc/passwd") + END, "archive.kind"),
    "device": (info("a", tarfile.CHRTYPE) + END, "archive.kind"),
    "pipe": (info("a", tarfile.FIFOTYPE) + END, "archive.kind"),
    "old kind of file": (info("a", tarfile.AREGTYPE) + END, "archive.kind"),
    "sparse": (info("a", tarfile.GNUTYPE_SPARSE) + END, "archive.kind"),
    "long name of GNU": (info("a", tarfile.GNUTYPE_LONGNAME, size=9) + END, "archive.kind"),
    "owner": (info("a").replace(b"0000000\0", b"0000001\0", 2) + END, "archive.form"),
    "other program's header": (info("a") + END, "archive.form"),
    "empty": (b"", "archive.form"),
    "half an end": (tar()[:512], "archive.form"),
    "after the end": (tar(member("a")) + b"\0", "archive.form"),
    "cut": (tar(member("a", 600))[:1_000], "archive.form"),
    "dirty padding": (tar(member("a", 1))[:600] + b"x" + tar(member("a", 1))[601:], "archive.form"),
    "directory with content": (info("a", tarfile.DIRTYPE, size=512) + END, "archive.form"),
    "compressed": (b"\x1f\x8b" + bytes(2_000), "archive.form"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused_by_their_rule(tmp_path: Path, name: str) -> None:
    raw, rule = HOSTILE[name]
    assert refusal(tmp_path, raw) == rule


@pytest.mark.parametrize("kind", ["pax", "gnu", "ustar"])
def test_a_sparse_or_extended_header_of_another_program_is_refused_unread(
    tmp_path: Path, kind: str
) -> None:
    formats = {"pax": tarfile.PAX_FORMAT, "gnu": tarfile.GNU_FORMAT, "ustar": tarfile.USTAR_FORMAT}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=formats[kind]) as made:
        entry = tarfile.TarInfo("a")
        entry.pax_headers = {"GNU.sparse.realsize": "9" * 15, "GNU.sparse.major": "1"}
        entry.mtime = 1
        made.addfile(entry)
    assert refusal(tmp_path, buffer.getvalue()) == "archive.form"


def test_a_huge_extended_header_is_refused_before_it_is_read(tmp_path: Path) -> None:
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 1 << 40
    assert refusal(tmp_path, header.tobuf(tarfile.GNU_FORMAT) + END) == "archive.form"


def test_more_than_was_agreed_is_refused_and_exactly_that_is_not(tmp_path: Path) -> None:
    raw = tar(member("a", 600), member("b", 400))
    assert refusal(tmp_path, raw, bytes_max=999) == "archive.size"
    path = tmp_path / "inner" / "a.tar"
    assert unpack_now(path, tmp_path / "tree", bytes_max=1_000, check=unchecked) == 2


@pytest.mark.slow
def test_too_many_members_are_refused(tmp_path: Path) -> None:
    members = [member(f"{number:05x}") for number in range(MEMBERS_MAX + 1)]
    assert refusal(tmp_path, tar(*members)) == "archive.count"


def test_a_refused_size_of_a_terabyte_costs_nothing(tmp_path: Path) -> None:
    raw = header_of(Member(path="a", kind="file", size=1 << 40)) + END
    assert refusal(tmp_path, raw) == "archive.size"
    assert refusal(tmp_path / "inner", raw, bytes_max=1 << 41) == "archive.form"


def test_modes_are_those_of_the_archive_and_not_of_the_umask(tmp_path: Path) -> None:
    root = grow(tmp_path / "a", {"d/run": b"#!", "d/read": b""})
    (root / "d/run").chmod(0o4700)
    (root / "d/read").chmod(0o666)
    raw = packed(root)
    (root / "d/run").chmod(0o755)
    os.utime(root / "d/read", (1, 1))
    assert packed(root) == raw
    before = os.umask(0o077)
    try:
        unpack_now(tmp_path / "a.tar", tmp_path / "b", bytes_max=PLENTY, check=unchecked)
    finally:
        os.umask(before)
    modes = {name: (tmp_path / "b" / name).stat().st_mode & 0o7777 for name in look(tmp_path / "b")}
    assert modes == {"d": 0o755, "d/read": 0o644, "d/run": 0o755}


def test_the_bytes_are_the_same_for_ever(tmp_path: Path) -> None:
    tree: Tree = {"a": b"x" * 513, "b/c": b"", "b/é": "../a", "n" * 130: b"long", "z": None}
    raw = packed(grow(tmp_path / "a", tree))
    assert hashlib.sha256(raw).hexdigest() == GOLDEN


def test_links_inside_the_tree_are_kept(tmp_path: Path) -> None:
    tree: Tree = {"a": None, "a/b": None, "a/b/up": "../../c", "a/here": "b/x", "c": b"1"}
    packed(grow(tmp_path / "a", tree))
    unpack_now(tmp_path / "a.tar", tmp_path / "b", bytes_max=PLENTY, check=unchecked)
    assert look(tmp_path / "b") == tree
    assert (tmp_path / "b/a/b/up").read_bytes() == b"1"


@pytest.mark.parametrize(
    ("tree", "rule"),
    [
        ({"l": "/etc/passwd"}, "archive.path"),
        ({"l": "../x"}, "archive.path"),
        ({"l": ".."}, "archive.path"),
        ({"a\nb": b""}, "archive.path"),
        ({"a\udcff": b""}, "archive.path"),
        ({"big": bytes(PLENTY)}, "archive.size"),
    ],
)
def test_what_cannot_be_unpacked_is_not_packed(tmp_path: Path, tree: Tree, rule: str) -> None:
    root = grow(tmp_path / "a", tree)
    with pytest.raises(PeerFault) as caught:
        pack_now(root, tmp_path / "a.tar", bytes_max=PLENTY, check=unchecked)
    assert caught.value.rule == rule
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_pipes_sockets_and_a_link_in_place_of_the_tree_are_not_packed(tmp_path: Path) -> None:
    os.mkfifo(grow(tmp_path / "a", {}) / "pipe")
    (tmp_path / "b").symlink_to("/etc")
    for root in (tmp_path / "a", tmp_path / "b"):
        with pytest.raises(PeerFault, match=r"archive\.kind"):
            pack_now(root, tmp_path / "a.tar", bytes_max=PLENTY, check=unchecked)


def test_a_hole_of_a_terabyte_is_refused_before_it_is_read(tmp_path: Path) -> None:
    root = grow(tmp_path / "a", {"hole": b""})
    os.truncate(root / "hole", 1 << 40)
    with pytest.raises(PeerFault, match=r"archive\.size"):
        pack_now(root, tmp_path / "a.tar", bytes_max=1 << 30, check=unchecked)


async def test_packing_tells_digest_and_length(tmp_path: Path) -> None:
    files = trio.CapacityLimiter(1)
    root = grow(tmp_path / "a", {"x": b"1", "y": None})
    done = await pack(root, tmp_path / "a.tar", bytes_max=PLENTY, files=files)
    raw = (tmp_path / "a.tar").read_bytes()
    assert done == Packed(digest=Digest(hashlib.sha256(raw).digest()), bytes=len(raw), members=2)
    (tmp_path / "b").mkdir()
    assert await unpack(tmp_path / "a.tar", tmp_path / "b", bytes_max=9, files=files) == 2
    with pytest.raises(LocalFault):
        await unpack(tmp_path / "a.tar", tmp_path / "b", bytes_max=9, files=files)
    assert look(tmp_path / "b") == {"x": b"1", "y": None}


async def test_a_cancelled_thread_stops_and_leaves_nothing(tmp_path: Path) -> None:
    root = grow(tmp_path / "a", {f"{number}": b"1" for number in range(50)})
    with trio.CancelScope() as scope:
        scope.cancel()
        await pack(root, tmp_path / "a.tar", bytes_max=PLENTY, files=trio.CapacityLimiter(1))
    assert scope.cancelled_caught
    assert "a.tar" not in look(tmp_path)
