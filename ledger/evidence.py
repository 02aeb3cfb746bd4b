"""Proof of an offence that anybody can check alone. SPEC.md section 8. Total and pure.

It accuses only the signer of bytes that are inside the evidence, and needs no clock, no store and
no reporter. An offence has a key; one evidence is kept for each key.
"""

from ledger.entry_evidence import check_pair, check_wrong_answer
from ledger.fork_evidence import check_path, check_two_headers
from ledger.judging import Offence
from ledger.limits import EVIDENCE_BYTES_MAX
from ledger.message_evidence import (
    check_bad_reveal,
    check_broken_bid,
    check_false_time,
    check_two_cosigns,
)
from ledger.unit_evidence import (
    check_chain,
    check_early_release,
    check_open,
    check_same_counter,
    check_step,
)
from protocol.errors import PeerFault
from protocol.units import NetId


def check(raw: bytes, net: NetId) -> Offence:
    """The offence that these bytes prove.

    Raises PeerFault `evidence.size`, `evidence.form`, `evidence.seal`, `evidence.void` (they prove
    nothing), or what reading an entry, a body or a sealed message raises.
    """
    if len(raw) > EVIDENCE_BYTES_MAX:
        raise PeerFault("evidence.size", f"{len(raw)} bytes")
    match _opening(raw):
        case ((1 | 2), _):
            return check_two_headers(raw, net)
        case 3, _:
            return check_path(raw, net)
        case 4, _:
            return check_same_counter(raw, net)
        case 5, 3:
            return check_open(raw, net)
        case 5, _:
            return check_step(raw, net)
        case 6, _:
            return check_chain(raw, net)
        case 7, 3:
            return check_early_release(raw, net, with_tick=False)
        case 7, _:
            return check_early_release(raw, net, with_tick=True)
        case 8, _:
            return check_broken_bid(raw, net)
        case 9, _:
            return check_bad_reveal(raw, net)
        case ((10 | 12 | 14 | 15), _):
            return check_pair(raw, net)
        case 11, _:
            return check_wrong_answer(raw, net)
        case 13, _:
            return check_two_cosigns(raw, net)
        case 16, _:
            return check_false_time(raw, net)
        case _:
            raise PeerFault("evidence.form", "no known rule")


def _opening(raw: bytes) -> tuple[int, int]:
    """The rule that an evidence is about, and the number of its parts; the rest is not read yet."""
    if len(raw) < 2 or not 0x80 <= raw[0] < 0x98 or raw[1] >= 0x18:
        raise PeerFault("evidence.form", "not an array that begins with a rule")
    return raw[1], raw[0] - 0x80
