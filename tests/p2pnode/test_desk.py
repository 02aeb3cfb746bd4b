"""A desk keeps its bids, grants each request once, and says no with its signature."""

from typing import Any

import pytest

from protocol.answers import check_bid, check_refusal
from protocol.auction import Bid, Refusal, Reply, Rfq
from protocol.codec import encode
from protocol.errors import PeerFault
from protocol.genesis import Bounds, net_of
from protocol.lease import LeaseRequest, digest_of_terms
from protocol.signing import digest, peer_id_of
from protocol.units import Millis, MillisSpan
from protocol.wire import Sealed, pack, unpack
from tests import make
from tests.make import NET, NOW, RENTER, STRANGER
from tests.make_desk import Clock, Owner, posting

HOUR = 3_600_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def owner(clock: Clock) -> Owner:
    return Owner(10, clock)


async def bid_of(owner: Owner, **changes: Any) -> Sealed[Bid]:
    reply = await owner.ask("rfq", owner.rfq(**changes))
    assert isinstance(reply.yes, bytes)
    return unpack(reply.yes, NET, Bid)


def request_for(bid: Sealed[Bid], clock: Clock, /, **changes: Any) -> LeaseRequest:
    body = bid.body
    names = ("units", "start_ms", "end_ms", "tier", "micro_per_gpu_hour", "money", "period_ms",
             "notice_ms", "lapse_ms")  # fmt: skip
    fields = {
        **{name: getattr(body, name) for name in names},
        "owner": bid.signer,
        "bid": bid.digest,
        "terms": digest_of_terms(body.terms),
        "issued_ms": clock.at,
        "not_after_ms": Millis(clock.at + 2_000),
    }
    return make.lease_request(**{**fields, **changes})


def why(reply: Reply) -> str | None:
    """The reason of a refusal; None for a yes."""
    return None if not isinstance(reply.no, bytes) else unpack(reply.no, NET, Refusal).body.reason


async def refused(owner: Owner, kind: str, body: bytes, **who: Any) -> str:
    with pytest.raises(PeerFault) as caught:
        await owner.ask(kind, body, **who)
    return caught.value.rule


async def test_a_bid_may_be_taken_as_the_answer_that_it_is(owner: Owner) -> None:
    raw = owner.rfq()
    reply = await owner.ask("rfq", raw)
    assert isinstance(reply.yes, bytes)
    bid = unpack(reply.yes, NET, Bid)
    check_bid(bid, unpack(raw, NET, Rfq), genesis=make.GENESIS, now=NOW)
    assert bid.body.head_seq == 12


async def test_a_bid_lives_no_longer_than_its_network_allows(clock: Clock) -> None:
    genesis = make.genesis(bounds=Bounds(bid_life_ms=MillisSpan(1_000)))
    owner = Owner(10, clock, genesis=genesis)
    net = net_of(genesis)
    raw = pack(make.rfq(owner=owner.key.public), signer=RENTER, net=net)
    reply = await owner.ask("rfq", raw)
    assert isinstance(reply.yes, bytes)
    bid = unpack(reply.yes, net, Bid)
    check_bid(bid, unpack(raw, net, Rfq), genesis=genesis, now=NOW)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"owner": STRANGER.public}, "rfq.owner"),
        ({"end_ms": NOW + 1_000}, "rfq.span"),
        ({"not_after_ms": NOW}, "rfq.span"),
    ],
)
async def test_a_question_that_breaks_a_rule_gets_no_answer(
    owner: Owner, changes: dict[str, Any], rule: str
) -> None:
    assert await refused(owner, "rfq", owner.rfq(**changes)) == rule


@pytest.mark.parametrize("now", [NOW - 30_001, NOW + 5_001])
async def test_a_renter_whose_clock_is_off_is_told_so_under_seal(owner: Owner, now: int) -> None:
    owner.clock.at = Millis(now)
    raw = owner.rfq()
    reply = await owner.ask("rfq", raw)
    assert why(reply) == "STALE"
    assert isinstance(reply.no, bytes)
    check_refusal(
        unpack(reply.no, NET, Refusal),
        of=unpack(raw, NET, Rfq).digest,
        owner=owner.key.public,
        renter=RENTER.public,
    )
    assert owner.desk.refused == {"STALE": 1}


async def test_an_owner_that_offers_nothing_says_so(clock: Clock) -> None:
    owner = Owner(10, clock, by=posting(ask=None))
    assert why(await owner.ask("rfq", owner.rfq())) == "CLOSED"


async def test_nobody_asks_under_the_seal_of_another(owner: Owner) -> None:
    stranger = peer_id_of(STRANGER.public)
    assert await refused(owner, "rfq", owner.rfq(), peer=stranger) == "seal.speaker"
    bid = await bid_of(owner)
    taking = owner.take(request_for(bid, owner.clock))
    assert await refused(owner, "lease.take", taking, peer=stranger) == "seal.speaker"


