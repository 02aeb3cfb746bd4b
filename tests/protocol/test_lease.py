"""What use costs, and what an owner can judge of a request alone."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.lease import MS_PER_HOUR, charge, digest_of_terms
from protocol.limits import INT_MAX
from protocol.units import Micros, MillisSpan
from tests.make import terms

spans = st.integers(0, INT_MAX).map(MillisSpan) | st.integers(0, MS_PER_HOUR).map(MillisSpan)
prices = st.integers(0, INT_MAX).map(Micros) | st.integers(0, 5).map(Micros)


@given(used=spans, price=prices)
def test_a_charge_is_the_price_of_the_use_rounded_up(used: MillisSpan, price: Micros) -> None:
    assert charge(used, price) == ceil(Fraction(used * price, MS_PER_HOUR))


@given(used=spans, price=prices)
def test_no_use_is_free_unless_the_price_is_nothing(used: MillisSpan, price: Micros) -> None:
    assert (charge(used, price) == 0) == (used == 0 or price == 0)


@given(used=spans, more=spans, price=prices, dearer=prices)
def test_more_use_or_a_higher_price_never_costs_less(
    used: MillisSpan, more: MillisSpan, price: Micros, dearer: Micros
) -> None:
    assert charge(MillisSpan(used + more), price) >= charge(used, price)
    assert charge(used, Micros(price + dearer)) >= charge(used, price)


@given(parts=st.lists(spans, min_size=1, max_size=8), price=prices)
def test_cutting_a_lease_up_costs_at_most_a_micro_for_each_cut(
    parts: list[MillisSpan], price: Micros
) -> None:
    whole = charge(MillisSpan(sum(parts)), price)
    apart = sum(charge(part, price) for part in parts)
    assert whole <= apart < whole + len(parts)


@pytest.mark.parametrize(("used", "price", "micro"), [
    (0, 400_000, 0), (1, 1, 1), (1, 0, 0), (MS_PER_HOUR, 400_000, 400_000),
    (MS_PER_HOUR + 1, 400_000, 400_001), (9, 400_000, 1), (10, 400_000, 2),
])  # fmt: skip
def test_charges_of_single_leases(used: int, price: int, micro: int) -> None:
    assert charge(MillisSpan(used), Micros(price)) == micro


def test_terms_that_differ_have_other_digests() -> None:
    assert digest_of_terms(terms()) != digest_of_terms(terms(cpus=1))
    assert digest_of_terms(terms()) == digest_of_terms(terms())
