"""Requests for quote, bids, refusals and auctions, good and bad, for protocol/vectors/*.json."""

from typing import Any

from msgspec.structs import asdict, replace

from protocol.auction import Rfq
from protocol.codec import encode
from protocol.genesis import Genesis, net_of
from protocol.lease import UnitTurn
from protocol.limits import ADVERT_BYTES_MAX, INT_MAX
from protocol.scoring import (
    AuctionRecord,
    Heard,
    Weights,
    deal_of,
    expected_cost,
    ranking,
)
from protocol.signing import Signer, digest
from protocol.units import Digest, Micros, Millis, MillisSpan
from protocol.wire import unpack
from tests import make
from tests.make import FEED, GENESIS, MAIN, NET, NOW, RENTER, STRANGER, UNITS
from tests.protocol.message_cases import sealed, sealed_cases

Case = dict[str, Any]


def rfq_cases() -> list[Case]:
    need = make.need
    shapes = sealed_cases(make.rfq, RENTER, {
        "owner": (bytes(31),),
        "group": (bytes(15),),
        "need": (need(gpus=0), need(gpus=9), need(vram_mib_min=0), need(models=()),
                 need(models=("m",) * 17), need(regions=("XXX",)), need(isolation_min="none"),
                 need(driver_min=()), need(driver_min=(1,) * 5), need(compute_min=(8,))),
        "region": ("de",),
        "tier": ("iron",),
        "start_ms": (0,),
        "nonce": (bytes(15),),
    })  # fmt: skip

    def rule(name: str, rule: str | None, now: int = NOW, **changes: Any) -> Case:
        raw = sealed(make.rfq(**changes), RENTER)
        return {"name": name, "bytes": raw.hex(), "rule": rule, "now": now}

    whole = need(models=("H100", "A100-80GB"), regions=("DE", "FR"), isolation_min="container",
                 cpus_min=8, memory_mib_min=32_000, disk_mib_min=100_000, down_kbit_s_min=100_000,
                 up_kbit_s_min=50_000, driver_min=(550, 54, 14), compute_min=(8, 9))  # fmt: skip
    rules = [
        rule("that needs all there is", None, need=whole, region="DE"),
        rule("to another owner", "rfq.owner", owner=STRANGER.public),
        rule("for a millisecond", None, end_ms=NOW + 1_001),
        rule("for no time", "rfq.span", end_ms=NOW + 1_000),
        rule("that ends before it starts", "rfq.span", end_ms=NOW),
        rule("that starts late at the latest", None, start_by_ms=NOW + 1_000),
        rule("that starts earlier at the latest", "rfq.span", start_by_ms=NOW + 999),
        rule("that lives for a millisecond", None, not_after_ms=NOW + 1),
        rule("over when it is issued", "rfq.span", not_after_ms=NOW),
        rule("as far ahead as allowed", None, now=NOW - 30_000),
        rule("a millisecond further ahead", "rfq.future", now=NOW - 30_001),
        rule("at its last millisecond", None, now=NOW + 5_000),
        rule("a millisecond later", "rfq.stale", now=NOW + 5_001),
    ]
    common = {"owner": FEED.public.hex(), "now": NOW}
    return [common | one for one in (*shapes, *rules)]


def bid_case(
    name: str,
    rule: str | None,
    *,
    asked: Rfq | None = None,
    now: int = NOW,
    of: Genesis = GENESIS,
    signer: Signer = FEED,
    **changes: Any,
) -> Case:
    """A bid that answers the question, but for the changes."""
    question = asked or make.rfq()
    named = {"rfq": digest("rfq", encode(question)), **changes}
    return {
        "name": name,
        "genesis": encode(of).hex(),
        "question": sealed(question, RENTER, net_of(of)).hex(),
        "now": now,
        "bytes": sealed(make.bid(**named), signer, net_of(of)).hex(),
        "rule": rule,
    }


