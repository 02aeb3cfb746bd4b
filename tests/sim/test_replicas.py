"""Sixty replicas of a thousand: proofs spread, nobody honest is accused, and all agree at the end.

`python -m testnet replicas` does the same with a thousand.
"""

import pytest

from protocol.errors import LocalFault
from testnet.replicas import (
    Network,
    ReplicasPlan,
    ReplicasResult,
    rounds_until_known,
    run_replicas,
)
from tests.sim.own_process import printed

pytestmark = pytest.mark.slow
SIXTY = {"count": 60, "silent": 18, "malicious": 6, "writers": 10}


@pytest.fixture(scope="module", params=[1, 2])
def result(request: pytest.FixtureRequest) -> ReplicasResult:
    return run_replicas(ReplicasPlan(seed=request.param, **SIXTY))


def test_the_proof_of_a_double_lease_reaches_all_that_speak(result: ReplicasResult) -> None:
    assert result.rounds_to_know is not None
    assert result.rounds_to_know <= 16
    assert result.known_percent >= 99
    assert result.shares[0] < (result.speaking,)


def test_no_honest_author_is_accused(result: ReplicasResult) -> None:
    assert result.accused == 0
    assert result.evidence == 2  # the fork and the unit's counter, of the one culprit


def test_once_healed_all_honest_ledgers_are_equal(result: ReplicasResult) -> None:
    assert result.digests == 1
    assert result.healing_rounds < 16
    assert result.entries > 40


def test_garbage_of_each_kind_was_sent_and_refused(result: ReplicasResult) -> None:
    rules = {rule.partition(".")[0] for rule in result.talks.faults}
    assert {"codec", "entry", "evidence"} <= rules


def test_a_network_that_hides_everything_learns_nothing() -> None:
    # The bar can fail: where nobody but the two renters was told, and they sleep, nobody knows.
    network = Network(ReplicasPlan(seed=1, **SIXTY))
    network.begin()
    for renter in network.speaking[:2]:
        network.silence(renter)
    assert list(network.rounds(8))[-1] == (0,)


def test_a_fork_is_known_within_the_bar_and_only_after_some_rounds() -> None:
    rounds = [rounds_until_known(seed=seed, count=100, silent=30) for seed in (1, 2)]
    assert all(found is not None and 3 <= found <= 16 for found in rounds)


def test_a_network_without_enough_honest_ones_is_refused() -> None:
    with pytest.raises(LocalFault):
        ReplicasPlan(seed=1, count=10, silent=5, malicious=1, writers=4)


def digest(seed: int, *, hash_seed: str) -> str:
    """The last line of the command, in a process of its own."""
    size = ("--count", "40", "--silent", "12", "--malicious", "5")
    return printed("replicas", "--seed", str(seed), *size, hash_seed=hash_seed).splitlines()[-1]


def test_one_seed_is_one_history_in_every_process() -> None:
    first = digest(7, hash_seed="1")
    assert len(bytes.fromhex(first)) == 32
    assert digest(7, hash_seed="2") == first
    assert digest(8, hash_seed="1") != first
