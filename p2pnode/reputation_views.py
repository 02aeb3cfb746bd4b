"""What a running node thinks of a peer, as an API document."""

from collections.abc import Sequence
from typing import Final

from ledger.attested import non_deliveries
from ledger.reasons import Finding, explain
from ledger.rules import Verdict
from p2pnode.api.documents import RivalDocument
from p2pnode.api.reputation_documents import (
    AttestedDocument,
    FindingDocument,
    ReputationDocument,
    StandingOffence,
)
from p2pnode.api.reputation_routes import SHOWN_DEFAULT
from p2pnode.network.peer_text import peer_of
from p2pnode.node import Node
from p2pnode.words import offence_words
from protocol.errors import LocalFault
from protocol.rules import RULES_DIGEST
from protocol.units import PeerId, PublicKey

PREFIX_DIGITS_MIN: Final = 8


def reputation_of(
    node: Node, peer: str, *, why: bool, limit: int = SHOWN_DEFAULT
) -> ReputationDocument:
    """The peer of this name: its feed in hexadecimal, a prefix of that, or its peer id.

    Of each list of ids at most `limit` are shown, and it says how many are left out.
    Raises LocalFault if it is nobody's, or that of several.
    """
    feed, standing = feed_named(node, peer), node.standing
    trust, money = standing.reckon(), standing.money
    view = trust.view
    finance, record = trust.finance(feed, money), trust.record(feed, money)
    kept = view.kept_ppm(feed)
    return ReputationDocument(
        feed=feed.hex(),
        ego=view.ego.hex(),
        epoch=view.epoch,
        bundle=RULES_DIGEST.hex(),
        money=money,
        standing="ended" if view.barred_by(feed) else "cut" if kept < 1_000_000 else "good",
        kept_ppm=kept,
        reliability_ppm=record.reliability_ppm,
        credit_micro=finance.credit_micro,
        flow_micro=finance.flow_micro,
        reserved_micro=finance.reserved_micro,
        good_micro=record.good_micro,
        bad_micro=record.bad_micro,
        failures_seen=trust.failures_seen(feed),
        attested=_attested(node, feed, limit),
        offences=tuple(_offence(each, view.epoch) for each in view.verdicts_of(feed)),
        rivals=rivals_of(node, feed),
        why=tuple(_finding(each, limit) for each in explain(trust, feed, money)) if why else (),
        digest=trust.digest(feed, money).hex(),
    )


def rivals_of(
    node: Node, owner: PublicKey, marks: tuple[bytes, ...] | None = None
) -> tuple[RivalDocument, ...]:
    """Who else offers these GPUs of an owner, or any that it offers."""
    return tuple(
        RivalDocument(owner=each.owner.hex(), devices=each.devices, is_first=each.is_first)
        for each in node.devices.rivals(owner, marks)
    )


def _attested(node: Node, owner: PublicKey, limit: int) -> tuple[AttestedDocument, ...]:
    return tuple(
        AttestedDocument(
            lease=each.lease.hex(),
            renter=each.renter.hex(),
            period=each.period,
            k=each.k,
            n=each.n,
            quorum=each.quorum,
            text=each.text,
            probes=_shown(each.by, limit),
            left_out=max(0, len(each.by) - limit),
        )
        for each in non_deliveries(node.ports.ledger.state)
        if each.owner == owner
    )


def _offence(verdict: Verdict, epoch: int) -> StandingOffence:
    return StandingOffence(
        rule=verdict.name,
        what=offence_words(verdict.name),
        evidence=verdict.case.id.hex(),
        feed=verdict.offender.hex(),
        kept_ppm=verdict.kept_ppm(epoch),
        ends_standing=verdict.ends_standing,
    )


def _finding(of: Finding, limit: int) -> FindingDocument:
    lists = (of.entries, of.proofs, of.overdue, of.said_by)
    return FindingDocument(
        name=of.name,
        value=of.value,
        entries=_shown(of.entries, limit),
        proofs=_shown(of.proofs, limit),
        overdue=_shown(of.overdue, limit),
        said_by=_shown(of.said_by, limit),
        note=of.note,
        left_out=sum(max(0, len(each) - limit) for each in lists),
    )


def _shown(ids: Sequence[bytes], limit: int) -> tuple[str, ...]:
    return tuple(each.hex() for each in ids[:limit])


def feed_named(node: Node, text: str) -> PublicKey:
    """The feed in hexadecimal, of which a prefix is named; or of the peer with this id.

    Raises LocalFault if it is nobody's, or that of several.
    """
    digits = text.lower()
    if len(digits) >= PREFIX_DIGITS_MIN and all(each in "0123456789abcdef" for each in digits):
        feeds = [head.feed for head in node.ports.ledger.heads()]
        found = [feed for feed in feeds if feed.hex().startswith(digits)]
        if len(found) == 1:
            return found[0]
        what = "No feed begins" if not found else f"{len(found)} feeds begin"
        raise LocalFault(f"{what} with {digits} here.", "p2pnode ledger show --json")
    return _feed_of_peer(node, peer_of(text))


def _feed_of_peer(node: Node, peer: PeerId) -> PublicKey:
    if peer == node.identity.certificate.peer_id:
        return node.identity.feed.public
    for offer in node.book.open_offers(node.ports.clock.now()):
        if offer.certificate.peer_id == peer:
            return offer.signer
    known = node.exchange.acquaintance(peer)
    if known is None:
        raise LocalFault("This node has not met that peer.", "name its feed: p2pnode ledger show")
    return known.certificate.feed
