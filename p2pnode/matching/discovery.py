"""Finds owners through the directory and asks them for their own offers. SPEC.md 6.3 and 8.5.

For those who hear no gossip. Nothing that the directory says is believed but that somebody may be
worth asking: only what an owner sealed itself gets into the book.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import trio
from msgspec import UNSET

from p2pnode.clock import WallClock
from p2pnode.matching.book import Book
from p2pnode.matching.offer_sync import Ask
from p2pnode.network.exchange import Handler
from p2pnode.network.transport import Directory, Streams
from protocol.advert import is_expired
from protocol.codec import decode, encode
from protocol.directory import class_keys, shard_order
from protocol.errors import PeerFault, Unavailable
from protocol.gpu_class import REGION_GROUPS, GpuClass, group_of
from protocol.limits import FRAME_BYTES_MAX, GROUPS_PER_FEED_MAX, OFFERS_ASKED_MAX
from protocol.offers import OwnOffers, OwnOffersAsk
from protocol.units import Digest, NetId, PeerId

log = logging.getLogger(__name__)

FIND_S: Final = 10
ASK_S: Final = 5
"""One provider gets this long for all its offers, the connection included."""
KEYS_AT_ONCE: Final = 4
PROVIDERS_AT_ONCE: Final = 8
PROVIDERS_ASKED_MAX: Final = 512
"""In one discovery: whoever fills the directory with the dead costs us five minutes, no more."""
PAGES_MAX: Final = GROUPS_PER_FEED_MAX // OFFERS_ASKED_MAX
ASK_BYTES_MAX: Final = 256

TakeFrom = Callable[[PeerId, bytes], bool]
"""take(publisher, sealed advert) -> whether it was news; raises PeerFault.

`advert.publisher` among others: somebody else's advert is refused, whoever hands it on.
"""


@dataclass(slots=True, kw_only=True)
class _Course:
    """How far one discovery has come."""

    classes: tuple[GpuClass, ...]
    groups: tuple[str, ...]
    wanted: int
    in_book: int = 0
    news: int = 0
    asked: set[PeerId] = field(default_factory=set)


class Discovery:
    """Asks the directory, then the owners, and answers who asks us for our own offers."""

    def __init__(
        self,
        *,
        directory: Directory,
        streams: Streams,
        ask: Ask,
        take: TakeFrom,
        book: Book,
        own_groups: Callable[[], tuple[bytes, ...]],
        net: NetId,
        places: int,
        shards: int,
        rng: random.Random,
        clock: WallClock,
    ) -> None:
        self._directory = directory
        self._streams = streams
        self._ask = ask
        self._take = take
        self._book = book
        self._own_groups = own_groups
        self._net = net
        self._places = places
        self._shards = shards
        self._rng = rng
        self._clock = clock

    @property
    def handlers(self) -> dict[str, Handler]:
        """The questions that this part answers."""
        return {"offers.own": self._answer_own}

    async def discover(
        self, classes: tuple[GpuClass, ...], regions: tuple[str, ...], wanted: int
    ) -> int:
        """Look until `wanted` open offers of these classes and region groups are in the book.

        The number of adverts that were news, which may be of other classes too. No regions are
        all seven. Ends with fewer when there are no more, and raises nothing: an unreachable
        directory finds nobody. May take minutes, and what was found stays in the book if it is
        cancelled.
        """
        course = _Course(classes=classes, groups=regions or REGION_GROUPS, wanted=wanted)
        for shard in shard_order(self._rng.randrange(self._shards), self._shards):
            keys = list(
                class_keys(
                    self._net, course.classes, course.groups, places=self._places, shard=shard
                )
            )
            self._rng.shuffle(keys)
            for start in range(0, len(keys), KEYS_AT_ONCE):
                course.in_book = self._count(course)
                if course.in_book >= wanted:
                    return course.news
                await self._look(course, keys[start : start + KEYS_AT_ONCE])
        return course.news

    def _count(self, course: _Course) -> int:
        return sum(
            offer.advert.gpu_class in course.classes
            and group_of(offer.advert.region) in course.groups
            for offer in self._book.open_offers(self._clock.now())
        )

    async def _look(self, course: _Course, keys: list[Digest]) -> None:
        """Ask those who are found under a few keys, until there are enough offers."""
        found: dict[PeerId, tuple[str, ...]] = {}
        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(self._find, key, found)
        # Whose offers gossip or anti-entropy keep fresh need not be asked.
        known = {o.certificate.peer_id for o in self._book.open_offers(self._clock.now())}
        providers = [peer for peer in sorted(found) if peer not in known | course.asked]
        self._rng.shuffle(providers)
        places = trio.CapacityLimiter(PROVIDERS_AT_ONCE)
        async with trio.open_nursery() as nursery:
            for peer in providers[: PROVIDERS_ASKED_MAX - len(course.asked)]:
                course.asked.add(peer)
                nursery.start_soon(self._visit, course, places, (peer, found[peer]))

    async def _find(self, key: Digest, found: dict[PeerId, tuple[str, ...]]) -> None:
        try:
            with trio.fail_after(FIND_S):
                found.update(await self._directory.find(key))
        except (Unavailable, trio.TooSlowError) as error:
            log.info("finding failed", extra={"why": str(error)})

    async def _visit(
        self,
        course: _Course,
        places: trio.CapacityLimiter,
        provider: tuple[PeerId, tuple[str, ...]],
    ) -> None:
        """Take one provider's own offers into the book; what is wrong with it ends here."""
        peer, addresses = provider
        async with places:
            if course.in_book >= course.wanted:
                return
            try:
                with trio.fail_after(ASK_S):
                    # Not by the address book: hearsay must not displace what a peer has signed.
                    await self._streams.connect(peer, addresses)
                    await self._fetch(course, peer)
            except (Unavailable, PeerFault, trio.TooSlowError) as error:
                log.info("provider failed", extra={"peer": peer.hex(), "why": str(error)})

    async def _fetch(self, course: _Course, peer: PeerId) -> None:
        ask = OwnOffersAsk()
        for _ in range(PAGES_MAX):
            raw = await self._ask(peer, "offers.own", encode(ask))
            answer = decode(raw, OwnOffers, size_max=FRAME_BYTES_MAX)
            for advert in answer.adverts:
                is_news = self._take(peer, advert)
                course.news += is_news
                course.in_book += is_news
            if answer.more_after is UNSET:
                return
            if ask.after is not UNSET and answer.more_after <= ask.after:
                raise PeerFault("offers.order")
            ask = OwnOffersAsk(after=answer.more_after)

    async def _answer_own(self, _peer: PeerId, body: bytes) -> bytes:
        ask = decode(body, OwnOffersAsk, size_max=ASK_BYTES_MAX)
        now = self._clock.now()
        await trio.lowlevel.checkpoint()
        above = b"" if ask.after is UNSET else ask.after
        keys = sorted(key for key in self._own_groups() if key > above)
        page = keys[:OFFERS_ASKED_MAX]
        offers = [self._book.get(key) for key in page]
        return encode(
            OwnOffers(
                adverts=tuple(
                    offer.raw
                    for offer in offers
                    if offer is not None and offer.is_open and not is_expired(offer.advert, now)
                ),
                more_after=page[-1] if len(keys) > len(page) else UNSET,
            )
        )
