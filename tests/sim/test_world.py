"""Whole seeded worlds: what must hold in each, and that one seed is one history everywhere."""

import threading

import pytest

from testnet.world import run_world
from testnet.world_plan import WorldPlan
from tests.sim.own_process import printed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_everything_holds_in_a_small_world(seed: int) -> None:
    threads = threading.active_count()
    summary = run_world(WorldPlan(seed=seed, nodes=6, span_s=90))
    assert summary.jobs > 0
    assert summary.leases > 0
    assert summary.deaths > 0
    assert threading.active_count() <= threads  # idle ones of other tests may go meanwhile


def world(seed: int, *, hash_seed: str) -> str:
    """What the command prints, in a process of its own."""
    size = ("--nodes", "5", "--minutes", "1")
    return printed("world", "--seed", str(seed), *size, hash_seed=hash_seed)


def test_one_seed_is_one_history_in_every_process() -> None:
    first, second = (world(7, hash_seed=each).splitlines() for each in ("1", "2"))
    assert first[-1] == second[-1]
    assert len(bytes.fromhex(first[-1])) == 32
    assert world(8, hash_seed="1").splitlines()[-1] != first[-1]
