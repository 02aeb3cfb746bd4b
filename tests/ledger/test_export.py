"""A ledger goes through a file to another replica; a damaged file gives what was before."""

from collections.abc import Iterator
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.export import DIGEST_BYTES, HEAD_BYTES, Record, file_of, records_in
from ledger.guard import MemoryGuard
from ledger.ledger import Ledger, Taken
from ledger.limits import ENTRY_BYTES_MAX
from protocol.errors import PeerFault
from protocol.units import NetId
from tests.make_ledger import (
    NET,
    OWNER,
    RENTER,
    STRANGER,
    Feed,
    at,
    genesis,
    ledger,
    opened_ledger,
    statement,
)


def forked() -> Ledger:
    """A ledger with our feed, an honest one, and one of two branches."""
    mine = opened_ledger()
    mine.append(statement(), at(1))
    honest, liar = Feed(RENTER), Feed(STRANGER)
    entries = [honest.open(), honest.add(statement(OWNER)), liar.open()]
    other = liar.branch()
    entries += [liar.add(statement(ctr=n)) for n in range(3)]
    entries += [other.add(statement(ctr=n)) for n in range(5, 8)]
    for entry in entries:
        mine.ingest(entry.raw)
    return mine


def exported(of: Ledger) -> bytes:
    return b"".join(file_of(of.begin_export(), NET))


def read(raw: bytes, net: NetId = NET) -> Iterator[Record]:
    return records_in(BytesIO(raw).read, net)


def fault_of(raw: bytes, net: NetId = NET) -> tuple[str, int]:
    """The rule that the file breaks, and how many records came before."""
    found: list[Record] = []
    with pytest.raises(PeerFault) as caught:
        found.extend(read(raw, net))
    return caught.value.rule, len(found)


def take(here: Ledger, raw: bytes) -> list[Taken | str]:
    return [
        here.accuse(record.raw).rule if record.tag == b"v" else here.ingest(record.raw)
        for record in read(raw)
    ]


WHOLE = exported(forked())


def test_another_replica_has_the_same_after_it_took_the_file() -> None:
    there, here = forked(), opened_ledger(RENTER)
    answers = take(here, WHOLE)
    assert answers == [
        # In the order of the feeds: the importer's own one, that of the liar, ours.
        *_answers_of(there, here),
        *[Taken.CONFLICT] * 3,
        "A1",
    ]
    assert here.evidence() == there.evidence()
    assert here.verify().broken is None
    for head in there.heads():
        assert list(here.entries(head.feed, 0, 9)) == list(there.entries(head.feed, 0, 9))
        assert here.conflicts(head.feed) == there.conflicts(head.feed)


def _answers_of(there: Ledger, here: Ledger) -> list[Taken]:
    # The importer has written the first entry of its own feed, which is in the file too.
    return [
        Taken.KNOWN if head.feed == here.feed and seq == 0 else Taken.NEW
        for head in there.heads()
        for seq in range(head.seq + 1)
    ]


def test_what_is_here_already_is_known() -> None:
    assert set(take(forked(), WHOLE)) == {Taken.KNOWN, "A1"}


def test_equal_stores_give_equal_files() -> None:
    assert exported(forked()) == WHOLE


def test_one_feed_goes_alone_with_its_branches_and_proofs() -> None:
    records = list(forked().begin_export(STRANGER.public))
    assert [record.tag for record in records] == [b"e"] * 4 + [b"x"] * 3 + [b"v"]
    here = opened_ledger(OWNER)
    take(here, b"".join(file_of(iter(records), NET)))
    assert [head.feed for head in here.heads()] == sorted([OWNER.public, STRANGER.public])


def test_an_empty_ledger_gives_a_whole_file() -> None:
    assert list(read(b"".join(file_of(iter(()), NET)))) == []


def test_our_own_lost_tail_comes_back_and_the_guard_stays() -> None:
    guard = MemoryGuard()
    mine = ledger(guard=guard)
    mine.append(genesis(OWNER), at(0))
    mine.append(statement(), at(1))
    raw, reserved, heads = exported(mine), guard.reserved(), mine.heads()
    # The store is lost, the guard is not.
    bare = ledger(guard=guard)
    assert bare.fault() is not None
    # With entry 0 back, the reserved one is signed again: the same id, and the same bytes.
    assert take(bare, raw) == [Taken.NEW, Taken.KNOWN]
    assert guard.reserved() == reserved
    assert bare.heads() == heads
    assert bare.fault() is None


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b"", "export.magic"),
        (b"p2pnode", "export.magic"),
        (b"\xff" * 100, "export.magic"),
        (WHOLE[:15] + b"\x02" + WHOLE[16:], "export.version"),
        (WHOLE[:15], "export.short"),
        (WHOLE[:47], "export.short"),
        (WHOLE[:16] + bytes(32) + WHOLE[48:], "export.net"),
        (WHOLE[:HEAD_BYTES] + b"q" + WHOLE[HEAD_BYTES + 1 :], "export.record"),
        (WHOLE[:HEAD_BYTES] + b"e" + (ENTRY_BYTES_MAX + 1).to_bytes(4, "big"), "export.record"),
        (WHOLE[:HEAD_BYTES], "export.short"),
        (WHOLE[:HEAD_BYTES] + WHOLE[-DIGEST_BYTES - 1 :], "export.digest"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_by_name(raw: bytes, rule: str) -> None:
    assert fault_of(raw) == (rule, 0)


def test_what_comes_before_a_damage_is_read() -> None:
    total = len(list(read(WHOLE)))
    assert fault_of(WHOLE[:-1]) == ("export.short", total)
    assert fault_of(WHOLE + b"\0") == ("export.digest", total)
    assert fault_of(WHOLE[: -DIGEST_BYTES - 1]) == ("export.short", total)


def test_a_file_of_another_network_is_refused() -> None:
    assert fault_of(WHOLE, NetId(bytes(32)))[0] == "export.net"


@given(place=st.integers(0, len(WHOLE) - 1), flip=st.integers(1, 255))
def test_no_altered_byte_of_a_file_goes_unseen(place: int, flip: int) -> None:
    fault_of(WHOLE[:place] + bytes([WHOLE[place] ^ flip]) + WHOLE[place + 1 :])


@given(size=st.integers(0, len(WHOLE) - 1))
def test_no_shortened_file_is_whole(size: int) -> None:
    fault_of(WHOLE[:size])


def test_no_more_is_read_than_one_record_at_a_time() -> None:
    asked: list[int] = []
    source = BytesIO(WHOLE)

    def noted(size: int) -> bytes:
        asked.append(size)
        return source.read(size)

    assert list(records_in(noted, NET))
    assert max(asked) <= ENTRY_BYTES_MAX
