"""Builds what a node has to do with its ledger: accounts, standing, credit, and witnesses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from p2pnode.accounts import Accounts, Reach, cosigned
from p2pnode.config import Config
from p2pnode.credit_line import CreditLine, credit_terms
from p2pnode.identity import Identity
from p2pnode.links import Links
from p2pnode.matching.witnesses import Witnesses
from p2pnode.own_books import OwnBooks
from p2pnode.ports import Ports
from p2pnode.settling import Settling
from p2pnode.standing import Standing
from p2pnode.watch import Watch
from p2pnode.witness import Witness
from protocol.genesis import Genesis
from protocol.units import PeerId, PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookkeeping:
    """The parts."""

    standing: Standing
    accounts: Accounts
    books: OwnBooks
    settling: Settling
    credit_line: CreditLine
    watch: Watch
    witness: Witness
    """What we do for others."""
    witnesses: Witnesses
    """Whom we ask."""


def build_bookkeeping(
    *,
    config: Config,
    genesis: Genesis,
    identity: Identity,
    ports: Ports,
    links: Links,
    tell: Callable[[PeerId], None],
    grown: Callable[[], None],
    changed: Callable[[], None],
    failures: Callable[[], Mapping[PublicKey, int]],
) -> Bookkeeping:
    """All of them, wired to each other.

    `tell`: a peer shall hear that our feed has grown, `grown`: all shall; `changed`: units were
    given or freed; `failures`: of each owner.
    """
    ledger, clock = ports.ledger, ports.clock
    standing = Standing(ledger=ledger, money=genesis.money, failures=failures, clock=clock)
    watch = Watch(ledger, partial(cosigned, ports.cabinet))
    accounts = Accounts(
        ledger=ledger,
        fits=watch.look_at_tick,
        signer=identity.feed,
        certificate=identity.certificate_raw,
        genesis=genesis,
        cabinet=ports.cabinet,
        reach=Reach(ask=links.ask, fetch=links.fetch_more, tell=tell, who_is=links.who_is),
        clock=clock,
    )
    books = OwnBooks(
        ledger=ledger,
        accounts=accounts,
        cabinet=ports.cabinet,
        tell=tell,
        changed=changed,
        billing_ms=config.pricing.billing,
        clock=clock,
    )
    return Bookkeeping(
        standing=standing,
        accounts=accounts,
        books=books,
        settling=Settling(
            ledger=ledger,
            signer=identity.feed,
            payout=config.pricing.payout,
            ask_feed=links.ask_feed,
            who_is=links.who_is,
            tell=books.tell_feed,
            clock=clock,
        ),
        credit_line=_credit_line(config, ports, standing, books),
        witness=_witness(config, identity, ports, links=links, grown=grown),
        witnesses=_witnesses(identity, ports, links),
        watch=watch,
    )


def _witness(
    config: Config, identity: Identity, ports: Ports, *, links: Links, grown: Callable[[], None]
) -> Witness:
    return Witness(
        ledger=ports.ledger,
        signer=identity.feed,
        cabinet=ports.cabinet,
        who_is=links.who_is,
        ask_feed=links.ask_feed,
        fetch=links.fetch_more,
        grown=grown,
        is_willing=config.network.witness,
        clock=ports.clock,
    )


def _witnesses(identity: Identity, ports: Ports, links: Links) -> Witnesses:
    return Witnesses(
        ledger=ports.ledger,
        signer=identity.feed,
        ask_feed=links.ask_feed,
        fetch=links.fetch_upto,
        clock=ports.clock,
    )


def _credit_line(config: Config, ports: Ports, standing: Standing, books: OwnBooks) -> CreditLine:
    return CreditLine(
        ledger=ports.ledger,
        terms=credit_terms(config),
        credit=standing.credit_micro,
        metered=books.metered,
        is_over=books.is_over,
        clock=ports.clock,
    )
