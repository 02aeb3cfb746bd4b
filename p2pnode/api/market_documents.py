"""What the node tells of the market, and why there is no match or no work, as JSON."""

from typing import Literal

from msgspec import Struct


class FilterDocument(Struct, frozen=True, kw_only=True):
    """One constraint, and what it held back of the offers that passed those before it."""

    name: str
    asked: str
    """As the option that says it."""
    failed: dict[str, int]
    """Reason -> offers."""
    left: int


class ChangeDocument(Struct, frozen=True, kw_only=True):
    """A change to the order after which offers fit."""

    options: tuple[str, ...]
    """To be given all together; a model or a region beside those that were given."""
    matches: int
    """Offers that fit then."""
    ppm: int
    """The relative change, in millionths, over all of them."""


class RefusalDocument(Struct, frozen=True, kw_only=True):
    """What an owner answered, and signed."""

    owner: str
    """Its feed key."""
    reason: str
    detail: str


class WhyDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode why JOB`."""

    schema: str = "p2pnode.why/1"
    job: str
    state: str
    is_matched: bool
    """Whether it has a lease, or had one: then nothing stands in its way, and all else is empty."""
    waited_ms: int
    """For a match."""
    patience_ms: int
    seen: int
    """Offers in this node's book that are another's, now."""
    shut_out: dict[str, int]
    """Of those, the ones whose owner is not asked whatever it offers, by reason."""
    funnel: tuple[FilterDocument, ...]
    fits: int
    """Offers that pass every filter."""
    bids: int
    """In the last auction."""
    refusals: tuple[RefusalDocument, ...]
    """In the last auction."""
    missed: dict[str, int]
    """In the last auction: what each offer that gave nothing failed for, owners' answers too."""
    changes: tuple[ChangeDocument, ...]
    """Each would be enough, the smallest first; empty where offers fit."""
    unseen: str
    """What this node did not look at, if anything."""
    pool: str = ""
    """Of a job on several nodes: why they are too few. All else is about one of them."""


class BidDocument(Struct, frozen=True, kw_only=True):
    """One request for quote that this node saw as an owner, and what came of it."""

    number: int
    seen_ms: int
    renter: str
    """Its feed key."""
    gpus: int
    vram_mib_min: int
    tier: str
    span_ms: int
    money: str
    micro_per_gpu_hour: int | None
    """What we bid; null if we refused."""
    state: Literal["WON", "OUTBID", "OPEN", "EXPIRED", "REFUSED"]
    why: str
    """Of a refusal its reason; of a lost bid what is known of rivals."""
    rank: int | None
    """Of our bid among the asks of rivals that fitted, 1 the lowest; null where not known."""
    rivals: int | None
    rival_micro: int | None
    """The lowest ask of others that fitted, in our book, then."""


class BidListDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode bid list`."""

    schema: str = "p2pnode.bid.list/1"
    items: tuple[BidDocument, ...]
    """Newest first."""
    fill_ppm: int | None
    """Of the bids that are over, how many won, in millionths; null if there is none."""
    counts: dict[str, int]
    """State -> how many, of all since then."""
    left_out: int


class NoWorkDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode why no-work`."""

    schema: str = "p2pnode.why.nowork/1"
    since_ms: int
    until_ms: int
    seen: int
    """Requests for quote."""
    won: int
    causes: dict[str, int]
    """price, need, busy, closed, policy, reach, expired -> how many."""
    details: dict[str, str]
    """Cause -> its most frequent form."""
    ask_micro: int | None
    money: str
    floor_micro: int | None
    """An ask below every rival of the requests that it would have won, by the rivals' asks in this
    node's book at the time; null where none is known. An estimate."""
    floor_wins: int
    alert: str | None
    """BIDDER_STALLED, or null."""
    alert_why: str


class DepthStep(Struct, frozen=True, kw_only=True):
    """How many GPUs are free at this ask or below."""

    ask_micro: int
    free: int


class MarketRow(Struct, frozen=True, kw_only=True):
    """One class of GPUs in one tier and money."""

    gpu_class: int
    tier: str
    money: str
    offers: int
    gpus: int
    free: int
    ask_lowest: int | None
    ask_median: int | None
    ask_highest: int | None
    depth: tuple[DepthStep, ...]
    """Rising; ten steps at most."""


class ClearedRow(Struct, frozen=True, kw_only=True):
    """What leases were agreed at, in one tier and money."""

    tier: str
    money: str
    gpu_class: int | None
    """Null where this node does not know what was leased."""
    leases: int
    lowest: int
    median: int
    highest: int


class MarketDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode market show`."""

    schema: str = "p2pnode.market/1"
    seen_by: str
    """This node: another one sees other offers and leases."""
    since_ms: int
    """Of the leases."""
    asks: tuple[MarketRow, ...]
    cleared: tuple[ClearedRow, ...]
