"""What a running node says of itself, as API documents. Reads the parts, changes nothing."""

import resource
from typing import Final

import trio
from msgspec import UNSET, UnsetType, structs
from msgspec.structs import replace

from p2pnode.api.app import Services
from p2pnode.api.documents import (
    ArrivalDocument,
    ArrivalListDocument,
    GossipDocument,
    ListedDocument,
    NetworkDocument,
    OfferDocument,
    OfferListDocument,
    OfferShowDocument,
    StatusDocument,
)
from p2pnode.api.wanted_documents import OfferQuery
from p2pnode.hints import change_documents, changes_for, look_wider, unseen
from p2pnode.matching.book import Offer
from p2pnode.matching.search import Wish, search
from p2pnode.matching.work import BIDDER_STALLED
from p2pnode.network.peer_text import address_text, peer_text
from p2pnode.node import Node
from p2pnode.ports import advert_topics
from p2pnode.quantities import format_money
from p2pnode.reputation_views import reputation_of, rivals_of
from p2pnode.wanted import wish_in
from protocol.advert import TIERS, Host, ask_for, is_expired, marks_in, remedy_for
from protocol.errors import LocalFault
from protocol.gpu_class import GpuClass
from protocol.units import Millis, MillisSpan

END_CHARACTERS: Final = 4
"""Of a peer id name its node, if no other one ends so."""
DEVICE_CLAIMED_TWICE: Final = "DEVICE_CLAIMED_TWICE"
GPU_UNHEALTHY: Final = "GPU_UNHEALTHY"


def services_of(node: Node, *, up_since: Millis) -> Services:
    """The node as its API sees it."""

    async def search_offers(query: OfferQuery) -> OfferListDocument:
        wish = wish_in(query, node.config.renting, node.ports.clock.now())
        await node.look_around(wish)
        await node.renter.measure(wish)
        document = offers_of(node, wish, limit=query.limit)
        if document.items or document.left_out:
            return document
        await look_wider(node, wish)
        document = offers_of(node, wish, limit=query.limit)
        changes = await changes_for(node.market.offers(), wish, node.market.known_of)
        return replace(
            document,
            changes=change_documents(changes, stage_ms=MillisSpan(0)),
            unseen=unseen(node),
        )

    async def listed(of_class: int, regions: tuple[str, ...]) -> ListedDocument:
        peers = await node.lookout.listed(GpuClass(of_class), regions)
        return ListedDocument(items=tuple(peer_text(peer) for peer in peers))

    return Services(
        listed=listed,
        status=lambda: status_of(node, up_since=up_since),
        search=search_offers,
        offer=lambda key: offer_of(node, key),
        arrivals=lambda: arrivals_of(node),
        reputation=lambda peer, why, limit: reputation_of(node, peer, why=why, limit=limit),
    )


def status_of(node: Node, *, up_since: Millis) -> StatusDocument:
    """The node in one document."""
    certificate = node.identity.certificate
    transport = node.ports.transport
    now = node.ports.clock.now()
    feed = node.feed
    moved = node.ports.bytes_moved()
    topics = () if node.is_light else advert_topics(node.genesis)
    return StatusDocument(
        name=node.config.name,
        peer=peer_text(certificate.peer_id),
        feed=certificate.feed.hex(),
        account=certificate.root.hex(),
        network=NetworkDocument(
            id=node.net.hex(),
            name=node.genesis.name,
            kind=node.genesis.kind,
            money=node.genesis.money,
        ),
        roles=node.config.roles,
        is_light=node.is_light,
        addresses=tuple(
            address_text(certificate.peer_id, address) for address in transport.addresses()
        ),
        neighbours=tuple(peer_text(peer) for peer in transport.neighbours()),
        nearby=tuple(peer_text(peer) for peer in node.peers.nearby),
        offers=len(node.book.open_offers(now)),
        gossip=GossipDocument(
            mesh={topic: len(transport.mesh(topic)) for topic in topics},
            taken=feed.taken,
            late=feed.late,
            over_budget=feed.over_budget,
            refused=feed.refused,
        ),
        signing_held=node.rejoin.why_held,
        questions_refused=node.exchange.refused,
        offers_found_by_sync=node.offer_sync.found,
        listed=node.lookout.listing.announced,
        listing_failed=node.lookout.listing.failed,
        offered=offered(node),
        ask_micro_per_gpu_hour=node.provider.posting.ask,
        simulated=_simulated(node),
        rss_bytes=_rss_bytes(),
        alerts=alerts_of(node),
        bytes_moved=moved,
        bytes_per_hour=node.traffic.per_hour(trio.current_time(), moved),
        up_ms=now - up_since,
    )


