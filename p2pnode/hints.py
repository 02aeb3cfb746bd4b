"""What would help where nothing fits, for the documents that say so."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Final

import trio

from p2pnode.api.market_documents import ChangeDocument, FilterDocument
from p2pnode.lookout import OFFERS_WANTED
from p2pnode.matching.book import Offer
from p2pnode.matching.funnel import Sieved
from p2pnode.matching.options import option_of, option_of_step
from p2pnode.matching.relaxing import Change, smallest_changes
from p2pnode.matching.search import KnownOf, Wish
from p2pnode.node import Node
from protocol.units import MillisSpan

CHANGES_SHOWN: Final = 5
_SEARCHES: Final = trio.CapacityLimiter(1)
"""A book of sixteen thousand offers takes seconds: not where others wait for the node."""


async def changes_for(offers: Iterable[Offer], wish: Wish, known_of: KnownOf) -> tuple[Change, ...]:
    """See smallest_changes; what is known of owners is read here, and the rest is done aside."""
    offers = list(offers)
    known = {offer.head: known_of(offer) for offer in offers}
    search = partial(smallest_changes, offers, wish, lambda offer: known[offer.head])
    changes = await trio.to_thread.run_sync(search, limiter=_SEARCHES)
    return changes[:CHANGES_SHOWN]


def funnel_documents(
    sieved: Iterable[Sieved], wish: Wish, *, stage_ms: MillisSpan
) -> tuple[FilterDocument, ...]:
    """One for each filter."""
    return tuple(
        FilterDocument(
            name=each.name,
            asked=option_of(each.name, wish, stage_ms=stage_ms),
            failed=each.failed,
            left=each.left,
        )
        for each in sieved
    )


def change_documents(
    changes: Iterable[Change], *, stage_ms: MillisSpan
) -> tuple[ChangeDocument, ...]:
    """What to type for each."""
    return tuple(
        ChangeDocument(
            options=tuple(option_of_step(step, stage_ms=stage_ms) for step in change.steps),
            matches=change.matches,
            ppm=change.ppm,
        )
        for change in changes
    )


def unseen(node: Node) -> str:
    """What this node cannot know of the market."""
    if not node.is_light:
        return ""
    return (
        f"this light client hears no gossip: it asked the directory for {OFFERS_WANTED} offers "
        "that may fit, and for as many of all kinds"
    )


async def look_wider(node: Node, wish: Wish) -> None:
    """Bring into a light client's book what would only fit if the wish gave way."""
    await node.look_around(replace(wish, vram_min=None, regions=()))
