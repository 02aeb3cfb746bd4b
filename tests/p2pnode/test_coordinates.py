"""Coordinates predict round trips between peers that never met, and lies do not break them."""

import math
import statistics
from random import Random

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.latency import PROBE_S, Latency
from p2pnode.network.coordinates import (
    COORDINATE_BYTES,
    ERROR_MAX_PPM,
    Coordinate,
    decode_coordinate,
    distance_us,
    encode_coordinate,
    moved,
)
from protocol.errors import Unavailable
from protocol.units import PeerId
from tests.make_desk import Clock, Owner

PEERS = 40
ROUNDS = 60

places = st.builds(
    Coordinate,
    *(st.integers(-2_000_000, 2_000_000) for _ in range(3)),
    st.integers(0, 2_000_000),
    st.integers(1, ERROR_MAX_PPM),
)


class Globe:
    """Peers on a plane, each with a last mile of its own; what they measure is off by a tenth."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.at = [
            (self.rng.uniform(0, 120_000), self.rng.uniform(0, 60_000), self.rng.uniform(0, 8_000))
            for _ in range(PEERS)
        ]
        self.told = [Coordinate() for _ in range(PEERS)]

    def rtt_us(self, one: int, other: int) -> int:
        a, b = self.at[one], self.at[other]
        return round(math.dist(a[:2], b[:2]) + a[2] + b[2]) + 200

    def gossip(self) -> None:
        for one in range(PEERS):
            other = self.rng.choice([each for each in range(PEERS) if each != one])
            seen = round(self.rtt_us(one, other) * self.rng.uniform(1, 1.1))
            self.told[one] = moved(self.told[one], self.told[other], seen, self.rng)

    def errors(self) -> list[float]:
        """How far off each prediction is, as a part of the truth."""
        return [
            abs(distance_us(self.told[a], self.told[b]) - self.rtt_us(a, b)) / self.rtt_us(a, b)
            for a in range(PEERS)
            for b in range(a)
        ]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_some_rounds_half_of_all_pairs_are_predicted_within_a_quarter(seed: int) -> None:
    globe = Globe(seed)
    for _ in range(ROUNDS):
        globe.gossip()
    assert statistics.median(globe.errors()) < 0.25
    # The nearest by prediction is among the nearest in truth: good enough to choose whom to ask.
    for one in range(PEERS):
        others = [each for each in range(PEERS) if each != one]
        predicted = sorted(others, key=lambda b: distance_us(globe.told[one], globe.told[b]))[:8]
        nearest = min(others, key=lambda b: globe.rtt_us(one, b))
        best = min(globe.rtt_us(one, each) for each in predicted)
        assert best <= globe.rtt_us(one, nearest) + 30_000


@given(own=places, other=places, rtt_us=st.integers(-(2**40), 2**40), seed=st.integers(0, 99))
def test_whatever_a_peer_states_our_own_place_stays_one(
    own: Coordinate, other: Coordinate, rtt_us: int, seed: int
) -> None:
    after = moved(own, other, rtt_us, Random(seed))
    assert decode_coordinate(encode_coordinate(after)) == after


@given(raw=st.binary(max_size=40))
def test_any_bytes_are_a_place_or_none(raw: bytes) -> None:
    found = decode_coordinate(raw)
    assert found is None or encode_coordinate(found) == raw
    assert len(encode_coordinate(Coordinate())) == COORDINATE_BYTES <= 32


async def test_neighbours_are_measured_one_by_one_and_give_us_a_place(
    autojump_clock: trio.abc.Clock, nursery: trio.Nursery
) -> None:
    clock = Clock()
    near, far, silent = (Owner(number, clock) for number in (10, 11, 12))
    delay_s = {near.peer: 0.004, far.peer: 0.09}
    noted: dict[bytes, int] = {}

    async def ask(peer: PeerId, kind: str, _body: bytes) -> bytes:
        assert kind == "ping"
        if peer not in delay_s:
            raise Unavailable("gone")
        await trio.sleep(delay_s[peer])
        return b""

    offers = [owner.offer() for owner in (near, far, silent)]
    latency = Latency(ask=ask, offers=lambda: offers, note=noted.__setitem__, rng=Random(1))
    assert latency.coordinate() is None
    assert latency.estimate_us(offers[0]) is None
    await nursery.start(latency.run)
    await trio.sleep(20 * PROBE_S)
    assert noted == {near.key.public: 4, far.key.public: 90}
    assert [latency.estimate_us(offer) for offer in offers] == [4_000, 90_000, None]
    stated = latency.coordinate()
    assert stated is not None
    assert decode_coordinate(stated) is not None
    nursery.cancel_scope.cancel()
