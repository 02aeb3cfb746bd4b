"""Items read by their layout are what the codec reads, and nothing else is read."""

import re

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.layout import UINT, length, read_bytes, uint, uint_of
from protocol.limits import INT_MAX

INTS = st.integers(0, INT_MAX) | st.sampled_from([
    edge + step for edge in (24, 1 << 8, 1 << 16, 1 << 32) for step in (-1, 0, 1)
])  # fmt: skip
PATTERN = re.compile(UINT, re.DOTALL)


def canonical(raw: bytes) -> object:
    """What these bytes are the one encoding of; None if there is no such thing."""
    try:
        value = cbor2.loads(raw)
        return value if cbor2.dumps(value, canonical=True) == raw else None
    except (cbor2.CBORDecodeError, ValueError, TypeError):
        return None


@given(INTS)
def test_an_integer_is_laid_out_as_it_is_encoded(value: int) -> None:
    assert uint(value) == cbor2.dumps(value)
    assert PATTERN.fullmatch(uint(value))
    assert uint_of(uint(value)) == value


@given(st.integers(0, 31).map(lambda first: bytes([first])), st.binary(max_size=9))
def test_only_the_one_encoding_of_an_integer_is_one(first: bytes, rest: bytes) -> None:
    raw = first + rest
    value = canonical(raw)
    is_uint = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT_MAX
    assert (PATTERN.fullmatch(raw) is not None) == is_uint
    if is_uint:
        assert uint_of(raw) == value


@given(st.integers(0, 65_535))
def test_a_length_is_laid_out_as_it_is_encoded(size: int) -> None:
    assert length(size) + bytes(size) == cbor2.dumps(bytes(size))


@given(st.binary(max_size=400) | st.binary(min_size=1, max_size=9).map(lambda raw: b"\x59" + raw))
def test_a_byte_string_is_read_as_the_codec_reads_it(raw: bytes) -> None:
    try:
        value, stop = read_bytes(raw, 0)
    except (ValueError, IndexError):
        assert not isinstance(canonical(raw), bytes)
        return
    if stop == len(raw):
        assert value == canonical(raw)
    else:
        assert not isinstance(canonical(raw), bytes)


@pytest.mark.parametrize("size", [0, 1, 23, 24, 255, 256, 8_192, 65_535])
def test_a_byte_string_of_any_usual_size_is_read(size: int) -> None:
    raw = b"x" + cbor2.dumps(bytes(size)) + b"y"
    assert read_bytes(raw, 1) == (bytes(size), len(raw) - 1)
