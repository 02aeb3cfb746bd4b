"""What authors of a simulated network write: honest leases and accounts, and double leases.

Everything is simulated: keys, clocks, leases and money. The entries are real ones.
"""

from hashlib import sha256

from ledger.bodies import Statement
from ledger.entry import Entry
from ledger.store import MemoryStore
from protocol.lease import LeaseRequest, UnitTurn
from protocol.signing import Signer, digest
from protocol.units import Digest, Micros, Millis, MillisSpan, NetId
from protocol.wire import pack
from testnet.made_up import genesis_of
from testnet.replica import Replica, Talks, converse, open_replica

T0 = Millis(1_700_000_000_000)
HOUR_MS = 3_600_000
MONEY = "TEST"


def signer_of(name: str) -> Signer:
    """The key of this name: no secret."""
    return Signer(sha256(name.encode()).digest())


def unit_of(owner: Replica) -> bytes:
    """The one unit of this owner."""
    return digest("simulated-unit", owner.feed)[:16]


def open_feed(author: Replica, net: NetId, now: Millis) -> Entry:
    """The author's entry 0."""
    return author.wrote(author.ledger.append(genesis_of(author.signer, net, T0), now))


def request(owner: Replica, renter: Replica, now: Millis, *, start_ms: int) -> bytes:
    """The renter's sealed wish for an hour of the owner's unit."""
    last = owner.ledger.state.turn(owner.feed, unit_of(owner))
    body = LeaseRequest(
        owner=owner.feed,
        bid=Digest(bytes(32)),
        units=(UnitTurn(unit=unit_of(owner), ctr=0 if last is None else last.ctr + 1),),
        start_ms=Millis(start_ms),
        end_ms=Millis(start_ms + HOUR_MS),
        tier="bronze",
        micro_per_gpu_hour=Micros(250_000),
        money=MONEY,
        period_ms=MillisSpan(60_000),
        notice_ms=MillisSpan(30_000),
        lapse_ms=MillisSpan(60_000),
        terms=Digest(bytes(32)),
        nonce=sha256(renter.feed + owner.feed + now.to_bytes(8, "big")).digest()[:16],
        issued_ms=now,
        not_after_ms=Millis(now + 2_000),
    )
    return pack(body, signer=renter.signer, net=owner.ledger.net)


def lease(owner: Replica, renter: Replica, now: Millis, talks: Talks) -> Entry:
    """The GRANT of the unit's next free hour, which the renter has fetched and accepted."""
    last = owner.ledger.state.turn(owner.feed, unit_of(owner))
    ends = [now] if last is None else [now, *(each.end_ms for each in last.open)]
    wish = request(owner, renter, now, start_ms=max(ends))
    return _hand_over(owner, renter, wish, (now, talks))


def _hand_over(owner: Replica, renter: Replica, wish: bytes, at: tuple[Millis, Talks]) -> Entry:
    now, talks = at
    grant = owner.wrote(owner.ledger.grant(wish, now))
    converse(renter, owner, talks, only=(owner.feed,))
    assert renter.ledger.entry(grant.id) is not None
    renter.wrote(renter.ledger.accept(grant.id, now))
    return grant


def double_lease(
    owner: Replica, renters: tuple[Replica, Replica], now: Millis, talks: Talks
) -> tuple[Entry, Entry]:
    """Two GRANTs of one unit for one hour, each at the same place of the owner's feed.

    Each renter was shown a feed in which there is no other. The owner goes on with the first.
    """
    copy = MemoryStore()
    copy.write(dict(owner.store.range(b"\0", b"\xff")), sync=True)
    double = open_replica(owner.number, owner.signer, owner.ledger.net, copy)
    double.ledger.confirm_head()
    grants = [
        _hand_over(each, renter, request(each, renter, now, start_ms=now), (now, talks))
        for each, renter in zip((owner, double), renters, strict=True)
    ]
    return grants[0], grants[1]


def state_account(author: Replica, peer: Replica, now: Millis) -> Entry:
    """The author's next half of its account with the peer."""
    last = author.ledger.state.last_half(author.feed, peer.feed, money=MONEY)
    ctr = 0 if last is None else last.statement.ctr + 1
    body = Statement(
        peer=peer.feed,
        ctr=ctr,
        used_ms=MillisSpan(ctr * 60_000),
        amount_micro=Micros(ctr * 4_167),
        money=MONEY,
    )
    return author.wrote(author.ledger.append(body, now))
