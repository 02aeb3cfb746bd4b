"""Standing as data: bundle, flows, bounds, penalties, and what entries make of five peers.

`tests.ledger_vectors` writes it.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

from ledger.bodies import Accept, Grant
from ledger.entry import Entry
from ledger.fold import State
from ledger.fork_evidence import prove_fork
from ledger.max_flow import Flow, graph_of
from ledger.rules import Case, judge, prefix_of, read_case
from ledger.trust import Trust, lower_bound_ppm
from ledger.unit_evidence import prove_same_counter
from ledger.view import look
from ledger.witness_bodies import Probe
from protocol.rules import BUNDLE, RULES
from protocol.units import PublicKey
from tests.make_evidence import proofs
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    UNIT,
    WITNESSES,
    Feed,
    cosigned,
    grant,
    signer,
    statement,
    turn_of,
    witnessed,
)
from tests.make_standing import DAY, MONEY, TODAY, Story, peer

Row = dict[str, Any]
EDGES = [(0, 1, 7), (1, 0, 2), (0, 2, 4), (2, 1, 3), (1, 3, 6), (2, 3, 5), (3, 4, 9)]
PUSHES = [(0, 4, 4), (0, 1, 5), (0, 3, 100), (0, 4, 100), (4, 0, 100)]


def busy() -> tuple[list[Entry], tuple[bytes, ...]]:
    """Five peers with accounts, a lease that was not served, a claim, a debt and a double lease."""
    story, signers = Story(), [signer(n) for n in range(1, 6)]
    for day, (one, other) in enumerate(pairwise([*signers, *signers[1:]])):
        story.settle(one, other, 10**6 + day, ts=day * DAY)
    story.claim(signers[2], signers[3], 77)
    story.settle(signers[2], signers[4], 1_300, is_paid=False)
    by, body = story.feed(OWNER), witnessed(grant())
    failed = by.add(body)
    after = turn_of(failed, body)
    branch = by.branch()
    granted = by.add(grant(after, start=2 * HOUR, end=3 * HOUR))
    twin = branch.add(grant(after, start=2 * HOUR + 4, end=3 * HOUR, nonce=3))
    pair = sorted((granted, twin), key=lambda each: each.draft.hdr)
    torn = prove_fork(*pair)
    assert torn is not None
    told = [failed, *not_delivered(story, failed, body), granted, twin]
    return [*story.entries, *told], (torn, prove_same_counter(UNIT, *pair))


def not_delivered(story: Story, lease: Entry, body: Grant) -> list[Entry]:
    """The renter's half of this lease; and two of its witnesses say that a period failed."""
    accept = Accept(grant=lease.id, cosigned=cosigned(lease, body))
    entries = [story.feed(RENTER).add(accept)]
    for witness in WITNESSES[:2]:
        feed = Feed(witness)
        said = Probe(lease=lease.id, period=0, verdict="fail")
        entries += [feed.open(), feed.add(said, ts=1_000)]
    return entries


def state_of(entries: list[Entry], cases: tuple[Case, ...]) -> State:
    """The fold of all of these, with the forks that are proved."""
    state = State()
    for entry in entries:
        state.apply(entry)
    for case in cases:
        if case.offence.seq is not None:
            state.fork(case.offence.offender, case.offence.seq)
    return state


def _fork(rules: bytes) -> bytes:
    feed = Feed(OWNER, rules=rules)
    feed.open()
    branch = feed.branch()
    raw = prove_fork(feed.add(statement(used=1)), branch.add(statement(used=2)))
    assert raw is not None
    return raw


def _twice(rules: bytes, start: int) -> bytes:
    feed = Feed(OWNER, rules=rules)
    feed.open()
    branch = feed.branch()
    pair = feed.add(grant()), branch.add(grant(start=start, end=start + HOUR, nonce=1))
    return prove_same_counter(UNIT, *sorted(pair, key=lambda each: each.draft.hdr))


AFTER: Final = (0, 29, 30, 89, 90, 179, 180)
"""Epochs after an offence: the last in which a penalty holds, and the next."""


