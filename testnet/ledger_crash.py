"""A ledger on real files whose writer is killed, or loses power, at random moments.

After each kill it is opened again: nothing that was acknowledged may be missing, the chain must
hold whole, and no place may ever have been signed with two ids.
"""

import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from ledger.entry import read_entry
from ledger.ledger import Ledger
from protocol.errors import LocalFault
from protocol.units import Digest
from testnet.ledger_author import (
    APPENDED,
    NET,
    RECORD_BYTES,
    Told,
    append_next,
    make_folders,
    opened_author,
    read_told,
)
from testnet.power_loss import LossyDisk, build_shim
from testnet.real_time import now_s, sleep
from testnet.world_checks import check
from testnet.world_dice import dice_of

ROOT: Final = Path(__file__).parent.parent
KILLS_PER_HOME: Final = 5
"""Then the next ledger begins: each opening reads the whole feed, so a long one takes its time."""
EARLY_EVERY: Final = 4
"""One in so many is killed while it opens, also a ledger that is being made."""
OPENING_S: Final = 0.8
RUNNING_S: Final = 0.003
"""How much later than its last append at most: a few appends on."""
PIPE_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashPlan:
    """What is to be done. One seed draws the same plan, not the same moments."""

    kills: int
    appends: int
    """To be acknowledged over all kills, at least."""
    loses_power: bool
    seed: int
    group: int = 1
    """Entries that are made durable together."""
    is_synced: bool = True
    """False: the writer forgets to sync, and a loss of power must show it."""
    hangs_s: int = 120
    """A writer that says nothing for so long never will."""


