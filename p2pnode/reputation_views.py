"""What a running node thinks of a peer, as an API document."""

from ledger.attested import non_deliveries
from ledger.trust import Trust
from p2pnode.api.reputation_documents import (
    AttestedDocument,
    FindingDocument,
    ReputationDocument,
    StandingOffence,
)
from p2pnode.network.peer_text import peer_of
from p2pnode.node import Node
from p2pnode.words import offence_words
from protocol.errors import LocalFault
from protocol.rules import RULES_DIGEST
from protocol.units import PeerId, PublicKey

PREFIX_DIGITS_MIN = 8


def reputation_of(node: Node, peer: str, *, why: bool) -> ReputationDocument:
    """The peer of this name: its feed in hexadecimal, a prefix of that, or its peer id.

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
        failures_seen=sum(
            each.periods for each in view.failures if each.subject == feed and not each.by
        ),
        attested=_attested(node, feed),
        offences=tuple(
            StandingOffence(
                rule=each.name,
                what=offence_words(each.name),
                evidence=each.case.id.hex(),
                kept_ppm=each.kept_ppm(view.epoch),
                ends_standing=each.ends_standing,
            )
            for each in view.verdicts
            if each.offender == feed
        ),
        why=_findings(trust, feed, money) if why else (),
        digest=trust.digest(feed, money).hex(),
    )


def _attested(node: Node, owner: PublicKey) -> tuple[AttestedDocument, ...]:
    return tuple(
        AttestedDocument(
            lease=each.lease.hex(),
            renter=each.renter.hex(),
            period=each.period,
            k=each.k,
            n=each.n,
            quorum=each.quorum,
            text=each.text,
        )
        for each in non_deliveries(node.ports.ledger.state)
        if each.owner == owner
    )


def _findings(trust: Trust, feed: PublicKey, money: str) -> tuple[FindingDocument, ...]:
    return tuple(
        FindingDocument(
            name=each.name,
            value=each.value,
            entries=tuple(entry.hex() for entry in each.entries),
            proofs=tuple(proof.hex() for proof in each.proofs),
        )
        for each in trust.explain(feed, money)
    )


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
