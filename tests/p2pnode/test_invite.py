"""Rules of an invite: one line, read back exactly, refused in one sentence if it is not whole."""

from base64 import urlsafe_b64encode
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.invite import BOOTSTRAP_MAX, PREFIX, invite_link, read_invite
from protocol.codec import encode, encode_plain
from protocol.errors import LocalFault
from protocol.genesis import Bounds, Genesis


def genesis(name: str) -> Genesis:
    return Genesis(name=name, kind="test", nonce=b"n" * 16, bounds=Bounds(), money="TEST")


GENESIS = genesis("friends")
RAW = encode(GENESIS)


def address(n: int) -> str:
    return f"/dns4/boot-{n}.example/tcp/4001/p2p/12D3KooW{sha256(bytes([n])).hexdigest()[:44]}"


LINK = invite_link(RAW, (address(1),))


def link_of(value: object) -> str:
    return PREFIX + urlsafe_b64encode(encode_plain(value)).rstrip(b"=").decode()


@pytest.mark.parametrize("count", [0, 1, BOOTSTRAP_MAX])
def test_an_invite_is_read_back(count: int) -> None:
    bootstrap = tuple(address(n) for n in range(count))
    assert read_invite(invite_link(RAW, bootstrap)) == (GENESIS, RAW, bootstrap)


def test_an_invite_is_one_line_that_needs_no_quoting() -> None:
    assert LINK.startswith("p2pnode:join/")
    assert all(sign.isalnum() or sign in "-_:/" for sign in LINK)


def test_the_longest_addresses_fit() -> None:
    longest = tuple(f"/{n}{'h' * 179}/p2p/{'P' * 70}" for n in range(BOOTSTRAP_MAX))
    assert read_invite(invite_link(RAW, longest))[2] == longest


def test_an_invite_that_was_broken_into_lines_is_whole() -> None:
    broken = "\n  ".join(LINK[at : at + 40] for at in range(0, len(LINK), 40))
    assert read_invite(f" {broken}\r\n") == read_invite(LINK)


@pytest.mark.parametrize("link", ["", "hello", "https://example.org/", PREFIX[:-1], LINK[1:]])
def test_what_is_no_invite_is_refused(link: str) -> None:
    with pytest.raises(LocalFault, match="an invite begins with"):
        read_invite(link)


@given(st.integers(len(PREFIX), len(LINK) - 1))
def test_an_invite_cut_short_is_refused(length: int) -> None:
    with pytest.raises(LocalFault, match="cut short or damaged") as caught:
        read_invite(LINK[:length])
    assert caught.value.cure


@pytest.mark.parametrize(
    "link",
    [
        PREFIX + "!!!!",
        PREFIX + "AAAA",
        PREFIX + "A" * 100_000,
        LINK + "A",
        LINK + "==",
        link_of({"v": 2, "g": RAW, "b": []}),
        link_of({"v": 1, "g": b"not a genesis", "b": []}),
        link_of({"v": 1, "g": RAW, "b": ["/ip4/1.2.3.4/tcp/4001"]}),
        link_of({"v": 1, "g": RAW, "b": [address(n) for n in range(BOOTSTRAP_MAX + 1)]}),
        link_of({"v": 1, "g": RAW, "b": [], "more": 1}),
        link_of([RAW]),
    ],
)
def test_a_damaged_invite_is_refused(link: str) -> None:
    with pytest.raises(LocalFault, match="cut short or damaged"):
        read_invite(link)


@given(st.text(max_size=80))
def test_garbage_is_a_local_fault_and_nothing_worse(text: str) -> None:
    with pytest.raises(LocalFault):
        read_invite(PREFIX + text)


def test_two_texts_are_never_one_invite() -> None:
    # With two bytes in the last group the lowest two bits of its last sign say nothing.
    for name in ("a", "ab", "abc"):
        link = invite_link(encode(genesis(name)), ())
        if (len(link) - len(PREFIX)) % 4:
            with pytest.raises(LocalFault):
                read_invite(link[:-1] + chr(ord(link[-1]) + 1))


def test_an_invite_has_at_most_eight_addresses() -> None:
    with pytest.raises(LocalFault, match="at most 8 addresses"):
        invite_link(RAW, tuple(address(n) for n in range(9)))


def test_an_address_without_its_peer_is_not_put_into_an_invite() -> None:
    with pytest.raises(LocalFault, match="is not a multiaddr that ends in"):
        invite_link(RAW, ("/ip4/1.2.3.4/tcp/4001",))
