"""Each damage to a ledger on real files has the outcome that SPEC.md 6.2 gives it."""

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ledger.entry import read_entry
from ledger.file_guard import SLOT_BYTES
from ledger.ledger import Ledger
from ledger.store import DamagedStore, Store
from p2pnode.own_store import open_own_guard, open_own_store, opened_store
from protocol.errors import LocalFault, Unavailable
from tests.make_ledger import (
    NET,
    OWNER,
    RENTER,
    STRANGER,
    Feed,
    at,
    genesis,
    ledger,
    statement,
)

pytestmark = pytest.mark.slow
IN_TABLES, IN_LOG = 700, 300
Damage = Callable[[Path, Path], None]
"""damage(home, copy of it from an earlier time)"""


@dataclass(frozen=True)
class Disk:
    """A home, what it was earlier, and all that its ledger holds."""

    home: Path
    earlier: Path
    own: list[bytes]
    others: list[bytes]


def build_in(home: Path) -> Callable[[Store], Ledger]:
    return lambda store: ledger(store=store, guard=open_own_guard(home / "guard", NET))


@contextmanager
def opened(home: Path) -> Iterator[Ledger]:
    """As a node opens it, but nothing is set aside."""
    store = open_own_store(home / "db")
    try:
        yield build_in(home)(store)
    finally:
        store.close()


