"""An owner whose GPUs are usually wanted together asks more of a job that leaves odd pieces."""

from typing import Any

import pytest
from msgspec import UNSET

from p2pnode.cabinet import MemoryCabinet
from p2pnode.matching.journal import USUAL_LEAST, Journal
from p2pnode.matching.pricing import price
from p2pnode.matching.surcharge import Shape, surcharges
from protocol.advert import Surcharge, price_for
from protocol.units import Millis
from tests import make
from tests.make import NOW
from tests.make_desk import posting, shelf


def journal(*gpus: int, renters: int = 5) -> Journal:
    """Of an owner that was asked for so many GPUs, one after the other, by these in turn."""
    found = Journal(MemoryCabinet())
    for number, count in enumerate(gpus):
        rfq = make.rfq(need=make.need(gpus=count), nonce=number.to_bytes(16, "big"))
        renter = make.signer(20 + number % renters).public
        found.refused(rfq, renter, Millis(NOW + number * 60_000), ("TAKEN", ""))
    return found


def test_what_is_usual_needs_some_requests_and_is_that_of_the_group() -> None:
    assert journal(*([4] * (USUAL_LEAST - 1))).usual(make.GROUP) == ()
    asked = journal(*([4] * USUAL_LEAST), 1)
    assert asked.usual(make.GROUP) == (Shape(gpus=1), Shape(gpus=4, weight=USUAL_LEAST))
    assert asked.usual(bytes(16)) == ()


def test_one_renter_alone_does_not_say_what_is_usual() -> None:
    assert journal(*([8] * 100), renters=1).usual(make.GROUP) == ()


def test_a_small_job_pays_for_what_it_breaks_up_and_never_more_than_twice() -> None:
    usual = journal(*([4] * USUAL_LEAST)).usual(make.GROUP)
    added = surcharges(4, usual, most_ppm=1_000_000)
    assert added[0] == Surcharge(units=1, ppm=1_000_000)
    assert added[-1] == Surcharge(units=4, ppm=0)
    assert surcharges(4, (), most_ppm=1_000_000) == ()


@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
def test_the_price_of_a_bid_is_that_of_the_advert(gpus: int) -> None:
    added = (Surcharge(units=1, ppm=333_333), Surcharge(units=3, ppm=0))
    rfq = make.rfq(need=make.need(gpus=gpus))
    asked = price(rfq, posting(), shelf(surcharges=added))
    advert = make.advert(tiers=tiers(390_000), surcharges=added)
    assert asked == price_for(advert, "silver", gpus)
    assert asked == (520_000 if gpus < 3 else 390_000)


def tiers(ask: int) -> Any:
    from protocol.advert import TierAsk

    return (TierAsk(tier="silver", micro_per_gpu_hour=ask),)  # type: ignore[arg-type]


def test_without_any_nothing_is_stated() -> None:
    assert make.advert().surcharges is UNSET
    assert price(make.rfq(), posting(), shelf()) == 390_000