def penalty_case(name: str, raw: bytes, fork: int | None = None) -> Row:
    """What this evidence costs if nothing else is known but that OWNER's feed forks at `fork`."""
    forks = [] if fork is None else [(OWNER.public, fork)]
    [verdict] = judge((read_case(raw, NET),), forked(forks))
    epochs = [verdict.epoch + each for each in AFTER]
    return {
        "name": name,
        "evidence": raw.hex(),
        "forks": [[feed.hex(), seq] for feed, seq in forks],
        "row": verdict.name,
        "epoch": verdict.epoch,
        "kept_ppm": [[epoch, verdict.kept_ppm(epoch)] for epoch in epochs],
        "ends_standing": int(verdict.ends_standing),
    }


def forked(forks: Iterable[tuple[PublicKey, int]]) -> State:
    """A state in which nothing is known but these forks."""
    state = State()
    for feed, seq in forks:
        state.fork(feed, seq)
    return state


def penalty_cases() -> list[Row]:
    known, unknown = prefix_of(BUNDLE), b"not-here"
    meeting, parted = _twice(known, 5), _twice(known, 2 * HOUR)
    others = [(rule, raw) for rule, raw in proofs().items() if rule not in {"A1", "A4"}]
    return [
        penalty_case("a fork", _fork(known)),
        penalty_case("a fork under an unknown bundle", _fork(unknown)),
        penalty_case("a double lease", meeting),
        penalty_case("a double lease by a fork", meeting, 1),
        penalty_case("a double lease under an unknown bundle", _twice(unknown, 5)),
        penalty_case("one counter for times that do not meet", parted),
        penalty_case("one counter for times that do not meet, by a fork", parted, 1),
        penalty_case("one counter for times that do not meet, below a fork", parted, 2),
        *(penalty_case(f"{rule} under an unknown bundle", raw) for rule, raw in others),
    ]


def numbers() -> list[Row]:
    """What the third peer makes of each, without and with the proofs, and a half-life later."""
    entries, proofs = busy()
    rows = []
    for epoch, shown in ((TODAY + 7, ()), (TODAY + 7, proofs), (TODAY + 37, proofs)):
        cases = tuple(read_case(raw, NET) for raw in shown)
        state = state_of(entries, cases)
        trust = Trust(look(state, cases, ego=signer(3).public, epoch=epoch))
        for number in (1, 2, 4, 5, 6):
            one = signer(number).public
            finance, record = trust.finance(one, MONEY), trust.record(one, MONEY)
            rows.append(
                {
                    "epoch": epoch,
                    "proofs": len(shown),
                    "peer": one.hex(),
                    "kept_ppm": trust.view.kept_ppm(one),
                    "reserved_micro": finance.reserved_micro,
                    "flow_micro": finance.flow_micro,
                    "credit_micro": finance.credit_micro,
                    "good_micro": record.good_micro,
                    "bad_micro": record.bad_micro,
                    "reliability_ppm": record.reliability_ppm,
                    "digest": trust.digest(one, MONEY).hex(),
                }
            )
    return rows


def standing_vectors() -> Row:
    entries, proofs = busy()
    unit = BUNDLE.period_micro
    flow = Flow(graph_of((peer(start), peer(end), room) for start, end, room in EDGES))
    return {
        "net": NET.hex(),
        "bundle": RULES.hex(),
        "prefix": prefix_of(BUNDLE).hex(),
        "edges": [list(edge) for edge in EDGES],
        "pushes": [
            [start, end, most, flow.push(peer(start), peer(end), most)]
            for start, end, most in PUSHES
        ],
        "bounds": [
            [good, bad, lower_bound_ppm(good, bad, BUNDLE)]
            for good, bad in ((0, 0), (unit, 0), (0, unit), (1, 0), (50 * unit, unit), (10**12, 7))
        ],
        "penalties": penalty_cases(),
        "ego": signer(3).public.hex(),
        "money": MONEY,
        "entries": [entry.raw.hex() for entry in entries],
        "proofs": [raw.hex() for raw in proofs],
        "numbers": numbers(),
    }
