"""Small worlds in which one node dies at one durable write or sent frame, and is started again."""

from dataclasses import replace
from functools import cache
from typing import Final

from testnet.world import Summary, run_world
from testnet.world_dice import dice_of
from testnet.world_fuse import Point, Step
from testnet.world_plan import WorldPlan

HISTORIES: Final = (2, 4, 9, 13, 16, 23, 24, 25)
"""Worlds in which much happens soon. Each is run whole once, to know which points it has."""
STEPS: Final[tuple[Step, ...]] = ("write", "write", "frame")
"""Writes are rarer and matter more."""


def crash_plan(seed: int) -> WorldPlan:
    """The world of this seed, with a point in it at which a node dies."""
    dice = dice_of(f"crash/{seed}")
    whole = _history(HISTORIES[seed % len(HISTORIES)])
    step = dice.choice(STEPS)
    n = dice.randint(1, _steps_of(whole)[step])
    return replace(whole, point=Point(step=step, n=n, is_done=dice.random() < 0.5))


def run_crash(seed: int) -> Summary:
    """Let it happen. Raises Broken, also if nobody has died."""
    return run_world(crash_plan(seed))


def _history(seed: int) -> WorldPlan:
    return WorldPlan(
        seed=seed,
        nodes=4,
        span_s=7,
        loss_percent=0,
        breaks_per_mille=0,
        is_stormy=False,
        order_every_s=2.5,
        job_ms=(1_000, 3_000),
        ask_max=(700_000, 700_000),
        down_s=(0.2, 3),
    )


@cache
def _steps_of(plan: WorldPlan) -> dict[str, int]:
    """How many steps there are when nobody dies."""
    return run_world(plan).steps
