"""Bronze is broken for a lease that is granted, and for no other; who wastes it, breaks no more.

A real desk over a real ledger in memory, which may be killed between its steps.
"""

from typing import Any, cast

import pytest

from ledger.bodies import Genesis as OpenFeed
from ledger.bodies import Release, read_body
from ledger.entry import Entry, read_entry
from ledger.fold import Lease
from ledger.guard import MemoryGuard
from ledger.ledger import open_ledger
from ledger.rules import BUNDLES
from ledger.store import MemoryStore
from p2pnode.matching.asking import request_for
from p2pnode.matching.breaking import IN_VAIN_MAX, REST_MS, WAITING_MAX
from p2pnode.matching.desk import Books
from p2pnode.matching.quoting import LAPSE_MS
from p2pnode.own_books import OwnBooks
from protocol.auction import Bid, Refusal, Reply, Take
from protocol.codec import encode
from protocol.lease import MS_PER_HOUR
from protocol.signing import Signer
from protocol.units import Digest, Millis, MillisSpan
from protocol.wire import Sealed, pack, unpack
from tests import make
from tests.make import NET, RENTER, STRANGER
from tests.make_desk import order
from tests.make_history import share
from tests.make_market import certificate_of
from tests.p2pnode.test_races import OWNER, Race, reply_in

HOUR = MS_PER_HOUR


class Street(Race):
    """An owner of two GPUs whose bronze leases better tiers go before."""

    def __init__(self) -> None:
        super().__init__(1)
        self.bronze_renter = open_ledger(
            store=MemoryStore(),
            guard=MemoryGuard(),
            signer=RENTER,
            net=NET,
            uuid=bytes(16),
            rules=next(iter(BUNDLES)),
        )
        self.bronze_renter.append(
            OpenFeed(certificate=certificate_of(4), incarnation=1, next_key=Digest(bytes(32))),
            self.clock.at,
        )

    def books(self) -> Books:
        self.own = OwnBooks(
            ledger=self.ledger,
            accounts=cast("Any", None),
            cabinet=self.cabinet,
            tell=lambda _peer: None,
            changed=lambda: None,
            billing_ms=MillisSpan(HOUR),
            clock=self.clock,
        )
        return Books(
            turn_of=lambda unit: self.ledger.state.turn(self.ledger.feed, unit),
            grant=self._grant,
            granted=self.ledger.grant_for,
            height=lambda: 1,
            lease=self.ledger.lease,
            bronze=self.own.bronze,
            check=self.own.check_grant,
            take_back=self._take_back,
        )

    def _take_back(self, lease: Lease, at_ms: Millis, now: Millis) -> Millis | None:
        self.maybe_die("before the RELEASE")
        freed = self.own.preempt(lease, at_ms, now)
        self.maybe_die("before the GRANT of what was broken for")
        return freed

    def _grant(self, raw: bytes, now: Millis) -> Entry:
        entry = self.ledger.grant(raw, now)
        self.maybe_die("after the GRANT")
        return entry

    async def asks(self, by: Signer, tier: str, **changes: Any) -> Reply:
        """What the owner says to a request for an hour on one GPU."""
        start, gpus = Millis(self.clock.at + 500), changes.pop("gpus", 1)
        rfq = make.rfq(
            owner=OWNER.public,
            need=make.need(gpus=gpus),
            tier=tier,
            start_ms=start,
            end_ms=Millis(start + changes.pop("span", HOUR)),
            issued_ms=self.clock.at,
            not_after_ms=Millis(self.clock.at + 1_000),
            **({} if tier == "bronze" else {"start_by_ms": Millis(start + 30_000)}),
            **changes,
        )
        reply = reply_in(await self.ask(by, "rfq", pack(rfq, signer=by, net=NET)))
        assert reply is not None
        return reply

    async def bid(self, by: Signer, tier: str, **changes: Any) -> Sealed[Bid]:
        reply = await self.asks(by, tier, **changes)
        assert isinstance(reply.yes, bytes), why_not(reply)
        return unpack(reply.yes, NET, Bid)

    def request(self, by: Signer, bid: Sealed[Bid]) -> bytes:
        made = request_for(order(), bid, now=self.clock.at, nonce=self.dice.randbytes(16))
        return encode(Take(request=pack(made, signer=by, net=NET)))

    async def takes(self, by: Signer, request: bytes) -> Reply | None:
        return reply_in(await self.ask(by, "lease.take", request))

    async def leases(self, by: Signer, tier: str, **changes: Any) -> Lease:
        """A lease, granted at once."""
        reply = await self.takes(by, self.request(by, await self.bid(by, tier, **changes)))
        assert reply is not None
        assert isinstance(reply.yes, bytes), why_not(reply)
        return self.lease(read_entry(reply.yes, NET).id)

    def accept(self, lease: Lease) -> None:
        """By its renter, whose feed the owner then has."""
        share(self.ledger, self.bronze_renter)
        self.bronze_renter.accept(lease.id, self.clock.at)
        share(self.bronze_renter, self.ledger)
        assert self.lease(lease.id).is_accepted

    def lease(self, lease: Digest) -> Lease:
        found = self.ledger.lease(lease)
        assert found is not None
        return found

    def releases(self) -> list[Digest]:
        """Of which lease, in the order of the feed."""
        raws = self.ledger.entries(self.ledger.feed, 0, 10**6)
        said = (read_body(read_entry(raw, NET).draft) for raw in raws)
        return [Digest(body.grant) for body in said if isinstance(body, Release)]

    def lapse(self, lease: Lease) -> None:
        """Its renter did not come."""
        self.clock.at = Millis(lease.request.start_ms + LAPSE_MS)
        self.own.lapse(self.lease(lease.id))

    def check_lawful(self) -> None:
        assert self.ledger.verify().broken is None
        assert self.ledger.offences() == []


