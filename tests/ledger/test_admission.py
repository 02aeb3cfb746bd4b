"""Feeds of strangers: up to a bound, at a pace where room is scarce, never in the way of others."""

from dataclasses import dataclass

import pytest

from ledger.admission import UNPACED, Pace
from ledger.bodies import Accept, Body
from ledger.dealings import Dealings
from ledger.entry import Entry
from ledger.frontier import Frontier
from protocol.signing import Signer
from protocol.units import PublicKey
from tests.make_evidence import successor
from tests.make_ledger import (
    OWNER,
    RENTER,
    STRANGER,
    THREE,
    Feed,
    cosigned,
    grant,
    ledger,
    signer,
    statement,
    witnessed,
    witnessed_lease,
)
from tests.make_sync import Replica, agree, feed_of, replica, talk

FEED = feed_of(101, 4)
OTHER = feed_of(102, 3)
ASKED = 5
"""Frames of a session until the entries of a few dozen new feeds have been asked for."""
MANY = [Feed(signer(110 + number)).open() for number in range(40)]


@dataclass
class Purse:
    """See Pace."""

    left: int

    def take(self) -> bool:
        if self.left == 0:
            return False
        self.left -= 1
        return True

    def give_back(self) -> None:
        self.left += 1


def small(name: int, *entries: Entry, feeds_max: int) -> Replica:
    """A replica that takes so many feeds."""
    here = replica(name)
    here.take(*entries)
    here.frontier = Frontier(here.ledger, feeds_max=feeds_max)
    return here


def holder(*entries: Entry) -> Replica:
    """Somebody who has these."""
    here = replica(50)
    here.take(*entries)
    return here


def bring(
    here: Replica,
    there: Replica,
    *,
    pace: Pace = UNPACED,
    only: tuple[PublicKey, ...] | None = None,
) -> None:
    """One session of our opening; here takes what there has."""
    talk(here.session(is_opener=True, pace=pace, only=only), there.session(is_opener=False))


def test_strangers_are_taken_up_to_a_bound() -> None:
    here = small(51, *FEED[:2], feeds_max=1)
    bring(here, holder(*FEED, *OTHER))
    assert here.ids() == sorted(entry.id for entry in FEED)


def test_a_feed_that_we_ask_for_by_name_is_taken_however_many_there_are() -> None:
    here, there = small(51, *MANY[:3], feeds_max=1), holder(*FEED, *OTHER)
    bring(here, there, pace=Purse(0))
    assert here.ids() == sorted(entry.id for entry in MANY[:3])
    bring(here, there, pace=Purse(0), only=(FEED[0].feed,))
    assert here.ids() == sorted(entry.id for entry in [*MANY[:3], *FEED])
    # From now on it is known, and grows as every other one does.
    there.take(*feed_of(101, 6))
    bring(here, there, pace=Purse(0))
    assert here.ledger.head(FEED[0].feed) == there.ledger.head(FEED[0].feed)


def test_a_feed_that_ours_names_is_taken_when_its_author_tells_us() -> None:
    here, there = replica(1), holder(*FEED, *OTHER)
    own = Feed(OWNER)
    here.take(own.open(), *MANY[:3])
    here.frontier = Frontier(here.ledger, feeds_max=1)
    for is_named in (False, True):
        telling = there.session(is_opener=True, only=(FEED[0].feed,))
        talk(telling, here.session(is_opener=False, pace=Purse(0)))
        assert (here.ledger.head(FEED[0].feed) is not None) == is_named
        here.take(own.add(statement(signer(101))))
    assert here.ledger.head(OTHER[0].feed) is None


def test_our_own_feed_is_taken_back_however_many_there_are() -> None:
    here = small(1, *MANY[:3], feeds_max=1)
    own = Feed(OWNER).open()
    bring(here, holder(own, *FEED), pace=Purse(0))
    assert here.ids() == sorted(entry.id for entry in [*MANY[:3], own])


def test_half_of_the_room_is_for_whoever_comes_and_the_rest_at_a_pace() -> None:
    here, there = small(51, feeds_max=20), holder(*MANY)
    bring(here, there, pace=Purse(3))
    assert len(here.ids()) == 13
    bring(here, there, pace=Purse(0))
    assert len(here.ids()) == 13
    bring(here, there, pace=Purse(2))
    assert len(here.ids()) == 15
    bring(here, there)
    assert len(here.ids()) == 20
    purse = Purse(3)
    bring(here, there, pace=purse)
    assert (len(here.ids()), purse.left) == (20, 3)


def test_a_whole_network_comes_from_one_peer_where_there_is_room() -> None:
    here, there = small(51, feeds_max=2 * len(MANY)), holder(*MANY)
    purse = Purse(0)
    bring(here, there, pace=purse)
    assert here.ids() == there.ids()
    assert agree(here, there) == 0


def test_sessions_side_by_side_take_no_more_than_there_is_room_for() -> None:
    here, there = small(51, feeds_max=12), holder(*MANY)
    lost, other = Purse(9), Purse(9)
    session = here.session(is_opener=True, pace=lost)
    talk(session, there.session(is_opener=False), cut_after=ASKED)
    assert (len(here.frontier.expected), lost.left) == (12, 3)
    bring(here, there, pace=other)
    assert (here.ids(), other.left) == ([], 9)
    # What was asked for and does not come is given back.
    session.end()
    assert (here.frontier.expected, lost.left) == ({}, 9)
    bring(here, there, pace=other)
    assert (len(here.ids()), other.left) == (12, 3)
    assert here.frontier.expected == {}


GRANTED, BODY = witnessed_lease()
NAMING: dict[str, tuple[Signer, Body, tuple[PublicKey, ...]]] = {
    "grant": (OWNER, grant(), (RENTER.public,)),
    "witnessed grant": (OWNER, witnessed(grant()), (RENTER.public, *THREE)),
    "acceptance": (RENTER, Accept(grant=GRANTED.id), ()),
    "cosigned acceptance": (
        RENTER,
        Accept(grant=GRANTED.id, cosigned=cosigned(GRANTED, BODY)),
        (OWNER.public, *THREE),
    ),
    "statement": (OWNER, statement(STRANGER), (STRANGER.public,)),
    "successor": (OWNER, successor(), (RENTER.public,)),
}


@pytest.mark.parametrize("name", NAMING)
def test_whoever_our_feed_names_is_no_stranger(name: str) -> None:
    author, body, named = NAMING[name]
    everybody = (OWNER, RENTER, STRANGER, signer(99))
    feed = Feed(author)
    entries = [feed.open(), feed.add(body)]
    for here, expected in ((ledger(author), named), (ledger(signer(98)), ())):
        dealings = Dealings(here)
        assert not any(each.public in dealings for each in everybody)
        assert here.ingest_run(entries).fault is None
        found = [each for each in (*(one.public for one in everybody), *THREE) if each in dealings]
        assert found == list(expected)
