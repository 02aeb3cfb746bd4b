from hypothesis import given
from hypothesis import strategies as st

from p2pnode.network.budget import Budget


def make_budget(**changes: float) -> Budget[str]:
    return Budget(**{"per_s": 10, "burst": 5, "keys_max": 3, **changes})  # type: ignore[arg-type]


def test_a_burst_is_allowed_and_the_next_one_is_not() -> None:
    budget = make_budget()
    assert [budget.is_within("a", 0) for _ in range(6)] == [True] * 5 + [False]


def test_a_refused_token_is_not_taken() -> None:
    budget = make_budget()
    for _ in range(50):
        budget.is_within("a", 0)
    assert budget.is_within("a", 0.1)


def test_one_peer_cannot_spend_the_budget_of_another() -> None:
    budget = make_budget()
    while budget.is_within("greedy", 0):
        pass
    assert budget.is_within("modest", 0)


def test_a_drawn_token_is_earned_later() -> None:
    budget = make_budget()
    waits = [budget.draw("a", 0) for _ in range(7)]
    assert waits[:5] == [0] * 5
    assert waits[5:] == [0.1, 0.2]


def test_no_more_keys_are_kept_than_allowed() -> None:
    budget = make_budget()
    for key in "abcdefg":
        budget.is_within(key, 0)
    assert len(budget._buckets) == 3


@given(st.lists(st.floats(0, 0.5), max_size=100))
def test_over_any_time_at_most_burst_and_rate_pass(gaps: list[float]) -> None:
    budget = make_budget()
    now, passed = 0.0, 0
    for gap in gaps:
        now += gap
        passed += budget.is_within("a", now)
    assert passed <= 5 + 10 * now + 1e-6
