"""What an entry of ours costs: the processor for its signature, the disk for its safety."""

import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from nacl.bindings import crypto_sign, crypto_sign_seed_keypair

from ledger.bodies import read_body
from ledger.entry import Entry, link_of
from ledger.file_guard import open_file_guard
from ledger.guard import Guard
from ledger.ledger import Ledger
from ledger.records import put_entry, put_head
from ledger.store import Store
from protocol.signing import preimage
from testnet.bench.feeds import (
    NET,
    NOW,
    feed,
    genesis,
    on_disk,
    open_at,
    signer,
    statement,
)
from testnet.bench.report import Figures, at_least, at_most
from testnet.bench.timing import SHORT, Measured, Work, cpu_s, in_turn, waits_s, wall_s
from testnet.made_up import UnsyncedStore

APPEND_CPU_MAX: Final = 2.5
APPEND_MAX: Final = 1.2
APPEND_GUARDED_MAX: Final = 2.3
GROUP_MIN: Final = 15
GROUP: Final = 100
AUTHOR: Final = 1
ENTRIES: Final = 200
WRITES: Final = 100
"""Of one kind at a stretch."""


def measure_cpu(folder: Path, rounds: int) -> Measured:
    """Processor time of an append to LevelDB that is not waited for, against a bare signature."""
    entries = feed(AUTHOR, ENTRIES)
    messages = [preimage("entry", NET, entry.draft.hdr) for entry in entries]
    _, secret = crypto_sign_seed_keypair(AUTHOR.to_bytes(32, "big"))

    def sign() -> float:
        return cpu_s(lambda: [crypto_sign(message, secret) for message in messages], ENTRIES)

    def append(guard: Callable[[Path], Guard | None]) -> float:
        with on_disk(folder) as store, tempfile.TemporaryDirectory(dir=folder) as place:
            mine = _opened(UnsyncedStore(store), guard(Path(place) / "guard"))
            bodies = [statement(number) for number in range(ENTRIES)]
            return cpu_s(lambda: [mine.append(body, NOW) for body in bodies], ENTRIES)

    us = in_turn(
        {
            "sign": sign,
            "append": lambda: append(lambda _: None),
            "guarded": lambda: append(lambda path: open_file_guard(path, NET)),
        },
        rounds * SHORT,
    )
    return Measured(
        figures={
            "raw_sign_cpu_us": us.middle("sign"),
            "append_cpu_us": us.middle("append"),
            "append_with_guard_cpu_us": us.middle("guarded"),
            "append_with_guard_cpu_to_raw_sign": us.ratio("guarded", to="sign"),
        },
        bars=(at_most("append CPU / raw sign", us.ratio("append", to="sign"), APPEND_CPU_MAX),),
    )


def _opened(store: Store, guard: Guard | None = None) -> Ledger:
    mine = open_at(store, AUTHOR, guard)
    mine.append(genesis(signer(AUTHOR)), NOW)
    return mine


def measure_disk(folder: Path, rounds: int) -> Measured:
    """An append on the disk against `fdatasync` after as many bytes, one by one in turn.

    The bars are about waiting for the disk, once for the store and once for the guard. What comes
    to it is processor time, which has a bar of its own: on a disk that syncs in a tenth of a
    millisecond a bare signature is already a fifth of that.
    """
    record = b"".join(_batch(feed(AUTHOR, 2)[1:]).values())
    bodies = (statement(number) for number in range(10**6))
    with (
        on_disk(folder) as store,
        on_disk(folder) as other,
        tempfile.TemporaryDirectory(dir=folder) as place,
        (Path(place) / "log").open("wb", buffering=0) as log,
    ):
        plain = _opened(store)
        guarded = _opened(other, open_file_guard(Path(place) / "guard", NET))

        def raw() -> None:
            log.write(record)
            os.fdatasync(log.fileno())

        acts: dict[str, Callable[[], object]] = {
            "fdatasync": raw,
            "append": lambda: plain.append(next(bodies), NOW),
            "append_with_guard": lambda: guarded.append(next(bodies), NOW),
        }
        us = in_turn(_both_ways(acts), rounds * WRITES)
    figures: Figures = {f"{name}_p50_us": us.middle(name) for name in acts}
    for name in ("append", "append_with_guard"):
        figures[f"{name}_p50_to_fdatasync"] = us.middle(name) / us.middle("fdatasync")
    wait = {name: us.middle(f"{name} waits") / us.middle("fdatasync waits") for name in acts}
    return Measured(
        figures=figures,
        bars=(
            at_most("append waits / raw fdatasync waits", wait["append"], APPEND_MAX),
            at_most(
                "append with guard waits / raw fdatasync waits",
                wait["append_with_guard"],
                APPEND_GUARDED_MAX,
            ),
        ),
    )


def _both_ways(acts: Mapping[str, Callable[[], object]]) -> dict[str, Work]:
    """Each of these twice: how long it takes, and how long it waits."""
    works: dict[str, Work] = {name: partial(wall_s, act) for name, act in acts.items()}
    return works | {f"{name} waits": partial(waits_s, act) for name, act in acts.items()}


def measure_group(folder: Path, rounds: int) -> Measured:
    """Entries made durable together against one by one: what is written, and whole appends.

    The bar is about what is written: a whole append signs, and no disk makes that faster.
    """
    entries = feed(AUTHOR, GROUP + 1)[1:]
    bodies = (statement(number) for number in range(10**6))
    with (
        on_disk(folder) as store,
        on_disk(folder) as other,
        tempfile.TemporaryDirectory(dir=folder) as place,
    ):
        mine = _opened(other, open_file_guard(Path(place) / "guard", NET))
        batch, singles = _batch(entries), [_batch([entry]) for entry in entries]

        def write_singly() -> None:
            for each in singles:
                store.write(each, sync=True)

        us = in_turn(
            {
                "write": lambda: wall_s(write_singly, GROUP),
                "group": lambda: wall_s(lambda: store.write(batch, sync=True), GROUP),
                "append": lambda: wall_s(lambda: mine.append(next(bodies), NOW)),
                "append_all": lambda: wall_s(
                    lambda: mine.append_all(list(islice(bodies, GROUP)), NOW), GROUP
                ),
            },
            rounds,
        )
    ratio = us.ratio("write", to="group")
    return Measured(
        figures={
            "write_one_us": us.middle("write"),
            "write_in_group_us": us.middle("group"),
            "append_in_group_with_guard_us": us.middle("append_all"),
            "append_in_group_to_append": us.ratio("append", to="append_all"),
        },
        bars=(at_least("entries/s written in groups of 100 / singly", ratio, GROUP_MIN),),
    )


def _batch(entries: list[Entry]) -> dict[bytes, bytes]:
    """All that the ledger writes for them."""
    batch: dict[bytes, bytes] = {}
    for entry in entries:
        put_entry(batch, entry, read_body(entry.draft), is_main=True)
        put_head(batch, entry.feed, link_of(entry.draft))
    return batch
