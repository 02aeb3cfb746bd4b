"""Jobs on several nodes, as API documents."""

import os
from pathlib import Path
from typing import Final

import trio

from p2pnode.api.auction_documents import PoolAuctionDocument
from p2pnode.api.pool_documents import PoolDocument, PoolListDocument
from p2pnode.api.wanted_documents import JobOrder
from p2pnode.auction_check import pool_document, read_record
from p2pnode.home import host_faults
from p2pnode.job_views import cost_of, input_of, submission_of, witnesses_of
from p2pnode.jobs.baggage import FileBaggage
from p2pnode.jobs.poolfile import PoolFile
from p2pnode.node import Node
from protocol.errors import LocalFault
from protocol.pool import PoolRecord

_FILES: Final = trio.CapacityLimiter(2)


class PoolViews:
    """What the API does with them; `baggage` tells where the files of their jobs are."""

    def __init__(self, node: Node, baggage: FileBaggage) -> None:
        self._node = node
        self._baggage = baggage

    async def submit(self, order: JobOrder) -> PoolDocument:
        """Pack the input once, take the job. Raises LocalFault."""
        node = self._node
        if order.primary not in {None, "never"}:
            raise LocalFault("A job on several nodes runs on the market.", "--primary never")
        names = [node.jobs.new_id() for _ in range(max(1, order.nodes))]
        witnesses = witnesses_of(node, order, node.config.renting)
        archive = await input_of(self._baggage, names[0], order)
        if archive is not None:
            paths = [self._baggage.path(name, "input.tar") for name in names]
            await trio.to_thread.run_sync(_share, paths[0], paths[1:], limiter=_FILES)
        renting = node.config.renting
        file = node.pools.submit(
            tuple(submission_of(name, order, archive, witnesses, renting=renting) for name in names)
        )
        return self._document(file)

    def list_pools(self, limit: int) -> PoolListDocument:
        """The newest."""
        files = self._node.pools.files()
        return PoolListDocument(
            items=tuple(self._document(file) for file in files[:limit]),
            left_out=max(0, len(files) - limit),
        )

    def show(self, name: str) -> PoolDocument:
        """One, by id or unique prefix. Raises LocalFault."""
        return self._document(self._node.pools.file(name))

    def cancel(self, name: str) -> PoolDocument:
        """End it on all nodes; over when its state says so. Raises LocalFault."""
        return self._document(self._node.pools.cancel(name))

    def auction(self, name: str) -> PoolAuctionDocument:
        """Whom it asked in its last auction, and whether by the rule. Raises LocalFault."""
        record = read_record(self.auction_file(name))
        assert isinstance(record, PoolRecord)
        return pool_document(record, self._node.net)

    def auction_file(self, name: str) -> bytes:
        """The record of its last auction, for whoever checks it. Raises LocalFault."""
        return self._node.pools.auction_file(self._node.pools.file(name))

    def _document(self, file: PoolFile) -> PoolDocument:
        pools = self._node.pools
        jobs = pools.jobs_of(file)
        whys = [f"{job.id}: {job.why}" for job in jobs if job.why]
        return PoolDocument(
            id=file.id,
            state=pools.state_of(file),
            why=file.why or "; ".join(whys),
            created_ms=file.created_ms,
            jobs=tuple(job.id for job in jobs),
            has_leases=file.state == "granted",
            money=jobs[0].money,
            cost_micro=sum(cost_of(self._node, job) for job in jobs),
        )


def _share(archive: Path, others: list[Path]) -> None:
    """The same file under each job's name, without a copy."""
    for other in others:
        with host_faults(f"link {other}"):
            other.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.link(archive, other)
