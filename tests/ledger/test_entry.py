import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ledger.entry import (
    Entry,
    Frame,
    Header,
    check_link,
    check_place,
    check_seal,
    id_of,
    link_of,
    read_entry,
    seal,
)
from ledger.limits import ENTRY_BYTES_MAX, HEADER_BYTES_MAX
from protocol.codec import encode, encode_plain
from protocol.errors import PeerFault
from protocol.units import Digest, Millis, NetId, PublicKey, Signature
from tests.make_ledger import NET, OWNER, STRANGER, Feed, at, statement


def second() -> Entry:
    feed = Feed(OWNER)
    feed.open()
    return feed.add(statement())


def changed(entry: Entry, **fields: object) -> Header:
    return msgspec.structs.replace(entry.header, **fields)


def test_an_entry_is_read_back_as_it_was_written() -> None:
    entry = second()
    again = read_entry(entry.raw, NET)
    assert again == entry
    assert again.id == id_of(entry.draft.hdr, NET)
    check_seal(again, NET)


def test_the_longest_header_fits() -> None:
    header = Header(
        v=1,
        feed=PublicKey(bytes(32)),
        seq=2**63 - 1,
        prev=Digest(bytes(32)),
        ts_ms=Millis(2**63 - 1),
        kind=65_535,
        rules=bytes(8),
        body_hash=Digest(bytes(32)),
        body_len=8_192,
    )
    assert len(encode(header)) == 137 <= HEADER_BYTES_MAX


def test_an_id_is_of_one_network_and_does_not_cover_the_signature() -> None:
    entry = second()
    other = Entry(draft=entry.draft, signature=Signature(bytes(64)))
    assert other.id == entry.id
    assert read_entry(entry.raw, NetId(bytes(32))).id != entry.id


def test_an_entry_too_long_is_refused_unread() -> None:
    with pytest.raises(PeerFault, match=r"entry\.size"):
        read_entry(bytes(ENTRY_BYTES_MAX + 1), NET)


@given(st.binary(max_size=300))
def test_bytes_by_chance_are_no_entry(raw: bytes) -> None:
    with pytest.raises(PeerFault, match=r"entry\.form"):
        read_entry(raw, NET)


@given(st.data())
def test_an_entry_with_one_byte_changed_does_not_hold(data: st.DataObject) -> None:
    entry = second()
    where = data.draw(st.integers(0, len(entry.raw) - 1))
    bit = data.draw(st.integers(0, 7))
    raw = bytearray(entry.raw)
    raw[where] ^= 1 << bit
    with pytest.raises(PeerFault):
        check_seal(read_entry(bytes(raw), NET), NET)


@pytest.mark.parametrize(
    "raw",
    [
        encode_plain([second().draft.hdr, bytes(64)]),
        encode_plain([second().draft.hdr, bytes(63), b"\xa0"]),
        encode_plain([second().draft.hdr, bytes(64), b""]),
        encode_plain([b"\x80", bytes(64), b"\xa0"]),
        encode_plain([encode_plain([2, *list(range(8))]), bytes(64), b"\xa0"]),
        b"\x9f" + second().raw[1:] + b"\xff",
        second().raw + b"\0",
    ],
    ids=["no body", "short signature", "empty body", "no header", "v2", "indefinite", "trailing"],
)
def test_other_forms_are_refused(raw: bytes) -> None:
    with pytest.raises(PeerFault, match=r"entry\.form"):
        read_entry(raw, NET)


def test_entry_0_and_no_other_is_a_genesis() -> None:
    feed = Feed(OWNER)
    first = feed.open()
    check_place(first.header)
    check_place(second().header)
    with pytest.raises(PeerFault, match=r"entry\.kind"):
        check_place(changed(first, kind=1))
    with pytest.raises(PeerFault, match=r"entry\.kind"):
        check_place(changed(second(), kind=0))
    with pytest.raises(PeerFault, match=r"entry\.prev"):
        check_place(changed(first, prev=Digest(b"p" * 32)))


def test_an_entry_follows_its_predecessor() -> None:
    feed = Feed(OWNER, ts=5)
    first = feed.open()
    entry = feed.add(statement())
    check_link(first.header, None)
    check_link(entry.header, link_of(first.draft))
    for fields, rule in (
        ({"seq": 2}, "entry.seq"),
        ({"prev": Digest(b"p" * 32)}, "entry.prev"),
        ({"ts_ms": at(4)}, "entry.time"),
    ):
        with pytest.raises(PeerFault) as caught:
            check_link(changed(entry, **fields), link_of(first.draft))
        assert caught.value.rule == rule
    with pytest.raises(PeerFault, match=r"entry\.seq"):
        check_link(entry.header, None)


def test_body_and_seal_must_be_the_authors() -> None:
    entry = second()
    body = replace(entry.draft, body=entry.draft.body[:-1] + b"\x01")
    with pytest.raises(PeerFault, match=r"entry\.body"):
        check_seal(replace(entry, draft=body), NET)
    longer = replace(entry.draft, body=entry.draft.body + b"\x01")
    with pytest.raises(PeerFault, match=r"entry\.body"):
        check_seal(replace(entry, draft=longer), NET)
    with pytest.raises(PeerFault, match=r"entry\.seal"):
        check_seal(seal(entry.draft, signer=STRANGER, net=NET), NET)
    with pytest.raises(PeerFault, match=r"entry\.seal"):
        check_seal(entry, NetId(bytes(32)))


def test_a_frame_is_an_array_of_three() -> None:
    entry = second()
    frame = Frame(hdr=entry.draft.hdr, sig=entry.signature, body=entry.draft.body)
    assert encode(frame) == entry.raw
    assert entry.raw[0] == 0x83
    assert entry.seq == 1
