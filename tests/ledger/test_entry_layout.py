"""The short way to read and write entries against the codec: they never differ."""

import cbor2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.bodies import KINDS
from ledger.entry import (
    Frame,
    Header,
    Link,
    _decoded_fields,
    _decoded_header,
    _fields,
    _laid_out_header,
    pack_frame,
    pack_header,
)
from ledger.records import HeadRecord, put_head
from protocol.codec import (
    Wire,
    checked_numbered,
    decode_numbered,
    encode,
    encode_numbered,
)
from protocol.errors import PeerFault
from protocol.units import PublicKey
from tests.make_ledger import statement
from tests.protocol.strategies import HALF, edited, structs


@HALF
@given(header=structs(Header))
def test_a_header_is_written_and_read_as_the_codec_does(header: Header) -> None:
    raw = pack_header(header)
    assert raw == encode(header)
    assert _laid_out_header(raw) == header


@HALF
@given(data=st.data())
def test_changed_headers_are_read_as_the_codec_reads_them_or_left_to_it(
    data: st.DataObject,
) -> None:
    raw = data.draw(edited(encode(data.draw(structs(Header)))))
    short = _laid_out_header(raw)
    try:
        header = _decoded_header(raw)
    except PeerFault:
        assert short is None
    else:
        assert short == header


@HALF
@given(frame=structs(Frame))
def test_a_frame_is_written_and_read_as_the_codec_does(frame: Frame) -> None:
    raw = pack_frame(frame.hdr, frame.sig, frame.body)
    assert raw == encode(frame)
    assert _fields(raw) == (frame.hdr, frame.sig, frame.body)


@HALF
@given(data=st.data())
def test_changed_frames_are_read_as_the_codec_reads_them_or_left_to_it(
    data: st.DataObject,
) -> None:
    raw = data.draw(edited(encode(data.draw(structs(Frame)))))
    try:
        short = _fields(raw)
    except (ValueError, IndexError):
        short = None
    try:
        fields = _decoded_fields(raw)
    except PeerFault:
        assert short is None
    else:
        assert short == fields


@given(head=structs(HeadRecord))
def test_the_end_of_a_feed_is_written_as_the_codec_does(head: HeadRecord) -> None:
    batch: dict[bytes, bytes] = {}
    put_head(batch, PublicKey(head.id), Link(seq=head.seq, id=head.id, ts_ms=head.ts_ms))
    assert list(batch.values()) == [encode(head)]


@pytest.mark.parametrize("shape", KINDS.values(), ids=lambda shape: shape.__name__)
@HALF
@given(data=st.data())
def test_a_body_is_checked_as_whoever_reads_it_checks_it(
    shape: type[Wire], data: st.DataObject
) -> None:
    body = data.draw(structs(shape))
    raw = encode_numbered(body)
    plain = {int(n): v for n, v in msgspec.to_builtins(body, builtin_types=(bytes,)).items()}
    assert raw == cbor2.dumps(plain, canonical=True)
    assert checked_numbered(body) == decode_numbered(raw, shape, size_max=len(raw)) == body


def test_a_body_out_of_bounds_is_refused_before_it_is_written() -> None:
    with pytest.raises(PeerFault, match=r"codec\.shape"):
        checked_numbered(msgspec.structs.replace(statement(), used_ms=-1))
