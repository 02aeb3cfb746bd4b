"""A node dies at a durable write or a sent frame, before or after it, and nothing is lost."""

import pytest

from testnet.world_crash import run_crash

SEEDS = 200
AT_ONCE = 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_nothing_acknowledged_is_lost_wherever_a_node_dies(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        assert run_crash(seed).deaths == 1, seed
