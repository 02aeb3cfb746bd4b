"""Rules of texts with units: exact in both directions, refused without a unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.quantities import (
    format_money,
    format_rate,
    format_span,
    mib_ceil,
    mib_floor,
    parse_rate,
    parse_size,
    parse_span,
    parse_sum,
)
from protocol.errors import LocalFault
from protocol.limits import INT_MAX
from protocol.units import Micros, MillisSpan

RTX_4090_MIB = 24_564
H100_MIB = 81_559
COUNTS = st.integers(0, INT_MAX)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0B", 0),
        ("1B", 1),
        ("3KB", 3_000),
        ("3KiB", 3_072),
        ("24MB", 24 * 10**6),
        ("24MiB", 24 * 2**20),
        ("24GB", 24 * 10**9),
        ("24GiB", 24 * 2**30),
        ("2TB", 2 * 10**12),
        ("2TiB", 2 * 2**40),
        ("  24 GB ", 24 * 10**9),
        ("1.5GB", 1_500_000_000),
        ("0.1GB", 100_000_000),
        ("0.123456789GB", 123_456_789),
        ("0.5KiB", 512),
    ],
)
def test_a_size_is_exact(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("24", "has no unit"),
        ("1.5", "has no unit"),
        ("", "is not a size"),
        ("GB", "is not a size"),
        ("24gb", "is not a size"),
        ("24Gb", "is not a size"),
        ("24G", "is not a size"),
        ("-1GB", "is not a size"),
        ("1e3GB", "is not a size"),
        ("1,5GB", "is not a size"),
        ("٢GB", "is not a size"),
        ("24GB\n24GB", "is not a size"),
        ("9" * 5_000 + "GB", "is not a size"),
        ("0.5B", "whole units of one byte"),
        ("1.0000000001GB", "whole units of one byte"),
        ("9999999999TB", "more than can be counted"),
    ],
)
def test_what_is_not_a_size_is_refused_with_a_cure(text: str, why: str) -> None:
    with pytest.raises(LocalFault, match=why) as caught:
        parse_size(text)
    assert caught.value.cure
    assert "\n" not in str(caught.value)


def test_a_wish_for_24gb_fits_an_rtx_4090() -> None:
    assert mib_ceil(parse_size("24GB")) <= RTX_4090_MIB


def test_a_wish_for_24gib_does_not_fit_an_rtx_4090() -> None:
    assert mib_ceil(parse_size("24GiB")) > RTX_4090_MIB


def test_a_wish_for_80gb_fits_an_h100() -> None:
    assert mib_ceil(parse_size("80GB")) <= H100_MIB


@given(COUNTS)
def test_mebibytes_of_a_size_enclose_it(size: int) -> None:
    assert 0 <= size - mib_floor(size) * 2**20 < 2**20
    assert 0 <= mib_ceil(size) * 2**20 - size < 2**20


@given(COUNTS)
def test_bytes_written_out_are_read_back(size: int) -> None:
    assert parse_size(f"{size}B") == size


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("0s", 0),
        ("500ms", 500),
        ("90s", 90_000),
        ("10m", 600_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("1h30m", 5_400_000),
        ("1d 2h 3m 4s 5ms", 93_784_005),
        ("1.5h", 5_400_000),
        ("2 h", 7_200_000),
    ],
)
def test_a_span_is_exact(text: str, span: int) -> None:
    assert parse_span(text) == span


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("90", "has no unit"),
        ("", "is not a span"),
        ("h", "is not a span"),
        ("1w", "is not a span"),
        ("5m5m", "is not a span"),
        ("30m1h", "is not a span"),
        ("1h30", "is not a span"),
        ("-1h", "is not a span"),
        ("0.5ms", "whole units of one millisecond"),
        ("200000000000d", "more than can be counted"),
        ("106751991167d 24h", "more than can be counted"),
    ],
)
def test_what_is_not_a_span_is_refused_with_a_cure(text: str, why: str) -> None:
    with pytest.raises(LocalFault, match=why) as caught:
        parse_span(text)
    assert caught.value.cure


@pytest.mark.parametrize(
    ("span", "text"),
    [(0, "0s"), (90_000, "1m30s"), (5_400_000, "1h30m"), (604_800_000, "7d"), (1_500, "1s500ms")],
)
def test_a_span_is_written_in_the_largest_whole_units(span: int, text: str) -> None:
    assert format_span(MillisSpan(span)) == text


@given(COUNTS)
def test_a_span_written_out_is_read_back(span: int) -> None:
    assert parse_span(format_span(MillisSpan(span))) == span


@pytest.mark.parametrize(
    ("text", "micros", "code"),
    [
        ("1.20 USD", 1_200_000, "USD"),
        ("1USD", 1_000_000, "USD"),
        ("0.000001 TEST", 1, "TEST"),
        (" 0 EUR ", 0, "EUR"),
    ],
)
def test_a_sum_is_exact(text: str, micros: int, code: str) -> None:
    assert parse_sum(text) == (micros, code)


def test_a_rate_is_exact() -> None:
    assert parse_rate("0.38 USD/gpu-h") == (380_000, "USD")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1.20", "has no unit"),
        ("1.20 usd", "is not a sum"),
        ("1.20 US", "is not a sum"),
        ("1.20 DOLLAR", "is not a sum"),
        ("$1.20", "is not a sum"),
        ("-1 USD", "is not a sum"),
        ("0.0000001 USD", "below a millionth"),
        ("1.0000000 USD", "below a millionth"),
        ("0.38 USD/gpu-h", "is a rate"),
        ("9999999999999 USD", "more than can be counted"),
    ],
)
def test_what_is_not_a_sum_is_refused_with_a_cure(text: str, why: str) -> None:
    with pytest.raises(LocalFault, match=why) as caught:
        parse_sum(text)
    assert caught.value.cure


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0.38", "has no unit"),
        ("0.38 USD", "does not say for how long"),
        ("0.38 USD/h", "is not a rate"),
        ("0.38 usd/gpu-h", "is not a rate"),
        ("0.3800001 USD/gpu-h", "below a millionth"),
    ],
)
def test_what_is_not_a_rate_is_refused_with_a_cure(text: str, why: str) -> None:
    with pytest.raises(LocalFault, match=why) as caught:
        parse_rate(text)
    assert caught.value.cure


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (380_000, "0.38 USD"),
        (1_200_000, "1.20 USD"),
        (0, "0.00 USD"),
        (1, "0.000001 USD"),
        (1_234_500, "1.2345 USD"),
        (-5, "-0.000005 USD"),
    ],
)
def test_money_is_written_with_two_to_six_decimals(micros: int, text: str) -> None:
    assert format_money(Micros(micros), "USD") == text


@given(COUNTS, st.sampled_from(["USD", "EUR", "TEST"]))
def test_money_written_out_is_read_back(micros: int, code: str) -> None:
    money = parse_sum(format_money(Micros(micros), code))
    assert money == (micros, code)
    assert parse_rate(format_rate(money)) == money
