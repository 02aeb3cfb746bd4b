"""A home whose ledger holds an honest history before its node ever runs."""

import json
import os
import secrets
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from time import process_time

from ledger.entry import Entry
from ledger.ledger import Ledger, Taken, open_ledger
from ledger.limits import INGEST_AT_ONCE
from p2pnode.clock import SystemClock
from p2pnode.home import find_home, locked, make_folders
from p2pnode.identity import load_identity
from p2pnode.membership import genesis_of
from p2pnode.own_store import open_own_guard, opened_store
from protocol.errors import LocalFault
from protocol.genesis import net_of
from testnet.bench.history import history


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What was put in."""

    entries: int
    size: int
    """Bytes of all entries."""
    cpu_s: float
    """Of the processor, to write and to judge them."""


def fill(folder: Path, count: int) -> Filled:
    """Put `count` entries into the ledger of this home, each judged as if a peer had sent it.

    A process of its own does it: LevelDB has one thread for each process that has used it, and
    nodes that were forked from such a one would wait for theirs for ever. Raises LocalFault.
    """
    pipe, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.write(theirs, json.dumps(asdict(_fill(folder, count))).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(theirs)
    with os.fdopen(pipe) as lines:
        said = lines.read()
    os.waitpid(pid, 0)
    if not said:
        raise LocalFault("the home could not be filled", f"ls {folder}")
    return Filled(**json.loads(said))


def _fill(folder: Path, count: int) -> Filled:
    home = find_home(folder)
    make_folders(home)
    net = net_of(genesis_of(home))
    identity = load_identity(home, net, SystemClock().now())
    began = process_time()
    size = 0
    with (
        locked(home),
        opened_store(
            home.ledger,
            lambda store: open_ledger(
                store=store,
                guard=open_own_guard(home.feed_guard, net),
                signer=identity.feed,
                net=net,
                uuid=secrets.token_bytes(16),
            ),
        ) as ledger,
    ):
        written = history(net, count)
        while run := list(islice(written, INGEST_AT_ONCE)):
            size += _take(ledger, run)
        ledger.flush()
    return Filled(entries=count, size=size, cpu_s=process_time() - began)


def _take(ledger: Ledger, run: list[Entry]) -> int:
    """All of the run; their bytes."""
    done = ledger.ingest_run(run)
    assert done.fault is None, done.fault
    assert done.taken == (Taken.NEW,) * len(run), "an honest history forks nothing"
    return sum(len(entry.raw) for entry in run)
