"""Who says that it has the very same GPU: seen by all, held against nobody."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.matching import devices as devices_module
from p2pnode.matching.book import Book
from p2pnode.matching.devices import REMEMBERED_MS, Devices
from protocol.advert import device_mark
from protocol.certificate import read_certificate, sign_certificate
from protocol.signing import Signer
from protocol.units import Millis
from protocol.wire import pack
from tests import make
from tests.make_desk import Clock

LIFE_MS = make.GENESIS.bounds.advert_life_ms
MARKS = tuple(sorted(device_mark(f"GPU-{number}", make.NET) for number in range(4)))


class Seer:
    """A book and what follows it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.book = Book(make.GENESIS, read=read_certificate)
        self.devices = Devices(self.clock)
        self.book.follow(self.devices)
        self._seq = 0

    def hear(self, number: int, *marks: bytes, **changes: Any) -> None:
        """An advert of the owner with this number, issued when it is taken."""
        self._seq += 1
        key = owner(number)
        now = self.clock.now()
        body = make.certificate(feed=key.public)
        certificate = sign_certificate(body, root=make.ROOT, feed=key, peer=make.PEER)
        fields = {"devices": tuple(sorted(marks)), "units": 4, **changes} if marks else changes
        advert = make.advert(
            certificate=certificate,
            seq=self._seq,
            issued_ms=now,
            not_after_ms=Millis(now + LIFE_MS),
            **fields,
        )
        self.book.take(pack(advert, signer=key, net=make.NET), now=now)

    def rivals(self, number: int) -> list[tuple[int, int, bool]]:
        """Of an owner: (owner, devices, first)."""
        numbers = {owner(each).public: each for each in range(1, 9)}
        found = self.devices.rivals(owner(number).public)
        return [(numbers[each.owner], each.devices, each.is_first) for each in found]

    def wait(self, ms: int) -> None:
        self.clock.at = Millis(self.clock.at + ms)
        self.book.expire(self.clock.now())


def owner(number: int) -> Signer:
    return Signer(bytes([100 + number]) * 32)


def test_two_owners_of_one_device_are_rivals_and_all_see_who_was_first() -> None:
    seer = Seer()
    seer.hear(1, MARKS[0], MARKS[1])
    seer.hear(2, MARKS[2])
    assert (seer.rivals(1), seer.rivals(2)) == ([], [])
    seer.hear(3, MARKS[1], MARKS[2])
    assert seer.rivals(1) == [(3, 1, False)]
    assert seer.rivals(2) == [(3, 1, False)]
    assert sorted(seer.rivals(3)) == [(1, 1, True), (2, 1, True)]


def test_who_names_no_device_has_no_rival_and_takes_no_room() -> None:
    seer = Seer()
    for number in (1, 2):
        seer.hear(number)
    assert seer.rivals(1) == []
    assert len(seer.devices) == 0


def test_a_withdrawn_an_expired_and_a_changed_advert_contradict_nobody() -> None:
    seer = Seer()
    seer.hear(1, MARKS[0], MARKS[1])
    seer.hear(2, MARKS[0])
    assert seer.rivals(2) == [(1, 1, True)]
    seer.hear(1, MARKS[0], MARKS[1], state="withdrawn")
    assert seer.rivals(2) == []
    seer.hear(1, MARKS[1])
    assert seer.rivals(2) == []
    seer.hear(1, MARKS[0])
    assert seer.rivals(2) == [(1, 1, True)]
    seer.wait(LIFE_MS)
    assert seer.rivals(2) == [(1, 1, True)]
    seer.wait(1)
    assert seer.rivals(2) == []


@pytest.mark.parametrize("ends", ["withdrawn", "expired", "without it"])
def test_a_device_that_went_to_another_group_stays_claimed_when_the_old_group_ends(
    ends: str,
) -> None:
    seer = Seer()
    seer.hear(2, MARKS[0])
    seer.hear(1, MARKS[0], MARKS[1], group=bytes(16))
    seer.wait(1)
    seer.hear(2, MARKS[0])
    seer.hear(1, MARKS[0], group=bytes([1]) * 16)
    if ends == "expired":
        seer.wait(LIFE_MS)
    else:
        state = "withdrawn" if ends == "withdrawn" else "open"
        seer.hear(1, MARKS[1], group=bytes(16), state=state)
    assert seer.rivals(2) == [(1, 1, False)]
    seer.hear(1, MARKS[0], group=bytes([1]) * 16, state="withdrawn")
    assert seer.rivals(2) == []


@pytest.mark.parametrize(
    ("away_ms", "is_first"), [(REMEMBERED_MS, True), (REMEMBERED_MS + 1, False)]
)
def test_an_absence_of_a_day_hands_the_place_to_nobody(away_ms: int, is_first: bool) -> None:
    seer = Seer()
    seer.hear(1, MARKS[0])
    seer.wait(away_ms)
    seer.hear(2, MARKS[0])
    seer.hear(1, MARKS[0])
    assert seer.rivals(2) == [(1, 1, is_first)]
    assert seer.rivals(1) == [(2, 1, not is_first)]


def test_one_owner_that_names_ever_new_devices_pushes_nobody_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices_module, "MARKS_PER_OWNER_MAX", 8)
    monkeypatch.setattr(devices_module, "MARKS_MAX", 16)
    seer = Seer()
    seer.hear(1, MARKS[0])
    for number in range(50):
        seer.hear(2, device_mark(f"made up {number}", make.NET))
        assert len(seer.devices) <= 9
    seer.hear(2, MARKS[0])
    assert seer.rivals(2) == [(1, 1, True)]


def test_of_too_many_owners_those_are_forgotten_that_were_silent_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices_module, "MARKS_MAX", 3)
    seer = Seer()
    for number in (1, 2, 3):
        seer.hear(number, MARKS[0])
    seer.hear(1, MARKS[0])
    seer.hear(4, MARKS[0])
    assert len(seer.devices) == 3
    assert sorted(seer.rivals(1)) == [(3, 1, False), (4, 1, False)]


heard = st.tuples(
    st.integers(1, 3), st.sets(st.sampled_from(MARKS), max_size=3), st.sampled_from((0, 0, LIFE_MS))
)


@given(st.lists(heard, max_size=12))
def test_rivals_are_those_whose_newest_adverts_share_a_device(
    story: list[tuple[int, set[bytes], int]],
) -> None:
    seer = Seer()
    newest: dict[int, tuple[int, set[bytes]]] = {}
    first: dict[tuple[int, bytes], int] = {}
    for at, (number, marks, then_ms) in enumerate(story):
        seer.hear(number, *marks)
        newest[number] = (seer.clock.now(), marks)
        for mark in sorted(marks):
            first.setdefault((number, mark), at)
        seer.wait(then_ms)
    now = seer.clock.now()
    offered = {n: marks for n, (at_ms, marks) in newest.items() if now <= at_ms + LIFE_MS}
    for number in (1, 2, 3):
        expected = []
        for other in (1, 2, 3):
            shared = offered.get(number, set()) & offered.get(other, set())
            if other != number and shared:
                is_first = any(first[other, mark] < first[number, mark] for mark in shared)
                expected.append((other, len(shared), is_first))
        assert sorted(seer.rivals(number)) == expected
