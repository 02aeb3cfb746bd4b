"""The first frame on a stream of questions, from either side. SPEC.md 7.3."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from protocol.certificate import (
    Certificate,
    ReadCertificate,
    check_in_force,
    read_certificate,
)
from protocol.codec import Extensions, Name, Network, UInt, Wire
from protocol.errors import PeerFault
from protocol.limits import CERTIFICATE_BYTES_MAX
from protocol.units import Millis, NetId, PeerId

VERSION = 1
"""The version of the protocol that this program speaks."""

Role = Literal["owner", "renter"]


class Hello(Wire, frozen=True, kw_only=True):
    """Who speaks, for which network, and what it understands."""

    v: Literal[1] = 1
    net: Network
    versions: Annotated[tuple[UInt, ...], Meta(min_length=1, max_length=8)] = (VERSION,)
    roles: Annotated[tuple[Role, ...], Meta(min_length=1, max_length=2)]
    kinds: Annotated[tuple[Name, ...], Meta(max_length=32)]
    """The questions that the speaker answers."""
    certificate: Annotated[bytes, Meta(max_length=CERTIFICATE_BYTES_MAX)]
    frame_bytes_max: UInt
    agent: Name | UnsetType = UNSET
    """Program and version, for people."""
    x: Extensions = UNSET


def check_hello(
    hello: Hello,
    *,
    remote: PeerId,
    net: NetId,
    now: Millis,
    read: ReadCertificate = read_certificate,
) -> Certificate:
    """The certificate of the peer that is at the other end of an authenticated stream.

    Raises PeerFault `hello.net`, `hello.version`, `hello.peer` or `certificate.*`.
    """
    if hello.net != net:
        raise PeerFault("hello.net", "another network")
    if VERSION not in hello.versions:
        raise PeerFault("hello.version", f"speaks {hello.versions}, not {VERSION}")
    certificate = read(hello.certificate, net)
    if certificate.peer_id != remote:
        raise PeerFault("hello.peer", "a certificate of another peer")
    check_in_force(certificate, now)
    return certificate


class Question(Wire, frozen=True, kw_only=True):
    """One request on a stream of questions; `id` grows with each, and may skip numbers."""

    id: UInt
    t: Name
    b: bytes


class Answer(Wire, frozen=True, kw_only=True):
    """The answer to question `id`: a body, or else the rule by which it is refused."""

    id: UInt
    b: bytes | UnsetType = UNSET
    rule: Name | UnsetType = UNSET
    why: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        # Else one peer would take an answer with both as a body, another as a refusal.
        if (self.b is UNSET) == (self.rule is UNSET):
            raise ValueError("a body or a rule")
        if self.rule is UNSET and self.why is not UNSET:
            raise ValueError("`why` explains a rule")