def write(mine: Ledger, count: int) -> list[bytes]:
    head = mine.head(mine.feed)
    first = 0 if head is None else head.seq
    return [mine.append(statement(ctr=n, used=n), at(n)).raw for n in range(first, first + count)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    """A ledger with its older entries in tables and its newer ones in the log."""
    home = tmp_path_factory.mktemp("ledger")
    (home / "db").mkdir()
    theirs = Feed(RENTER)
    others = [theirs.open().raw]
    others += [theirs.add(statement(OWNER, ctr=n, used=n)).raw for n in range(IN_TABLES)]
    with opened(home) as mine:
        own = [mine.append(genesis(OWNER), at(0)).raw, *write(mine, IN_TABLES)]
        for raw in others:
            mine.ingest(raw)
        mine.flush()
    earlier = tmp_path_factory.mktemp("earlier") / "home"
    shutil.copytree(home, earlier)
    with opened(home) as mine:
        own += write(mine, IN_LOG)
    return Disk(home, earlier, own, others)


@pytest.fixture
def disk(made: Disk, tmp_path: Path) -> Disk:
    shutil.copytree(made.home, tmp_path / "home")
    return Disk(tmp_path / "home", made.earlier, made.own, made.others)


def largest(home: Path, kind: str) -> Path:
    return max((home / "db").glob(kind), key=lambda path: path.stat().st_size)


def flip(path: Path, at_byte: int) -> None:
    data = bytearray(path.read_bytes())
    data[at_byte] ^= 0x40
    path.write_bytes(data)


def flip_middle(kind: str) -> Damage:
    def damage(home: Path, _earlier: Path) -> None:
        path = largest(home, kind)
        flip(path, path.stat().st_size // 2)

    return damage


def cut_log(count: int) -> Damage:
    def damage(home: Path, _earlier: Path) -> None:
        path = largest(home, "*.log")
        assert path.stat().st_size > count
        os.truncate(path, path.stat().st_size - count)

    return damage


def zero_log(home: Path, _earlier: Path) -> None:
    path = largest(home, "*.log")
    path.write_bytes(path.read_bytes()[:-400] + bytes(400))


def delete(kind: str) -> Damage:
    return lambda home, _earlier: largest(home, kind).unlink()


def delete_database(home: Path, _earlier: Path) -> None:
    shutil.rmtree(home / "db")


def restore_database(home: Path, earlier: Path) -> None:
    shutil.rmtree(home / "db")
    shutil.copytree(earlier / "db", home / "db")


def restore_guard(home: Path, earlier: Path) -> None:
    shutil.copy(earlier / "guard", home / "guard")


def restore_both(home: Path, earlier: Path) -> None:
    restore_database(home, earlier)
    restore_guard(home, earlier)


def delete_guard(home: Path, _earlier: Path) -> None:
    (home / "guard").unlink()


def flip_slots(*slots: int) -> Damage:
    def damage(home: Path, _earlier: Path) -> None:
        for slot in slots:
            flip(home / "guard", slot * SLOT_BYTES + 100)

    return damage


DAMAGES: dict[str, tuple[Damage, str]] = {
    "a byte of the log flipped": (flip_middle("*.log"), "damaged"),
    "a byte of a table flipped": (flip_middle("*.ldb"), "damaged"),
    "a byte of MANIFEST flipped": (flip_middle("MANIFEST-*"), "damaged"),
    "a byte of CURRENT flipped": (flip_middle("CURRENT"), "damaged"),
    "the log without its last 100 bytes": (cut_log(100), "whole"),
    "the log without its last 100 kB": (cut_log(100_000), "behind"),
    "the end of the log zeroed": (zero_log, "damaged"),
    "the log deleted": (delete("*.log"), "behind"),
    "a table deleted": (delete("*.ldb"), "damaged"),
    "MANIFEST deleted": (delete("MANIFEST-*"), "damaged"),
    "CURRENT deleted": (delete("CURRENT"), "damaged"),
    "the database deleted": (delete_database, "behind"),
    "an earlier database restored": (restore_database, "behind"),
    "an earlier guard restored": (restore_guard, "whole"),
    "the guard deleted": (delete_guard, "guard lost"),
    "the older slot of the guard flipped": (flip_slots(1), "whole"),
    "the newer slot of the guard flipped": (flip_slots(0), "whole"),
    "both slots of the guard flipped": (flip_slots(0, 1), "guard lost"),
}


def outcome_of(mine: Ledger) -> str:
    fault = mine.fault()
    if fault is None:
        return "whole"
    assert fault.cure
    if mine.is_guard_lost():
        return "guard lost"
    assert "the store ends at" in fault.what
    return "behind"


def check_truth(mine: Ledger, disk: Disk) -> None:
    """What can be read is what was written, from the start on."""
    for feed, raws in ((mine.feed, disk.own), (RENTER.public, disk.others)):
        read = list(mine.entries(feed, 0, 10**6))
        assert read == raws[: len(read)]


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_noticed_before_anything_is_signed(disk: Disk, name: str) -> None:
    damage, outcome = DAMAGES[name]
    damage(disk.home, disk.earlier)
    if outcome == "damaged":
        with pytest.raises(DamagedStore, match="peers send the entries"), opened(disk.home):
            pass
        return
    with opened(disk.home) as mine:
        check_truth(mine, disk)
        assert outcome_of(mine) == outcome
        if outcome == "whole":
            [raw] = write(mine, 1)
            assert list(mine.entries(mine.feed, 0, 10**6)) == [*disk.own, raw]
        else:
            with pytest.raises(LocalFault, match="recover"):
                write(mine, 1)


@pytest.mark.parametrize("name", [name for name in DAMAGES if DAMAGES[name][1] != "whole"])
def test_the_cure_of_a_damage_works_and_forks_nothing(disk: Disk, name: str) -> None:
    DAMAGES[name][0](disk.home, disk.earlier)
    with opened_store(disk.home / "db", build_in(disk.home)) as mine:
        assert mine.fault() is not None
        for raw in (*disk.own, *disk.others):
            mine.ingest(raw)
        if mine.is_guard_lost():
            mine.confirm_head()
        [raw] = write(mine, 1)
        assert list(mine.entries(mine.feed, 0, 10**6)) == [*disk.own, raw]
        assert mine.evidence() == []
        assert mine.verify().broken is None
    aside = [path.name for path in disk.home.iterdir() if "damaged" in path.name]
    is_damaged = DAMAGES[name][1] == "damaged" or "both slots" in name
    assert len(aside) == is_damaged


def test_a_flipped_byte_anywhere_in_a_table_is_never_a_wrong_answer(disk: Disk) -> None:
    path = largest(disk.home, "*.ldb")
    whole = path.read_bytes()
    opened_well = 0
    for n in range(0, len(whole), len(whole) // 60):
        path.write_bytes(whole)
        flip(path, n)
        copy = disk.home.with_name("copy")
        shutil.copytree(disk.home, copy)
        try:
            with opened(copy) as mine:
                check_truth(mine, disk)
                for each in (*disk.own[::50], *disk.others[::50]):
                    assert mine.ingest(each).value == "known"
                    by_id = mine.entry(read_entry(each, NET).id)
                    assert by_id is not None
                    assert by_id.raw == each
                opened_well += 1
        except DamagedStore:
            pass
        shutil.rmtree(copy)
    assert opened_well < 60, "no flip was noticed"


def test_a_damage_that_shows_only_while_it_runs_is_cured_at_the_next_start(disk: Disk) -> None:
    with (
        pytest.raises(DamagedStore),
        opened_store(disk.home / "db", build_in(disk.home)),
    ):
        raise DamagedStore("a table that was not read at opening")
    with opened_store(disk.home / "db", build_in(disk.home)) as mine:
        assert mine.head(mine.feed) is None
        assert mine.fault() is not None
    assert (disk.home / "db.damaged-1").exists()


def test_what_is_left_database_and_guard_rolled_back_together_fork_the_feed(disk: Disk) -> None:
    restore_both(disk.home, disk.earlier)
    replica = ledger(STRANGER)
    for raw in disk.own:
        replica.ingest(raw)
    with opened(disk.home) as mine:
        assert mine.fault() is None, "no machine can tell by itself"
        [other] = [mine.append(statement(ctr=10**6, used=10**6), at(10**6)).raw]
    replica.ingest(other)
    assert len(replica.evidence()) == 1


def fill(mine: Ledger) -> list[bytes]:
    """The entries that were acknowledged until a write failed; nothing is written after it."""
    written: list[bytes] = []

    def write_on() -> None:
        while True:
            written.extend(write(mine, 1))

    with pytest.raises((LocalFault, Unavailable)) as failed:
        write_on()
    assert "failed before" not in str(failed.value)
    for _ in range(2):
        with pytest.raises(LocalFault, match="A write to the ledger failed before"):
            write(mine, 1)
    return written


def check_after(home: Path, own: list[bytes]) -> None:
    """All that was acknowledged is there, at most one more, and it goes on."""
    with opened(home) as mine:
        assert mine.fault() is None
        entries = list(mine.entries(mine.feed, 0, 10**6))
        assert entries[: len(own)] == own
        assert len(entries) <= len(own) + 1
        write(mine, 10)
        assert mine.verify().broken is None


def test_a_full_disk_fails_an_append_and_the_ledger_goes_on_once_there_is_room(
    tmp_path: Path,
) -> None:
    home = tmp_path / "small"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(home)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        (home / "db").mkdir()
        with opened(home) as mine:
            own = [mine.append(genesis(OWNER), at(0)).raw]
            own += fill(mine)
        assert len(own) > 1_000
        with pytest.raises(LocalFault, match=r"full.*free some space"), opened(home):
            pass
        subprocess.run(["mount", "-o", "remount,size=30m", str(home)], check=True)
        check_after(home, own)
    finally:
        subprocess.run(["umount", str(home)], check=True)


def test_a_file_that_may_not_grow_fails_an_append_and_the_ledger_goes_on_later(
    tmp_path: Path,
) -> None:
    (tmp_path / "db").mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(tmp_path) as mine:
        own = [mine.append(genesis(OWNER), at(0)).raw, *write(mine, 200)]
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        try:
            own += fill(mine)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(own) > 201
    check_after(tmp_path, own)