def why_not(reply: Reply) -> tuple[str, object]:
    assert isinstance(reply.no, bytes)
    refusal = unpack(reply.no, NET, Refusal).body
    return refusal.reason, refusal.detail


@pytest.fixture
def street() -> Street:
    return Street()


async def broken_in_vain(street: Street, times: int) -> None:
    """The stranger breaks bronze so often, and accepts nothing of what it gets for it."""
    for _ in range(times):
        kept = await street.leases(RENTER, "bronze", gpus=2)
        street.accept(kept)
        lease = await street.leases(STRANGER, "silver", gpus=2)
        assert street.lease(kept.id).reason == "preempted"
        street.lapse(lease)


@pytest.mark.parametrize("ends", ["later", "by itself"])
async def test_a_refused_grant_releases_no_bronze(street: Street, ends: str) -> None:
    span = HOUR if ends == "later" else 6_000
    bronze = await street.leases(RENTER, "bronze", gpus=2, notice_ms=2_000, span=span)
    bid = await street.bid(STRANGER, "silver", gpus=2)
    assert bid.body.start_ms < bronze.ended_ms
    # An entry of ours bears a later time than our clock shows: the notice would end too late.
    street.ledger.checkpoint(Millis(bid.body.start_ms - 1_000))
    reply = await street.takes(STRANGER, street.request(STRANGER, bid))
    assert reply is not None
    assert why_not(reply)[0] == "TAKEN"
    assert street.releases() == []
    assert street.lease(bronze.id).reason is None
    street.check_lawful()


