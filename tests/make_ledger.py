"""Makers of valid things for the ledger's tests; a test states only what it is about."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import UNSET
from msgspec.structs import replace

from ledger.bodies import (
    Body,
    Genesis,
    Grant,
    GrantTurn,
    Release,
    ReleaseTurn,
    Statement,
    consent_bytes,
    encode_body,
    kind_of,
    requested,
)
from ledger.entry import Draft, Entry, Link, draft_entry, link_of, seal
from ledger.fold import Half, State
from ledger.guard import Guard, MemoryGuard
from ledger.intervals import Interval
from ledger.ledger import Ledger, Taken, open_ledger
from ledger.store import MemoryStore, Store
from ledger.units_chain import Turn, apply, next_place
from ledger.witness_bodies import (
    Cosigned,
    CosignedTurn,
    Cosigning,
    sign_cosign,
    turns_to_cosign,
)
from protocol.certificate import Certificate, sign_certificate
from protocol.lease import LeaseRequest, UnitTurn
from protocol.signing import Signer, peer_id_of
from protocol.units import Digest, Micros, Millis, MillisSpan, NetId, PublicKey, Signature
from protocol.wire import pack

NET = NetId(bytes(range(32)))
RULES = b"rules-01"
T0 = Millis(1_700_000_000_000)
HOUR = 3_600_000
UNIT = b"unit-number-0001"
UNIT2 = b"unit-number-0002"
UUID = b"0123456789abcdef"


def signer(name: int) -> Signer:
    return Signer(bytes([name]) * 32)


OWNER = signer(1)
RENTER = signer(2)
STRANGER = signer(3)
WITNESSES = tuple(signer(number) for number in (21, 22, 23))
THREE = tuple(sorted(each.public for each in WITNESSES))
"""The feeds of the witnesses."""


def at(ms: int) -> Millis:
    return Millis(T0 + ms)


def root_of(feed: Signer) -> Signer:
    """The root key of the account whose feed this is."""
    return Signer(b"\x70" + feed.public[1:])


def certificate(
    of: Signer, *, net: NetId = NET, not_after_ms: int = 10**10, root: Signer | None = None
) -> bytes:
    root, peer = root or root_of(of), Signer(b"\x71" + of.public[1:])
    return sign_certificate(
        Certificate(
            net=net,
            root=root.public,
            feed=of.public,
            peer_id=peer_id_of(peer.public),
            x25519=PublicKey(bytes(32)),
            not_before_ms=Millis(T0 - 1_000),
            not_after_ms=at(not_after_ms),
            n=1,
        ),
        root=root,
        feed=of,
        peer=peer,
    )


def genesis(of: Signer) -> Genesis:
    return Genesis(certificate=certificate(of), incarnation=1, next_key=Digest(b"n" * 32))


def lease_request(
    units: tuple[tuple[bytes, int], ...] = ((UNIT, 0),),
    *,
    start: int = 1_000,
    end: int = 1_000 + HOUR,
    nonce: int = 0,
    owner: Signer = OWNER,
    issued: int = 0,
    witnesses: tuple[PublicKey, ...] = (),
    quorum: int = 0,
) -> LeaseRequest:
    return LeaseRequest(
        owner=owner.public,
        bid=Digest(b"b" * 32),
        units=tuple(UnitTurn(unit=unit, ctr=ctr) for unit, ctr in units),
        start_ms=at(start),
        end_ms=at(end),
        tier="bronze",
        micro_per_gpu_hour=Micros(250_000),
        money="USD",
        period_ms=MillisSpan(60_000),
        notice_ms=MillisSpan(30_000),
        lapse_ms=MillisSpan(60_000),
        terms=Digest(b"t" * 32),
        witnesses=witnesses or UNSET,
        quorum=quorum or UNSET,
        nonce=nonce.to_bytes(16, "big"),
        issued_ms=at(issued),
        not_after_ms=at(issued + 2_000),
    )


def sealed(request: LeaseRequest, *, by: Signer = RENTER, net: NetId = NET) -> bytes:
    return pack(request, signer=by, net=net)


def sealed_request(
    units: tuple[tuple[bytes, int], ...] = ((UNIT, 0),),
    *,
    start: int = 1_000,
    end: int = 1_000 + HOUR,
    nonce: int = 0,
    issued: int = 0,
) -> bytes:
    return sealed(lease_request(units, start=start, end=end, nonce=nonce, issued=issued))


def statement(
    peer: Signer = RENTER, *, ctr: int = 0, used: int = 60_000, money: str = "USD"
) -> Statement:
    return Statement(
        peer=peer.public,
        ctr=ctr,
        used_ms=MillisSpan(used),
        amount_micro=Micros(used),
        money=money,
    )


@dataclass(slots=True)
class Feed:
    """A feed written without any of the ledger's care: honest or not, as the test wants."""

    by: Signer
    net: NetId = NET
    last: Link | None = None
    ts: int = 0
    rules: bytes = RULES

    def open(self) -> Entry:
        return self.add(genesis(self.by))

    def add(self, body: Body, **changes: int) -> Entry:
        return self.take(self.draft(body, **changes))

    def draft(self, body: Body, *, ts: int | None = None) -> Draft:
        return self.draft_raw(kind_of(body), encode_body(body), ts=ts)

    def draft_raw(self, kind: int, body: bytes, *, ts: int | None = None) -> Draft:
        return draft_entry(
            feed=self.by.public,
            after=self.last,
            ts_ms=at(self.ts if ts is None else ts),
            kind=kind,
            rules=self.rules,
            body=body,
            net=self.net,
        )

    def take(self, draft: Draft) -> Entry:
        entry = seal(draft, signer=self.by, net=self.net)
        self.last = link_of(draft)
        return entry

    def branch(self) -> "Feed":
        return dataclasses.replace(self)