def bid_rules() -> list[Case]:
    c, need = bid_case, make.need
    [one, other] = make.turns()
    start, end = NOW + 1_000, NOW + 3_601_000
    hour = 3_600_000
    late = NOW + 60_000
    huge: Case = {"start_ms": 1, "end_ms": INT_MAX}
    asked_long = make.rfq(**huge, need=need(gpus=1))
    needs = {"cpus_min": ("cpus", 4), "memory_mib_min": ("memory_mib", 8_000),
             "disk_mib_min": ("disk_mib", 1_000)}  # fmt: skip
    least: list[Case] = []
    for wanted, (given, count) in needs.items():
        asked = make.rfq(need=need(**{wanted: count}))
        for number, rule in ((count, None), (count - 1, "bid.terms")):
            terms = make.terms(**{given: number})
            least.append(c(f"{given} {number} of {count}", rule, asked=asked, terms=terms))
        least.append(c(f"{given} not named", None, asked=asked))
    return [
        c("to another question", "bid.answer", rfq=Digest(bytes(32))),
        c("to another renter", "bid.answer", renter=STRANGER.public),
        c("of another owner", "bid.answer", signer=STRANGER),
        c("of another group", "bid.answer", group=UNITS[0]),
        c("of another tier", "bid.answer", tier="bronze"),
        c("in other money", "bid.answer", money="EUR"),
        c("of one unit of two", "bid.units", units=(one,)),
        c("of a unit twice", "bid.units", units=(one, UnitTurn(unit=one.unit, ctr=9))),
        c("of a unit too many", "bid.units", units=(one, other, UnitTurn(unit=bytes(16), ctr=0))),
        c("a millisecond longer", "bid.span", end_ms=end + 1),
        c("a millisecond earlier", "bid.span", start_ms=start - 1, end_ms=end - 1),
        c("as late as the bid holds", None, start_ms=late, end_ms=late + hour),
        c("a millisecond later than that", "bid.span", start_ms=late + 1, end_ms=late + 1 + hour),
        c("as late as it may be for bronze", None, start_ms=late + 5, end_ms=late + 5 + hour,
            asked=make.rfq(start_by_ms=late + 5)),
        c("a millisecond later still", "bid.span", start_ms=late + 6, end_ms=late + 6 + hour,
            asked=make.rfq(start_by_ms=late + 5)),
        c("as late as asked, beyond its validity", None, start_ms=NOW + 2 * hour,
            end_ms=NOW + 3 * hour, asked=make.rfq(start_ms=NOW + 2 * hour, end_ms=NOW + 3 * hour)),
        c("with the notice that is asked", None, asked=make.rfq(notice_ms=9), notice_ms=9),
        c("with less notice", "bid.notice", asked=make.rfq(notice_ms=9), notice_ms=8),
        c("isolated as asked", None, asked=make.rfq(need=need(isolation_min="container"))),
        c("isolated less", "bid.terms", asked=make.rfq(need=need(isolation_min="hardened"))),
        *least,
        c("for as much as can be encoded", None, asked=asked_long, units=(one,), **huge,
            micro_per_gpu_hour=Micros(hour), valid_until_ms=NOW + 60_000),
        c("for more than can be encoded", "bid.sum", asked=asked_long, units=(one,), **huge,
            micro_per_gpu_hour=Micros(hour + 1)),
        c("firm for a millisecond longer than allowed", "bid.life", valid_until_ms=late + 1),
        c("firm for a millisecond", None, valid_until_ms=NOW + 1, start_ms=start),
        c("firm for no time", "bid.life", valid_until_ms=NOW),
        c("as far ahead as allowed", None, now=NOW - 30_000),
        c("a millisecond further ahead", "bid.future", now=NOW - 30_001),
        c("at its last millisecond", None, now=late),
        c("a millisecond too late", "bid.expired", now=late + 1),
        c("simulated in a test network", None, gpu="simulated"),
        c("simulated in a main network", "bid.simulated", of=MAIN, gpu="simulated"),
        c("real in a main network", None, of=MAIN),
    ]  # fmt: skip


def renewal_rules() -> list[Case]:
    c = bid_case
    return [
        c("that renews what nobody asked for", "bid.answer", renews=Digest(bytes(32))),
        c("that does not renew what was asked for", "bid.answer",
            asked=make.rfq(renews=Digest(bytes(32)))),
        c("that renews what was asked for", None, asked=make.rfq(renews=Digest(bytes(32))),
            renews=Digest(bytes(32))),
    ]  # fmt: skip


def bid_cases() -> list[Case]:
    nine = tuple(UnitTurn(unit=bytes([n]) * 16, ctr=0) for n in range(9))
    shapes = sealed_cases(make.bid, FEED, {
        "rfq": (bytes(31),),
        "renter": (bytes(33),),
        "units": ((), nine, (UnitTurn(unit=bytes(15), ctr=0),)),
        "micro_per_gpu_hour": (-1, 2**63),
        "terms": (make.terms(network="all"), make.terms(isolation="none"), make.terms(v=2)),
        "exclusive": ("no",),
        "valid_until_ms": (0,),
    })  # fmt: skip
    question = sealed(make.rfq(), RENTER).hex()
    common = {"genesis": encode(GENESIS).hex(), "question": question, "now": NOW}
    return [*(common | one for one in shapes), *bid_rules(), *renewal_rules()]


def refusal_cases() -> list[Case]:
    shapes = sealed_cases(make.refusal, FEED, {
        "of": (bytes(31),),
        "reason": ("NO",),
        "detail": ("d" * 201,),
        "advert": (bytes(ADVERT_BYTES_MAX + 193),),
        "issued_ms": (0,),
    })  # fmt: skip

    def rule(name: str, signer: Signer = FEED, **changes: Any) -> Case:
        raw = sealed(make.refusal(**changes), signer)
        return {"name": name, "bytes": raw.hex(), "rule": "refusal.answer"}

    rules = [
        rule("of another message", of=Digest(bytes(32))),
        rule("to another renter", renter=STRANGER.public),
        rule("of another owner", STRANGER),
    ]
    common = {"of": digest("rfq", encode(make.rfq())).hex(), "owner": FEED.public.hex(),
              "renter": RENTER.public.hex()}  # fmt: skip
    return [common | one for one in (*shapes, *rules)]


