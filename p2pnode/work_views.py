"""An owner's bids, why it has no work, and the market as this node sees it, as API documents."""

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median_low
from typing import Final

from msgspec import UNSET

from ledger.fold import Lease
from p2pnode.api.market_documents import (
    BidDocument,
    BidListDocument,
    ClearedRow,
    DepthStep,
    MarketDocument,
    MarketRow,
    NoWorkDocument,
)
from p2pnode.matching.book import Offer
from p2pnode.matching.journal import Note, Result
from p2pnode.matching.work import BIDDER_STALLED, cause_of, floor_of
from p2pnode.network.peer_text import peer_text
from p2pnode.node import Node
from p2pnode.quantities import format_money
from protocol.advert import TIERS, Tier, ask_for
from protocol.units import Micros, PublicKey

DEPTH_ROWS: Final = 10
STATES: Final = {
    "won": "WON",
    "lost": "OUTBID",
    "open": "OPEN",
    "expired": "EXPIRED",
    "refused": "REFUSED",
}
"""What a note's result is called; to be outbid is no fault of anybody."""


def bids_of(node: Node, *, since_ms: int, limit: int) -> BidListDocument:
    """What this owner was asked, newest first, and what came of it."""
    newest = node.desk.journal.numbered(since_ms, node.ports.clock.now())[::-1]
    return BidListDocument(
        items=tuple(_bid(number, note) for number, note in newest[:limit]),
        fill_ppm=_fill([note.result for _, note in newest]),
        counts=dict(sorted(Counter(STATES[note.result] for _, note in newest).items())),
        left_out=max(0, len(newest) - limit),
    )


def _fill(results: list[Result]) -> int | None:
    won, over = results.count("won"), sum(result in {"won", "lost"} for result in results)
    return won * 1_000_000 // over if over else None


def no_work(node: Node, *, since_ms: int) -> NoWorkDocument:
    """Why the requests of this time came to nothing, and what price would have won."""
    now = node.ports.clock.now()
    notes = node.desk.journal.since(since_ms, now)
    causes = [(cause_of(note), note) for note in notes]
    posting = node.provider.posting
    floor = floor_of((note for note in notes if note.tier == "silver"), posting.money)
    alert = node.desk.pulse.stalled(now)
    return NoWorkDocument(
        since_ms=since_ms,
        until_ms=now,
        seen=len(notes),
        won=sum(note.result == "won" for note in notes),
        causes=dict(Counter(cause for cause, _ in causes if cause is not None).most_common()),
        details={
            cause: _detail([note for other, note in causes if other == cause])
            for cause in dict.fromkeys(cause for cause, _ in causes if cause is not None)
        },
        ask_micro=posting.ask,
        money=posting.money,
        floor_micro=None if floor is None else floor[0],
        floor_wins=0 if floor is None else floor[1],
        alert=None if alert is None else BIDDER_STALLED,
        alert_why=alert or "",
    )


def _detail(notes: list[Note]) -> str:
    """What is most often said of them."""
    return Counter(_why(note) for note in notes).most_common(1)[0][0]


def _bid(number: int, note: Note) -> BidDocument:
    return BidDocument(
        number=number,
        seen_ms=note.seen_ms,
        renter=note.renter.hex(),
        gpus=note.need.gpus,
        vram_mib_min=note.need.vram_mib_min,
        tier=note.tier,
        span_ms=note.end_ms - note.start_ms,
        money=note.money,
        micro_per_gpu_hour=None if note.ask_micro is UNSET else note.ask_micro,
        state=STATES[note.result],  # type: ignore[arg-type]
        why=_why(note),
        rank=None if note.cheaper is UNSET else note.cheaper + 1,
        rivals=None if note.rivals is UNSET else note.rivals,
        rival_micro=None if note.rival_micro is UNSET else note.rival_micro,
    )


def _why(note: Note) -> str:
    if note.result == "refused":
        detail = "" if note.detail is UNSET else f": {note.detail}"
        return f"{'' if note.reason is UNSET else note.reason}{detail}"
    if note.result != "lost":
        return ""
    if note.rival_micro is UNSET or note.ask_micro is UNSET:
        return "nobody took it; no rival was in our book"
    rival = format_money(Micros(note.rival_micro), note.money)
    is_cheaper = note.rival_micro < note.ask_micro
    return f"the lowest rival asked {rival}, {'below' if is_cheaper else 'not below'} us"


def market_of(node: Node, *, since_ms: int) -> MarketDocument:
    """The asks in this node's book, and what the leases that it has seen were agreed at."""
    offers = node.book.open_offers(node.ports.clock.now())
    leases = [
        lease
        for lease in node.ports.ledger.state.leases()
        if lease.is_accepted and lease.request.start_ms >= since_ms
    ]
    return MarketDocument(
        seen_by=peer_text(node.identity.certificate.peer_id),
        since_ms=since_ms,
        asks=tuple(_rows(offers)),
        cleared=tuple(_cleared(leases, _classes(offers))),
    )


def _rows(offers: Sequence[Offer]) -> Iterable[MarketRow]:
    places: dict[tuple[int, int, str], list[Offer]] = {}
    for offer in offers:
        for ask in offer.advert.tiers:
            key = (offer.advert.gpu_class, TIERS.index(ask.tier), offer.advert.money)
            places.setdefault(key, []).append(offer)
    for (of_class, place, money), found in sorted(places.items()):
        yield _row(of_class, TIERS[place], money, found)


def _row(of_class: int, tier: Tier, money: str, offers: list[Offer]) -> MarketRow:
    asks = sorted(
        (ask, offer.advert.free)
        for offer in offers
        if (ask := ask_for(offer.advert, tier)) is not None
    )
    prices = [ask for ask, _ in asks]
    return MarketRow(
        gpu_class=of_class,
        tier=tier,
        money=money,
        offers=len(offers),
        gpus=sum(offer.advert.units for offer in offers),
        free=sum(offer.advert.free for offer in offers),
        ask_lowest=min(prices, default=None),
        ask_median=median_low(prices) if prices else None,
        ask_highest=max(prices, default=None),
        depth=_depth(asks),
    )


def _depth(asks: list[tuple[int, int]]) -> tuple[DepthStep, ...]:
    """Free GPUs at each ask or below, as the market would be bought up."""
    free, steps = 0, dict[int, int]()
    for ask, count in asks:
        free += count
        steps[ask] = free
    rows = [DepthStep(ask_micro=ask, free=free) for ask, free in steps.items()]
    every = max(1, -(-len(rows) // DEPTH_ROWS))
    return tuple(rows[::-1][::every][::-1])


def _classes(offers: Iterable[Offer]) -> dict[PublicKey, int | None]:
    """The class of each owner who offers one alone."""
    found: dict[PublicKey, int | None] = {}
    for offer in offers:
        of_class: int | None = offer.advert.gpu_class
        if found.setdefault(offer.signer, of_class) != of_class:
            found[offer.signer] = None
    return found


def _cleared(leases: Iterable[Lease], classes: dict[PublicKey, int | None]) -> Iterable[ClearedRow]:
    places: dict[tuple[str, str, int | None], list[int]] = {}
    for lease in leases:
        asked = lease.request
        key = (asked.tier, asked.money, classes.get(lease.owner))
        places.setdefault(key, []).append(asked.micro_per_gpu_hour)
    for (tier, money, of_class), prices in sorted(places.items(), key=lambda pair: str(pair[0])):
        yield ClearedRow(
            tier=tier,
            money=money,
            gpu_class=of_class,
            leases=len(prices),
            lowest=min(prices),
            median=median_low(prices),
            highest=max(prices),
        )
