"""What multicast DNS carries, and that strangers on the wire can put nothing else into it."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zeroconf._utils.name import service_type_name

from p2pnode.network.mdns import (
    SIGHTINGS_MAX,
    Mdns,
    on_the_wire,
    peer_in,
    service_type,
    txt_of,
)
from p2pnode.network.peer_text import address_text
from protocol.limits import ADDRESSES_MAX
from protocol.signing import Signer, peer_id_of
from protocol.units import NetId, PeerId

NET = NetId(bytes(range(32)))


def peer(number: int) -> PeerId:
    return peer_id_of(Signer(number.to_bytes(32, "big")).public)


def record(*strings: bytes) -> bytes:
    return b"".join(bytes([len(string)]) + string for string in strings)


def dnsaddr(text: str) -> bytes:
    return b"dnsaddr=" + text.encode()


def test_the_service_type_is_a_right_one_and_of_one_network() -> None:
    assert service_type(NET) == "_p2p-00010203040._udp.local."
    assert service_type_name(f"a.{service_type(NET)}", strict=True) == service_type(NET)
    assert service_type(NetId(bytes(32))) != service_type(NET)


def test_a_record_is_read_as_it_was_written() -> None:
    addresses = ("/ip4/192.168.1.7/tcp/4001", "/ip6/fd00::7/tcp/4001")
    assert txt_of(peer(1), addresses) == record(
        *(dnsaddr(address_text(peer(1), address)) for address in addresses)
    )
    assert peer_in(txt_of(peer(1), addresses)) == (peer(1), addresses)


def test_only_addresses_that_others_can_reach_are_told() -> None:
    ours = (
        "/ip4/127.0.0.1/tcp/4001",
        "/ip4/0.0.0.0/tcp/4001",
        "/ip4/10.0.0.3/tcp/4001",
        "/ip6/::1/tcp/4001",
        "/dns4/rig.example/tcp/4001",
    )
    assert tuple(on_the_wire(ours)) == ("/ip4/10.0.0.3/tcp/4001",)


AT = f"/p2p/{address_text(peer(1), '').removeprefix('/p2p/')}"
OTHER = f"/p2p/{address_text(peer(2), '').removeprefix('/p2p/')}"


@pytest.mark.parametrize(
    "txt",
    [
        b"",
        b"\x00",
        b"\xff",
        record(b"dnsaddr"),
        record(b"id=" + AT.encode()),
        record(dnsaddr("")),
        record(dnsaddr("/ip4/10.0.0.3/tcp/4001")),
        record(dnsaddr("/ip4/10.0.0.3/tcp/4001/p2p/nobody")),
        record(dnsaddr("/ip4/10.0.0.333/tcp/4001" + AT)),
        record(dnsaddr("/ip4/127.0.0.1/tcp/4001" + AT)),
        record(dnsaddr("/ip4/224.0.0.251/tcp/4001" + AT)),
        record(dnsaddr("/dns4/rig.example/tcp/4001" + AT)),
        record(dnsaddr("/ip4/10.0.0.3/tcp/4001/p2p-circuit" + AT)),
        record(dnsaddr("/ip4/10.0.0.3/tcp/4001\n" + AT)),
        record(dnsaddr("/ip4/10.0.0.3/tcp/4001" + AT), dnsaddr("/ip4/10.0.0.4/tcp/1" + OTHER)),
        record(b"dnsaddr=\xff\xfe" + AT.encode()),
        record(dnsaddr("/ip4/10.0.0.3/tcp/4001" + AT))[:-1],
    ],
)
def test_a_record_that_is_not_as_it_should_be_names_nobody(txt: bytes) -> None:
    assert peer_in(txt) is None


def test_no_more_addresses_are_taken_than_an_advert_may_have() -> None:
    many = [dnsaddr(f"/ip4/10.0.0.{number}/tcp/4001{AT}") for number in range(1, 60)]
    found = peer_in(record(*many))
    assert found is not None
    assert len(found[1]) == ADDRESSES_MAX


@given(st.binary(max_size=600))
def test_no_bytes_make_the_reader_fail(txt: bytes) -> None:
    peer_in(txt)


def test_sightings_are_told_as_a_whole_and_only_when_they_change() -> None:
    mdns = Mdns(net=NET, peer=peer(1), name="a")
    told: list[Mapping[PeerId, tuple[str, ...]]] = []
    here = txt_of(peer(2), ("/ip4/10.0.0.2/tcp/4001",))
    for text in (here, here, b"nonsense", here, b""):
        mdns._note("b", text, told.append)
    there = {peer(2): ("/ip4/10.0.0.2/tcp/4001",)}
    assert told == [there, {}, there, {}]


def test_a_wire_full_of_names_pushes_out_the_oldest() -> None:
    mdns = Mdns(net=NET, peer=peer(1), name="a")
    told: list[Mapping[PeerId, tuple[str, ...]]] = []
    for number in range(2, SIGHTINGS_MAX + 5):
        mdns._note(str(number), txt_of(peer(number), ("/ip4/10.0.0.2/tcp/1",)), told.append)
    assert set(told[-1]) == {peer(number) for number in range(5, SIGHTINGS_MAX + 5)}
