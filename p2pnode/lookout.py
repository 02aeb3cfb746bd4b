"""The node's use of the directory: owners are listed in it, light clients look around in it."""

import random
from collections.abc import Callable
from typing import Final

import trio

from p2pnode.clock import WallClock
from p2pnode.matching.book import Book
from p2pnode.matching.discovery import Discovery, TakeFrom
from p2pnode.matching.listing import Listing
from p2pnode.matching.offer_sync import Ask
from p2pnode.matching.provider import Shelf
from p2pnode.matching.search import Wish
from p2pnode.network.transport import Directory, Streams
from protocol.directory import class_keys, classes_from
from protocol.genesis import Genesis, net_of
from protocol.gpu_class import GpuClass, gpu_class, group_of
from protocol.offers import group_key
from protocol.units import Mebibytes, PeerId, PublicKey

LOOK_S: Final = 5
"""A search of the directory may take so long; what it found by then is in the book."""
OFFERS_WANTED: Final = 64


class Lookout:
    """Owns the listing and the discovery of one node."""

    def __init__(
        self,
        *,
        directory: Directory,
        streams: Streams,
        ask: Ask,
        take: TakeFrom,
        book: Book,
        shelves: Callable[[], tuple[Shelf, ...]],
        feed: PublicKey,
        region: str,
        genesis: Genesis,
        rng: random.Random,
        clock: WallClock,
    ) -> None:
        net, shards = net_of(genesis), genesis.bounds.dht_shards
        places = genesis.bounds.advert_topics
        self._directory = directory
        self._net = net
        self._places = places
        self._shards = shards
        self._book = book
        self._clock = clock
        self.listing: Final = Listing(
            directory=directory,
            net=net,
            feed=feed,
            region=region,
            places=places,
            shards=shards,
            rng=rng,
        )
        self.discovery: Final = Discovery(
            directory=directory,
            streams=streams,
            ask=ask,
            take=take,
            book=book,
            own_groups=lambda: tuple(group_key(feed, shelf.group) for shelf in shelves()),
            net=net,
            places=places,
            shards=shards,
            rng=rng,
            clock=clock,
        )

    def stock(self, shelves: tuple[Shelf, ...]) -> None:
        """Be listed for these from now on."""
        self.listing.stock(gpu_class(shelf.vram) for shelf in shelves)

    async def look_around(self, wish: Wish) -> None:
        """Bring into the book what may fit the wish, for a node that hears no gossip."""
        groups = tuple(dict.fromkeys(group_of(region) for region in wish.regions))
        classes = classes_from(gpu_class(wish.vram_min or Mebibytes(0)))
        with trio.move_on_after(LOOK_S):
            await self.discovery.discover(classes, groups, OFFERS_WANTED)
        self._book.expire(self._clock.now())

    async def listed(self, of_class: GpuClass, regions: tuple[str, ...]) -> tuple[PeerId, ...]:
        """Who is listed under this class in the regions' groups, sorted; may be incomplete.

        Raises Unavailable.
        """
        found: dict[PeerId, None] = {}
        groups = [group_of(region) for region in regions]
        for shard in range(self._shards):
            for key in class_keys(self._net, (of_class,), groups, places=self._places, shard=shard):
                found.update(dict.fromkeys(await self._directory.find(key)))
        return tuple(sorted(found))
