"""Whom a renter asks: as many as the age of the news wants, less what it has leased itself."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from ledger.fold import Lease
from p2pnode.matching.book import Follower, Offer
from p2pnode.matching.market import Market
from p2pnode.matching.spread import (
    BAND_PPM,
    BAND_PPM_MAX,
    COALESCED_MS,
    LEAST,
    MOST,
    WINDOW_MS,
    Tempo,
    band_for,
    count_for,
)
from protocol.gpu_class import GpuClass
from protocol.scoring import PPM
from protocol.units import Digest, Millis
from tests import make
from tests.make_desk import Clock, Owner, order
from tests.make_pools import Thinks

LARGE = GpuClass(24)


class Stand:
    """A book in which a test puts what it likes."""

    def __init__(self, offers: list[Offer]) -> None:
        self.held = offers
        self.followers: list[Follower] = []

    def follow(self, follower: Follower) -> None:
        self.followers.append(follower)
        for offer in self.held:
            follower.put(offer)

    def open_offers(self, _now: Millis) -> list[Offer]:
        return self.held

    def put(self, offer: Offer) -> None:
        for follower in self.followers:
            follower.put(offer)


def market(stand: Stand, clock: Clock, leases: dict[Digest, Any] | None = None) -> Market:
    return Market(
        stand,
        own=make.RENTER.public,
        thinks=Thinks({}),
        lease=lambda lease: cast("Lease | None", (leases or {}).get(lease)),
        clock=clock,
    )


def asked(of: Market, **changes: Any) -> list[Offer]:
    return of.shortlist(order(**changes), seed=bytes(16), but=set())


def test_gpus_that_we_have_leased_are_not_asked_for_until_an_advert_shows_it() -> None:
    clock = Clock()
    leases: dict[Digest, Any] = {}
    offer = Owner(10, clock).offer()
    stand = Stand([offer])
    here = market(stand, clock, leases)
    assert asked(here, need=make.need(gpus=2)) == [offer]
    here.note_lease(offer, Digest(b"l" * 32), 2)
    assert asked(here, need=make.need(gpus=1)) == []
    older = with_fields(offer.advert, seq=43, issued_ms=Millis(make.NOW - 1))
    stand.put(replace(offer, advert=older))
    assert asked(here, need=make.need(gpus=1)) == []
    leases[Digest(b"l" * 32)] = SimpleNamespace(reason="end")
    assert len(asked(here, need=make.need(gpus=1))) == 1
    leases.clear()
    newer = replace(offer, advert=with_fields(offer.advert, seq=44, issued_ms=make.NOW, free=1))
    stand.put(newer)
    assert asked(here, need=make.need(gpus=1)) == [newer]
    assert asked(here, need=make.need(gpus=2)) == []


def test_own_offers_and_those_that_were_asked_are_left_out() -> None:
    clock = Clock()
    one, other = Owner(10, clock).offer(), Owner(11, clock).offer()
    ours = replace(Owner(12, clock).offer(), signer=make.RENTER.public)
    here = market(Stand([one, other, ours]), clock)
    assert {offer.signer for offer in here.offers()} == {one.signer, other.signer}
    assert len(here) == 2
    assert here.shortlist(order(), seed=bytes(16), but={one.head[0]}) == [other]
    assert asked(here, avoid=(one.signer,)) == [other]


def test_the_draw_is_by_the_seed_and_all_of_the_best_are_asked_under_some() -> None:
    clock = Clock()
    here = market(Stand([Owner(number, clock).offer() for number in range(10, 50)]), clock)
    for _ in range(64):
        here.note_request(make.need(vram_mib_min=24_564))
    clock.at = Millis(make.NOW + 1)
    wanted = order(need=make.need(vram_mib_min=24_564))
    draws = [here.shortlist(wanted, seed=bytes([n]), but=set()) for n in range(60)]
    assert draws[0] == here.shortlist(wanted, seed=bytes([0]), but=set())
    stale = here.tempo.stale_ppm(LARGE, clock.now())
    assert LEAST < count_for(stale) < 40
    assert {len(draw) for draw in draws} == {max(LEAST, count_for(stale) // 4)}
    assert len({offer.signer for draw in draws for offer in draw}) == count_for(stale)


def test_the_tempo_is_what_was_asked_in_a_minute_times_how_old_the_news_is() -> None:
    tempo, offer = Tempo(), Owner(10, Clock()).offer()
    assert tempo.stale_ppm(LARGE, make.NOW) == 0
    for number in range(30):
        tempo.note_request(LARGE, Millis(make.NOW + 2_000 * number))
    now = Millis(make.NOW + WINDOW_MS)
    assert tempo.age_ms() == COALESCED_MS
    assert tempo.stale_ppm(LARGE, now) == PPM // 2
    for late_ms in (900, 1_000, 90_000):
        tempo.note_advert(replace(offer, taken_ms=Millis(offer.advert.issued_ms + late_ms)))
    assert tempo.age_ms() == COALESCED_MS + 1_000
    assert tempo.stale_ppm(LARGE, now) == PPM
    assert tempo.stale_ppm(GpuClass(80), now) == 0
    assert tempo.stale_ppm(LARGE, Millis(now + WINDOW_MS)) == 0


@given(stale=st.integers(0, 10**9))
def test_more_requests_spread_wider_within_bounds(stale: int) -> None:
    assert LEAST <= count_for(stale) <= count_for(stale + 1) <= MOST
    assert BAND_PPM <= band_for(stale) <= band_for(stale + 1) <= BAND_PPM_MAX
    assert (count_for(0), count_for(PPM), count_for(4 * PPM)) == (4, 16, 64)
