"""What evidence is made of, read and verified. SPEC.md section 8.

Whatever is read here is signed by somebody; embedded lease requests are not judged.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from msgspec import Meta, Struct

from ledger.bodies import Body, read_body
from ledger.entry import Entry, Header, check_seal, read_draft, read_entry
from ledger.limits import ENTRY_BYTES_MAX, EVIDENCE_BYTES_MAX, HEADER_BYTES_MAX
from protocol.codec import Wire, decode
from protocol.errors import PeerFault
from protocol.signing import is_signed
from protocol.units import NetId, PublicKey, Signature

Rule = Literal[
    "A1", "A2", "A3", "A4", "A5", "A6", "A7", "A8",
    "A9", "A10", "A11", "A12", "A13", "A14", "A15", "A16",
]  # fmt: skip

RawHeader = Annotated[bytes, Meta(max_length=HEADER_BYTES_MAX)]
RawEntry = Annotated[bytes, Meta(max_length=ENTRY_BYTES_MAX)]
W = TypeVar("W", bound=Wire)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """What was proved, and of whom."""

    rule: Rule
    offender: PublicKey
    key: bytes
    """Family of the offence, then what makes it unique for the offender."""
    seq: int | None = None
    """Where the feed forks; None for other offences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Evidence that was made here: what it is of was judged, so what it proves is known."""

    offender: PublicKey
    key: bytes
    """That of the offence."""
    raw: bytes
    fork: int | None = None
    """Where the feed forks; None for other offences."""

    @property
    def order(self) -> tuple[int, bytes]:
        """Of the evidence for one offence the least is kept."""
        return (0 if self.fork is None else self.fork, self.raw)


class Judged(Struct, frozen=True, kw_only=True, gc=False):
    """An entry whose seal and body hash hold, and what it says."""

    entry: Entry
    body: Body | None

    @property
    def feed(self) -> PublicKey:
        """The author."""
        return self.entry.feed


def read_shape(raw: bytes, shape: type[W]) -> W:
    """Evidence of this form. Raises PeerFault `evidence.form`."""
    try:
        return decode(raw, shape, size_max=EVIDENCE_BYTES_MAX)
    except PeerFault as fault:
        raise PeerFault("evidence.form", fault.detail) from fault


def signed_header(hdr: bytes, signature: Signature, net: NetId) -> Header:
    """A header that its feed signed. Raises PeerFault `entry.form` or `evidence.seal`."""
    header = read_draft(hdr, b"", net).header
    if not is_signed(header.feed, "entry", net, hdr, by=signature):
        raise PeerFault("evidence.seal")
    return header


def judged(raw: bytes, net: NetId) -> Judged:
    """An entry that its feed signed. Raises as `read_entry`, `check_seal` and `read_body` do."""
    entry = read_entry(raw, net)
    check_seal(entry, net)
    return Judged(entry=entry, body=read_body(entry.draft))


def void(why: str) -> PeerFault:
    """The fault of bytes that are in form and prove nothing."""
    return PeerFault("evidence.void", why)


def in_order(one: Entry, other: Entry) -> tuple[Entry, Entry]:
    """The two entries in the one order in which evidence names them."""
    return (one, other) if one.draft.hdr < other.draft.hdr else (other, one)
