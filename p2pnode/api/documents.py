"""What the node tells its user, as JSON. Sums in micro-units, sizes in MiB, times in ms.

A document has a schema name; within one schema version fields are only added.
"""

from typing import Literal

from msgspec import Struct

from p2pnode.api.market_documents import ChangeDocument


class NetworkDocument(Struct, frozen=True, kw_only=True):
    """Which network this is."""

    id: str
    name: str
    kind: Literal["main", "test"]
    money: str


class GossipDocument(Struct, frozen=True, kw_only=True):
    """How the announcements fare."""

    mesh: dict[str, int]
    """Topic -> neighbours that we exchange it with; empty for a light client."""
    taken: int
    late: int
    over_budget: int
    refused: dict[str, int]
    """Rule -> how many messages broke it."""


class StatusDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode status`."""

    schema: str = "p2pnode.status/1"
    name: str
    peer: str
    feed: str
    account: str
    network: NetworkDocument
    roles: tuple[str, ...]
    is_light: bool
    addresses: tuple[str, ...]
    """Full addresses, with the peer id."""
    neighbours: tuple[str, ...]
    nearby: tuple[str, ...]
    """Peers of this network that multicast DNS shows; a claim until they are neighbours."""
    offers: int
    """Open offers in the book, our own among them."""
    gossip: GossipDocument
    signing_held: str | None
    """Why nothing is signed now, and so nothing leased or rented; null when all is well."""
    questions_refused: dict[str, int]
    offers_found_by_sync: int
    listed: int
    """Announcements to the directory that were taken so far."""
    listing_failed: int
    offered: tuple[str, ...]
    """What we offer, in words."""
    ask_micro_per_gpu_hour: int | None
    simulated: tuple[str, ...]
    """What of this node is simulated."""
    rss_bytes: int
    bytes_moved: int
    """Sent and received since the start."""
    alerts: tuple[str, ...]
    """What the owner should look at: a code, and a sentence."""
    bytes_per_hour: int
    """Sent and received, by the last hour or as far as the node goes back."""
    up_ms: int


class RivalDocument(Struct, frozen=True, kw_only=True):
    """Another owner that offers some of the same GPUs now, by its own word."""

    owner: str
    """Its feed key."""
    devices: int
    """Of the GPUs."""
    is_first: bool
    """Whether this node saw it with them before; other nodes may have seen otherwise."""
    claim: Literal["claimed"] = "claimed"
    """How sure this is: one of the two says what is false, and nothing proves which."""


class OfferDocument(Struct, frozen=True, kw_only=True):
    """One offer."""

    key: str
    peer: str
    account: str
    model: str
    vram_mib: int
    gpu_class: int
    units: int
    free: int
    gpu: Literal["nvml", "simulated"]
    isolation: str
    region: str
    money: str
    asks: dict[str, int]
    """Tier -> posted price in micro-units per GPU-hour; gold is quoted on request."""
    tiers: tuple[str, ...]
    gold_remedy_ppm: int | None
    """Of a gold lease's whole price, let off at least if the host fails its job; null: not told."""
    lease_ms_min: int | None
    lease_ms_max: int | None
    host: dict[str, int | str]
    """What it tells of cores, memory, disk, bandwidth and driver."""
    incarnation: int
    seq: int
    issued_ms: int
    expires_ms: int
    addresses: tuple[str, ...]
    devices: tuple[str, ...]
    """Marks of the GPUs, salted for this network; none of simulated ones."""
    rivals: tuple[RivalDocument, ...]
    """Who else offers them."""


class OfferShowDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode offer show`."""

    schema: str = "p2pnode.offer.show/1"
    offer: OfferDocument
    state: Literal["open", "withdrawn"]
    heard_ms: int
    """When this node put it into its book."""


class OfferListDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode offer search`."""

    schema: str = "p2pnode.offer.list/1"
    items: tuple[OfferDocument, ...]
    seen: int
    """Open offers that were looked at."""
    misfits: dict[str, int]
    """First failing constraint -> how many offers it ruled out."""
    left_out: int
    """Offers that fit but are beyond the limit."""
    changes: tuple[ChangeDocument, ...] = ()
    """Where none fits: each would be enough, the smallest first."""
    unseen: str = ""
    """What this node did not look at, if anything."""


class ArrivalDocument(Struct, frozen=True, kw_only=True):
    """When this node put one advert into its book, by its own clock."""

    key: str
    incarnation: int
    seq: int
    state: Literal["open", "withdrawn"]
    """A withdrawn advert takes the offer out of every search."""
    ask_micro: int | None
    """The silver one."""
    taken_ms: int


class ArrivalListDocument(Struct, frozen=True, kw_only=True):
    """How news of offers has reached this node lately, oldest first."""

    schema: str = "p2pnode.offer.arrivals/1"
    items: tuple[ArrivalDocument, ...]


class ListedDocument(Struct, frozen=True, kw_only=True):
    """Peers that the directory names for a class; what they offer is for them to say."""

    schema: str = "p2pnode.directory/1"
    items: tuple[str, ...]


class Problem(Struct, frozen=True, kw_only=True):
    """What went wrong, for people and scripts (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    cure: str = ""