@dataclass(slots=True, kw_only=True)
class Toll:
    """What came of it."""

    kills: int = 0
    early: int = 0
    """Kills before the first entry of that life."""
    stillborn: int = 0
    """Databases that lost power while they were made. Nothing was in them, and they are made anew:
    LevelDB does not sync its first MANIFEST.
    """
    appends: int = 0
    """Acknowledged."""
    signed: int = 0
    lost: int = 0
    """Acknowledged, and not there afterwards."""
    torn: int = 0
    """Ledgers that did not hold afterwards."""
    forks: int = 0
    """Places signed with two ids, or stored with another than was signed."""
    finished: int = 0
    """Entries that were reserved or signed before the kill, and finished after it."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Why a ledger that lost something refused to go on."""
    took_s: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether nothing was lost, torn or forked."""
        return not (self.lost or self.torn or self.forks or self.refusals)


@dataclass(slots=True, kw_only=True)
class _Place:
    """One home, and all that was ever said there."""

    home: Path
    name: str
    plan: CrashPlan
    toll: Toll
    disk: LossyDisk | None
    deaths: int = 0
    signed: dict[int, Digest] = field(default_factory=dict)
    """What no other id may ever stand for; at its place."""
    acknowledged: dict[int, Digest] = field(default_factory=dict)

    def hear(self, told: Told) -> None:
        """Take down a record of the author."""
        # Of a group nothing is seen before all of it is durable: a crash may take what was signed.
        if told.what == APPENDED or self.plan.group == 1:
            self.toll.forks += self.signed.setdefault(told.seq, told.id) != told.id
        if told.what == APPENDED:
            self.acknowledged[told.seq] = told.id
            self.toll.appends += 1
        else:
            self.toll.signed += 1

    def live_and_die(self, dice: random.Random, appends: int) -> None:
        """One life of the author, until it has appended so many, and its end."""
        command = [sys.executable, "-m", "testnet.ledger_author", str(self.home), self.name]
        with (
            subprocess.Popen(  # noqa: S603
                [*command, "1" if self.plan.is_synced else "0", str(self.plan.group)],
                cwd=ROOT,
                env={} if self.disk is None else self.disk.environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            ) as author,
            _killed_after(author),
        ):
            assert author.stdout is not None
            raw = _read(author.stdout, appends, hangs_s=self.plan.hangs_s)
            sleep(dice.uniform(0, RUNNING_S if appends else OPENING_S))
            is_alive = author.poll() is None
            author.kill()
            raw += author.stdout.read()
            assert author.stderr is not None
            said = author.stderr.read().decode()
        check(holds=is_alive, what=f"the author ended by itself: {said[-2_000:]}")
        told = read_told(raw)
        self.toll.kills += 1
        self.deaths += 1
        self.toll.early += not told
        for each in told:
            self.hear(each)

    def judge(self, copy: Path, *, is_last: bool) -> None:
        """Whether all is there, in a copy, so that the next life begins with what the kill left.

        Opening verifies the feed; the last time all else is walked too.
        """
        shutil.copytree(self.home, copy)
        heard: list[Told] = []
        try:
            with opened_author(copy, self.name, heard.append) as (ledger, signer):
                self._compare(ledger)
                if (fault := ledger.fault()) is not None:
                    self.toll.refusals[fault.what] += 1
                else:
                    append_next(ledger, signer)
                self.toll.torn += is_last and ledger.verify().broken is not None
        except LocalFault as fault:
            if not self.signed and self.disk is not None:
                self._begin_anew(self.disk)
            else:
                self.toll.torn += 1
                self.toll.refusals[fault.what] += 1
        finally:
            shutil.rmtree(copy)
        # The last one that the copy signed is its own; others the author has reserved before.
        for each in heard[:-1]:
            self.toll.finished += 1
            self.toll.forks += self.signed.get(each.seq, each.id) != each.id

    def _begin_anew(self, disk: LossyDisk) -> None:
        self.toll.stillborn += 1
        shutil.rmtree(self.home / "db")
        make_folders(self.home)
        disk.begin()

    def _compare(self, ledger: Ledger) -> None:
        raws = ledger.entries(ledger.feed, 0, 2**62)
        stored = {entry.seq: entry.id for entry in (read_entry(raw, NET) for raw in raws)}
        self.toll.lost += sum(stored.get(seq) != name for seq, name in self.acknowledged.items())
        # What is there after opening may be handed out, whoever of the author's lives made it.
        for seq, name in stored.items():
            self.toll.forks += self.signed.setdefault(seq, name) != name


def run_ledger_crash(plan: CrashPlan, *, say: Callable[[str], None]) -> Toll:
    """All kills, in a folder that is deleted after. Raises Broken if the author ends by itself.

    Raises LocalFault if power is to be lost and there is no C compiler.
    """
    dice = dice_of(f"ledger-crash/{plan.seed}")
    toll = Toll()
    began = now_s()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="p2pnode-ledger-")))
        shim = build_shim(folder) if plan.loses_power else None
        targets = _targets(plan, dice)
        # One that loses entries is refused by its guard from then on.
        lives = KILLS_PER_HOME if plan.is_synced else 1
        for number in range(0, len(targets), lives):
            place = _place(folder.resolve() / f"h{number}", plan, toll, shim)
            for appends in targets[number : number + lives]:
                place.live_and_die(dice, appends)
                if place.disk is not None:
                    place.disk.lose_power(dice)
                place.judge(folder / "copy", is_last=place.deaths == lives)
            shutil.rmtree(place.home)
            say(f"{toll.kills} kills, {toll.appends} appends acknowledged, {toll.lost} lost")
    toll.took_s = now_s() - began
    return toll


def _targets(plan: CrashPlan, dice: random.Random) -> list[int]:
    """How many appends each life makes, at least; uneven, and 0 for one that dies while it opens.

    They add up to the plan's.
    """
    weights = [dice.randint(1, 100) for _ in range(plan.kills)]
    for n in range(EARLY_EVERY - 1, plan.kills, EARLY_EVERY):
        weights[n] = 0
    whole = sum(weights)
    return [-(-plan.appends * weight // whole) for weight in weights]


def _place(home: Path, plan: CrashPlan, toll: Toll, shim: Path | None) -> _Place:
    make_folders(home)
    disk = None
    if shim is not None:
        disk = LossyDisk(live=home, shadow=home.with_suffix(".durable"), shim=shim)
        disk.begin()
    return _Place(home=home, name=home.name, plan=plan, toll=toll, disk=disk)


@contextmanager
def _killed_after(author: subprocess.Popen[bytes]) -> Iterator[None]:
    """Popen itself waits for the author, also when something has gone wrong."""
    try:
        yield
    finally:
        author.kill()


def _read(pipe: IO[bytes], appends: int, *, hangs_s: int) -> bytes:
    """What was said until so many appends were acknowledged, or the author ended.

    Raises Broken if it hangs.
    """
    raw = bytearray()
    seen = 0
    while seen < appends:
        ready, _, _ = select.select([pipe], [], [], hangs_s)
        check(holds=bool(ready), what=f"the author hangs after {seen} appends")
        piece = os.read(pipe.fileno(), PIPE_BYTES - PIPE_BYTES % RECORD_BYTES)
        if not piece:
            break
        before = len(raw) - len(raw) % RECORD_BYTES
        raw += piece
        seen += sum(told.what == APPENDED for told in read_told(bytes(raw[before:])))
    return bytes(raw)
