"""Whatever order messages come in, and wherever the owner dies: one lawful outcome each.

A real desk over a real ledger in memory. Two renters and an owner that withdraws, in a thousand
drawn orders, with every message repeated and the owner killed between its steps.
"""

import random
from dataclasses import dataclass, field
from itertools import pairwise, repeat

import pytest
import trio
from msgspec import UNSET

from ledger.bodies import Genesis as OpenFeed
from ledger.bodies import Grant, read_body
from ledger.entry import Entry, read_entry
from ledger.guard import MemoryGuard
from ledger.ledger import open_ledger
from ledger.rules import BUNDLES
from ledger.store import MemoryStore
from p2pnode.cabinet import MemoryCabinet
from p2pnode.matching.asking import request_for
from p2pnode.matching.breaking import Breaks
from p2pnode.matching.desk import Books, Desk
from p2pnode.matching.holds import Holds
from p2pnode.matching.journal import Journal
from p2pnode.matching.provider import Provider
from protocol.auction import Bid, BidDrop, Refusal, Reply, Take
from protocol.certificate import read_certificate
from protocol.codec import decode, encode
from protocol.lease import LeaseRequest
from protocol.limits import FRAME_BYTES_MAX
from protocol.signing import Signer, peer_id_of
from protocol.units import Digest, Millis, MillisSpan
from protocol.wire import Sealed, pack, unpack
from tests import make
from tests.make import NET, RENTER, STRANGER
from tests.make_desk import Clock, order, posting, shelf
from tests.make_market import certificate_of

OWNER = make.signer(10)
CERTIFICATE = certificate_of(10)
WHO = {
    peer_id_of(make.signer(number).public): read_certificate(certificate_of(number), NET)
    for number in (4, 5)
}
ORDERS = 1_000
STEPS = 24


class Died(BaseException):
    """The owner's process ends here."""


async def _nothing(*_: object) -> None:
    raise AssertionError("this owner does not announce")


@dataclass
class Asked:
    """A request that a renter has sent, and all that was ever answered to it."""

    by: Signer
    bid: Sealed[Bid]
    body: bytes
    answers: list[Reply] = field(default_factory=list)


class Race:
    """One owner's disk, its present life, and what renters hold of it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = Clock()
        self.store, self.guard, self.cabinet = MemoryStore(), MemoryGuard(), MemoryCabinet()
        self.is_new = True
        self.dies_at = ""
        self.bids: list[tuple[Signer, Sealed[Bid]]] = []
        self.asked: list[Asked] = []
        self.dropped: set[bytes] = set()
        self.begin()

    def begin(self) -> None:
        """A life over what is on the disk; bids of the one before are forgotten."""
        self.ledger = open_ledger(
            store=self.store,
            guard=self.guard,
            signer=OWNER,
            net=NET,
            uuid=bytes(16),
            rules=next(iter(BUNDLES)),
        )
        if self.is_new:
            opening = OpenFeed(certificate=CERTIFICATE, incarnation=1, next_key=Digest(bytes(32)))
            self.ledger.append(opening, self.clock.at)
            self.is_new = False
        self.provider = Provider(
            signer=OWNER,
            certificate=CERTIFICATE,
            genesis=make.GENESIS,
            incarnation=1,
            posting=posting(lease_ms_min=MillisSpan(1_000)),
            addresses=tuple,
            free_of=len,
            announce=_nothing,
            rng=self.dice,
            clock=self.clock,
        )
        self.provider.stock((shelf(),))
        self.desk = Desk(
            signer=OWNER,
            genesis=make.GENESIS,
            provider=self.provider,
            books=self.books(),
            breaks=Breaks(self.cabinet, self.ledger.lease),
            holds=Holds(self.cabinet),
            journal=Journal(self.cabinet),
            who_is=WHO.__getitem__,
            bars=lambda _renter: None,
            screens=lambda _renter, _rfq: None,
            admit_job=lambda *_: self.maybe_die("before the GRANT"),
            on_grant=lambda _entry: self.maybe_die("before the answer"),
            on_rfq=lambda _rfq: None,
            clock=self.clock,
        )

    def books(self) -> Books:
        """What the desk needs of the ledger."""
        return Books(
            turn_of=lambda unit: self.ledger.state.turn(self.ledger.feed, unit),
            grant=self.ledger.grant,
            granted=self.ledger.grant_for,
            height=lambda: 1,
        )

    def maybe_die(self, where: str) -> None:
        if self.dies_at == where:
            raise Died

    async def ask(self, by: Signer, kind: str, body: bytes) -> bytes | None:
        """What the owner answers; None if it died over it, and then it lives again."""
        try:
            return await self.desk.handlers[kind](peer_id_of(by.public), body)
        except Died:
            self.dies_at = ""
            self.begin()
            return None

    async def step(self) -> None:
        """One of the things that can happen next."""
        act = self.dice.choice(
            (self.quote, self.quote, self.take, self.take, self.repeat, self.repeat, self.drop,
             self.withdraw, self.wait, self.die, self.will_die)
        )  # fmt: skip
        await act()

    async def quote(self) -> None:
        by = self.dice.choice((RENTER, STRANGER))
        start = Millis(self.clock.at + self.dice.choice((0, 1_000, 4_000)))
        rfq = make.rfq(
            owner=OWNER.public,
            need=make.need(gpus=self.dice.choice((1, 2))),
            **({"hold": "yes"} if self.dice.random() < 0.4 else {}),
            start_ms=start,
            end_ms=Millis(start + self.dice.choice((2_000, 8_000))),
            issued_ms=self.clock.at,
            not_after_ms=Millis(self.clock.at + 1_000),
        )
        raw = pack(rfq, signer=by, net=NET)
        reply = reply_in(await self.ask(by, "rfq", raw))
        if reply is not None and reply.yes is not UNSET:
            self.bids.append((by, unpack(reply.yes, NET, Bid)))

    async def take(self) -> None:
        if not self.bids:
            return
        by, bid = self.dice.choice(self.bids)
        request = request_for(order(), bid, now=self.clock.at, nonce=self.dice.randbytes(16))
        raw = pack(request, signer=by, net=NET)
        self.asked.append(Asked(by, bid, encode(Take(request=raw))))
        await self.send(self.asked[-1])

    async def repeat(self) -> None:
        if self.asked:
            await self.send(self.dice.choice(self.asked))

    async def send(self, asked: Asked) -> None:
        reply = reply_in(await self.ask(asked.by, "lease.take", asked.body))
        if reply is not None:
            asked.answers.append(reply)

    async def drop(self) -> None:
        if self.bids:
            by, bid = self.dice.choice(self.bids)
            self.dropped.add(bid.digest)
            await self.ask(by, "bid.drop", encode(BidDrop(bid=bid.digest)))

    async def withdraw(self) -> None:
        """Or offer again."""
        await trio.lowlevel.checkpoint()
        is_open = self.provider.posting.ask is not None
        self.provider.posting = posting(
            lease_ms_min=MillisSpan(1_000), **({"ask": None} if is_open else {})
        )

    async def wait(self) -> None:
        await trio.lowlevel.checkpoint()
        self.clock.at = Millis(self.clock.at + self.dice.choice((1, 500, 2_000, 6_000)))

    async def die(self) -> None:
        await trio.lowlevel.checkpoint()
        self.begin()

    async def will_die(self) -> None:
        await trio.lowlevel.checkpoint()
        self.dies_at = self.dice.choice(("before the GRANT", "before the answer"))

    def grants(self) -> list[tuple[Entry, Grant]]:
        """All that the owner's feed says, from its disk."""
        entries = map(read_entry, self.ledger.entries(self.ledger.feed, 0, 10**6), repeat(NET))
        said = ((entry, read_body(entry.draft)) for entry in entries)
        return [(entry, body) for entry, body in said if isinstance(body, Grant)]


