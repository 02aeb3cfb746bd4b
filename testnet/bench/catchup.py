"""What two real nodes move when one is far behind, and what it costs to kill that one meanwhile.

One home is filled before the start. Then two others, one after the other, begin with nothing and
take all of it over libp2p on loopback: the first undisturbed, the second killed now and then. All
bytes are those of the node that is never killed, both ways, encrypted and framed, with everything
else that a pair of nodes without offers says to each other.
"""

import gc
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.limits import TURN_BYTES
from protocol.errors import LocalFault
from testnet.bench.filled import Filled, fill
from testnet.bench.killing import Pair, Timed
from testnet.bench.report import Bar, Report, Table, at_least, at_most, machine
from testnet.fixed_ports import configure
from testnet.plan import NodePlan
from testnet.processes import prepare
from testnet.world_dice import dice_of

WIRE_MAX: Final = 1.02
CONNECT_BYTES: Final = 32_768
"""What a node that comes back costs beside entries: to connect, greet, and compare heads."""
WINDOW_BYTES: Final = TURN_BYTES + CONNECT_BYTES
"""What one kill may cost: the turn that was under way, and coming back."""
EARLIEST, LATEST = 0.05, 0.75
IDLE_S: Final = 10
GIVE_UP_S: Final = 600
NAMES: Final = ("full", "fresh", "killed")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUpWish:
    """What to measure."""

    entries: int
    kills: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """What was measured."""

    quiet: Timed
    hunted: Timed
    idle: float
    """Bytes in a second between two that are equal."""


def run(wish: CatchUpWish, say: Say) -> Report:
    """Fill a home, then catch up twice. Raises LocalFault."""
    if wish.entries < 1 or wish.kills < 0:
        raise LocalFault("nothing to catch up with", "--entries 2000 --kills 1")
    with tempfile.TemporaryDirectory(prefix="p2pnode-catchup-") as folder:
        full, fresh, killed = plans = _plans(Path(folder))
        prepare(plans, name="catchup")
        configure(plans, bootstrap=(0,))
        filled = fill(full.home, wish.entries)
        say(f"{filled.entries} entries of {filled.size // filled.entries} bytes, filled")
        gc.freeze()
        with Pair(full, say) as pair:
            undisturbed = pair.catch_up(fresh, filled.size, (), give_up_s=GIVE_UP_S)
            idle = pair.idle(IDLE_S)
            pair.stop(fresh)
            killed_often = pair.catch_up(
                killed, filled.size, _moments(wish, filled), give_up_s=GIVE_UP_S
            )
    return _report(wish, filled, Runs(quiet=undisturbed, hunted=killed_often, idle=idle))


def _plans(folder: Path) -> tuple[NodePlan, ...]:
    """Nodes that rent, and take part in everything, but offer and want nothing."""
    return tuple(
        NodePlan(
            index=index,
            name=name,
            home=folder / name,
            roles=("renter",),
            gpu=None,
            ask_micro=0,
            region="DE",
            gossip="on",
        )
        for index, name in enumerate(NAMES)
    )


def _moments(wish: CatchUpWish, filled: Filled) -> tuple[int, ...]:
    """After how many bytes it is killed, each time."""
    dice = dice_of(f"catchup/{wish.seed}")
    shares = sorted(dice.uniform(EARLIEST, LATEST) for _ in range(wish.kills))
    return tuple(round(share * filled.size) for share in shares)


def _report(wish: CatchUpWish, filled: Filled, runs: Runs) -> Report:
    quiet, hunted = runs.quiet, runs.hunted
    extra = hunted.moved - quiet.moved
    bars: list[Bar] = [
        at_most("bytes moved / bytes of entries", quiet.moved / filled.size, WIRE_MAX)
    ]
    if wish.kills:
        bars += [
            at_least("kills while entries came", hunted.kills, wish.kills),
            at_most("windows lost per kill", extra / wish.kills / WINDOW_BYTES, 1),
            at_most("entries shown before a kill and gone after", hunted.lost, 0),
        ]
    return Report(
        name="catchup",
        figures={
            **machine(),
            "entries": filled.entries,
            "entry_bytes_mean": filled.size / filled.entries,
            "fill_cpu_s": filled.cpu_s,
            "received_s": quiet.received_s,
            "judged_s": quiet.judged_s,
            "entries_per_s": filled.entries / quiet.judged_s,
            "catch_up_cpu_s": quiet.cpu_s,
            "bytes_moved": quiet.moved,
            "idle_bytes_per_s": runs.idle,
            "window_bytes": WINDOW_BYTES,
            "killed_judged_s": hunted.judged_s,
            "killed_bytes_moved": hunted.moved,
            "extra_bytes_per_kill": extra / wish.kills if wish.kills else 0.0,
        },
        bars=tuple(bars),
        table=Table(
            header=("", "BYTES", "RECEIVED", "JUDGED", "KILLS"),
            rows=tuple(
                (
                    name,
                    str(each.moved),
                    f"{each.received_s:.1f} s",
                    f"{each.judged_s:.1f} s",
                    str(each.kills),
                )
                for name, each in (("undisturbed", quiet), ("killed", hunted))
            ),
        ),
    )
