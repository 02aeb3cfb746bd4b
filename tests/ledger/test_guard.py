"""One suite over every Guard, and the file's own."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.entry import Draft, link_of
from ledger.file_guard import SLOT_BYTES, FileGuard, Slot, newest, open_file_guard, pack_slot
from ledger.guard import Guard, MemoryGuard, recovery_fault
from protocol.errors import LocalFault
from tests.make_ledger import NET, OWNER, STRANGER, Feed, grant, statement

Reopen = Callable[[], Guard]


@pytest.fixture(params=["memory", "file"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Reopen:
    memory = MemoryGuard()

    def opened() -> Guard:
        if request.param == "memory":
            return memory
        return open_file_guard(tmp_path / "guard", NET)

    return opened


def drafts(count: int = 4) -> list[Draft]:
    feed = Feed(OWNER)
    return [feed.open().draft, *(feed.add(statement(ctr=n)).draft for n in range(count - 1))]


def test_a_new_guard_holds_nothing(reopen: Reopen) -> None:
    assert reopen().reserved() is None


def test_the_newest_reservation_is_held(reopen: Reopen) -> None:
    for draft in drafts():
        reopen().reserve(draft)
        assert reopen().reserved() == draft


def test_a_reservation_may_be_repeated(reopen: Reopen) -> None:
    first = drafts()[0]
    for _ in range(3):
        reopen().reserve(first)
    assert reopen().reserved() == first


def test_another_entry_at_a_reserved_place_is_refused(reopen: Reopen) -> None:
    feed = Feed(OWNER)
    feed.open()
    other = feed.branch().draft(statement(used=1))
    draft = feed.draft(statement(used=2))
    reopen().reserve(draft)
    with pytest.raises(LocalFault, match="would fork us"):
        reopen().reserve(other)
    with pytest.raises(LocalFault, match="would fork us"):
        reopen().reserve(drafts()[0])
    with pytest.raises(LocalFault, match="another feed"):
        reopen().reserve(Feed(STRANGER).open().draft)
    assert reopen().reserved() == draft


def test_a_large_entry_fits(reopen: Reopen) -> None:
    feed = Feed(OWNER)
    feed.open()
    draft = feed.draft_raw(77, b"\xa1\x00\x59\x1f\xfb" + bytes(8_187))
    assert len(draft.body) == 8_192
    reopen().reserve(draft)
    assert reopen().reserved() == draft


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_a_write_torn_at_any_byte_leaves_the_one_before(tmp_path: Path, before: int) -> None:
    path = tmp_path / "guard"
    written = drafts()[: before + 1]
    guard = open_file_guard(path, NET)
    for draft in written[:-1]:
        guard.reserve(draft)
    old = path.read_bytes()
    slot = pack_slot(Slot(1, before, written[-1].hdr, written[-1].body))
    offset = before % 2 * SLOT_BYTES
    for length in range(len(slot)):
        torn = old.ljust(offset, b"\0")[:offset] + slot[:length] + old[offset + length :]
        held = newest(torn, NET, "guard")
        assert ([] if held is None else [held.draft]) == written[-2:-1]
    guard.reserve(written[-1])
    assert path.read_bytes()[offset : offset + len(slot)] == slot


def test_a_torn_write_is_overwritten_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "guard"
    one, two, three, _ = drafts()
    guard = open_file_guard(path, NET)
    guard.reserve(one)
    guard.reserve(two)
    raw = bytearray(path.read_bytes())
    raw[SLOT_BYTES + 40] ^= 1
    path.write_bytes(raw)
    guard = open_file_guard(path, NET)
    assert guard.reserved() == one
    guard.reserve(three)
    assert open_file_guard(path, NET).reserved() == three


def test_two_damaged_slots_are_told_to_our_user(tmp_path: Path) -> None:
    path = tmp_path / "guard"
    guard = open_file_guard(path, NET)
    for draft in drafts():
        guard.reserve(draft)
    raw = bytearray(path.read_bytes())
    raw[40] ^= 1
    raw[SLOT_BYTES + 40] ^= 1
    path.write_bytes(raw)
    with pytest.raises(LocalFault, match="damaged"):
        open_file_guard(path, NET).reserved()


def test_a_checksum_over_what_is_no_entry_is_no_reservation() -> None:
    packed = pack_slot(Slot(1, 0, b"no header", b""))
    assert newest(packed, NET, "guard") is None


def test_a_file_that_cannot_be_used_is_told_to_our_user(tmp_path: Path) -> None:
    with pytest.raises(LocalFault, match="cannot be used"):
        open_file_guard(tmp_path / "no" / "guard", NET)
    gone = FileGuard(tmp_path / "gone", NET)
    with pytest.raises(LocalFault, match="cannot be used"):
        gone.reserved()


def test_a_write_that_fails_is_told_to_our_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = open_file_guard(tmp_path / "guard", NET)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    one, two, *_ = drafts()
    guard.reserve(one)
    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", full)
        with pytest.raises(LocalFault, match="No space left"):
            guard.reserve(two)
    assert guard.reserved() == one
    guard.reserve(two)
    assert guard.reserved() == two


def test_a_write_in_pieces_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite

    def some(file: int, data: bytes, offset: int) -> int:
        return whole(file, data[:50], offset)

    monkeypatch.setattr("os.pwrite", some)
    draft = drafts()[0]
    open_file_guard(tmp_path / "guard", NET).reserve(draft)
    assert open_file_guard(tmp_path / "guard", NET).reserved() == draft


def test_what_store_and_guard_say_together() -> None:
    feed = Feed(OWNER)
    zero, one = feed.open(), feed.add(statement())
    two = feed.add(statement(ctr=1))
    other = Feed(OWNER, last=link_of(zero.draft)).add(grant())

    def told(held: Draft | None, head: Draft | None) -> str:
        stored = {0: zero, 1: one, 2: two}
        link = None if head is None else link_of(head)
        there = None if held is None or link is None else stored.get(held.header.seq)
        fault = recovery_fault(held, feed=OWNER.public, head=link, stored=there)
        return "" if fault is None else fault.what

    assert told(None, None) == ""
    assert told(zero.draft, None) == ""
    assert told(one.draft, zero.draft) == ""
    assert told(one.draft, one.draft) == ""
    assert told(zero.draft, one.draft) == ""
    assert "guard is gone" in told(None, zero.draft)
    assert "another feed" in told(Feed(STRANGER).open().draft, zero.draft)
    assert "entry 2 was signed, and the store ends at 0" in told(two.draft, zero.draft)
    assert "not reserved" in told(other.draft, one.draft)
    assert "does not follow" in told(two.draft, other.draft)
