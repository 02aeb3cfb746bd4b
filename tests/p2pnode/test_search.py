from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.matching.book import Offer
from p2pnode.matching.search import Wish, misfit, search
from protocol.advert import Advert, TierAsk
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


wishes = st.builds(
    Wish,
    gpus=st.integers(1, 4),
    vram_min=st.none() | st.sampled_from([8_192, 24_564, 81_559]).map(Mebibytes),
    models=st.sampled_from([(), ("4090",), ("H100",), ("4090", "H100")]),
    regions=st.sampled_from([(), ("DE",), ("NL",)]),
    ask_max=st.none() | st.integers(0, 500_000).map(Micros),
    money=st.sampled_from([None, "USD", "EUR"]),
)
offers = st.lists(
    st.builds(
        make_offer,
        number=st.integers(0, 1_000),
        ask=st.integers(0, 500_000),
        vram_mib=st.sampled_from([8_192, 24_564, 81_559]),
        free=st.integers(0, 4),
        region=st.sampled_from(["DE", "NL"]),
        model=st.sampled_from(["NVIDIA GeForce RTX 4090", "NVIDIA H100 80GB HBM3"]),
    ),
    max_size=12,
)


@given(offers, wishes)
def test_every_offer_is_counted_once(seen: list[Offer], wish: Wish) -> None:
    found = search(seen, wish)
    assert len(found.fits) + sum(found.misfits.values()) == len(seen)


@given(offers, wishes, st.data())
def test_relaxing_a_wish_never_loses_a_match(
    seen: list[Offer], wish: Wish, data: st.DataObject
) -> None:
    none = Wish()
    field = data.draw(
        st.sampled_from(["gpus", "vram_min", "models", "regions", "ask_max", "money"])
    )
    relaxed = replace(wish, **{field: getattr(none, field)})
    before = [offer.head for offer in search(seen, wish).fits]
    after = [offer.head for offer in search(seen, relaxed).fits]
    assert all(head in after for head in before)