def alerts_of(node: Node) -> tuple[str, ...]:
    """What the owner should look at."""
    stalled = node.desk.pulse.stalled(node.ports.clock.now())
    rivals = node.devices.rivals(node.identity.feed.public)
    return (
        *(() if stalled is None else (f"{BIDDER_STALLED}: {stalled}",)),
        *(
            f"{DEVICE_CLAIMED_TWICE}: feed {rival.owner.hex()[:16]} offers {rival.devices} of the "
            "GPUs of this node as its own"
            for rival in rivals
        ),
        *(f"{GPU_UNHEALTHY}: {problem}" for problem in node.inventory.problems),
    )


def offers_of(node: Node, wish: Wish, *, limit: int) -> OfferListDocument:
    """The open offers that fit, cheapest first, and what the others fail for."""
    offers = node.book.open_offers(node.ports.clock.now())
    found = search(offers, wish, node.market.known_of)
    return OfferListDocument(
        items=tuple(_offer_document(node, offer) for offer in found.fits[:limit]),
        seen=len(offers),
        misfits=found.misfits,
        left_out=max(0, len(found.fits) - limit),
    )


def arrivals_of(node: Node) -> ArrivalListDocument:
    """When the newest adverts came, oldest first."""
    return ArrivalListDocument(
        items=tuple(
            ArrivalDocument(
                key=arrival.head[0].hex(),
                incarnation=arrival.head[1],
                seq=arrival.head[2],
                state="open" if arrival.is_open else "withdrawn",
                ask_micro=arrival.ask_micro,
                taken_ms=arrival.taken_ms,
            )
            for arrival in node.book.arrivals()
        )
    )


def offer_of(node: Node, key: str) -> OfferShowDocument:
    """The offer whose key begins so, or whose node `offer search` prints so. Raises LocalFault."""
    now = node.ports.clock.now()
    found = [each for each in node.book.find(key.lower()) if not is_expired(each.advert, now)]
    end = key.rpartition("…")[2]
    if not found and len(end) >= END_CHARACTERS:
        open_now = node.book.open_offers(now)
        found = [each for each in open_now if peer_text(each.certificate.peer_id).endswith(end)]
    if len(found) != 1:
        what = f"There are {len(found)} offers" if found else "There is no offer"
        raise LocalFault(f"{what} {key[:64]!a} here.", "p2pnode offer search --json")
    (offer,) = found
    return OfferShowDocument(
        offer=_offer_document(node, offer),
        state="open" if offer.is_open else "withdrawn",
        heard_ms=offer.taken_ms,
    )


def _offer_document(node: Node, offer: Offer) -> OfferDocument:
    advert = offer.advert
    asks = {tier: ask_for(advert, tier) for tier in TIERS}
    return OfferDocument(
        key=offer.head[0].hex(),
        peer=peer_text(offer.certificate.peer_id),
        account=offer.certificate.root.hex(),
        model=advert.model,
        vram_mib=advert.vram_mib,
        gpu_class=advert.gpu_class,
        units=advert.units,
        free=advert.free,
        gpu=advert.gpu,
        isolation=advert.isolation,
        region=advert.region,
        money=advert.money,
        asks={tier: ask for tier, ask in asks.items() if ask is not None},
        tiers=tuple(ask.tier for ask in advert.tiers),
        gold_remedy_ppm=remedy_for(advert) or None,
        lease_ms_min=None if advert.lease_ms_min is UNSET else advert.lease_ms_min,
        lease_ms_max=None if advert.lease_ms_max is UNSET else advert.lease_ms_max,
        host=_host(advert.host),
        incarnation=advert.incarnation,
        seq=advert.seq,
        issued_ms=advert.issued_ms,
        expires_ms=advert.not_after_ms,
        addresses=advert.addresses,
        devices=tuple(mark.hex() for mark in marks_in(advert)),
        rivals=rivals_of(node, offer.signer, marks_in(advert)),
    )


def _host(host: Host | UnsetType) -> dict[str, int | str]:
    told = {} if host is UNSET else structs.asdict(host)
    compute = told.pop("compute", UNSET)
    if compute is not UNSET:
        told["compute"] = ".".join(map(str, compute))
    return {name: value for name, value in told.items() if value is not UNSET}


def offered(node: Node) -> tuple[str, ...]:
    """What we offer, in words."""
    posting = node.provider.posting
    if posting.ask is None:
        return ()
    price = format_money(posting.ask, posting.money)
    return tuple(
        f"{len(shelf.units)} x {shelf.model} ({shelf.source}) at {price}/gpu-h"
        for shelf in node.provider.shelves
    )


def _simulated(node: Node) -> tuple[str, ...]:
    return ("gpu",) if any(shelf.source == "simulated" for shelf in node.provider.shelves) else ()


def _rss_bytes() -> int:
    """The most memory that this process has used so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
