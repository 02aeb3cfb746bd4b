"""No double lease that two renters could have accepted is without evidence, and no honest owner
gives any: looked through up to a bound, not proved beyond it. `make night` goes further.
"""

import os
from dataclasses import replace
from itertools import combinations, pairwise, permutations

import pytest

from ledger.bodies import Grant
from tests.model.model_entries import Chain, grants
from tests.model.predicates import (
    ALL,
    NO_TICK,
    Rules,
    accuses_headers,
    accuses_pair,
    is_accused,
)
from tests.model.search import (
    Bound,
    clean_chains,
    effective_end,
    honest_chains,
    lies,
    still_leased,
)

IS_NIGHT = os.environ.get("HYPOTHESIS_PROFILE") == "night"
QUICK = [Bound(entries=3, end=3), Bound(entries=4, end=2), Bound(entries=3, end=2, is_ticked=False)]
NIGHT = [
    Bound(entries=4, end=3),
    Bound(entries=5, end=2),
    Bound(entries=4, end=2, is_ticked=False),
]


def say(text: str) -> None:
    print(text)  # noqa: T201 - shown by `pytest -s`


@pytest.mark.slow
@pytest.mark.parametrize("bound", NIGHT if IS_NIGHT else QUICK, ids=str)
def test_no_double_lease_is_without_evidence(bound: Bound) -> None:
    count = lies(bound, ALL)
    say(f"{bound}: {count}")
    assert count.conflicts > 4_000
    assert count.clean > 1_000
    assert count.escapes == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "entries"),
    [("release_has_open", 3), ("release_has_lctr", 3), ("has_gseq", 2), ("has_time", 3)],
)
def test_each_ingredient_is_needed(without: str, entries: int) -> None:
    rules = replace(ALL, **{without: False})
    bound = Bound(entries=entries, end=2, enough=1_000_000 if IS_NIGHT else 1)
    assert lies(replace(bound, entries=entries - 1), rules).escapes == []
    count = lies(bound, rules)
    say(f"without {without}: {count}")
    assert count.escapes
    for chain in count.escapes[:1_000]:
        assert not is_accused(chain, bound.tick, rules), chain


@pytest.mark.slow
def test_no_part_of_an_honest_chain_is_evidence() -> None:
    # Every rule looks at one entry or two, so pairs stand for all parts of a chain.
    bound = Bound(entries=4 if IS_NIGHT else 3, end=3)
    chains = pairs = 0
    for chain, ticks in honest_chains(bound):
        chains += 1
        for one in chain:
            assert not is_accused((one,), NO_TICK), chain
        for one in chain[:-1]:
            pairs += 1
            last = chain[-1]
            for tick in {ticks.get(one.id, NO_TICK), ticks.get(last.id, NO_TICK)}:
                assert not accuses_pair(one, last, tick, ALL), chain
                assert not accuses_pair(last, one, tick, ALL), chain
    say(f"{chains:,} honest chains, {pairs:,} pairs, no evidence")
    assert chains > 10_000


def test_an_honest_chain_leases_no_time_twice() -> None:
    for chain, _ in honest_chains(Bound(entries=3, end=2)):
        leased = sorted(still_leased(chain, NO_TICK))
        assert all(one.end_ms <= other.start_ms for one, other in pairwise(leased))


def views(entries: int) -> list[Chain]:
    """What an owner may have shown a renter that accepted the last GRANT of it."""
    found = clean_chains(Bound(entries=entries, end=2), ALL)
    return [chain for chain in found if chain and isinstance(chain[-1].body, Grant)]


def is_double(one: Chain, other: Chain) -> bool:
    """Whether two renters hold overlapping leases, even if all that either was shown counts."""
    first, second = grants(one)[-1], grants(other)[-1]
    assert isinstance(first.body, Grant)
    assert isinstance(second.body, Grant)
    both = union(one, other)
    end = min(effective_end(both, grant, 2) for grant in (first, second))
    return first.id != second.id and max(first.body.start_ms, second.body.start_ms) < end


def union(one: Chain, other: Chain) -> Chain:
    """All entries of both, by id, as the ledger keeps them."""
    return tuple({entry.id: entry for entry in (*one, *other)}.values())


def by_place(one: Chain, other: Chain) -> Chain:
    """What a relay would have that keeps the first entry that it meets at each place."""
    return tuple({entry.seq: entry for entry in (*other, *one)}.values())


@pytest.mark.slow
def test_two_stories_for_two_renters_are_evidence_when_they_meet() -> None:
    shown = views(4 if IS_NIGHT else 3)
    doubles = [(one, two) for one, two in combinations(shown, 2) if is_double(one, two)]
    units_only = Rules(has_headers=False)
    lost = 0
    for one, two in doubles:
        met = union(one, two)
        assert is_accused(met, 2), (one, two)
        assert is_accused(met, 2, units_only), (one, two)
        assert any(accuses_headers(*pair) for pair in permutations(met, 2))
        lost += not is_accused(by_place(one, two), 2)
    say(
        f"{len(shown):,} stories, {len(doubles):,} double leases, none without evidence;"
        f" {lost:,} lose it at a relay that keeps one entry of a place"
    )
    assert len(doubles) > 500
    assert lost > len(doubles) // 10
