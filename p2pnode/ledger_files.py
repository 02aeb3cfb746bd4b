"""Writes a ledger to a file and takes one from a file, a record at a time. SPEC.md section 13.

What is taken is judged as what a peer sends. Our own guard has no part in it: our own entries in
a file are taken as from a peer, and nothing is ever signed here.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import IO, Final

import trio

from ledger import keys
from ledger.export import Record, file_of, records_in
from ledger.ledger import Ledger, Taken
from p2pnode.home import host_faults
from protocol.errors import LocalFault, PeerFault
from protocol.units import NetId

BATCH: Final = 64
"""Records that are read in one go: at most half a mebibyte, and one change of threads."""
_FILES: Final = trio.CapacityLimiter(1)
_FATAL: Final = {"export.magic", "export.version", "export.net"}
"""Nothing of the file is for us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What went into a file."""

    counts: Counter[bytes]
    """Tag of `ledger.export` -> records."""
    size: int
    """Of the file, in bytes."""
    sha256: bytes


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of a file so far."""

    taken: Counter[Taken] = field(default_factory=Counter)
    proofs: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Rule -> records that broke it."""
    broken: str | None = None
    """The rule by which the file itself ended early."""

    @property
    def is_whole(self) -> bool:
        """Whether the file held, and all that was in it is here."""
        return self.broken is None and not self.refused and not self.taken[Taken.MISSING]


async def write_export(records: Iterator[Record], net: NetId, file: Path) -> Written:
    """Write the records to a file that is not there yet; whole, or not there. Raises LocalFault."""
    return await trio.to_thread.run_sync(
        _write, records, net, file, trio.from_thread.check_cancelled, limiter=_FILES
    )


def _write(records: Iterator[Record], net: NetId, file: Path, go_on: Callable[[], None]) -> Written:
    counts: Counter[bytes] = Counter()

    def counted() -> Iterator[Record]:
        for record in records:
            go_on()
            counts[record.tag] += 1
            yield record

    with host_faults(f"write {file}"):
        try:
            out = file.open("xb")
        except FileExistsError as error:
            raise LocalFault(f"{file} is there already.", "choose a new file") from error
        try:
            with out:
                size, whole = _copy(file_of(counted(), net), out)
        except BaseException:
            with suppress(OSError):
                file.unlink()
            raise
    return Written(counts=counts, size=size, sha256=whole)


def _copy(pieces: Iterator[bytes], out: IO[bytes]) -> tuple[int, bytes]:
    size, whole = 0, sha256()
    for piece in pieces:
        out.write(piece)
        whole.update(piece)
        size += len(piece)
    out.flush()
    os.fsync(out.fileno())
    return size, whole.digest()


async def take_export(file: Path, ledger: Ledger, take: Callable[[bytes], Taken]) -> Tally:
    """Take what the file holds; on the disk on return.

    `take` judges and keeps one entry, as `Ledger.ingest` does. What came before a damage stays.
    Raises LocalFault if the file cannot be read, or nothing of it is for this ledger.
    """
    source = await trio.to_thread.run_sync(_open, file, limiter=_FILES)
    tally = Tally()
    with source:
        records = _until_damage(records_in(source.read, ledger.net), file, tally)
        while batch := await trio.to_thread.run_sync(_next, records, file, limiter=_FILES):
            for record in batch:
                await trio.lowlevel.checkpoint()
                _take(record, tally, ledger, take)
    ledger.flush()
    return tally


def _open(file: Path) -> IO[bytes]:
    with host_faults(f"read {file}"):
        if file.exists() and not file.is_file():
            raise LocalFault(f"{file} is no file.", "p2pnode ledger export FILE makes one")
        return file.open("rb")


def _until_damage(records: Iterator[Record], file: Path, tally: Tally) -> Iterator[Record]:
    """The records up to where the file ends or is damaged, which the tally then says."""
    try:
        yield from records
    except PeerFault as fault:
        if fault.rule in _FATAL:
            raise LocalFault(
                f"{file} is nothing for this ledger: {fault}.",
                "p2pnode ledger export FILE, by a node of this network and version",
            ) from fault
        tally.broken = fault.rule


def _next(records: Iterator[Record], file: Path) -> list[Record]:
    with host_faults(f"read {file}"):
        return list(islice(records, BATCH))


def _take(record: Record, tally: Tally, ledger: Ledger, take: Callable[[bytes], Taken]) -> None:
    try:
        if record.tag == keys.EVIDENCE:
            ledger.accuse(record.raw)
            tally.proofs += 1
        else:
            tally.taken[take(record.raw)] += 1
    except PeerFault as fault:
        tally.refused[fault.rule] += 1