@pytest.mark.parametrize(
    "where",
    ["before the RELEASE", "before the GRANT of what was broken for", "after the GRANT"],
)
async def test_wherever_the_owner_dies_there_is_one_lawful_outcome(
    street: Street, where: str
) -> None:
    bronze = [await street.leases(RENTER, "bronze") for _ in range(2)]
    for lease in bronze:
        street.accept(lease)
    bid = await street.bid(STRANGER, "silver")
    request = street.request(STRANGER, bid)
    street.dies_at = where
    assert await street.takes(STRANGER, request) is None
    again = [await street.takes(STRANGER, request) for _ in range(2)]
    released = street.releases()
    assert len(released) <= 1
    broken = released[0] if released else None
    grants = [entry for entry, body in street.grants() if body.start_ms == bid.body.start_ms]
    if where == "after the GRANT":
        [grant] = grants
        assert [reply and reply.yes for reply in again] == [grant.raw] * 2
        assert broken in {lease.id for lease in bronze}
    else:
        assert grants == []
        assert {why_not(reply)[0] for reply in again if reply is not None} == {"STALE"}
        assert (broken is None) == (where == "before the RELEASE")
    if broken is not None:
        # The notice stands, once, and ends where it said.
        assert (street.lease(broken).reason, street.lease(broken).ended_ms) == (
            "preempted",
            bid.body.start_ms,
        )
    # Who asks anew gets a lease: what is free is free, and no second bronze lease goes for it.
    street.clock.at = Millis(bid.body.start_ms)
    before = street.releases()
    if where == "before the GRANT of what was broken for":
        lease = await street.leases(STRANGER, "silver")
        assert street.releases() == before
        assert lease.request.units[0].unit == bid.body.units[0].unit
    spans = [
        (turn.unit, street.lease(entry.id).request.start_ms, street.lease(entry.id).ended_ms)
        for entry, body in street.grants()
        for turn in body.units
    ]
    for one in spans:
        meets = [
            each for each in spans if each[0] == one[0] and one[1] < each[2] and each[1] < one[2]
        ]
        assert meets == [one]
    street.check_lawful()


async def test_who_has_bronze_broken_in_vain_gets_only_free_units_for_a_while(
    street: Street,
) -> None:
    await broken_in_vain(street, IN_VAIN_MAX)
    last = street.clock.at
    bronze = await street.leases(RENTER, "bronze", span=8 * HOUR)
    street.accept(bronze)
    # One is free: that it may have. But not the other, whatever it says, and after a restart too.
    free = await street.leases(STRANGER, "silver", span=8 * HOUR)
    street.begin()
    assert why_not(await street.asks(STRANGER, "silver")) == (
        "POLICY",
        f"bronze was broken for {IN_VAIN_MAX} leases that were not accepted",
    )
    assert street.lease(bronze.id).reason is None
    assert free.request.tier == "silver"
    street.clock.at = Millis(last + REST_MS)
    await street.leases(STRANGER, "silver")
    assert street.lease(bronze.id).reason == "preempted"
    street.check_lawful()


async def test_a_bid_from_before_the_last_lapse_breaks_nothing_either(street: Street) -> None:
    await broken_in_vain(street, IN_VAIN_MAX - 1)
    bronze = [await street.leases(RENTER, "bronze") for _ in range(2)]
    for lease in bronze:
        street.accept(lease)
    lease = await street.leases(STRANGER, "silver")
    street.clock.at = Millis(lease.request.start_ms + LAPSE_MS - 1_000)
    bid = await street.bid(STRANGER, "silver")
    street.lapse(lease)
    before = street.releases()
    late = await street.takes(STRANGER, street.request(STRANGER, bid))
    assert late is not None
    assert why_not(late)[0] == "POLICY"
    assert street.releases() == before
    street.check_lawful()


async def test_a_renter_that_accepts_is_never_refused(street: Street) -> None:
    for _ in range(3 * (IN_VAIN_MAX + WAITING_MAX)):
        bronze = await street.leases(STRANGER, "bronze", gpus=2)
        lease = await street.leases(RENTER, "silver", gpus=2)
        street.accept(lease)
        assert street.lease(bronze.id).reason == "preempted"
        street.clock.at = Millis(lease.ended_ms)
    # What was accepted is forgotten when the next comes.
    assert len(street.cabinet.names("breaks")) == 1
    street.check_lawful()


async def test_one_lapse_among_leases_that_are_accepted_costs_nothing(street: Street) -> None:
    await broken_in_vain(street, IN_VAIN_MAX - 1)
    bronze = await street.leases(RENTER, "bronze", gpus=2)
    await street.leases(STRANGER, "silver", gpus=2)
    assert street.lease(bronze.id).reason == "preempted"
