"""The columns find what a look at every offer by the exact rule finds, whatever came and went."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from p2pnode.matching.book import Offer
from p2pnode.matching.columns import Columns, Query, Ranked
from p2pnode.matching.judging import advertised, judged
from p2pnode.matching.packed import (
    GUARDS,
    VALUES_MAX,
    Seen,
    quantities_of,
    quantities_wanted,
)
from p2pnode.matching.rows import Opinion
from p2pnode.matching.search import Wish, misfit
from protocol.advert import TIERS, Host, Surcharge, TierAsk, ask_for, is_expired
from protocol.certificate import Certificate
from protocol.gpu_class import gpu_class
from protocol.limits import INT_MAX
from protocol.scoring import PPM, UNWEIGHED, Weights, expected_cost
from protocol.units import Mebibytes, Micros, Millis, MillisSpan, PublicKey
from tests import make

VRAMS = (4_096, 8_192, 11_264, 16_376, 24_564, 24_576, 49_140, 81_559, 300_000)
MODELS = ("NVIDIA GeForce RTX 4090", "NVIDIA H100 80GB HBM3", "Tesla T4")
NAMES = ("RTX4090", "H100", "4090", "A100")
REGIONS = ("DE", "FR", "US", "IN")
HOUR = 3_600_000

asks = st.sampled_from((0, 1, 390_000, 390_001, 397_000)) | st.integers(0, INT_MAX)
tier_asks = st.lists(st.sampled_from(("gold", "silver", "bronze")), min_size=1, unique=True)
surcharges = st.none() | st.lists(
    st.tuples(st.integers(1, 8), st.integers(0, 3 * PPM)), min_size=1, max_size=3,
    unique_by=lambda step: step[0],
)  # fmt: skip


@st.composite
def offers(draw: st.DrawFn, number: int) -> Offer:
    """The advert number `number`, of one of four accounts."""
    vram = draw(st.sampled_from(VRAMS))
    steps = draw(surcharges)
    names = draw(tier_asks)
    units = draw(st.integers(0, 12))
    advert = make.advert(
        state=draw(st.sampled_from(("open",) * 9 + ("withdrawn",))),
        model=draw(st.sampled_from(MODELS)),
        vram_mib=vram,
        gpu_class=gpu_class(Mebibytes(vram)),
        units=units,
        free=draw(st.integers(0, units)),
        region=draw(st.sampled_from(REGIONS)),
        money=draw(st.sampled_from(("TEST", "TEST", "EUR"))),
        tiers=tuple(
            TierAsk(tier=name) if name == "gold"
            else TierAsk(tier=name, micro_per_gpu_hour=Micros(draw(asks)))
            for name in TIERS if name in names
        ),
        host=draw(
            st.just(UNSET)
            | st.integers(0, 10**7).map(lambda kbit: Host(down_kbit_s=kbit))
        ),
        surcharges=UNSET if steps is None else tuple(
            Surcharge(units=units, ppm=ppm) for units, ppm in sorted(steps)
        ),
        not_after_ms=Millis(make.NOW + draw(st.sampled_from((-1, 90_000)))),
    )  # fmt: skip
    key = make.signer(number % 4 + 1).public
    return Offer(
        raw=b"",
        head=(number.to_bytes(16, "big"), 1, draw(st.integers(0, 99)), bytes(16)),
        signer=key,
        advert=advert,
        certificate=make.certificate(root=key),
        taken_ms=make.NOW,
    )


wishes = st.builds(
    Wish,
    gpus=st.integers(1, 9),
    vram_min=st.none() | st.sampled_from(VRAMS).map(Mebibytes),
    models=st.lists(st.sampled_from(NAMES), max_size=2).map(tuple),
    regions=st.lists(st.sampled_from(REGIONS), max_size=2).map(tuple),
    tier=st.sampled_from(("gold", "silver", "silver", "bronze")),
    ask_max=st.none() | asks.map(Micros),
    money=st.sampled_from((None, "TEST")),
)
weights = st.just(UNWEIGHED) | st.builds(
    Weights,
    delay_micro_per_hour=asks.map(Micros),
    latency_micro_per_ms=st.integers(0, 10**6).map(Micros),
    redo_ms=st.integers(0, 10 * HOUR).map(MillisSpan),
)


@st.composite
def queries(draw: st.DrawFn) -> Query:
    least = draw(st.integers(1, 4))
    return Query(
        wish=draw(wishes),
        span_ms=MillisSpan(draw(st.sampled_from((1, HOUR)) | st.integers(0, INT_MAX))),
        now=make.NOW,
        weights=draw(weights),
        bytes_to_move=draw(st.sampled_from((0, 1, 10**10))),
        band_ppm=draw(st.sampled_from((0, 20_000, 1_000_000))),
        least=least,
        most=draw(st.integers(least, 12)),
        per_account=draw(st.integers(1, 3)),
        reliability_below_ppm=draw(st.sampled_from((None, None, 500_000, PPM))),
    )


def opinion(offer: Offer) -> Opinion:
    """The same at each question, and different for each offer."""
    number = int.from_bytes(offer.head[0], "big")
    return Opinion(
        reliability_ppm=number * 99_991 % (PPM + 1),
        rtt_ms=number * 37 % 300,
        hazard_ppm_per_hour=number * 70_001 % 300_000,
    )


def unmet(offer: Offer) -> int:
    return int.from_bytes(offer.head[0], "big") * 50_021 % (PPM + 1)


def none_unmet(_offer: Offer) -> int:
    return 0


def fits_all(_offer: Offer) -> bool:
    return True


def by_looking_at_each(
    held: list[Offer], query: Query, fits: Callable[[Offer], bool], missing: Callable[[Offer], int]
) -> list[Ranked]:
    """What `best` promises, without any cleverness."""
    found = []
    for offer in held:
        if offer.advert.state != "open" or is_expired(offer.advert, query.now):
            continue
        if misfit(offer, query.wish) is not None or not fits(offer):
            continue
        below = query.reliability_below_ppm
        if below is not None and opinion(offer).reliability_ppm >= below:
            continue
        thought = judged(
            offer,
            reliability_ppm=opinion(offer).reliability_ppm,
            bytes_to_move=query.bytes_to_move,
            rtt_ms=opinion(offer).rtt_ms,
            hazard_ppm_per_hour=opinion(offer).hazard_ppm_per_hour,
            unmet_ppm=missing(offer),
        )
        deal = advertised(
            offer.advert, tier=query.wish.tier, gpus=query.wish.gpus, span_ms=query.span_ms
        )
        score = expected_cost(deal, thought, query.weights).score
        found.append(Ranked(score, offer.head[0], offer))
    found.sort()
    chosen: list[Ranked] = []
    for ranked in found:
        is_in_band = (ranked.score - found[0].score) * PPM <= found[0].score * query.band_ppm
        account = [each for each in chosen
                   if each.offer.certificate.root == ranked.offer.certificate.root]  # fmt: skip
        if len(account) < query.per_account and len(chosen) < query.most:
            if not is_in_band and len(chosen) >= query.least:
                break
            chosen.append(ranked)
    return chosen


def filled(held: list[Offer]) -> Columns:
    columns = Columns(opinion)
    for offer in held:
        columns.put(offer)
    return columns


@st.composite
def books(draw: st.DrawFn) -> list[Offer]:
    return [draw(offers(number)) for number in range(draw(st.integers(0, 24)))]


@settings(max_examples=100, deadline=None)
@given(held=books(), query=queries(), data=st.data())
def test_the_shortlist_is_that_of_a_look_at_each_offer(
    held: list[Offer], query: Query, data: st.DataObject
) -> None:
    missing = data.draw(st.sampled_from((none_unmet, unmet)))
    shunned: PublicKey | None = data.draw(st.sampled_from((None, make.signer(1).public)))

    def fits(offer: Offer) -> bool:
        return offer.signer != shunned

    found = filled(held).best(query, fits=fits, unmet=missing)
    wanted = by_looking_at_each(held, query, fits, missing)
    assert [(each.score, each.key) for each in found] == [(e.score, e.key) for e in wanted]
    assert [each.offer for each in found] == [each.offer for each in wanted]


@settings(max_examples=60, deadline=None)
@given(first=books(), then=books(), gone=st.sets(st.integers(0, 24)), query=queries())
def test_what_changes_comes_and_goes_is_in_step(
    first: list[Offer], then: list[Offer], gone: set[int], query: Query
) -> None:
    columns = filled(first)
    columns.best(query, fits=fits_all)
    for offer in then:
        columns.put(offer)
    for number in gone:
        columns.drop(number.to_bytes(16, "big"))
    held = {offer.head[0]: offer for offer in (*first, *then)}
    left = [held[key] for key in held if int.from_bytes(key, "big") not in gone]
    found = columns.best(query, fits=fits_all)
    wanted = by_looking_at_each(left, query, fits_all, none_unmet)
    assert [(each.score, each.key) for each in found] == [(e.score, e.key) for e in wanted]
    assert len(columns) == sum(offer.is_open for offer in left)


@given(wish=wishes, others=st.lists(offers(2), max_size=4), offer=offers(1))
def test_the_sieve_lets_pass_whatever_fits(wish: Wish, others: list[Offer], offer: Offer) -> None:
    seen = Seen()
    for other in others:
        seen.properties_of(other.advert)
    has = seen.properties_of(offer.advert)
    passes = (quantities_of(offer.advert) - quantities_wanted(wish)) & GUARDS == GUARDS and all(
        has & mask for mask in seen.properties_wanted(wish)
    )
    assert passes or misfit(offer, wish) is not None


def test_more_values_than_are_told_apart_are_left_to_the_exact_check() -> None:
    seen = Seen()
    words = {seen.properties_of(make.advert(model=f"card {n}")) for n in range(VALUES_MAX + 50)}
    wish = Wish(models=("H100",), regions=("DE",))
    assert 1 < len(words) < VALUES_MAX
    assert len(seen.properties_wanted(wish)) == 1  # of the region alone


def many(count: int, **changes: Any) -> list[Offer]:
    """So many alike offers, but for their prices."""
    found = []
    for number in range(count):
        ask = TierAsk(tier="silver", micro_per_gpu_hour=Micros(300_000 + number * 7_919 % 100_000))
        advert = make.advert(tiers=(ask,), free=2, **changes)
        key = PublicKey(number.to_bytes(32, "big"))
        found.append(
            Offer(
                raw=b"",
                head=(number.to_bytes(16, "big"), 1, 1, bytes(16)),
                signer=key,
                advert=advert,
                certificate=make.certificate(root=key),
                taken_ms=make.NOW,
            )
        )
    return found


@pytest.mark.parametrize("most", [4, 64])
def test_of_thousands_only_few_are_looked_at_one_by_one(most: int) -> None:
    held = many(5_000)
    columns = filled(held)
    looked: list[Offer] = []

    def fits(offer: Offer) -> bool:
        looked.append(offer)
        return True

    query = Query(
        wish=Wish(gpus=1), span_ms=MillisSpan(HOUR), now=make.NOW, band_ppm=20_000, least=4,
        most=most, per_account=2,
    )  # fmt: skip
    found = columns.best(query, fits=fits)
    assert found == by_looking_at_each(held, query, fits_all, none_unmet)
    assert len(looked) < 2 * most
    columns.put(held[17])
    assert columns.best(query, fits=fits_all) == found


class Counted:
    """A certificate that counts how often it is asked whose it is."""

    def __init__(self, root: PublicKey) -> None:
        self._root = root
        self.asked = 0

    @property
    def root(self) -> PublicKey:
        self.asked += 1
        return self._root


def test_many_cheap_offers_of_one_account_cost_one_look_each() -> None:
    held = many(2_000)
    held.sort(key=lambda offer: ask_for(offer.advert, "silver") or 0)
    theirs, dear = held[:-3], held[-3:]
    crowd = Counted(make.signer(1).public)
    query = Query(
        wish=Wish(gpus=1), span_ms=MillisSpan(HOUR), now=make.NOW, band_ppm=20_000, least=4,
        most=64, per_account=2,
    )  # fmt: skip
    of_one = [replace(offer, certificate=cast("Certificate", crowd)) for offer in theirs]
    found = filled([*of_one, *dear]).best(query, fits=fits_all)
    assert len(found) == query.least
    assert [each.offer.certificate for each in found].count(cast("Certificate", crowd)) == 2
    assert crowd.asked <= 2 * len(theirs)
