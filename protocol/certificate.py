"""Which feed key and which libp2p peer act for an account. SPEC.md section 5.

The root key signs certificates and nothing that a node does by itself, so it can be kept offline.
"""

from collections.abc import Callable
from typing import Literal

from msgspec import UNSET

from protocol.codec import (
    Extensions,
    Instant,
    Key,
    Network,
    Peer,
    Seal,
    UInt,
    Wire,
    decode,
    encode,
)
from protocol.errors import PeerFault
from protocol.limits import CERTIFICATE_BYTES_MAX, CERTIFICATE_LIFE_MS_MAX
from protocol.signing import Signer, is_signed, is_sound, key_of
from protocol.units import Millis, NetId, PublicKey, Signature


class Certificate(Wire, frozen=True, kw_only=True):
    """An account (`root`) lets `feed` sign and `peer_id` speak for it, for a while."""

    v: Literal[1] = 1
    net: Network
    root: Key
    feed: Key
    peer_id: Peer
    x25519: Key
    """The key that secrets for this peer are sealed to."""
    not_before_ms: Instant
    not_after_ms: Instant
    n: UInt
    """Serial number: of two certificates of one root for one peer the higher is meant."""
    x: Extensions = UNSET


class SignedCertificate(Wire, frozen=True, kw_only=True):
    """The encoded certificate with its three signatures, each over the same bytes."""

    b: bytes
    root: Seal
    feed: Seal
    peer: Seal


def sign_certificate(
    certificate: Certificate, *, root: Signer, feed: Signer, peer: Signer
) -> bytes:
    """The encoded SignedCertificate; all three keys sign, so none can be claimed by another."""
    body = encode(certificate)

    def sealed(signer: Signer) -> Signature:
        return signer.sign("certificate", certificate.net, body)

    return encode(
        SignedCertificate(b=body, root=sealed(root), feed=sealed(feed), peer=sealed(peer))
    )


def read_certificate(raw: bytes, net: NetId) -> Certificate:
    """The certificate in these bytes, its signatures verified; whether it is in force is not.

    Raises PeerFault `codec.*`, `certificate.net`, `certificate.key`, `certificate.span` or
    `certificate.seal`.
    """
    signed, certificate = _parts(raw)
    if certificate.net != net:
        raise PeerFault("certificate.net")
    peer_key = key_of(certificate.peer_id)
    if peer_key is None:
        raise PeerFault("certificate.key", "the peer id holds no Ed25519 key")
    span = certificate.not_after_ms - certificate.not_before_ms
    if not 0 < span <= CERTIFICATE_LIFE_MS_MAX:
        raise PeerFault("certificate.span", f"{span} ms")
    for key, by in (
        (certificate.root, signed.root),
        (certificate.feed, signed.feed),
        (peer_key, signed.peer),
    ):
        _check_seal(key, by, signed.b, net)
    return certificate


def certificate_known(raw: bytes) -> Certificate:
    """The certificate in these bytes, which `read_certificate` has read before."""
    return _parts(raw)[1]


def _parts(raw: bytes) -> tuple[SignedCertificate, Certificate]:
    signed = decode(raw, SignedCertificate, size_max=CERTIFICATE_BYTES_MAX)
    return signed, decode(signed.b, Certificate, size_max=CERTIFICATE_BYTES_MAX)


def _check_seal(key: PublicKey, by: Signature, body: bytes, net: NetId) -> None:
    if not is_sound(key):
        raise PeerFault("certificate.key", "not a point of the group")
    if not is_signed(key, "certificate", net, body, by=by):
        raise PeerFault("certificate.seal")


def check_in_force(certificate: Certificate, now: Millis) -> None:
    """Raises PeerFault `certificate.time` outside its span."""
    if not certificate.not_before_ms <= now <= certificate.not_after_ms:
        raise PeerFault("certificate.time")


ReadCertificate = Callable[[bytes, NetId], Certificate]
"""`read_certificate`, or a memo of it: three signatures are worth remembering."""
