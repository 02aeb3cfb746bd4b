"""Fetches what a running job saves, so that little is lost with its owner. SPEC.md 13.5."""

import logging
from typing import TYPE_CHECKING, Final

import trio
from msgspec import UNSET

from p2pnode.jobs.desk import Desk
from p2pnode.jobs.lease_client import LeaseClient
from p2pnode.kept import note_saved, saved_of
from protocol.errors import PeerFault, Unavailable
from protocol.job import Input
from protocol.tick import ArchiveName, Saved, check_saved
from protocol.units import Digest
from protocol.wire import Sealed, unpack

if TYPE_CHECKING:
    from p2pnode.jobs.driver import Driver

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""Between two looks at our ledger, which tells of a notice."""


class Saver:
    """Owns the checkpoints of one job."""

    def __init__(self, desk: Desk, driver: "Driver") -> None:
        self._desk = desk
        self._driver = driver
        self._told: Digest | None = None
        """Of which the owner knows that we have it."""

    async def run(self) -> None:
        """Fetch what is new every now and then, until cancelled. Raises PeerFault."""
        interval = self._driver.file.checkpoint_ms
        assert interval is not UNSET
        due_s = trio.current_time() + interval / 1_000
        while True:
            await trio.sleep(min(LOOK_S, interval / 1_000))
            lease = self._driver.leased()
            if lease.reason == "preempted":
                left_s = max(0, lease.ended_ms - self._desk.clock.now()) / 1_000
                self._driver.change(why=f"the owner takes the units back in {left_s:.0f} s")
            if trio.current_time() < due_s:
                continue
            due_s = trio.current_time() + interval / 1_000
            try:
                await self.fetch(self._driver.client())
            except Unavailable as error:
                log.info("no checkpoint", extra={"job": self._driver.file.id, "why": str(error)})

    async def fetch(self, client: LeaseClient) -> None:
        """We have what the job saved last, and its owner knows. Raises Unavailable or PeerFault."""
        job, lease = self._driver.file.id, self._driver.leased()
        raw = await client.fetch_checkpoint(job, self._check)
        if raw is None:
            return
        sealed = self._read(raw)
        archive = sealed.body.archive
        if raw != saved_of(self._desk.cabinet, lease.id):
            note_saved(self._desk.cabinet, lease.id, raw)
        self._driver.change(checkpoint=Input(digest=archive.digest, bytes=archive.bytes))
        await self._desk.baggage.drop_checkpoints(job, archive.digest)
        if self._told != sealed.digest:
            await self._desk.note_kept(self._driver.peer(), lease.id, sealed.digest)
            self._told = sealed.digest

    def _check(self, raw: bytes) -> ArchiveName:
        sealed, lease = self._read(raw), self._driver.leased()
        if sealed.signer != lease.owner or sealed.body.lease != lease.id:
            raise PeerFault("saved.signer")
        bytes_max = self._driver.job().limits.output_bytes
        check_saved(
            sealed.body,
            lease.request,
            bytes_max=bytes_max,
            now=self._desk.clock.now(),
            skew=self._desk.skew_ms,
        )
        return sealed.body.archive

    def _read(self, raw: bytes) -> Sealed[Saved]:
        return unpack(raw, self._desk.net, Saved)
