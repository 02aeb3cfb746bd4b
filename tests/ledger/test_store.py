"""One suite over every Store."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import plyvel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import keys
from ledger.leveldb_store import LevelDbStore, open_leveldb
from ledger.store import MemoryStore, Store
from protocol.errors import LocalFault, Unavailable
from protocol.units import PublicKey


@pytest.fixture(params=["memory", "leveldb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened: Store = (
        MemoryStore() if request.param == "memory" else open_leveldb(str(tmp_path / "db"))
    )
    yield opened
    opened.close()


def test_what_is_written_is_found(store: Store) -> None:
    assert store.get(b"a") is None
    store.write({b"a": b"1", b"b": b""}, sync=True)
    assert (store.get(b"a"), store.get(b"b")) == (b"1", b"")
    store.write({b"a": b"2"}, sync=False)
    assert store.get(b"a") == b"2"
    store.write({}, sync=True)


def test_what_is_taken_away_is_gone(store: Store) -> None:
    store.write({b"a": b"1", b"b": b"2"}, sync=False)
    store.write({b"a": None, b"c": None, b"b": b"3"}, sync=True)
    assert store.get(b"a") is None
    assert list(store.range(b"a", b"z")) == [(b"b", b"3")]


def test_a_range_is_ordered_and_half_open(store: Store) -> None:
    store.write({b"b": b"2", b"a": b"1", b"a\0": b"3", b"c": b"4"}, sync=False)
    assert list(store.range(b"a", b"c")) == [(b"a", b"1"), (b"a\0", b"3"), (b"b", b"2")]
    assert list(store.range(b"d", b"e")) == []
    assert list(store.range(b"c", b"a")) == []


def test_a_range_shows_the_store_as_it_was(store: Store) -> None:
    store.write({b"a": b"1", b"b": b"1"}, sync=False)
    before = store.range(b"a", b"z")
    store.write({b"a": b"2", b"c": b"2"}, sync=False)
    assert list(before) == [(b"a", b"1"), (b"b", b"1")]


KEY = st.binary(min_size=1, max_size=3)
VALUE = st.binary(max_size=3) | st.none()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.dictionaries(KEY, st.binary(max_size=3) | st.none(), max_size=4), max_size=6),
    KEY,
    KEY,
)
def test_memory_and_leveldb_agree(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[dict[bytes, bytes | None]],
    start: bytes,
    stop: bytes,
) -> None:
    memory = MemoryStore()
    disk = open_leveldb(str(tmp_path_factory.mktemp("agree")))
    for batch in batches:
        memory.write(batch, sync=False)
        disk.write(batch, sync=False)
    assert list(memory.range(start, stop)) == list(disk.range(start, stop))
    assert memory.get(start) == disk.get(start)
    disk.close()


def test_leveldb_keeps_what_it_was_given(tmp_path: Path) -> None:
    first = open_leveldb(str(tmp_path / "db"))
    first.write({b"a": b"1"}, sync=True)
    first.close()
    again = open_leveldb(str(tmp_path / "db"))
    assert again.get(b"a") == b"1"
    again.close()


def fault_of(act: Callable[[], object]) -> str:
    with pytest.raises(LocalFault) as caught:
        act()
    return f"{caught.value.what} | {caught.value.cure}"


def test_a_database_in_use_is_told_to_our_user(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    first = open_leveldb(path)
    told = fault_of(lambda: open_leveldb(path))
    assert "in use by another process" in told
    assert "stop the other node" in told
    first.close()


def test_a_damaged_log_is_told_to_our_user(tmp_path: Path) -> None:
    path = tmp_path / "db"
    first = open_leveldb(str(path))
    for n in range(50):
        first.write({b"%d" % n: bytes(100)}, sync=True)
    first.close()
    [log] = path.glob("*.log")
    raw = bytearray(log.read_bytes())
    raw[len(raw) // 2] ^= 1
    log.write_bytes(raw)
    assert "moves the damaged ledger aside" in fault_of(lambda: open_leveldb(str(path)))


def test_a_damaged_table_is_told_to_our_user(tmp_path: Path) -> None:
    path = tmp_path / "db"
    first = open_leveldb(str(path))
    first.write({b"%03d" % n: bytes(range(100)) for n in range(200)}, sync=True)
    first.close()
    open_leveldb(str(path)).close()
    tables = list(path.glob("*.ldb"))
    assert tables
    for table in tables:
        raw = bytearray(table.read_bytes())
        raw[100] ^= 1
        table.write_bytes(raw)
    again = open_leveldb(str(path))
    assert "damaged" in fault_of(lambda: list(again.range(b"0", b"9")))
    assert "damaged" in fault_of(lambda: again.get(b"000"))
    again.close()


def test_a_path_that_cannot_be_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be used"):
        open_leveldb(str(tmp_path / "no" / "such" / "place"))


class FullDatabase:
    """Answers as LevelDB does when the disk is full."""

    def write_batch(self, *, sync: bool) -> object:
        assert sync
        raise plyvel.IOError(b"IO error: /db/000005.log: No space left on device")


def test_a_full_disk_is_told_to_our_user() -> None:
    full = LevelDbStore(FullDatabase(), "/db")
    assert "is full" in fault_of(lambda: full.write({b"a": b"b"}, sync=True))


def test_a_copy_taken_while_writing_opens_with_a_prefix_of_the_batches(tmp_path: Path) -> None:
    """What a kill leaves: files as they are at some moment, the last record cut anywhere."""
    path = tmp_path / "db"
    live = open_leveldb(str(path))
    for n in range(20):
        live.write({b"a%02d" % n: b"x" * 50, b"b%02d" % n: b"y" * 50}, sync=True)
    for cut in range(1, 200, 13):
        copy = tmp_path / f"copy{cut}"
        shutil.copytree(path, copy)
        (copy / "LOCK").unlink()
        [log] = copy.glob("*.log")
        log.write_bytes(log.read_bytes()[:-cut])
        again = open_leveldb(str(copy))
        left = [key[1:] for key, _ in again.range(b"a", b"b")]
        assert left == [key[1:] for key, _ in again.range(b"b", b"c")]
        assert left == [b"%02d" % n for n in range(len(left))]
        assert 17 <= len(left) <= 20
        again.close()
    live.close()


@given(st.binary(max_size=3), st.binary(max_size=5))
def test_a_prefix_and_what_is_after_it_bound_its_keys(rest: bytes, key: bytes) -> None:
    prefix = b"e" + rest
    for each in (key, prefix + key):
        assert (prefix <= each < keys.after(prefix)) == each.startswith(prefix)


def test_keys_sort_as_their_numbers() -> None:
    feed = PublicKey(bytes(32))
    assert keys.entry(feed, 255) < keys.entry(feed, 256)
