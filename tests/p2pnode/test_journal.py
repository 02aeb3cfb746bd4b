"""What an owner remembers of the requests that it saw."""

import pytest
from msgspec import UNSET

from p2pnode.cabinet import MemoryCabinet
from p2pnode.matching.journal import NOTES_MAX, PAGE_NOTES, PAGES, WRITE_MS, Journal, Note
from p2pnode.matching.renter import NoMatch, Taking
from p2pnode.matching.rivals import LOOK_MS, rivals_in
from protocol.errors import LocalFault
from protocol.units import Digest, Micros, Millis
from tests import make
from tests.make_desk import Clock, Owner, order, renter

RENTER = make.RENTER.public
BID = Digest(b"b" * 32)


def refuse(journal: Journal, now: int) -> None:
    journal.refused(make.rfq(), RENTER, Millis(now), ("SHAPE", "has 1 GPUs"))


def only(journal: Journal, now: int = make.NOW) -> Note:
    (note,) = journal.since(0, Millis(now))
    return note


def test_a_refusal_is_noted_with_its_reason() -> None:
    journal = Journal(MemoryCabinet())
    refuse(journal, make.NOW)
    note = only(journal)
    assert (note.result, note.reason, note.detail) == ("refused", "SHAPE", "has 1 GPUs")
    assert (note.need, note.renter, note.ask_micro) == (make.need(), RENTER, UNSET)


def test_b17_a_bid_that_nobody_takes_is_lost_when_it_runs_out() -> None:
    journal = Journal(MemoryCabinet())
    journal.bid(make.rfq(), RENTER, make.NOW, (BID, make.bid()))
    assert only(journal).result == "open"
    assert only(journal, make.bid().valid_until_ms).result == "open"
    assert only(journal, make.bid().valid_until_ms + 1).result == "lost"


def test_a_bid_that_is_taken_is_won_or_expired() -> None:
    for is_granted, result in ((True, "won"), (False, "expired")):
        journal = Journal(MemoryCabinet())
        journal.bid(make.rfq(), RENTER, make.NOW, (BID, make.bid()))
        journal.taken(BID, make.NOW, is_granted=is_granted)
        journal.taken(BID, make.NOW, is_granted=not is_granted)
        assert only(journal, make.bid().valid_until_ms + 1).result == result


def test_notes_are_kept_over_a_restart_and_their_number_is_bounded() -> None:
    cabinet = MemoryCabinet()
    journal = Journal(cabinet)
    for number in range(NOTES_MAX + 3 * PAGE_NOTES + 5):
        refuse(journal, make.NOW + number)
    journal.write()
    kept = journal.since(0, make.NOW)
    assert NOTES_MAX - 2 * PAGE_NOTES < len(kept) <= NOTES_MAX
    assert len(cabinet.names("journal")) <= PAGES
    again = Journal(cabinet)
    assert again.since(0, make.NOW)[-len(kept) :] == kept
    refuse(again, make.NOW - 1)
    assert again.since(0, make.NOW)[-1].seen_ms == make.NOW - 1


def test_pages_are_written_at_most_once_in_a_while() -> None:
    cabinet = MemoryCabinet()
    journal = Journal(cabinet)
    refuse(journal, make.NOW)
    refuse(journal, make.NOW + 1)
    assert len(Journal(cabinet).since(0, make.NOW)) == 1
    refuse(journal, make.NOW + WRITE_MS)
    assert len(Journal(cabinet).since(0, make.NOW)) == 3


def test_a_damaged_page_and_a_full_disk_cost_notes_and_nothing_else() -> None:
    class FullCabinet(MemoryCabinet):
        def put(self, name: str, record: bytes) -> None:
            raise LocalFault(f"no room for {len(record)} bytes of {name}")

    refuse(Journal(FullCabinet()), make.NOW)
    cabinet = MemoryCabinet()
    journal = Journal(cabinet)
    refuse(journal, make.NOW)
    cabinet.put("journal/07", b"\x00")
    assert Journal(cabinet).since(0, make.NOW) == journal.since(0, make.NOW)


def test_the_lowest_ask_of_those_that_fit_is_noted_and_the_book_is_not_read_at_each_question() -> (
    None
):
    offers = [Owner(number=number, clock=Clock()).offer() for number in (41, 42)]
    journal = Journal(MemoryCabinet(), rivals=rivals_in(lambda: offers))
    refuse(journal, make.NOW)
    refuse(journal, make.NOW + LOOK_MS - 1)
    journal.bid(
        make.rfq(),
        RENTER,
        Millis(make.NOW + LOOK_MS),
        (BID, make.bid(micro_per_gpu_hour=Micros(500_000))),
    )
    first, second, third = journal.since(0, make.NOW)
    assert (first.rivals, first.rival_micro) == (2, Micros(400_000))
    assert (second.rivals, second.rival_micro) == (UNSET, UNSET)
    assert (third.rivals, third.cheaper) == (2, 2)


async def test_a_desk_notes_what_it_answers_and_what_is_taken() -> None:
    clock = Clock()
    owner = Owner(number=41, clock=clock)
    await owner.ask("rfq", owner.rfq())
    await owner.ask("rfq", owner.rfq(need=make.need(gpus=7)))
    results = [note.result for note in owner.journal.since(0, clock.now())]
    assert results == ["open", "refused"]


async def test_a_lease_makes_its_note_won_and_a_job_that_is_not_wanted_makes_it_expired() -> None:
    clock = Clock()
    wanted, unwanted = Owner(number=41, clock=clock), Owner(number=42, clock=clock)
    unwanted.unwanted = "no such images here"
    asked = renter([unwanted], clock)
    with pytest.raises(NoMatch):
        await asked.rent(order(), seal_job=lambda _offer: None, remember=forget)
    await renter([wanted], clock).rent(order(), seal_job=lambda _offer: None, remember=forget)
    assert [note.result for note in unwanted.journal.since(0, clock.now())] == ["expired"]
    assert [note.result for note in wanted.journal.since(0, clock.now())] == ["won"]


async def forget(_taking: Taking) -> None:
    """As one that never crashes may."""
