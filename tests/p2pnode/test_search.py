from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from p2pnode.matching.book import Offer
from p2pnode.matching.search import Known, Wish, filters_of, misfit, search, tier_of
from protocol.advert import Advert, Host, TierAsk
from protocol.answers import ISOLATIONS
from protocol.certificate import Certificate
from protocol.signing import Signer, peer_id_of
from protocol.units import Mebibytes, Micros, Millis

KEY = Signer(bytes(32)).public


def make_offer(number: int = 0, ask: int = 300_000, **changes: object) -> Offer:
    fields: dict[str, object] = {
        "certificate": b"",
        "group": bytes(16),
        "incarnation": 1,
        "seq": 1,
        "state": "open",
        "issued_ms": Millis(1),
        "not_after_ms": Millis(2),
        "gpu": "simulated",
        "model": "NVIDIA GeForce RTX 4090",
        "gpu_class": 24,
        "vram_mib": 24_564,
        "units": 2,
        "free": 2,
        "tiers": (TierAsk(tier="silver", micro_per_gpu_hour=Micros(ask)),),
        "money": "USD",
        "isolation": "process",
        "region": "DE",
        "addresses": (),
        **changes,
    }
    certificate = Certificate(
        net=bytes(32),  # type: ignore[arg-type]
        root=KEY,
        feed=KEY,
        peer_id=peer_id_of(KEY),
        x25519=KEY,
        not_before_ms=Millis(1),
        not_after_ms=Millis(2),
        n=0,
    )
    return Offer(
        raw=b"",
        head=(number.to_bytes(16, "big"), 1, 1, bytes(16)),
        signer=KEY,
        advert=Advert(**fields),  # type: ignore[arg-type]
        certificate=certificate,
        taken_ms=Millis(1),
    )


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (Wish(), None),
        (Wish(gpus=2), None),
        (Wish(gpus=3), "gpus"),
        (Wish(vram_min=Mebibytes(24_564)), None),
        (Wish(vram_min=Mebibytes(24_565)), "vram"),
        (Wish(models=("RTX4090",)), None),
        (Wish(models=("rtx 4090", "H100")), None),
        (Wish(models=("H100",)), "model"),
        (Wish(regions=("NL", "DE")), None),
        (Wish(regions=("NL",)), "region"),
        (Wish(tier="gold"), "tier"),
        (Wish(money="EUR"), "money"),
        (Wish(ask_max=Micros(300_000)), None),
        (Wish(ask_max=Micros(299_999)), "price"),
    ],
)
def test_an_offer_fails_for_the_first_thing_that_does_not_fit(wish: Wish, why: str | None) -> None:
    assert misfit(make_offer(), wish) == why


def test_a_leased_gpu_is_busy_and_not_too_few() -> None:
    assert misfit(make_offer(free=0), Wish()) == "busy"


def test_gold_is_quoted_on_request_so_no_price_rules_it_out() -> None:
    offer = make_offer(tiers=(TierAsk(tier="gold"),))
    assert misfit(offer, Wish(tier="gold", ask_max=Micros(0))) is None


def test_the_cheapest_comes_first_and_ties_go_by_key() -> None:
    offers = [make_offer(2, 5), make_offer(3, 4), make_offer(1, 5)]
    found = search(offers, Wish())
    assert [offer.head[0][-1] for offer in found.fits] == [3, 1, 2]