def reply_in(body: bytes | None) -> Reply | None:
    return None if body is None else decode(body, Reply, size_max=FRAME_BYTES_MAX)


def check_units(grants: list[tuple[Entry, Grant]]) -> None:
    """No unit is leased twice at one time."""
    spans: dict[bytes, list[tuple[int, int]]] = {}
    for _, grant in grants:
        for turn in grant.units:
            spans.setdefault(turn.unit, []).append((grant.start_ms, grant.end_ms))
    for leased in spans.values():
        ordered = sorted(leased)
        assert all(one[1] <= other[0] for one, other in pairwise(ordered))


def check_answers(race: Race, grants: list[tuple[Entry, Grant]]) -> None:
    """A request that was granted once is answered with that GRANT from then on, and with no other.

    One that was refused may be granted later, while its bid holds: it is the same request.
    """
    by_request = {grant.request: entry for entry, grant in grants}
    assert len(by_request) == len(grants)
    for asked in race.asked:
        raw = decode(asked.body, Take, size_max=FRAME_BYTES_MAX).request
        granted = [reply.yes for reply in asked.answers if reply.yes is not UNSET]
        if granted:
            assert {bytes(each) for each in granted} == {by_request[raw].raw}
            first = next(i for i, reply in enumerate(asked.answers) if reply.yes is not UNSET)
            assert all(reply.yes is not UNSET for reply in asked.answers[first:])
        for reply in asked.answers:
            if reply.no is not UNSET:
                refusal = unpack(reply.no, NET, Refusal)
                assert refusal.body.reason in {"STALE", "TAKEN", "POLICY"}


def check_exclusive(race: Race, grants: list[tuple[Entry, Grant]]) -> None:
    """Nobody could prove that an exclusive bid was broken (A8), unless its renter let it go."""
    for by, bid in race.bids:
        if bid.body.exclusive is UNSET:
            continue
        held = {(turn.unit, turn.ctr) for turn in bid.body.units}
        for entry, grant in grants:
            renter = unpack(grant.request, NET, LeaseRequest).signer
            is_during = bid.body.issued_ms <= entry.header.ts_ms <= bid.body.valid_until_ms
            is_turn = any((turn.unit, turn.ctr) in held for turn in grant.units)
            if renter != by.public and is_during and is_turn:
                assert bid.digest in race.dropped


@pytest.mark.parametrize("tens", range(10))
async def test_a3_any_order_of_messages_and_deaths_has_one_lawful_outcome(tens: int) -> None:
    granted = 0
    for seed in range(tens * ORDERS // 10, (tens + 1) * ORDERS // 10):
        race = Race(seed)
        for _ in range(STEPS):
            await race.step()
        grants = race.grants()
        check_units(grants)
        check_answers(race, grants)
        check_exclusive(race, grants)
        assert race.ledger.verify().broken is None
        assert race.ledger.offences() == []
        granted += len(grants)
    assert granted > ORDERS // 40  # of a tenth of all orders: one in four has a lease
