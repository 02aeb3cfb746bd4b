"""What a session of sync costs: over TCP between two processes, and in messages and bytes."""

import json
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Final

import trio

from ledger.entry import Entry, link_of
from ledger.frontier import Frontier
from ledger.ledger import Ledger
from ledger.limits import FEEDS_MAX
from ledger.records import put_entry, put_head
from ledger.store import MemoryStore
from ledger.sync import Effect, Ingest, Session
from p2pnode.replication.conduct import Conduct
from p2pnode.replication.conversation import Conversation
from protocol.signing import peer_id_of
from testnet.bench.feeds import (
    READER,
    Feed,
    feed,
    genesis,
    on_disk,
    open_at,
    signer,
    statement,
)
from testnet.bench.ledger_ingest import last_place, raw_verify
from testnet.bench.report import at_least, at_most
from testnet.bench.timing import Measured, in_turn
from testnet.made_up import UnsyncedStore

AUTHOR: Final = 3
ENTRIES: Final = 4_000
"""Of the session that is measured: its greeting and comparison are a small part of it."""
FULL_MIN: Final = 0.55
LAZY_MIN: Final = 1.7
SERVED_MAX: Final = 0.075
"""Three microseconds where a verification takes forty."""
VERIFIED: Final = 200
"""By the server, so that what serving costs is told against the same core at the same time."""
WIRE_MAX: Final = 1.02
EQUAL_BYTES_MAX: Final = 400
BEHIND_BYTES_MAX: Final = 16_000
BEHIND_MESSAGES_MAX: Final = 6
HEADS: Final = 10_000
BEHIND: Final = 10


@dataclass(slots=True)
class Counted(trio.abc.Stream):
    """A stream that counts what goes both ways."""

    inner: trio.SocketStream
    size: int = 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.size += len(data)
        await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self.inner.receive_some(max_bytes)
        self.size += len(data)
        return data

    async def aclose(self) -> None:
        await self.inner.aclose()


def measure_loopback(folder: Path, rounds: int) -> Measured:
    """A replica in this process catches up with one in another, by the node's own loop."""
    entries = feed(AUTHOR, ENTRIES)
    sizes: list[int] = []
    served: list[tuple[float, float]] = []

    def catch_up(*, is_lazy: bool) -> float:
        with on_disk(folder) as theirs, on_disk(folder) as ours:
            full = open_at(UnsyncedStore(theirs), READER)
            full.ingest_run(entries)
            here = open_at(UnsyncedStore(ours), READER + 1)
            with _serving(full, entries) as (port, said):
                began = process_time()
                sizes.append(trio.run(partial(_fetch, here, port, is_lazy=is_lazy)))
                spent = process_time() - began
                served.append(said())
            assert bool(here.waiting_feeds()) == is_lazy
            assert last_place(here, AUTHOR) == ENTRIES - 1
        return spent / ENTRIES

    us = in_turn(
        {
            "verify": raw_verify(entries),
            "full": lambda: catch_up(is_lazy=False),
            "lazy": lambda: catch_up(is_lazy=True),
        },
        rounds,
    )
    full, lazy = us.ratio("verify", to="full"), us.ratio("verify", to="lazy")
    wire = max(sizes) / sum(len(entry.raw) for entry in entries)
    return Measured(
        figures={
            "full_catch_up_cpu_us": us.middle("full"),
            "lazy_catch_up_cpu_us": us.middle("lazy"),
            "served_entry_cpu_us": median(spent / ENTRIES * 1e6 for spent, _ in served),
            "wire_bytes_per_entry": max(sizes) / ENTRIES,
        },
        bars=(
            at_least("full catch-up over TCP / raw verify", full, FULL_MIN),
            at_least("lazy catch-up over TCP / raw verify", lazy, LAZY_MIN),
            at_most(
                "server CPU per served entry / raw verify",
                median(spent / ENTRIES / verify for spent, verify in served),
                SERVED_MAX,
            ),
            at_most("wire bytes / entry bytes", wire, WIRE_MAX),
        ),
    )


@contextmanager
def _serving(
    ledger: Ledger, entries: list[Entry]
) -> Iterator[tuple[int, Callable[[], tuple[float, float]]]]:
    """A process that answers one session; its port, and what waits for its processor seconds.

    These are for the whole session, and for one verification of these entries.
    """
    pipe, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            trio.run(_serve, ledger, entries, theirs)
            os._exit(0)
        finally:
            # A forked copy of the caller must not unwind into the caller's code.
            traceback.print_exc()
            os._exit(1)
    os.close(theirs)
    try:
        with os.fdopen(pipe) as lines:
            port = json.loads(lines.readline())
            yield port, lambda: tuple(json.loads(lines.readline()))
    finally:
        # It has ended, or waits for somebody who will not come. Until waited for its id is its own.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