async def test_too_long_a_question_is_not_parsed(owner: Owner) -> None:
    assert await refused(owner, "rfq", bytes(4_289)) == "codec.size"


async def test_a_bid_that_is_taken_as_it_was_made_is_granted(owner: Owner) -> None:
    bid = await bid_of(owner)
    request = request_for(bid, owner.clock, job=digest("job", b"job"))
    reply = await owner.ask("lease.take", owner.take(request, job=b"sealed"))
    [entry] = owner.granted
    assert reply.yes == entry.raw
    assert owner.jobs == [(request, b"sealed")]
    assert (owner.desk.quoted, owner.desk.granted) == (1, 1)


async def test_one_nonce_gives_one_lease_however_late_it_is_sent_again(owner: Owner) -> None:
    bid = await bid_of(owner)
    taking = owner.take(request_for(bid, owner.clock))
    first = await owner.ask("lease.take", taking)
    owner.clock.at = Millis(NOW + HOUR)
    assert await owner.ask("lease.take", taking) == first
    assert len(owner.granted) == 1


async def test_a_bid_is_granted_once(owner: Owner) -> None:
    bid = await bid_of(owner)
    await owner.ask("lease.take", owner.take(request_for(bid, owner.clock)))
    again = request_for(bid, owner.clock, nonce=bytes(16))
    assert why(await owner.ask("lease.take", owner.take(again))) == "STALE"


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"owner": STRANGER.public}, "request.owner"),
        ({"units": make.turns() + make.turns()}, "request.units"),
        ({"not_after_ms": NOW + 2_001}, "request.span"),
        ({"micro_per_gpu_hour": 1}, "request.bid"),
        ({"units": make.turns(1)}, "request.bid"),
        ({"terms": bytes(32)}, "request.bid"),
    ],
)
async def test_a_request_that_breaks_a_rule_gets_no_answer(
    owner: Owner, changes: dict[str, Any], rule: str
) -> None:
    bid = await bid_of(owner)
    taking = owner.take(request_for(bid, owner.clock, **changes))
    assert await refused(owner, "lease.take", taking) == rule
    assert owner.granted == []


@pytest.mark.parametrize(
    ("later", "changes", "reason"),
    [
        (0, {"bid": bytes(32)}, "STALE"),
        (0, {"issued_ms": NOW + 30_001, "not_after_ms": NOW + 32_001}, "STALE"),
        (2_001, {"issued_ms": NOW, "not_after_ms": NOW + 2_000}, "STALE"),
        (1_000, {}, None),
        (1_001, {}, "STALE"),
        (10_001, {}, "STALE"),
    ],
)
async def test_what_comes_too_late_is_refused_under_seal(
    owner: Owner, later: int, changes: dict[str, Any], reason: str | None
) -> None:
    bid = await bid_of(owner)
    owner.clock.at = Millis(NOW + later)
    taking = owner.take(request_for(bid, owner.clock, **changes))
    assert why(await owner.ask("lease.take", taking)) == reason


async def test_a_job_that_is_not_wanted_and_units_that_are_gone_are_refused(owner: Owner) -> None:
    bid = await bid_of(owner)
    taking = owner.take(request_for(bid, owner.clock))
    owner.unwanted = "images are not run here"
    assert why(await owner.ask("lease.take", taking)) == "POLICY"
    owner.unwanted, owner.taken = "", True
    assert why(await owner.ask("lease.take", taking)) == "TAKEN"
    owner.taken = False
    assert why(await owner.ask("lease.take", taking)) is None
    assert owner.desk.refused == {"POLICY": 1, "TAKEN": 1}


async def test_bids_that_are_over_are_forgotten(owner: Owner) -> None:
    for later in range(0, 60_000, 5_000):
        owner.clock.at = Millis(NOW + later)
        await bid_of(owner, issued_ms=owner.clock.at, not_after_ms=owner.clock.at + 5_000)
    assert len(owner.desk._bids) == 3


async def test_a_take_that_is_no_take_is_refused(owner: Owner) -> None:
    assert await refused(owner, "lease.take", encode(make.rfq())) == "codec.shape"


async def test_a_renter_that_is_barred_gets_neither_a_bid_nor_a_lease(owner: Owner) -> None:
    bid = await bid_of(owner)
    taking = owner.take(request_for(bid, owner.clock))
    owner.barred[RENTER.public] = "proved: A4"
    for kind, body in (("rfq", owner.rfq()), ("lease.take", taking)):
        reply = await owner.ask(kind, body)
        assert isinstance(reply.no, bytes)
        refusal = unpack(reply.no, NET, Refusal).body
        assert (refusal.reason, refusal.detail) == ("POLICY", "proved: A4")
    assert owner.granted == []
