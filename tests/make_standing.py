"""Makers of what standing is derived from: trades, failures, and whole accounts of entries."""

from dataclasses import dataclass, field

import msgspec

from ledger.bodies import Statement, read_body
from ledger.entry import Entry
from ledger.fold import State
from ledger.fork_evidence import prove_fork
from ledger.rules import prefix_of
from ledger.trades import Claim, Facts, Risk, Trade
from ledger.trust import Trust
from ledger.unit_evidence import prove_same_counter
from ledger.view import Failure, view_of
from protocol.rules import BUNDLE, Bundle, Penalty
from protocol.signing import Signer, digest
from protocol.units import Digest, Micros, PublicKey
from tests.make_ledger import HOUR, OWNER, UNIT, Feed, at, grant, state_of, statement

MONEY = "USD"
DAY = BUNDLE.epoch_ms
TODAY = at(0) // DAY
OPEN = msgspec.structs.replace(
    BUNDLE, settled_micro_max=10**12, credit_micro_max=10**15, voice_micro_max=10**12, phi=(1, 1)
)
"""A bundle whose caps are out of the way."""


def peer(number: int) -> PublicKey:
    return PublicKey(number.to_bytes(32, "big"))


def entry_id(*parts: int) -> Digest:
    return digest("made-up", repr(parts).encode())


def trade(
    owner: int, renter: int, amount: int, *, age: int = 0, money: str = MONEY, used: int = 60_000
) -> Trade:
    """What the two settled `age` epochs ago."""
    halves = (entry_id(owner, renter, amount, age, 0), entry_id(owner, renter, amount, age, 1))
    return Trade(
        money=money,
        owner=peer(owner),
        renter=peer(renter),
        epoch=TODAY - age,
        halves=halves,
        amount_micro=amount,
        used_ms=used,
    )


def risk(owner: int, renter: int, amount: int, *, number: int = 0, age: int = 0) -> Risk:
    return Risk(
        money=MONEY,
        owner=peer(owner),
        renter=peer(renter),
        lease=entry_id(owner, renter, number),
        amount_micro=amount,
        epoch=TODAY - age,
    )


def claim(owner: int, renter: int, amount: int, *, age: int = 0) -> Claim:
    """What the renter has not answered for `age` epochs."""
    return Claim(
        money=MONEY,
        owner=peer(owner),
        renter=peer(renter),
        epoch=TODAY - age,
        half=entry_id(owner, renter, amount, age, 2),
        amount_micro=amount,
        lease=b"",
    )


def failure(reporter: int, subject: int, periods: int = 1) -> Failure:
    return Failure(
        reporter=peer(reporter), subject=peer(subject), epoch=TODAY, periods=periods, by=()
    )


def trust(
    *trades: Trade,
    ego: int = 0,
    risks: tuple[Risk, ...] = (),
    claims: tuple[Claim, ...] = (),
    failures: tuple[Failure, ...] = (),
    bundle: Bundle = OPEN,
    epoch: int = TODAY,
) -> Trust:
    facts = Facts(trades=trades, risks=risks, claims=claims)
    view = view_of(facts, (), ego=peer(ego), epoch=epoch, failures=failures, bundle=bundle)
    return Trust(view)


@dataclass(slots=True)
class Story:
    """Feeds that trade with each other by signed entries; honest ones, until a test changes it."""

    bundle: Bundle = BUNDLE
    entries: list[Entry] = field(default_factory=list)
    feeds: dict[PublicKey, Feed] = field(default_factory=dict)
    sums: dict[tuple[PublicKey, PublicKey], int] = field(default_factory=dict)
    paid: dict[tuple[PublicKey, PublicKey], int] = field(default_factory=dict)

    def feed(self, of: Signer) -> Feed:
        if of.public not in self.feeds:
            new = self.feeds[of.public] = Feed(of, rules=prefix_of(self.bundle))
            self.entries.append(new.open())
        return self.feeds[of.public]

    def claim(
        self, owner: Signer, renter: Signer, amount: int, *, ts: int = 0, is_paid: bool = True
    ) -> Entry:
        """The owner's half alone; cumulative. What is unpaid stays so until a paid one follows."""
        pair = (owner.public, renter.public)
        count = sum(each.feed == owner.public for each in self.entries)
        self.sums[pair] = self.sums.get(pair, 0) + amount
        if is_paid:
            self.paid[pair] = self.sums[pair]
        body = msgspec.structs.replace(
            statement(renter, ctr=count, used=self.sums[pair]),
            paid_micro=Micros(self.paid.get(pair, 0)),
        )
        return self._add(owner, body, ts)

    def answer(self, renter: Signer, half: Entry, owner: Signer, *, ts: int = 0) -> Entry:
        said = read_body(half.draft)
        assert isinstance(said, Statement)
        body = msgspec.structs.replace(said, peer=owner.public, half=half.id)
        return self._add(renter, body, ts)

    def settle(
        self, owner: Signer, renter: Signer, amount: int, *, ts: int = 0, is_paid: bool = True
    ) -> tuple[Entry, Entry]:
        half = self.claim(owner, renter, amount, ts=ts, is_paid=is_paid)
        return half, self.answer(renter, half, owner, ts=ts)

    def _add(self, by: Signer, body: object, ts: int) -> Entry:
        feed = self.feed(by)
        feed.ts = max(feed.ts, ts)
        entry = feed.add(body)  # type: ignore[arg-type]
        self.entries.append(entry)
        return entry

    def state(self) -> State:
        return state_of(self.entries)


SECOND = msgspec.structs.replace(
    BUNDLE,
    half_life_epochs=BUNDLE.half_life_epochs + 1,
    penalties={
        **BUNDLE.penalties,
        "A4": Penalty(kept_ppm=900_000, epochs=1),
        "A1": Penalty(kept_ppm=0),
    },
)
"""Another bundle: milder on double leases, harder on forks."""


def opened(rules: bytes = prefix_of(BUNDLE)) -> Feed:
    feed = Feed(OWNER, rules=rules)
    feed.open()
    return feed


def fork(feed: Feed) -> bytes:
    """Two statements at one place: no grant is in it."""
    other = feed.branch()
    raw = prove_fork(feed.add(statement(used=1)), other.add(statement(used=2)))
    assert raw is not None
    return raw


def two_grants(feed: Feed, *, start: int = 5) -> tuple[Entry, Entry]:
    """One counter twice; the second reservation begins at `start` ms."""
    first = grant()
    other = grant(start=start, end=start + HOUR, nonce=1)
    branch = feed.branch()
    return feed.add(first), branch.add(other)


def double_lease(feed: Feed, *, start: int = 5) -> bytes:
    return prove_same_counter(UNIT, *two_grants(feed, start=start))
