"""What is asked of an advert beside whether it holds, which the vectors show row by row."""

import pytest

from protocol.advert import Tier, ask_for, check_advert, is_expired
from protocol.certificate import Certificate, read_certificate
from protocol.units import Millis, NetId
from tests import make
from tests.make import FEED, GENESIS, NET, NOW


def test_an_advert_holds_to_its_last_millisecond() -> None:
    advert = make.advert()
    assert not is_expired(advert, advert.not_after_ms)
    assert is_expired(advert, Millis(advert.not_after_ms + 1))


@pytest.mark.parametrize(("tier", "ask"), [("gold", None), ("silver", 400_000), ("bronze", 0)])
def test_the_ask_is_that_of_the_tier_and_gold_has_none(tier: Tier, ask: int | None) -> None:
    assert ask_for(make.full_advert(), tier) == ask


def test_a_tier_that_is_not_offered_has_no_ask() -> None:
    assert ask_for(make.advert(), "bronze") is None


def test_whoever_judges_may_remember_certificates() -> None:
    asked = []

    def read(raw: bytes, net: NetId) -> Certificate:
        asked.append(raw)
        return read_certificate(raw, net)

    held = check_advert(
        make.advert(), signer=FEED.public, genesis=GENESIS, net=NET, now=NOW, read=read
    )
    assert held == make.certificate()
    assert asked == [make.CERTIFICATE]
