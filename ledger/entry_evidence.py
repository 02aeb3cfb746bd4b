"""Proof by two entries that contradict each other: A10, A11, A12, A14, A15. SPEC.md section 8."""

from typing import Final, Literal

from ledger.bodies import Body, Statement
from ledger.capability_bodies import ROWS_WORK, Capacity, Claim, Response
from ledger.checkpoints import is_contradicted
from ledger.continuity_bodies import Checkpoint
from ledger.entry import Entry
from ledger.judging import Judged, Offence, RawEntry, in_order, judged, read_shape, void
from ledger.keys import number
from ledger.row_work import row_digest
from ledger.statements import account_topic, contradicts
from ledger.witness_bodies import Probe
from protocol.codec import UInt, Wire, encode
from protocol.units import NetId

FALSE_ACCOUNT: Final = b"\x0a"
WRONG_ANSWER: Final = b"\x0b"
ALIAS: Final = b"\x0c"
TWO_VERDICTS: Final = b"\x0e"
FALSE_CHECKPOINT: Final = b"\x0f"


class Pair(Wire, frozen=True, array_like=True):
    """A10, A12, A14, A15: two entries of one author."""

    rule: Literal[10, 12, 14, 15]
    first: RawEntry
    second: RawEntry


class ClaimAndResponse(Wire, frozen=True, array_like=True):
    """A11: a claim, an answer, and the places of two wrong rows in it."""

    rule: Literal[11]
    claim: RawEntry
    response: RawEntry
    row1: UInt
    row2: UInt


def prove_false_account(one: Entry, other: Entry) -> bytes:
    """Evidence from two halves, the one with the lower counter first."""
    return encode(Pair(10, one.raw, other.raw))


def prove_alias(one: Entry, other: Entry) -> bytes:
    """Evidence from two entries that give one device to two units."""
    first, second = in_order(one, other)
    return encode(Pair(12, first.raw, second.raw))


def prove_two_verdicts(one: Entry, other: Entry) -> bytes:
    """Evidence from two probes of one period that say different things."""
    first, second = in_order(one, other)
    return encode(Pair(14, first.raw, second.raw))


def prove_false_checkpoint(checkpoint: Entry, entry: Entry) -> bytes:
    """Evidence from a checkpoint and an entry below it that it leaves out or tells otherwise."""
    return encode(Pair(15, checkpoint.raw, entry.raw))


def prove_wrong_answer(claim: Entry, response: Entry, rows: tuple[int, int]) -> bytes:
    """Evidence from a claim, its answer, and the places of two wrong rows in that."""
    return encode(ClaimAndResponse(11, claim.raw, response.raw, *rows))


def check_pair(raw: bytes, net: NetId) -> Offence:
    """What this A10, A12, A14 or A15 proves. Raises PeerFault."""
    evidence = read_shape(raw, Pair)
    one, other = judged(evidence.first, net), judged(evidence.second, net)
    if one.feed != other.feed or one.entry.id == other.entry.id:
        raise void("two authors, or one entry")
    match evidence.rule:
        case 10:
            return _false_account(one, other)
        case 12:
            return _alias(one, other)
        case 14:
            return _two_verdicts(one, other)
        case 15:
            return _false_checkpoint(one, other)


def _false_account(one: Judged, other: Judged) -> Offence:
    first, second = one.body, other.body
    if not isinstance(first, Statement) or not isinstance(second, Statement):
        raise void("not two halves")
    if first.ctr == second.ctr and in_order(one.entry, other.entry)[0] is not one.entry:
        raise void("in the wrong order")
    if not contradicts(first, second):
        raise void("of two accounts, or the one goes on from the other")
    return Offence(rule="A10", offender=one.feed, key=false_account_key(second))


def false_account_key(second: Statement) -> bytes:
    """Names an A10 by the half with the higher counter."""
    return FALSE_ACCOUNT + account_topic(second) + number(second.ctr)


def _alias(one: Judged, other: Judged) -> Offence:
    if in_order(one.entry, other.entry)[0] is not one.entry:
        raise void("in the wrong order")
    shared = aliases(one.body, other.body)
    if not shared:
        raise void("no device under two names")
    return Offence(rule="A12", offender=one.feed, key=alias_key(shared[0]))


def alias_key(fingerprint: bytes) -> bytes:
    """Names an A12 by the least device that has two names."""
    return ALIAS + fingerprint


def aliases(one: Body | None, other: Body | None) -> list[bytes]:
    """The fingerprints to which the two give different units, sorted."""
    if not isinstance(one, Capacity) or not isinstance(other, Capacity):
        return []
    units = {each.fingerprint: each.unit for each in one.units}
    return sorted(
        each.fingerprint
        for each in other.units
        if units.get(each.fingerprint, each.unit) != each.unit
    )


def _two_verdicts(one: Judged, other: Judged) -> Offence:
    first, second = one.body, other.body
    if not isinstance(first, Probe) or not isinstance(second, Probe):
        raise void("not two probes")
    if in_order(one.entry, other.entry)[0] is not one.entry:
        raise void("in the wrong order")
    if (first.lease, first.period) != (second.lease, second.period):
        raise void("of two periods")
    if first.verdict == second.verdict:
        raise void("they agree")
    return Offence(rule="A14", offender=one.feed, key=two_verdicts_key(first))


def two_verdicts_key(probe: Probe) -> bytes:
    """Names an A14."""
    return TWO_VERDICTS + probe.lease + number(probe.period)


def _false_checkpoint(one: Judged, other: Judged) -> Offence:
    if not isinstance(one.body, Checkpoint):
        raise void("not a checkpoint")
    if not is_contradicted(one.body, other.entry, other.body):
        raise void("it says what the entry says, or nothing of it")
    return Offence(rule="A15", offender=one.feed, key=false_checkpoint_key(one.entry))


def false_checkpoint_key(checkpoint: Entry) -> bytes:
    """Names an A15."""
    return FALSE_CHECKPOINT + number(checkpoint.seq)


def check_wrong_answer(raw: bytes, net: NetId) -> Offence:
    """The wrong answer that this A11 proves. Raises PeerFault.

    Two wrong rows are wanted: one can be a bit that flipped.
    """
    evidence = read_shape(raw, ClaimAndResponse)
    claimed, answered = judged(evidence.claim, net), judged(evidence.response, net)
    claim, response = claimed.body, answered.body
    if not isinstance(claim, Claim) or not isinstance(response, Response):
        raise void("not a claim and an answer")
    if claimed.feed != answered.feed or response.claim != claimed.entry.id:
        raise void("not of each other")
    if claim.work != ROWS_WORK:
        raise void("work that nobody here can do again")
    if not evidence.row1 < evidence.row2 < len(response.rows):
        raise void("not two rows of the answer")
    if any(is_right(claim, response, place) for place in (evidence.row1, evidence.row2)):
        raise void("the row is right")
    key = WRONG_ANSWER + response.claim + response.seed
    return Offence(rule="A11", offender=claimed.feed, key=key)


def is_right(claim: Claim, response: Response, place: int) -> bool:
    """Whether this one of an answer's rows is what the work gives."""
    answer = response.rows[place]
    if answer.row >= claim.size:
        return False
    return row_digest(response.seed, claim.size, answer.row) == answer.digest