async def _serve(ledger: Ledger, entries: list[Entry], pipe: int) -> None:
    frontier = Frontier(ledger)
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    os.write(pipe, json.dumps(listener.socket.getsockname()[1]).encode() + b"\n")
    stream = await listener.accept()
    began = process_time()
    await _conversation(ledger, frontier, is_opener=False).hold(stream, None)
    spent = process_time() - began
    verify = raw_verify(entries[:VERIFIED])()
    os.write(pipe, json.dumps((spent, verify)).encode() + b"\n")


async def _fetch(ledger: Ledger, port: int, *, is_lazy: bool) -> int:
    stream = Counted(await trio.open_tcp_stream("127.0.0.1", port))
    talk = _conversation(ledger, Frontier(ledger), is_opener=True, may_trust=is_lazy)
    await talk.hold(stream, talk.session.hello())
    return stream.size


def _conversation(
    ledger: Ledger, frontier: Frontier, *, is_opener: bool, may_trust: bool = False
) -> Conversation:
    return Conversation(
        peer=peer_id_of(ledger.feed),
        session=_session(ledger, frontier, is_opener=is_opener, may_trust=may_trust),
        ledger=ledger,
        conduct=Conduct(),
        on_taken=lambda _entries, _done: None,
        on_waiting=lambda: None,
        is_enough=lambda: False,
        is_free=False,
    )


def _session(
    ledger: Ledger, frontier: Frontier, *, is_opener: bool, may_trust: bool = False
) -> Session:
    return Session(
        ledger=ledger,
        frontier=frontier,
        only=None,
        keeps=lambda _: True,
        is_opener=is_opener,
        may_trust=may_trust,
    )


@dataclass(slots=True)
class Talk:
    """What went between two sides in one session."""

    sizes: list[int] = field(default_factory=list)
    messages: int = 0
    """How often a side began to speak: frames that it sends at a stretch are one message."""
    entry_bytes: int = 0
    until: int = 0
    """Messages when the last entry was there."""


def talk(opener: Session, server: Session) -> Talk:
    """One session in this process."""
    log = Talk()
    frames, to, other = [opener.hello()], server, opener
    while frames:
        log.messages += 1
        answer: list[bytes] = []
        for frame in frames:
            log.sizes.append(len(frame) + 4)
            for effect in to.handle(frame):
                _perform(to, effect, log)
            answer += to.reply()
        frames, to, other = answer, other, to
    return log


def _perform(session: Session, effect: Effect, log: Talk) -> None:
    left: Effect | None = effect
    while isinstance(left, Ingest):
        log.until = log.messages
        done = session.perform(left)
        assert done is not None
        assert done.fault is None
        log.entry_bytes += sum(len(entry.raw) for entry in left.entries[: len(done.taken)])
        left = left.after(done)


def measure_sets(_folder: Path, _rounds: int) -> Measured:
    """Equal sets, and ten heads of ten thousand behind, whoever opens; nothing here is a time."""
    assert HEADS <= FEEDS_MAX
    firsts = [(author, author.add(genesis(author.by))) for author in map(_author, range(HEADS))]
    stored = [entry for _, entry in firsts]
    later = [author.add(statement(1)) for author, _ in firsts[:: HEADS // BEHIND]]
    equal = talk(*_sides(stored, stored))
    behind, ahead = (
        talk(*_sides(stored, [*stored, *later])),
        talk(*_sides([*stored, *later], stored)),
    )
    size = max(sum(each.sizes) - each.entry_bytes for each in (behind, ahead))
    messages = max(each.until for each in (behind, ahead))
    return Measured(
        figures={
            "equal_sets_messages": equal.messages,
            "ten_behind_frames_in_all": max(len(each.sizes) for each in (behind, ahead)),
            "ten_behind_entry_bytes": behind.entry_bytes,
        },
        bars=(
            at_most("equal sets, bytes", sum(equal.sizes), EQUAL_BYTES_MAX),
            at_most("equal sets, messages", equal.messages, 2),
            at_most("10 of 10,000 heads behind, bytes without entries", size, BEHIND_BYTES_MAX),
            at_most(
                "10 of 10,000 heads behind, messages until all are here",
                messages,
                BEHIND_MESSAGES_MAX,
            ),
        ),
    )


def _author(number: int) -> Feed:
    return Feed(signer(10_000 + number))


def _sides(ours: list[Entry], theirs: list[Entry]) -> tuple[Session, Session]:
    here, there = _holder(READER, ours), _holder(READER + 1, theirs)
    return _session(here, Frontier(here), is_opener=True), _session(
        there, Frontier(there), is_opener=False
    )


def _holder(number: int, entries: list[Entry]) -> Ledger:
    """A ledger with these entries, put there without judging them: judging is not measured here."""
    store = MemoryStore()
    batch: dict[bytes, bytes] = {}
    for entry in entries:
        put_entry(batch, entry, None, is_main=True)
        put_head(batch, entry.feed, link_of(entry.draft))
    open_at(store, number)
    store.write(batch, sync=True)
    return open_at(store, number)
