"""Keys and errors say what they are, and no more."""

import pytest

from protocol.errors import LocalFault, PeerFault
from protocol.genesis import net_of
from protocol.signing import key_of, peer_id_of
from tests.make import FEED, GENESIS, MAIN, genesis


def test_a_signer_shows_its_public_key_and_never_its_seed() -> None:
    assert FEED.public.hex()[:8] in repr(FEED)
    assert (bytes([2]) * 32).hex()[:8] not in repr(FEED)


def test_a_peer_id_gives_back_the_key_it_was_made_of() -> None:
    assert key_of(peer_id_of(FEED.public)) == FEED.public
    assert len(peer_id_of(FEED.public)) == 38


def test_a_network_is_named_by_all_of_its_genesis() -> None:
    networks = (
        GENESIS,
        MAIN,
        genesis(nonce=bytes(16)),
        genesis(name="other"),
        genesis(x={"a": ""}),
    )
    assert len({net_of(network) for network in networks}) == len(networks)
    assert not MAIN.simulation_allowed
    assert GENESIS.simulation_allowed


@pytest.mark.parametrize(("error", "text"), [
    (PeerFault("advert.free"), "advert.free"),
    (PeerFault("advert.ask", "gold"), "advert.ask: gold"),
    (LocalFault("No home."), "No home."),
    (LocalFault("No home.", "--home"), "No home.  try: --home"),
])  # fmt: skip
def test_an_error_reads_as_one_line(error: Exception, text: str) -> None:
    assert str(error) == text
