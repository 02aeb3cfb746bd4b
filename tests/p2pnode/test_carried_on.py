"""Whose accounts are ours: those of our feed and of the feeds that it carries on."""

from typing import Any

from msgspec.structs import replace

from ledger.continuity_bodies import Successor
from ledger.fold import State
from ledger.succession import successors
from protocol.signing import Signer
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    Feed,
    at,
    certificate,
    genesis,
    root_of,
    signer,
    statement,
)
from tests.p2pnode.test_earn_and_spend import Business


def succession(old: Signer, new: Signer) -> Successor:
    """The account of the one feed goes on in the other, which has the units."""
    [said] = successors(
        State(),
        certificate=certificate(old),
        ended=9,
        into=new.public,
        root=root_of(old),
        net=NET,
        at=at(0),
    )
    return said


def feed_of(business: Business, of: Signer, *first: Any, root: Signer | None = None) -> Feed:
    """One more feed with these first entries; with `root`, of that account."""
    feed = Feed(of)
    begin = replace(genesis(of), certificate=certificate(of, root=root or root_of(of)))
    for body in (begin, *first):
        business._take(feed.add(body))
    business.peers[of.public] = feed
    return feed


def owned(business: Business) -> list[tuple[str, str]]:
    """Whose accounts are listed, with whom."""
    return [(item.own_feed, item.peer_feed) for item in business.views().accounts().items]


def test_what_a_living_feed_of_our_root_key_owes_is_its_own() -> None:
    sibling = signer(77)
    business = Business()
    feed_of(business, sibling, root=root_of(OWNER))
    business._take(business.peers[sibling.public].add(statement(RENTER, ctr=1, used=1)))
    business.state(sibling, ours=True, hour=1, used=HOUR, amount=1_000_000)
    assert owned(business) == [(OWNER.public.hex(), sibling.public.hex())]
    views = business.views()
    assert len(views.statement(None, since_ms=None, until_ms=None).items) == 1


def test_accounts_of_feeds_that_ours_carries_on_are_ours_each_once() -> None:
    oldest, old, other = signer(77), signer(78), signer(79)
    business = Business(succession(old, OWNER))
    feed_of(business, old, succession(oldest, old))
    for each in (oldest, other):
        feed_of(business, each)
    for each in (oldest, old, other):
        feed = business.peers[each.public]
        business._take(feed.add(statement(RENTER, ctr=1, used=1)))
    with_ours = statement(OWNER, ctr=1, used=1)
    business._take(business.peers[old.public].add(with_ours))
    assert sorted(owned(business)) == sorted(
        [
            (oldest.public.hex(), RENTER.public.hex()),
            (old.public.hex(), RENTER.public.hex()),
            (old.public.hex(), OWNER.public.hex()),
        ]
    )
    views = business.views()
    assert len(views.statement(None, since_ms=None, until_ms=None).items) == 3
