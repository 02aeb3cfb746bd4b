"""A frontier follows its ledger step by step, and is what one made anew would be."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from ledger.fork_evidence import prove_fork
from ledger.frontier import Frontier, proof_id
from tests.make_sync import forked_feed, replica

LOW, HIGH, OTHER = (
    forked_feed(103, 1, (1, 1, 1)),
    forked_feed(103, 3, (1, 1)),
    forked_feed(104, 1, (1, 1)),
)
PROOFS = [
    raw
    for branches in (HIGH, LOW, OTHER)
    for one, other in combinations(branches, 2)
    if (raw := prove_fork(one[-1], other[-1])) is not None
]


@given(st.lists(st.sampled_from(PROOFS), max_size=8), st.integers(0, 8))
def test_evidence_that_another_takes_the_place_of_is_told_no_more(
    proofs: list[bytes], skipped: int
) -> None:
    here = replica()
    here.take(*LOW[0], *OTHER[0])
    for number, raw in enumerate(proofs):
        here.ledger.accuse(raw)
        before = here.roots()[1]
        if number != skipped:
            assert here.frontier.refresh_proofs() == (here.roots()[1] != before)
    here.frontier.refresh_proofs()
    assert not here.frontier.refresh_proofs()
    fresh = Frontier(here.ledger)
    assert here.roots() == (fresh.heads.root(), fresh.proofs.root())
    kept = here.ledger.evidence()
    for raw in PROOFS:
        assert here.frontier.proof(proof_id(raw)) == (raw if raw in kept else None)


def test_only_what_is_new_is_read_again() -> None:
    here = replica().ledger
    for raw in PROOFS[:1] + PROOFS[-1:]:
        since = here.accusations
        here.accuse(raw)
        assert here.evidence_since(since) == [raw]
        here.accuse(raw)
        assert here.evidence_since(since + 1) == []
    assert sorted(here.evidence_since(0)) == sorted(here.evidence())