NONE = Wish()
DURING = (Millis(1_000), Millis(3_601_000))
TERMS: dict[str, st.SearchStrategy[object]] = {
    "gpus": st.integers(1, 4),
    "vram_min": st.sampled_from([8_192, 24_564, 81_559]),
    "models": st.sampled_from([("4090",), ("H100",), ("4090", "H100"), ("h100-80gb",)]),
    "regions": st.sampled_from([("DE",), ("NL",), ("DE", "FR")]),
    "isolation_min": st.sampled_from(ISOLATIONS),
    "driver_min": st.sampled_from([(535,), (550, 54, 14), (580,)]),
    "compute_min": st.sampled_from([(8, 0), (8, 9), (9, 0)]),
    "cpus_min": st.integers(1, 32),
    "memory_mib_min": st.integers(1, 4_096),
    "disk_mib_min": st.integers(1, 4_096),
    "down_kbit_s_min": st.integers(1, 1_000),
    "up_kbit_s_min": st.integers(1, 1_000),
    "or_tiers": st.sampled_from([("bronze",), ("gold", "bronze")]),
    "money": st.sampled_from(["USD", "EUR"]),
    "ask_max": st.integers(0, 500_000),
    "total_max": st.integers(0, 1_500_000),
    "during": st.just(DURING),
    "end_by_ms": st.sampled_from([3_600_999, 3_601_000]),
    "reliability_ppm_min": st.integers(0, 1_000_000),
    "rtt_ms_max": st.integers(0, 300),
}
wishes = st.fixed_dictionaries({}, optional=TERMS).map(lambda terms: Wish(**terms))  # type: ignore[arg-type]
maybe = st.none() | st.integers(1, 1_000_000)
knowns = st.builds(Known, reliability_ppm=maybe, rtt_ms=st.none() | st.integers(0, 300))
hosts = st.just(UNSET) | st.builds(
    Host,
    cpus=st.just(UNSET) | st.integers(1, 32),
    memory_mib=st.just(UNSET) | st.integers(1, 4_096),
    disk_mib=st.just(UNSET) | st.integers(1, 4_096),
    down_kbit_s=st.just(UNSET) | st.integers(1, 1_000),
    up_kbit_s=st.just(UNSET) | st.integers(1, 1_000),
    driver=st.sampled_from([UNSET, "535.104.05", "570.86.15", "nouveau"]),
    compute=st.sampled_from([UNSET, (8, 0), (8, 9), (9, 0)]),
)
ASKS = [
    (TierAsk(tier="gold"),),
    (TierAsk(tier="silver", micro_per_gpu_hour=Micros(300_000)),),
    (
        TierAsk(tier="silver", micro_per_gpu_hour=Micros(300_000)),
        TierAsk(tier="bronze", micro_per_gpu_hour=Micros(150_000)),
    ),
    (TierAsk(tier="gold"), TierAsk(tier="bronze", micro_per_gpu_hour=Micros(150_000))),
]
offers = st.lists(
    st.builds(
        make_offer,
        number=st.integers(0, 1_000),
        vram_mib=st.sampled_from([8_192, 24_564, 81_559]),
        free=st.integers(0, 4),
        units=st.just(4),
        region=st.sampled_from(["DE", "NL"]),
        model=st.sampled_from(["NVIDIA GeForce RTX 4090", "NVIDIA H100 80GB HBM3"]),
        isolation=st.sampled_from(ISOLATIONS),
        host=hosts,
        tiers=st.sampled_from(ASKS),
        money=st.sampled_from(["USD", "EUR"]),
        lease_ms_min=st.sampled_from([UNSET, 60_000, 7_200_000]),
        lease_ms_max=st.sampled_from([UNSET, 60_000, 7_200_000]),
    ),
    max_size=12,
)


@given(offers, wishes)
def test_every_offer_is_counted_once(seen: list[Offer], wish: Wish) -> None:
    found = search(seen, wish)
    assert len(found.fits) + sum(found.misfits.values()) == len(seen)


