"""Proof that an author forked its feed: A1, A2, A3. SPEC.md section 8."""

from itertools import pairwise
from typing import Annotated, Final, Literal

from msgspec import Meta

from ledger.entry import Draft, Entry, Header, id_of, read_draft
from ledger.judging import (
    Offence,
    RawHeader,
    Rule,
    in_order,
    read_shape,
    signed_header,
    void,
)
from ledger.limits import PATH_MAX
from protocol.codec import Seal, Wire, encode
from protocol.units import NetId

FORK: Final = b"\x01"


class TwoHeaders(Wire, frozen=True, array_like=True):
    """A1 and A2: two signed headers of one feed."""

    rule: Literal[1, 2]
    hdr1: RawHeader
    sig1: Seal
    hdr2: RawHeader
    sig2: Seal


class HeaderAndPath(Wire, frozen=True, array_like=True):
    """A3: a signed header, and another branch of which only the end is signed."""

    rule: Literal[3]
    hdr: RawHeader
    sig: Seal
    path: Annotated[tuple[RawHeader, ...], Meta(min_length=2, max_length=PATH_MAX + 1)]
    end_sig: Seal


def prove_fork(one: Entry, other: Entry) -> bytes | None:
    """Evidence that the author of these two entries forked its feed, if they show it."""
    if one.feed != other.feed or one.id == other.id:
        return None
    if one.seq == other.seq:
        rule: Literal[1, 2] = 1
        first, second = in_order(one, other)
    else:
        rule = 2
        first, second = sorted((one, other), key=lambda entry: entry.seq)
        if second.seq != first.seq + 1 or second.header.prev == first.id:
            return None
    return encode(
        TwoHeaders(rule, first.draft.hdr, first.signature, second.draft.hdr, second.signature)
    )


def prove_fork_by_path(entry: Entry, path: tuple[Draft, ...], end: Entry) -> bytes:
    """Evidence from an entry and a branch from its place to `end`, whose signature alone is known.

    A relay can strip single signatures off a branch, but not the link from its end to each of it.
    """
    headers = (*(draft.hdr for draft in path), end.draft.hdr)
    return encode(HeaderAndPath(3, entry.draft.hdr, entry.signature, headers, end.signature))


def check_two_headers(raw: bytes, net: NetId) -> Offence:
    """The fork that this A1 or A2 proves. Raises PeerFault."""
    evidence = read_shape(raw, TwoHeaders)
    first = signed_header(evidence.hdr1, evidence.sig1, net)
    second = signed_header(evidence.hdr2, evidence.sig2, net)
    if first.feed != second.feed:
        raise void("two authors")
    if evidence.rule == 1:
        proved = first.seq == second.seq and evidence.hdr1 < evidence.hdr2
    else:
        proved = second.seq == first.seq + 1 and second.prev != id_of(evidence.hdr1, net)
    if not proved:
        raise void("the headers belong together, or are in the wrong order")
    return _fork("A1" if evidence.rule == 1 else "A2", first)


def check_path(raw: bytes, net: NetId) -> Offence:
    """The fork that this A3 proves. Raises PeerFault."""
    evidence = read_shape(raw, HeaderAndPath)
    header = signed_header(evidence.hdr, evidence.sig, net)
    end = signed_header(evidence.path[-1], evidence.end_sig, net)
    path = [read_draft(hdr, b"", net) for hdr in evidence.path]
    if header.feed != end.feed:
        raise void("two authors")
    if header.seq != path[0].header.seq or id_of(evidence.hdr, net) == path[0].id:
        raise void("the branch does not part at the header's place")
    if not all(_is_link(*pair) for pair in pairwise(path)):
        raise void("the path has a gap")
    return _fork("A3", header)


def _is_link(one: Draft, other: Draft) -> bool:
    after = other.header
    return (
        after.feed == one.header.feed and after.seq == one.header.seq + 1 and after.prev == one.id
    )


def _fork(rule: Rule, header: Header) -> Offence:
    return Offence(rule=rule, offender=header.feed, key=FORK, seq=header.seq)
