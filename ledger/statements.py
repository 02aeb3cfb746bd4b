"""When two halves of an account contradict each other. SPEC.md sections 3 and 8. Pure."""

from collections.abc import Iterable

from msgspec import UNSET

from ledger.bodies import Statement
from protocol.codec import encode_plain
from protocol.signing import digest
from protocol.units import Digest, Micros, MillisSpan


def is_answer(statement: Statement) -> bool:
    """Whether its author owes by it what the other side's half says."""
    return statement.half is not UNSET


def paid_of(statement: Statement) -> Micros:
    """What has been paid by its word."""
    return Micros(0) if statement.paid_micro is UNSET else statement.paid_micro


def stated_of(account: Iterable[Statement], lease: Digest) -> tuple[MillisSpan, Micros]:
    """Use and amount that these halves state of one lease. SPEC.md 14.7.

    They are those of one side of an account, by counter, from the first on.
    """
    used = amount = 0
    before = (0, 0)
    for said in account:
        if said.lease == lease:
            used += said.used_ms - before[0]
            amount += said.amount_micro - before[1]
        before = (said.used_ms, said.amount_micro)
    return MillisSpan(used), Micros(amount)


def account_topic(statement: Statement) -> bytes:
    """Names the account among those of its author, in sixteen bytes."""
    said = [statement.peer, statement.money, int(is_answer(statement))]
    return digest("account", encode_plain(said))[:16]


def contradicts(first: Statement, second: Statement) -> bool:
    """Whether one author cannot honestly have written both; `second` has no lower counter.

    Of halves of one account, one counter says one thing, and nothing falls as counters grow.
    """
    if (first.peer, first.money, is_answer(first)) != (
        second.peer,
        second.money,
        is_answer(second),
    ):
        return False
    if first.ctr == second.ctr:
        return first != second
    has_fallen = (
        second.used_ms < first.used_ms
        or second.amount_micro < first.amount_micro
        or paid_of(second) < paid_of(first)
    )
    return first.ctr < second.ctr and has_fallen
