"""Why a job has no match, as an API document."""

from collections.abc import Iterable

from msgspec import UNSET
from msgspec.structs import replace

from p2pnode.api.market_documents import (
    ChangeDocument,
    FilterDocument,
    RefusalDocument,
    WhyDocument,
)
from p2pnode.hints import change_documents, changes_for, funnel_documents, look_wider, unseen
from p2pnode.jobs.jobfile import JobFile
from p2pnode.jobs.jobs import STAGE_MS
from p2pnode.matching.book import Offer
from p2pnode.matching.funnel import funnel
from p2pnode.node import Node
from protocol.auction import Refusal
from protocol.codec import decode
from protocol.limits import AUCTION_BYTES_MAX
from protocol.scoring import AuctionRecord
from protocol.wire import unpack


async def why_no_match(node: Node, name: str) -> WhyDocument:
    """What keeps this job from a lease, and what would change that. Raises LocalFault.

    Of a job on several nodes, what one of them needs, and why they are too few.
    """
    if name.startswith("pool-"):
        pool = node.pools.file(name)
        file, is_over = pool.members[0], pool.state == "granted"
        document = _document(file, 0) if is_over else await _why_none(node, file)
        return replace(
            document,
            job=pool.id,
            state=node.pools.state_of(pool),
            is_matched=is_over,
            pool=pool.why,
        )
    return await _why_none(node, node.jobs.driver(name).file)


async def _why_none(node: Node, file: JobFile) -> WhyDocument:
    now = node.ports.clock.now()
    waited = min(file.give_up_ms, now) - (file.give_up_ms - file.patience_ms)
    if is_matched(file):
        return _document(file, waited)
    order = file.order(node.ports.clock.now())
    wish = order.wish(now)
    await node.look_around(wish)
    await look_wider(node, wish)
    offers, shut_out = open_to(node, file)
    sieved = funnel(offers, wish, node.market.known_of)
    changes = await changes_for(offers, wish, node.market.known_of)
    record = _last_auction(node, file)
    return _document(
        file,
        waited,
        seen=len(offers) + sum(shut_out.values()),
        shut_out=shut_out,
        funnel=funnel_documents(sieved, wish, stage_ms=STAGE_MS),
        fits=sieved[-1].left,
        bids=0 if record is None else len(record.bids),
        refusals=() if record is None else tuple(_refusals(node, record)),
        missed=node.renter.missed.get(order.job, {}),
        changes=change_documents(changes, stage_ms=STAGE_MS),
        unseen=unseen(node),
    )


def is_matched(file: JobFile) -> bool:
    """Whether it has a lease, or had one when it ended: then nothing stands in its way."""
    return file.lease is not UNSET


def open_to(node: Node, file: JobFile) -> tuple[list[Offer], dict[str, int]]:
    """The offers that may be asked for this job, and how many owners are not, by reason."""
    order, shut_out = file.order(node.ports.clock.now()), dict[str, int]()
    found = []
    for offer in node.market.offers():
        why = node.market.shut_out(offer, order)
        if why is None:
            found.append(offer)
        else:
            shut_out[why] = shut_out.get(why, 0) + 1
    return found, shut_out


def _last_auction(node: Node, file: JobFile) -> AuctionRecord | None:
    raw = node.ports.cabinet.get(f"jobs/{file.id}/auction-{file.attempt}")
    return None if raw is None else decode(raw, AuctionRecord, size_max=AUCTION_BYTES_MAX)


def _refusals(node: Node, record: AuctionRecord) -> Iterable[RefusalDocument]:
    for raw in record.refusals:
        refusal = unpack(raw, node.net, Refusal)
        yield RefusalDocument(
            owner=refusal.signer.hex(),
            reason=refusal.body.reason,
            detail="" if refusal.body.detail is UNSET else refusal.body.detail,
        )


def _document(
    file: JobFile,
    waited_ms: int,
    *,
    seen: int = 0,
    shut_out: dict[str, int] | None = None,
    funnel: tuple[FilterDocument, ...] = (),
    fits: int = 0,
    bids: int = 0,
    refusals: tuple[RefusalDocument, ...] = (),
    missed: dict[str, int] | None = None,
    changes: tuple[ChangeDocument, ...] = (),
    unseen: str = "",
) -> WhyDocument:
    return WhyDocument(
        job=file.id,
        state=file.state,
        is_matched=is_matched(file),
        waited_ms=max(0, waited_ms),
        patience_ms=file.patience_ms,
        seen=seen,
        shut_out=shut_out or {},
        funnel=funnel,
        fits=fits,
        bids=bids,
        refusals=refusals,
        missed=missed or {},
        changes=changes,
        unseen=unseen,
    )
