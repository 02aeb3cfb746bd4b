"""What entries and evidence of others cost, against nothing but verifying their signatures."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from nacl.bindings import crypto_sign_open

from ledger.entry import Entry, read_entry
from ledger.evidence import check
from ledger.fork_evidence import prove_fork
from ledger.ledger import Ledger
from ledger.limits import INGEST_AT_ONCE
from ledger.unit_evidence import prove_same_counter
from protocol.signing import preimage
from testnet.bench.feeds import (
    NET,
    READER,
    Feed,
    feed,
    genesis,
    on_disk,
    open_at,
    release,
    signer,
    statement,
)
from testnet.bench.report import at_least, at_most
from testnet.bench.timing import SHORT, Measured, Work, cpu_s, in_turn
from testnet.made_up import UnsyncedStore

FULL_MIN: Final = 0.65
LAZY_MIN: Final = 2.2
EVIDENCE_MAX: Final = 1.4
AUTHOR: Final = 2
ENTRIES: Final = 2_000
CHECKS: Final = 200


def raw_verify(entries: list[Entry]) -> Work:
    """The least that judging these can cost: their signatures alone."""
    signed = [
        (entry.signature + preimage("entry", NET, entry.draft.hdr), entry.feed) for entry in entries
    ]
    return lambda: cpu_s(lambda: [crypto_sign_open(each, key) for each, key in signed], len(signed))


def measure_ingest(folder: Path, rounds: int) -> Measured:
    """A feed taken into LevelDB from its bytes, in the steps in which sync takes it.

    Lazily taken entries have one signature in each step verified, and wait to be judged.
    """
    entries = feed(AUTHOR, ENTRIES)
    raws = [entry.raw for entry in entries]
    us = in_turn(
        {
            "verify": raw_verify(entries),
            "full": _taking(folder, raws, take_fully),
            "lazy": _taking(folder, raws, take_lazily),
        },
        rounds,
    )
    return Measured(
        figures={
            "raw_verify_cpu_us": us.middle("verify"),
            "full_ingest_cpu_us": us.middle("full"),
            "lazy_ingest_cpu_us": us.middle("lazy"),
            "entry_bytes": len(raws[-1]),
        },
        bars=(
            at_least("full ingest / raw verify", us.ratio("verify", to="full"), FULL_MIN),
            at_least("lazy ingest / raw verify", us.ratio("verify", to="lazy"), LAZY_MIN),
        ),
    )


def _taking(folder: Path, raws: list[bytes], take: Callable[[Ledger, list[bytes]], None]) -> Work:
    def work() -> float:
        with on_disk(folder) as store:
            here = open_at(UnsyncedStore(store), READER)
            spent = cpu_s(lambda: take(here, raws), len(raws))
            assert last_place(here, AUTHOR) == len(raws) - 1
        return spent

    return work


def last_place(here: Ledger, author: int) -> int:
    """Of this author's last entry here, judged or waiting."""
    feed_key = signer(author).public
    end = here.waiting_end(feed_key) or here.head(feed_key)
    assert end is not None
    return end.seq


def take_lazily(here: Ledger, raws: list[bytes]) -> None:
    """On the word of the last signature of each step."""
    for first in range(0, len(raws), INGEST_AT_ONCE):
        run = tuple(read_entry(raw, NET) for raw in raws[first : first + INGEST_AT_ONCE])
        assert here.take_on_trust(run)


def take_fully(here: Ledger, raws: list[bytes]) -> None:
    """Every signature and body judged."""
    for first in range(0, len(raws), INGEST_AT_ONCE):
        run = [read_entry(raw, NET) for raw in raws[first : first + INGEST_AT_ONCE]]
        assert here.ingest_run(run).fault is None


def measure_evidence(_folder: Path, rounds: int) -> Measured:
    """Evidence of a fork, and of a counter used twice, against the two signatures in each."""
    author = Feed(signer(AUTHOR))
    author.add(genesis(author.by))
    forked = [author.beside(statement(number)) for number in (1, 2)]
    author.add(statement(1))
    turns = [author.add(release(5)), author.add(release(5))]
    fork, counter = prove_fork(*forked), prove_same_counter(release(5).units[0].unit, *turns)
    assert fork is not None

    def checking(raw: bytes) -> Work:
        return lambda: cpu_s(lambda: [check(raw, NET) for _ in range(CHECKS)], CHECKS)

    verify = raw_verify(forked * CHECKS)
    us = in_turn(
        {
            "two": lambda: 2 * verify(),
            "fork": checking(fork),
            "counter": checking(counter),
        },
        rounds * SHORT,
    )
    return Measured(
        figures={
            "check_fork_cpu_us": us.middle("fork"),
            "check_counter_cpu_us": us.middle("counter"),
            "fork_bytes": len(fork),
            "counter_bytes": len(counter),
        },
        bars=tuple(
            at_most(f"check of {name} / 2 raw verifies", us.ratio(name, to="two"), EVIDENCE_MAX)
            for name in ("fork", "counter")
        ),
    )
