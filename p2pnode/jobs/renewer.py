"""Takes the next lease of a running job before the one that it has ends. SPEC.md 10.6."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio
from msgspec import UNSET

from ledger.fold import Lease
from ledger.witness_bodies import Cosigned
from p2pnode.jobs.desk import Desk
from p2pnode.jobs.jobfile import taking_of, taking_record
from p2pnode.matching.order import Order, Renewal
from p2pnode.matching.renter import NoMatch, Taking
from protocol.errors import PeerFault, Unavailable
from protocol.lease import charge
from protocol.units import Micros, Millis, MillisSpan

if TYPE_CHECKING:
    from p2pnode.jobs.driver import Driver

log = logging.getLogger(__name__)

EARLY_MS: Final = 600_000
"""So long before its end a lease is renewed, or in its last third."""
RETRY_S: Final = 5.0
CONFIRM_S: Final = 10
LET_GO_S: Final = 5


class Renewer:
    """Owns what the job's file says of the lease to come."""

    def __init__(self, desk: Desk, driver: "Driver") -> None:
        self._desk = desk
        self._driver = driver

    async def run(self) -> None:
        """Have the next lease in time, if its owner gives it; until cancelled."""
        lease = self._driver.leased()
        early = min(EARLY_MS, (lease.request.end_ms - lease.request.start_ms) // 3)
        await trio.sleep(max(0, lease.request.end_ms - early - self._now()) / 1_000)
        while self._driver.file.renewal is UNSET and self._now() < lease.request.end_ms:
            try:
                await self.have_next()
            except (NoMatch, Unavailable, PeerFault, trio.TooSlowError) as error:
                log.info("not renewed", extra={"job": self._driver.file.id, "why": str(error)})
                await trio.sleep(RETRY_S)
        await trio.sleep_forever()

    async def have_next(self) -> None:
        """The next lease is taken and in the file.

        Raises NoMatch, Unavailable, PeerFault or TooSlowError.
        """
        taking, grant, cosigned = await self._taken()
        with trio.fail_after(CONFIRM_S):
            lease = await self._desk.confirm(taking.peer, grant, cosigned)
        self._driver.change(renewal=lease.id)

    async def _taken(self) -> tuple[Taking, bytes, Cosigned | None]:
        renewing = self._driver.file.renewing
        if renewing is UNSET:
            order = self._order()
            await self._desk.look_around(order.wish())
            won = await self._desk.renter.rent(
                order, seal_job=self._driver.seal, remember=self._remember
            )
            return won.taking, won.grant, won.cosigned
        # It was on its way when we died, or when its answer was lost.
        taking = taking_of(renewing)
        reply = await self._desk.renter.ask_again(taking)
        if reply.yes is UNSET:
            self._driver.change(renewing=UNSET)
            raise Unavailable("the owner did not renew the lease")
        return taking, reply.yes, await self._desk.renter.witness(taking, reply.yes)

    def _order(self) -> Order:
        """The same again, of the same owner, from the end of this lease on, within the limits."""
        lease = self._driver.leased()
        order = self._driver.file.order(self._now())
        left = order.total_max
        if left is not None:
            span = (lease.request.end_ms - lease.request.start_ms) * len(lease.request.units)
            price = Micros(lease.request.micro_per_gpu_hour)
            cost = self._driver.file.worth(charge(MillisSpan(span), price), lease.request.money)
            left = Micros(max(0, left - cost))
        return replace(
            order,
            total_max=left,
            start_ms=Millis(lease.request.end_ms),
            renews=Renewal(lease=lease.id, owner=lease.owner),
        )

    async def _remember(self, taking: Taking) -> None:
        self._driver.change(renewing=taking_record(taking))
        await trio.lowlevel.checkpoint()

    async def is_going_on(self) -> bool:
        """Whether the job has its next lease; asked once the owner says that it goes on in it."""
        if self._driver.file.renewal is UNSET and self._driver.file.renewing is not UNSET:
            try:
                await self.have_next()
            except (Unavailable, PeerFault, trio.TooSlowError) as error:
                log.info("not renewed", extra={"job": self._driver.file.id, "why": str(error)})
        return self._driver.file.renewal is not UNSET

    async def let_go(self) -> None:
        """The job has ended before its next lease: its owner may have the units back."""
        renewal, renewing = self._driver.file.renewal, self._driver.file.renewing
        lease: Lease | None = None if renewal is UNSET else self._desk.lease(renewal)
        if lease is None or renewing is UNSET:
            return
        with trio.move_on_after(LET_GO_S):
            try:
                await self._desk.let_go(renewing.peer, lease)
            except (Unavailable, PeerFault) as error:
                log.info("lease not let go", extra={"lease": lease.id.hex(), "why": str(error)})

    def _now(self) -> Millis:
        return self._desk.clock.now()
