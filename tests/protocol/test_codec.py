"""One value, one encoding; and no bytes that make the parser do anything but refuse."""

from typing import Any

import cbor2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.auction import Reply
from protocol.codec import (
    Wire,
    decode,
    decode_numbered,
    decode_plain,
    encode,
    encode_numbered,
    encode_plain,
    extensions_fault,
)
from protocol.errors import PeerFault
from protocol.hello import Answer, Question
from protocol.lease import Terms
from protocol.limits import DEPTH_MAX, DETAIL_CHARACTERS_MAX, FRAME_BYTES_MAX
from tests.make import terms
from tests.protocol.strategies import HALF, edited, shapes, structs

SHAPES = pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.__name__)
SIZE_MAX = 100_000


class Numbered(Wire, frozen=True, rename={"number": "0", "text": "10", "list": "9"}):
    number: int
    text: str
    list: tuple[int, ...] = ()


@SHAPES
@HALF
@given(data=st.data())
def test_what_is_encoded_decodes_to_the_same(shape: type[Wire], data: st.DataObject) -> None:
    value = data.draw(structs(shape))
    raw = encode(value)
    assert raw == cbor2.dumps(msgspec.to_builtins(value, builtin_types=(bytes,)), canonical=True)
    assert decode(raw, shape, size_max=len(raw)) == value


@SHAPES
@HALF
@given(data=st.data())
def test_changed_bytes_are_refused_or_the_encoding_of_what_they_say(
    shape: type[Wire], data: st.DataObject
) -> None:
    raw = data.draw(edited(encode(data.draw(structs(shape)))))
    try:
        value = decode(raw, shape, size_max=SIZE_MAX)
    except PeerFault as fault:
        refused = fault.rule
    else:
        assert encode(value) == raw
        return
    assert refused in {"codec.form", "codec.shape"}


# The first bytes with which an item of each kind begins, to reach more than random bytes do.
HEADS = st.sampled_from([
    bytes([major << 5 | low]) for major in range(8) for low in (0, 1, 2, 23, 24, 25, 26, 27, 28, 31)
])  # fmt: skip


@pytest.mark.parametrize("shape", [Question, Terms])
@given(raw=st.lists(st.binary(max_size=3) | HEADS, max_size=40).map(b"".join))
def test_decode_is_total(shape: type[Wire], raw: bytes) -> None:
    try:
        value = decode(raw, shape, size_max=SIZE_MAX)
    except PeerFault:
        return
    assert encode(value) == raw


@given(raw=st.lists(st.binary(max_size=3) | HEADS, max_size=40).map(b"".join))
def test_the_other_two_ways_to_decode_are_total(raw: bytes) -> None:
    for way in (lambda: decode_plain(raw, size_max=100), numbered(raw)):
        try:
            way()
        except PeerFault as fault:
            assert fault.rule.startswith("codec.")  # noqa: PT017


def numbered(raw: bytes) -> Any:
    return lambda: decode_numbered(raw, Numbered, size_max=100)


def test_a_struct_with_numbered_fields_is_a_map_with_integer_keys() -> None:
    value = Numbered(number=5, text="a", list=(1, 2))
    raw = encode_numbered(value)
    assert raw == encode_plain({0: 5, 9: [1, 2], 10: "a"})
    assert decode_numbered(raw, Numbered, size_max=100) == value


@pytest.mark.parametrize(
    ("plain", "rule"),
    [
        ([1], "codec.shape"),
        ({0: 1}, "codec.shape"),
        ({0: 1, 9: [], 10: b""}, "codec.shape"),
        ({"0": 1, 9: [], 10: ""}, "codec.form"),
        ({0: 1, 10: ""}, "codec.form"),
        ({0: 1, 9: [], 10: "", (1, 2): 3}, "codec.shape"),
    ],
)
def test_other_maps_are_not_structs_with_numbered_fields(plain: object, rule: str) -> None:
    with pytest.raises(PeerFault) as caught:
        decode_numbered(encode_plain(plain), Numbered, size_max=100)
    assert caught.value.rule == rule


def test_size_is_judged_before_anything_else() -> None:
    for way in (decode, decode_numbered):
        with pytest.raises(PeerFault, match=r"codec\.size"):
            way(bytes(11), Numbered, size_max=10)


def colliding_lists(count: int) -> list[tuple[int, int]]:
    """Pairs that Python hashes alike, by its published rule for tuples (xxHash, no secret)."""
    one, two, five, width = (
        11400714785074694791, 14029467366897019727, 2870177450012600261, 2**64,
    )  # fmt: skip
    inverse = pow(two, -1, width)
    pairs: list[tuple[int, int]] = []
    first = 0
    while len(pairs) < count:
        first += 1
        lane = (five + first * two) % width
        lane = (lane << 31 | lane >> 33) % width * one % width
        second = (12345 - lane) * inverse % width
        if second < 2**61 - 1:
            pairs.append((first, second))
    assert len({hash(pair) for pair in pairs}) == 1
    return pairs


def test_a_frame_of_colliding_keys_is_refused_at_its_first_key() -> None:
    pairs = colliding_lists(200)
    keys = b"".join(cbor2.dumps(list(pair)) + b"\0" for pair in pairs)
    with pytest.raises(PeerFault) as caught:
        decode(b"\xb8\xc8" + keys, Question, size_max=FRAME_BYTES_MAX)
    # Were the map built before its keys are looked at, the shape would be what is wrong.
    assert caught.value.rule == "codec.form"


@pytest.mark.parametrize(
    "plain",
    [{"\x1b[31m" + "x" * 9_000: 1}, {"id": 1, "t": "t", "b": b"", "\u202e" * 200: 1}],
)
def test_a_refusal_quotes_the_peer_briefly_and_in_ascii(plain: object) -> None:
    with pytest.raises(PeerFault) as caught:
        decode(encode_plain(plain), Question, size_max=FRAME_BYTES_MAX)
    assert caught.value.detail.isascii()
    assert caught.value.detail.isprintable()
    assert len(caught.value.detail) <= DETAIL_CHARACTERS_MAX * len("\\u202e")


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 0


def test_containers_may_be_nested_as_deep_as_the_limit_says() -> None:
    assert decode_plain(encode_plain(nested(DEPTH_MAX)), size_max=100) == nested(DEPTH_MAX)
    with pytest.raises(PeerFault, match=r"codec\.form"):
        decode_plain(encode_plain(nested(DEPTH_MAX + 1)), size_max=100)


def test_keys_are_ordered_by_length_first() -> None:
    assert encode_plain({"aa": 1, "b": 2, "a": 3}) == bytes.fromhex("a3 6161 03 6162 02 626161 01")


def test_extensions_that_are_too_long_in_bytes_cannot_even_be_made() -> None:
    assert extensions_fault({"k" * 23: "a" * 256}) is None
    with pytest.raises(ValueError, match="too long"):
        Terms(isolation="vm", x={"\u00e9" * 12: ""})
    assert terms(x={"\u00e9" * 11: "\u00e9" * 128}).x == {"\u00e9" * 11: "\u00e9" * 128}


def test_an_answer_is_a_body_or_a_rule() -> None:
    for fields in ({}, {"b": b"", "rule": "a.b"}, {"b": b"", "why": "because"}):
        with pytest.raises(ValueError, match="rule"):
            Answer(id=1, **fields)  # type: ignore[arg-type]


def test_a_reply_is_a_yes_or_a_no() -> None:
    for fields in ({}, {"yes": b"", "no": b""}):
        with pytest.raises(ValueError, match="yes or no"):
            Reply(**fields)