def relaxations(wish: Wish, name: str, data: st.DataObject) -> Wish:
    """The wish with one constraint weaker, or gone."""
    value = getattr(wish, name)
    weaker: object = getattr(NONE, name)
    if isinstance(value, int) and name not in {"money", "tier"}:
        far = 10 if name.endswith("_max") or name == "end_by_ms" else -1
        weaker = data.draw(st.just(weaker) | st.just(max(1, value + far * value // 2)))
    elif name in {"regions", "models"}:
        weaker = data.draw(st.just(weaker) | st.just((*value, "FR" if name == "regions" else "T4")))
    elif name == "isolation_min":
        at = ISOLATIONS.index(value)
        weaker = data.draw(st.sampled_from([None, *ISOLATIONS[:at]]))
    elif name == "or_tiers":
        weaker = (*value, "silver", "gold")
    changes: dict[str, Any] = {name: weaker}
    return replace(wish, **changes)


@given(offers, wishes, knowns, st.data())
def test_b1_relaxing_a_wish_never_loses_a_match(
    seen: list[Offer], wish: Wish, known: Known, data: st.DataObject
) -> None:
    stated = [name for name in TERMS if getattr(wish, name) != getattr(NONE, name)]
    name = data.draw(st.sampled_from(stated or ["gpus"]))
    relaxed = relaxations(wish, name, data)
    before = [offer.head for offer in search(seen, wish, lambda _offer: known).fits]
    after = [offer.head for offer in search(seen, relaxed, lambda _offer: known).fits]
    assert all(head in after for head in before)


@given(offers, wishes)
def test_each_filter_that_is_asked_for_can_say_no_by_itself(seen: list[Offer], wish: Wish) -> None:
    for offer in seen:
        failing = [each for each in filters_of(wish) if each.fails(offer, wish, Known())]
        assert (misfit(offer, wish) is None) == (not failing)


def test_what_an_advert_does_not_state_satisfies_no_constraint() -> None:
    assert misfit(make_offer(), Wish(cpus_min=1)) == "cpus unstated"
    assert misfit(make_offer(host=Host(cpus=4)), Wish(cpus_min=4)) is None
    assert misfit(make_offer(host=Host(cpus=4)), Wish(cpus_min=5)) == "cpus"
    assert misfit(make_offer(host=Host(driver="nouveau")), Wish(driver_min=(1,))) == (
        "driver unstated"
    )
    assert misfit(make_offer(), Wish(rtt_ms_max=10)) == "rtt unstated"
    assert misfit(make_offer(), Wish(rtt_ms_max=10), Known(rtt_ms=10)) is None


def test_b1_any_of_several_models_will_do() -> None:
    assert misfit(make_offer(), Wish(models=("A100", "RTX4090"))) is None


def test_the_cheapest_of_the_tiers_that_will_do_is_taken() -> None:
    offer = make_offer(tiers=ASKS[2])
    assert tier_of(offer, Wish()) == "silver"
    assert tier_of(offer, Wish(or_tiers=("bronze",))) == "bronze"
    assert misfit(offer, Wish(ask_max=Micros(200_000))) == "price"
    assert misfit(offer, Wish(ask_max=Micros(200_000), or_tiers=("bronze",))) is None


def test_other_money_matches_by_a_pinned_rate_alone() -> None:
    offer = make_offer(0, 300_000, money="EUR")
    in_dollars = Wish(money="USD", ask_max=Micros(324_000))
    assert misfit(offer, in_dollars) == "money"
    assert misfit(offer, replace(in_dollars, rates=(("EUR", 1_080_000),))) is None
    assert misfit(offer, replace(in_dollars, rates=(("EUR", 1_080_001),))) == "price"


def test_the_whole_is_held_to_its_limit_and_its_time_to_the_owner_and_the_deadline() -> None:
    wish = Wish(gpus=2, during=DURING, total_max=Micros(600_000))
    assert misfit(make_offer(), wish) is None
    assert misfit(make_offer(), replace(wish, total_max=Micros(599_999))) == "total"
    assert misfit(make_offer(lease_ms_max=3_599_999), wish) == "time"
    assert misfit(make_offer(lease_ms_min=3_600_001), wish) == "time"
    assert misfit(make_offer(), replace(wish, end_by_ms=DURING[1])) is None
    assert misfit(make_offer(), replace(wish, end_by_ms=Millis(3_600_999))) == "deadline"