def turn_of(entry: Entry, body: Grant | Release, unit: bytes = UNIT) -> Turn:
    turn = next(turn for turn in body.units if turn.unit == unit)
    return Turn(ctr=turn.ctr, seq=entry.seq, id=entry.id, open=turn.open)


def grant(
    after: Turn | None = None,
    *,
    start: int = 1_000,
    end: int = 1_000 + HOUR,
    nonce: int = 0,
    opens: tuple[tuple[int, int, int], ...] | None = None,
    ts: int = 0,
) -> Grant:
    """A GRANT of UNIT after this turn; `opens` says of the intervals what is not true."""
    place = next_place(after)
    body = Grant(
        units=(GrantTurn(UNIT, place.ctr, place.gseq, place.gprev, ()),),
        start_ms=at(start),
        end_ms=at(end),
        request=sealed(
            lease_request(((UNIT, place.ctr),), start=start, end=end, nonce=nonce, issued=ts)
        ),
    )
    if opens is None:
        open_after = apply(() if after is None else after.open, body, UNIT, at(ts))
    else:
        open_after = tuple(Interval(at(a), at(b), ctr) for a, b, ctr in opens)
    turn = GrantTurn(UNIT, place.ctr, place.gseq, place.gprev, open_after)
    return Grant(units=(turn,), start_ms=body.start_ms, end_ms=body.end_ms, request=body.request)


def witnessed(body: Grant, *, of: tuple[PublicKey, ...] = THREE, quorum: int = 2) -> Grant:
    """The same GRANT of UNIT, for which the renter has named these witnesses."""
    _, asked = requested(body)
    request = replace(asked, witnesses=of, quorum=quorum)
    return replace(body, request=sealed(request), witnesses=of, quorum=quorum)


def witnessed_lease(nonce: int = 0, *, of: tuple[PublicKey, ...] = THREE) -> tuple[Entry, Grant]:
    """A GRANT of UNIT's first turn in OWNER's feed; another nonce is another GRANT of it."""
    feed = Feed(OWNER)
    feed.open()
    body = witnessed(grant(nonce=nonce), of=of, quorum=len(of) // 2 + 1)
    return feed.add(body), body


def cosigned(
    granted: Entry, body: Grant, *, by: tuple[Signer, ...] = WITNESSES, at_ms: int = 5
) -> Cosigned:
    """What these witnesses sign for this GRANT."""
    turns = tuple(CosignedTurn(turn.unit, turn.ctr) for turn in body.units)
    items = turns_to_cosign(granted.feed, turns, granted.id, at(at_ms))
    signed = (
        Cosigning(
            each.public, at(at_ms), tuple(sign_cosign(said, signer=each, net=NET) for said in items)
        )
        for each in by
    )
    return Cosigned(granted.feed, turns, tuple(sorted(signed, key=lambda each: each.witness)))


def release(
    after: Turn,
    granted: Entry,
    *,
    lctr: int = 0,
    at_ms: int = 2_000,
    opens: tuple[tuple[int, int, int], ...] | None = None,
    ts: int = 0,
) -> Release:
    place = next_place(after)

    def with_open(intervals: tuple[Interval, ...]) -> Release:
        return Release(
            units=(ReleaseTurn(UNIT, place.ctr, place.gseq, place.gprev, intervals, lctr),),
            grant=granted.id,
            at_ms=at(at_ms),
            reason="unpaid",
            consent=UNSET,
        )

    if opens is None:
        return with_open(apply(after.open, with_open(()), UNIT, at(ts)))
    return with_open(tuple(Interval(at(a), at(b), ctr) for a, b, ctr in opens))


def ledger(of: Signer = OWNER, *, store: Store | None = None, guard: Guard | None = None) -> Ledger:
    """A ledger of this peer without any entry yet."""
    return open_ledger(
        store=store or MemoryStore(),
        guard=guard or MemoryGuard(),
        signer=of,
        net=NET,
        uuid=UUID,
        rules=RULES,
    )


def take(into: Ledger, *entries: Entry) -> list[Taken]:
    return [into.ingest(entry.raw) for entry in entries]


def state_of(entries: Iterable[Entry]) -> State:
    """The fold of these."""
    state = State()
    for entry in entries:
        state.apply(entry)
    return state


def newest_half(state: State, author: PublicKey, peer: PublicKey) -> Half | None:
    """The author's last statement below a fork, in USD."""
    halves = reversed(state.halves(author, peer, money="USD"))
    return next((half for half in halves if not state.is_forked(author, half.seq)), None)


def opened_ledger(of: Signer = OWNER) -> Ledger:
    """A ledger whose own feed has its entry 0."""
    new = ledger(of)
    new.append(genesis(of), at(0))
    return new


def consent_of(grant_id: Digest, unit: bytes, ctr: int, now: int) -> Signature:
    agreed = consent_bytes(grant_id, ((unit, ctr),), at(now))
    return RENTER.sign("release-consent", NET, agreed)