def other_auction() -> Heard:
    """An answered question about another need."""
    question = make.rfq(need=make.need(vram_mib_min=1))
    answer = make.bid(rfq=digest("rfq", encode(question)))
    return Heard(rfq=sealed(question, RENTER), bid=sealed(answer), judged=make.judged())


def other_renter() -> Heard:
    question = make.rfq()
    answer = make.bid(renter=STRANGER.public)
    return Heard(rfq=sealed(question, STRANGER), bid=sealed(answer), judged=make.judged())


def auction_cases() -> list[Case]:
    def c(name: str, rule: str | None, record: AuctionRecord) -> Case:
        tried = record.chosen[-1].hex() if record.chosen and not rule else None
        return {"name": name, "bytes": encode(record).hex(), "rule": rule, "tried": tried}

    def unfit(bids: tuple[Heard, ...]) -> AuctionRecord:
        return replace(record(()), bids=bids)

    heard, record = make.heard, make.record
    three = (heard(300_000), heard(306_000), heard(400_000))
    rounds = (heard(500_000), heard(300_000, turn=2))
    good = record(three, tries=3)
    [first, second, third] = good.chosen
    crossed = Heard(rfq=heard(1).rfq, bid=heard(2).bid, judged=make.judged())
    no = sealed(make.refusal())
    far = sealed(make.refusal(renter=STRANGER.public))
    return [
        c("of nothing", None, record(())),
        c("of one bid", None, record(three[:1])),
        c("of which nothing was taken", None, record(three, tries=0)),
        c("two within two percent, and one that is not", None, good),
        c("the same, its bids in another order", None, record(three[::-1], tries=3)),
        c("the second first", "auction.choice", record(three, chosen=(second,))),
        c("the dearest first", "auction.choice", record(three, chosen=(third,))),
        c("one left out", "auction.choice", record(three, chosen=(first, third))),
        c("one twice", "auction.choice", record(three, chosen=(first, first))),
        c("one of nowhere", "auction.choice", record(three, chosen=(Digest(bytes(32)),))),
        c("a better bid in the second round", None, record(rounds, tries=2)),
        c("the second round first", "auction.choice",
            record(rounds, chosen=record(rounds, tries=2).chosen[::-1])),
        c("with a refusal", None, record(three, refusals=(no,))),
        c("with a refusal to another", "auction.order", record(three, refusals=(far,))),
        c("with a refusal badly sealed", "seal.bad",
            record(three, refusals=(sealed(make.refusal(), net=make.OTHER_NET),))),
        c("of two needs", "auction.order",
            unfit((*three, other_auction()))),
        c("of two renters", "auction.order",
            unfit((*three, other_renter()))),
        c("with two bids to one question", "auction.twice", unfit(three + three[:1])),
        c("with a bid to another question", "bid.answer", unfit((crossed,))),
    ]  # fmt: skip


def ranking_vectors() -> list[Case]:
    digests = [Digest(bytes([n]) * 32) for n in range(5)]
    rows = {
        "nothing": (),
        "one": (7,),
        "two percent is in the band": (100, 102, 103),
        "ties": (5, 5, 9, 9, 9),
        "for nothing": (0, 0, 1),
    }
    found: list[Case] = []
    for name, scores in rows.items():
        scored = [(digest, Micros(score)) for digest, score in zip(digests, scores, strict=False)]
        for seed in (bytes(16), make.NONCE):
            order = [digest.hex() for digest in ranking(scored, seed)]
            bids = [[digest.hex(), score] for digest, score in scored]
            found.append({"name": name, "seed": seed.hex(), "bids": bids, "order": order})
    return found


def cost_vectors() -> list[Case]:
    raw = sealed(make.rfq(), RENTER)
    asked = unpack(raw, NET, Rfq).body
    odd = make.bid(start_ms=Millis(NOW), end_ms=Millis(NOW + 1), units=make.turns(1))
    late = make.bid(start_ms=Millis(NOW + 3_000), end_ms=Millis(NOW + 3_603_000))
    bronze = make.bid(tier="bronze")
    thoughts = [make.judged(reliability_ppm=ppm) for ppm in (0, 333_333, 999_999, 1_000_000)]
    full = make.judged(
        reliability_ppm=950_000,
        stage_ms=MillisSpan(61_003),
        rtt_ms=47,
        hazard_ppm_per_hour=50_000,
        unmet_ppm=333_333,
    )
    weights = Weights(
        delay_micro_per_hour=Micros(1_000_001),
        latency_micro_per_ms=Micros(113),
        redo_ms=MillisSpan(600_001),
    )
    rows = [(bid, judged, Weights()) for bid in (make.bid(), odd) for judged in thoughts]
    rows += [(bid, full, weights) for bid in (make.bid(), late, bronze)]
    return [
        {
            "rfq": raw.hex(),
            "bid": sealed(bid).hex(),
            "judged": encode(judged).hex(),
            "weights": encode(weights).hex(),
            "terms": asdict(expected_cost(deal_of(asked, bid, weights), judged, weights)),
        }
        for bid, judged, weights in rows
    ]
