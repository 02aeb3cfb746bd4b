"""Which bid wins does not depend on who computes it, nor on the order in which bids came."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from protocol.advert import TIERS
from protocol.codec import encode
from protocol.errors import PeerFault
from protocol.lease import charge
from protocol.limits import AUCTION_BYTES_MAX, INT_MAX
from protocol.scoring import (
    BAND_PPM,
    PPM,
    AuctionRecord,
    Deal,
    Heard,
    Judged,
    Weights,
    check_auction,
    expected_cost,
    order_of,
    ranking,
)
from protocol.units import Digest, Micros, MillisSpan
from tests import make
from tests.make import NET

HOUR = 3_600_000

digests = st.binary(min_size=32, max_size=32).map(Digest)
scores = st.integers(0, 300) | st.integers(0, 2**80)
bids = st.lists(
    st.tuples(digests, scores.map(Micros)), max_size=12, unique_by=lambda scored: scored[0]
)
seeds = st.binary(min_size=16, max_size=16)


@given(scored=bids, seed=seeds)
def test_a_ranking_has_every_bid_once(scored: list[tuple[Digest, Micros]], seed: bytes) -> None:
    assert sorted(ranking(scored, seed)) == sorted(digest for digest, _ in scored)


@given(
    orders=bids.flatmap(lambda found: st.tuples(st.just(found), st.permutations(found))), seed=seeds
)
def test_a_ranking_does_not_depend_on_the_order_of_arrival(
    orders: tuple[list[tuple[Digest, Micros]], list[tuple[Digest, Micros]]], seed: bytes
) -> None:
    assert ranking(orders[0], seed) == ranking(orders[1], seed)


@given(scored=bids.filter(bool), seed=seeds)
def test_the_band_comes_first_and_the_others_by_score_then_digest(
    scored: list[tuple[Digest, Micros]], seed: bytes
) -> None:
    order, score_of = ranking(scored, seed), dict(scored)
    best = min(score_of.values())
    is_near = [(score_of[digest] - best) * PPM <= best * BAND_PPM for digest in order]
    count = is_near.count(True)
    assert is_near == [True] * count + [False] * (len(order) - count)
    others = [(score_of[digest], digest) for digest in order[count:]]
    assert others == sorted(others)


def test_each_bid_of_a_band_comes_first_under_some_seed() -> None:
    scored = [(Digest(bytes([n]) * 32), Micros(100 + n)) for n in range(3)]
    firsts = {ranking(scored, bytes([n]) * 16)[0] for n in range(40)}
    assert firsts == {digest for digest, _ in scored}


shares = st.integers(0, PPM)
uints = st.integers(0, 100_000) | st.integers(0, INT_MAX)
spans = uints.map(MillisSpan)
judgements = st.builds(
    Judged,
    reliability_ppm=shares,
    stage_ms=spans,
    rtt_ms=uints,
    hazard_ppm_per_hour=uints,
    unmet_ppm=shares,
)
weightings = st.builds(
    Weights,
    delay_micro_per_hour=uints.map(Micros),
    latency_micro_per_ms=uints.map(Micros),
    redo_ms=spans,
)
deals = st.builds(
    Deal,
    micro_per_gpu_hour=uints.map(Micros),
    gpus=st.integers(1, 8),
    span_ms=spans,
    wait_ms=spans,
    tier=st.sampled_from(TIERS),
)


@given(deal=deals, judged=judgements, weights=weightings)
def test_no_term_is_below_zero_so_that_the_price_bounds_the_score(
    deal: Deal, judged: Judged, weights: Weights
) -> None:
    cost = expected_cost(deal, judged, weights)
    terms = asdict(cost)
    assert min(terms.values()) >= 0
    assert cost.score == sum(terms.values()) >= cost.price
    assert cost.price == charge(MillisSpan(deal.span_ms * deal.gpus), deal.micro_per_gpu_hour)
    if deal.tier != "bronze":
        assert cost.interruption == 0


WORSE = {
    "reliability_ppm": lambda was: was // 2,
    "stage_ms": lambda was: was + 1_000,
    "rtt_ms": lambda was: was + 10,
    "hazard_ppm_per_hour": lambda was: was * 2,
    "unmet_ppm": lambda was: min(PPM, was + 1_000),
}


@pytest.mark.parametrize("fact", WORSE)
@given(deal=deals, judged=judgements, weights=weightings)
def test_what_is_worse_is_never_expected_to_cost_less(
    fact: str, deal: Deal, judged: Judged, weights: Weights
) -> None:
    worse = replace(judged, **{fact: WORSE[fact](getattr(judged, fact))})
    before = expected_cost(deal, judged, weights).score
    assert expected_cost(deal, worse, weights).score >= before


def test_the_terms_are_what_the_words_say() -> None:
    """One hour of two GPUs at 0.40, by somebody who needs ten minutes to load."""
    deal = Deal(
        micro_per_gpu_hour=Micros(400_000),
        gpus=2,
        span_ms=MillisSpan(HOUR),
        wait_ms=MillisSpan(HOUR // 10),
        tier="bronze",
    )
    judged = make.judged(
        reliability_ppm=900_000,
        stage_ms=MillisSpan(HOUR // 6),
        rtt_ms=30,
        hazard_ppm_per_hour=50_000,
        unmet_ppm=250_000,
    )
    weights = Weights(
        delay_micro_per_hour=Micros(60_000),
        latency_micro_per_ms=Micros(10),
        redo_ms=MillisSpan(HOUR // 2),
    )
    assert asdict(expected_cost(deal, judged, weights)) == {
        "price": 800_000,
        "staging": 133_334,
        "queue": 16_000,
        "failure": 93_334,
        "interruption": 20_000,
        "latency": 300,
        "unmet": 200_000,
    }


asks = st.lists(st.integers(1, 500_000), min_size=1, max_size=5, unique=True)


@st.composite
def heards(draw: st.DrawFn) -> tuple[Heard, ...]:
    """Answered questions of a few rounds."""
    return tuple(
        make.heard(ask, reliability_ppm=draw(shares), turn=draw(st.integers(1, 3)))
        for ask in draw(asks)
    )


def refused(record: AuctionRecord) -> str | None:
    try:
        check_auction(record, NET)
    except PeerFault as fault:
        return fault.rule
    return None


@settings(max_examples=40)
@given(found=heards(), data=st.data(), seed=seeds)
def test_what_keeps_to_the_rule_is_accepted_and_any_other_choice_refused(
    found: tuple[Heard, ...], data: st.DataObject, seed: bytes
) -> None:
    tries = data.draw(st.integers(0, len(found)))
    whole = make.record(found, tries=len(found))
    assert whole.chosen == tuple(order_of(whole, NET))
    good = replace(whole, chosen=whole.chosen[:tries])
    assert check_auction(good, NET) == (good.chosen[-1] if tries else None)
    reordered = replace(good, bids=tuple(data.draw(st.permutations(found))))
    assert check_auction(reordered, NET) == check_auction(good, NET)
    other = tuple(data.draw(st.lists(st.sampled_from(whole.chosen), max_size=len(found))))
    is_beginning = other == whole.chosen[: len(other)]
    assert refused(replace(good, chosen=other)) == (None if is_beginning else "auction.choice")


def test_a_later_round_is_not_tried_before_all_of_the_first_was() -> None:
    found = (make.heard(500_000), make.heard(400_000), make.heard(1, turn=2))
    order = order_of(make.record(found), NET)
    assert check_auction(make.record(found, chosen=tuple(order)), NET) == order[2]
    skipped = make.record(found, chosen=(order[0], order[2]))
    assert refused(skipped) == "auction.choice"


def test_the_fullest_record_fits_its_file() -> None:
    quote, refusal = bytes(4_288), bytes(7_360)
    most = Judged(
        reliability_ppm=PPM,
        stage_ms=MillisSpan(INT_MAX),
        rtt_ms=INT_MAX,
        hazard_ppm_per_hour=INT_MAX,
        unmet_ppm=PPM,
    )
    heard = Heard(rfq=quote, bid=quote, judged=most, round=64)
    full = AuctionRecord(
        seed=bytes(16),
        weights=Weights(
            delay_micro_per_hour=Micros(INT_MAX),
            latency_micro_per_ms=Micros(INT_MAX),
            redo_ms=MillisSpan(INT_MAX),
        ),
        offers_seen=INT_MAX,
        bids=(heard,) * 64,
        refusals=(refusal,) * 64,
        chosen=(Digest(bytes(32)),) * 64,
    )
    assert len(encode(full)) <= AUCTION_BYTES_MAX


@pytest.mark.parametrize("number", [0, 65])
def test_rounds_count_from_1_to_64(number: int) -> None:
    record = make.record((make.heard(turn=number),), tries=0)
    with pytest.raises(PeerFault, match=r"codec\.shape"):
        make.decoded(record)
