"""Anybody can make up owners, so a witness takes those that it never met with care."""

import pytest
import trio
from msgspec import UNSET

from ledger.entry import Entry
from p2pnode.cabinet import MemoryCabinet
from p2pnode.witness import (
    FETCH_S,
    NEW_BURST,
    OWNERS_KEPT_MAX,
)
from protocol.errors import Unavailable
from protocol.units import Millis
from tests.make_desk import Clock
from tests.make_evidence import changed
from tests.make_ledger import (
    OWNER,
    Feed,
    grant,
    lease_request,
    sealed,
    signer,
    witnessed,
    witnessed_lease,
)
from tests.make_witness import Stand, is_signed


def stranger_lease(number: int) -> tuple[Entry, Entry]:
    """The first entry and the GRANT of an owner that nobody else knows."""
    owner = signer(100 + number)
    feed = Feed(owner)
    request = sealed(lease_request(owner=owner))
    return feed.open(), feed.add(witnessed(changed(grant(), request=request)))


async def test_a_witness_that_never_met_an_owner_has_its_feed_from_who_asks(
    autojump_clock: trio.abc.Clock,
) -> None:
    of = witnessed_lease()
    stand = Stand(has_met_owner=False, renter_has=(Feed(OWNER).open(),))
    assert is_signed(await stand.cosign(of[0]), of)
    assert is_signed(await stand.cosign(of[0]), of)
    assert stand.fetched == 1
    nowhere = Stand(has_met_owner=False)
    began = trio.current_time()
    with pytest.raises(Unavailable, match="not here"):
        await nowhere.cosign(of[0])
    assert trio.current_time() - began == FETCH_S
    assert nowhere.cabinet.names("witness") == []


async def cosign_all(stand: Stand, owners: list[tuple[Entry, Entry]]) -> None:
    for _, granted in owners:
        await stand.cosign(granted)
        await trio.sleep(2)


async def test_one_peer_brings_a_witness_new_owners_at_a_pace(
    autojump_clock: trio.abc.Clock,
) -> None:
    stand = Stand()
    owners = [stranger_lease(number) for number in range(NEW_BURST + 5)]
    for first, _ in owners:
        stand.ledger.ingest(first.raw)
    with pytest.raises(Unavailable, match="too many new owners"):
        await cosign_all(stand, owners)
    kept = len(stand.cabinet.names("witness"))
    assert kept >= NEW_BURST
    assert (await stand.cosign(owners[0][1])).yes is not UNSET, "of whom something is kept"
    await trio.sleep(60)
    assert (await stand.cosign(owners[kept][1])).yes is not UNSET, "64 come in an hour"


async def test_a_witness_signs_for_no_lease_that_is_over_unless_it_has() -> None:
    entry, body = witnessed_lease()
    stand = Stand(clock=Clock(Millis(body.end_ms - 1)))
    answer = await stand.cosign(entry)
    stand.clock.at = body.end_ms
    assert await stand.cosign(entry) == answer
    late = Stand(clock=Clock(body.end_ms), has_met_owner=False)
    with pytest.raises(Unavailable, match="over"):
        await late.cosign(entry)
    with pytest.raises(Unavailable, match="over"):
        late.witness.cosign(entry, body)
    assert late.fetched == 0


async def test_a_witness_has_places_for_so_many_owners_and_lists_them_once() -> None:
    class Full(MemoryCabinet):
        listed = 0

        def names(self, folder: str) -> list[str]:
            self.listed += 1
            return [f"{folder}/{n}" for n in range(OWNERS_KEPT_MAX - 1)] + super().names(folder)

    cabinet, one, (first, other) = Full(), witnessed_lease(), stranger_lease(0)
    stand = Stand(cabinet=cabinet)
    stand.ledger.ingest(first.raw)
    assert is_signed(await stand.cosign(one[0]), one)
    with pytest.raises(Unavailable, match="too many"):
        await stand.cosign(other)
    assert is_signed(await stand.cosign(one[0]), one)
    assert cabinet.listed == 1
