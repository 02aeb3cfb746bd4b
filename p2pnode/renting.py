"""Builds what a renter needs: its auctions, its jobs, and its jobs on several nodes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from p2pnode.bookkeeping import Bookkeeping
from p2pnode.config import Config
from p2pnode.identity import Identity
from p2pnode.jobs.desk import Desk
from p2pnode.jobs.jobs import Jobs
from p2pnode.jobs.pools import Pools
from p2pnode.links import Links
from p2pnode.matching.market import Market
from p2pnode.matching.order import Order
from p2pnode.matching.pooling import Pooling
from p2pnode.matching.renter import Renter
from p2pnode.matching.search import Wish
from p2pnode.ports import Ports, own_region
from protocol.genesis import Genesis, net_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Renting:
    """The parts, which know each other."""

    renter: Renter
    jobs: Jobs
    pools: Pools


def build_renting(
    *,
    config: Config,
    genesis: Genesis,
    identity: Identity,
    ports: Ports,
    links: Links,
    keeping: Bookkeeping,
    market: Market,
    look_around: Callable[[Wish], Awaitable[None]],
) -> Renting:
    """The parts of a node that rents."""
    renter = Renter(
        signer=identity.feed,
        genesis=genesis,
        market=market,
        ask=links.ask,
        reliability_ppm=keeping.standing.reliability_ppm,
        witness=keeping.witnesses.gather,
        accuse=ports.ledger.accuse,
        random_bytes=ports.random_bytes,
        clock=ports.clock,
        region=own_region(config),
    )
    jobs = _jobs(config, identity, genesis, ports, links, keeping, renter, look_around)

    async def measure(order: Order) -> None:
        wish = order.wish(ports.clock.now())
        await renter.measure(wish, likes_near=order.choice.likes_near)

    pooling = Pooling(
        signer=identity.feed,
        genesis=genesis,
        market=market,
        measure=measure,
        region=own_region(config),
        ask=links.ask,
        random_bytes=ports.random_bytes,
        rng=ports.rng,
        clock=ports.clock,
    )
    pools = Pools(
        jobs=jobs,
        pooling=pooling,
        cabinet=ports.cabinet,
        clock=ports.clock,
        random_bytes=ports.random_bytes,
        look_around=look_around,
    )
    return Renting(renter=renter, jobs=jobs, pools=pools)


def _jobs(  # noqa: PLR0917 - each is one part
    config: Config,
    identity: Identity,
    genesis: Genesis,
    ports: Ports,
    links: Links,
    keeping: Bookkeeping,
    renter: Renter,
    look_around: Callable[[Wish], Awaitable[None]],
) -> Jobs:
    return Jobs(
        lambda jobs: Desk(
            renter=renter,
            cabinet=ports.cabinet,
            baggage=ports.baggage,
            net=net_of(genesis),
            skew_ms=genesis.bounds.skew_ms,
            clock=ports.clock,
            random_bytes=ports.random_bytes,
            open_stream=links.open_stream,
            confirm=links.confirm,
            settle=keeping.accounts.settle,
            lease=ports.ledger.lease,
            owed=keeping.accounts.owed,
            note_kept=links.note_kept,
            let_go=partial(links.let_go, identity.feed),
            stop=links.stop_lease,
            look_around=look_around,
            call_witnesses=keeping.witnesses.call,
            failed=jobs.owner_failed,
            lost_after_s=config.renting.lost_after / 1_000,
        ),
        cabinet=ports.cabinet,
        primary=ports.primary,
    )
