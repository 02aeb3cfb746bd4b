"""Records of jobs on several nodes, and plans, for the vectors."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from protocol.advert import TierAsk
from protocol.certificate import sign_certificate
from protocol.codec import encode
from protocol.pool import Asked, PoolOffer, PoolRecord, SeenOffer, plan
from protocol.scoring import Weights
from protocol.signing import digest, peer_id_of
from protocol.units import Digest, Micros, MillisSpan, PublicKey
from protocol.wire import pack
from tests import make
from tests.make import NET, RENTER, STRANGER

Case = dict[str, Any]
SPAN_MS = MillisSpan(3_600_000)
NUMBERS = (40, 41, 42)


def _certificate(number: int) -> bytes:
    key = make.signer(number)
    body = make.certificate(root=key.public, feed=key.public, peer_id=peer_id_of(key.public))
    return sign_certificate(body, root=key, feed=key, peer=key)


def _seen(number: int, ask: int | None, **changes: Any) -> SeenOffer:
    """Silver at this ask; without one, gold."""
    silver = TierAsk(tier="silver", micro_per_gpu_hour=Micros(ask or 0))
    tiers = (TierAsk(tier="gold") if ask is None else silver,)
    advert = make.advert(certificate=_certificate(number), free=2, tiers=tiers)
    raw = pack(advert, signer=make.signer(number), net=NET)
    seen = SeenOffer(advert=raw, tier=tiers[0].tier, places=1, judged=make.judged())
    return replace(seen, **changes)


def _asked(number: int, price: int, *, hold: bool = True) -> Asked:
    """A question to this owner, and its exclusive bid; without `hold`, its refusal."""
    owner = make.signer(number)
    question = make.rfq(owner=owner.public, hold="yes", nonce=bytes([number] * 16))
    of = digest("rfq", encode(question))
    rfq = pack(question, signer=RENTER, net=NET)
    if not hold:
        return Asked(rfq=rfq, refusal=pack(make.refusal(of=of), signer=owner, net=NET))
    bid = make.bid(rfq=of, micro_per_gpu_hour=Micros(price), exclusive="yes")
    return Asked(rfq=rfq, bid=pack(bid, signer=owner, net=NET))


def _bid_of(number: int, price: int) -> Digest:
    question = make.rfq(owner=make.signer(number).public, hold="yes", nonce=bytes([number] * 16))
    bid = make.bid(
        rfq=digest("rfq", encode(question)), micro_per_gpu_hour=Micros(price), exclusive="yes"
    )
    return digest("bid", encode(bid))


def _record(**changes: Any) -> PoolRecord:
    """Three offers, of which the two cheapest are held and taken, in the order of their feeds."""
    asks = dict(zip(NUMBERS, (300_000, 310_000, 400_000), strict=True))
    first, second = sorted(NUMBERS[:2], key=lambda number: make.signer(number).public)
    made = PoolRecord(
        nodes=2,
        gpus=2,
        span_ms=SPAN_MS,
        money="TEST",
        weights=Weights(),
        offers_seen=3,
        offers=tuple(_seen(number, ask) for number, ask in asks.items()),
        tries=((_asked(first, asks[first]), _asked(second, asks[second])),),
        chosen=(_bid_of(first, asks[first]), _bid_of(second, asks[second])),
    )
    return replace(made, **changes)


def pool_cases() -> list[Case]:
    def c(name: str, rule: str | None, record: PoolRecord) -> Case:
        return {"name": name, "bytes": encode(record).hex(), "rule": rule}

    good = _record()
    [tried] = good.tries
    no = _asked(NUMBERS[0], 0, hold=False)
    first = min(NUMBERS[:2], key=lambda number: make.signer(number).public)
    plain = replace(tried[0], bid=_asked(NUMBERS[0], 1).bid)
    foreign = replace(tried[0], rfq=pack(make.rfq(hold="yes"), signer=STRANGER, net=NET))
    return [
        c("two of three offers", None, good),
        c("of which nothing was asked", None, _record(tries=(), chosen=())),
        c("of which nothing was taken", None, _record(chosen=())),
        c("without an offer", None, _record(offers=(), tries=(), chosen=())),
        c("in another order", "pool.choice", _record(tries=(tried[::-1],))),
        c("one left out", "pool.choice", _record(tries=(tried[:1],), chosen=())),
        c("bids in another order", "pool.choice", _record(chosen=good.chosen[::-1])),
        c("one bid of two", "pool.choice", _record(chosen=good.chosen[:1])),
        c("asked where nobody was to be", "pool.choice", _record(nodes=4, chosen=())),
        c("an offer twice", "pool.twice", _record(offers=(*good.offers, good.offers[0]))),
        c("a question twice", "pool.twice", _record(tries=((tried[0], tried[0]),))),
        c("an offer that is not there", "pool.order", _record(offers=good.offers[2:])),
        c("more places than are free", "pool.order",
            _record(offers=(_seen(NUMBERS[0], 300_000, places=2), *good.offers[1:]))),
        c("a tier that is not offered", "pool.order",
            _record(offers=(_seen(NUMBERS[0], 300_000, tier="bronze"), *good.offers[1:]))),
        c("a tier without an ask", "pool.order",
            _record(offers=(_seen(NUMBERS[0], None), *good.offers[1:]))),
        c("a bid above its advert", "pool.order",
            _record(tries=((_asked(first, 310_001),),), chosen=())),
        c("in other money", "pool.order", _record(money="USD")),
        c("of another length", "pool.order", _record(span_ms=MillisSpan(SPAN_MS + 1))),
        c("about no offer", "pool.order", _record(tries=((foreign,),), chosen=())),
        c("a yes and a no", "pool.order",
            _record(tries=((replace(_asked(NUMBERS[0], 300_000), refusal=no.refusal),),),
                chosen=())),
        c("a refusal of another question", "refusal.answer",
            _record(tries=((replace(_asked(NUMBERS[1], 1), bid=UNSET, refusal=no.refusal),),),
                chosen=())),
        c("a bid to another question", "bid.answer",
            _record(tries=((replace(tried[1], bid=tried[0].bid), plain),), chosen=())),
        c("an advert of another feed", "advert.signer",
            _record(offers=(*good.offers, replace(good.offers[0],
                advert=pack(make.advert(free=2), signer=STRANGER, net=NET))))),
    ]  # fmt: skip


def plan_vectors() -> list[Case]:
    """Offers as (account, places, score), numbered from 1 on, and those that are asked."""
    rows: dict[str, tuple[int, tuple[tuple[int, int, int], ...]]] = {
        "too few": (2, ((1, 1, 5),)),
        "the cheapest": (2, ((1, 1, 100), (2, 1, 100), (3, 1, 101))),
        "one account at a tenth more": (2, ((1, 1, 100), (2, 1, 100), (3, 2, 110))),
        "one account at more": (2, ((1, 1, 100), (2, 1, 100), (3, 2, 111))),
        "one account with two offers": (3, ((1, 2, 100), (2, 3, 101), (1, 1, 102))),
        "ties go by key": (1, ((2, 1, 7), (1, 1, 7))),
    }
    found: list[Case] = []
    for name, (nodes, offers) in rows.items():
        made = [
            PoolOffer(
                key=bytes([number]) * 16,
                owner=PublicKey(bytes([200 - number]) * 32),
                account=PublicKey(bytes([account]) * 32),
                places=places,
                score=Micros(score),
            )
            for number, (account, places, score) in enumerate(offers, 1)
        ]
        asked = [offer.key.hex() for offer in plan(made, nodes)]
        shown = [
            [each.key.hex(), each.owner.hex(), each.account.hex(), each.places, each.score]
            for each in made
        ]
        found.append({"name": name, "nodes": nodes, "offers": shown, "asked": asked})
    return found
