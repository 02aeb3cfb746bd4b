"""Who this node is: four keys and the certificate that ties them together, kept in its home.

A key is made once and never lost: the key of a feed that was given up stays beside the new one.
The root key may be kept elsewhere: without it the node runs as long as its certificate holds.
"""

import logging
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nacl.public import PrivateKey

from ledger.continuity_bodies import Successor
from ledger.limits import BODY_BYTES_MAX
from p2pnode.home import (
    Home,
    host_faults,
    read_if_there,
    remove_durably,
    write_durably,
    write_new,
)
from protocol.certificate import (
    Certificate,
    check_in_force,
    read_certificate,
    sign_certificate,
)
from protocol.codec import Key, Wire, decode, decode_numbered, encode, encode_numbered
from protocol.errors import LocalFault, PeerFault
from protocol.limits import CERTIFICATE_BYTES_MAX
from protocol.signing import Signer, peer_id_of
from protocol.units import Millis, MillisSpan, NetId, PublicKey

log = logging.getLogger(__name__)

_DAY_MS: Final = 86_400_000
CERTIFICATE_LIFE_MS: Final = MillisSpan(365 * _DAY_MS)
RENEWAL_MS: Final = MillisSpan(30 * _DAY_MS)
"""What is left of a certificate when it is renewed: time enough to fetch an offline root key."""
BACKDATING_MS: Final = MillisSpan(3_600_000)
"""So that peers whose clocks are behind ours, by what any genesis allows, accept it at once."""
KEY_BYTES: Final = 32
_SUCCESSION_BYTES_MAX: Final = 1_048_576

_ROOT: Final = "root.key"
_FEED: Final = "feed.key"
_NEXT: Final = "next-feed.key"
_OTHERS: Final = (_FEED, "peer.key", "x25519.key", _NEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the node signs with, and the certificate that lets it; secrets show in no text."""

    root: Signer | None
    """None: kept elsewhere."""
    feed: Signer
    peer_seed: bytes = field(repr=False)
    """The Ed25519 seed of the transport's key."""
    x25519_secret: bytes = field(repr=False)
    next_feed: PublicKey
    """The key of the feed that follows this one, if it must be given up."""
    certificate: Certificate
    certificate_raw: bytes = field(repr=False)
    succeeds: tuple[Successor, ...] = ()
    """What this feed says at its begin of the one that it follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    root: Signer | None
    feed: Signer
    peer_seed: bytes = field(repr=False)
    x25519_secret: bytes = field(repr=False)
    next_feed: PublicKey

    @property
    def peer(self) -> Signer:
        return Signer(self.peer_seed)

    @property
    def x25519(self) -> PublicKey:
        return PublicKey(bytes(PrivateKey(self.x25519_secret).public_key))

    def are_of(self, certificate: Certificate) -> bool:
        """Whether the certificate is for these keys, as far as they are here."""
        return (
            certificate.feed == self.feed.public
            and certificate.peer_id == peer_id_of(self.peer.public)
            and certificate.x25519 == self.x25519
            and (self.root is None or certificate.root == self.root.public)
        )


def create_identity(
    home: Home, net: NetId, now: Millis, random_bytes: Callable[[int], bytes]
) -> Identity:
    """The identity of a home, whose missing keys are made first; none that is there is changed.

    A certificate without root.key means that the root is kept elsewhere: then none is made.
    Raises LocalFault as `load_identity` does.
    """
    if (home.keys / _ROOT).exists() or not home.certificate.exists():
        for name in (_ROOT, *_OTHERS):
            _make_key(home, name, random_bytes)
    return load_identity(home, net, now)


def load_identity(home: Home, net: NetId, now: Millis) -> Identity:
    """The identity that is kept in the home, with a certificate in force for `net`.

    With the root key at hand a certificate that is missing, damaged, for another network or other
    keys, or near its end is signed anew.
    Raises LocalFault if a key is missing, damaged or open to others, if a certificate is needed and
    there is no root key, if root.key is not that of the certificate, or between two feeds.
    """
    keys = _read_keys(home)
    if keys.next_feed == keys.feed.public:
        raise LocalFault("The change to a new feed was cut short.", "p2pnode key rotate")
    raw = read_if_there(home.certificate, size_max=CERTIFICATE_BYTES_MAX)
    certificate, why = _judged(raw, keys, net, now)
    if certificate is None or why:
        if keys.root is not None:
            raw = _renewed(keys, keys.root, net, now, after=certificate)
            write_durably(home.certificate, raw)
            certificate = read_certificate(raw, net)
        elif certificate is None or not _is_in_force(certificate, now):
            raise LocalFault(
                f"the certificate of this node {why}.",
                f"put {_ROOT} into {home.keys} for one start, then take it away again",
            )
        else:
            log.warning("certificate ends soon", extra={"not_after_ms": certificate.not_after_ms})
    assert raw is not None
    return Identity(
        root=keys.root,
        feed=keys.feed,
        peer_seed=keys.peer_seed,
        x25519_secret=keys.x25519_secret,
        next_feed=keys.next_feed,
        certificate=certificate,
        certificate_raw=raw,
        succeeds=_succession(home, keys.feed.public),
    )


def _judged(
    raw: bytes | None, keys: _Keys, net: NetId, now: Millis
) -> tuple[Certificate | None, str]:
    """The certificate if it is ours at all; and why a new one is wanted, empty if none is.

    Raises LocalFault if another root key has certified our feed.
    """
    if raw is None:
        return None, "is missing"
    try:
        certificate = read_certificate(raw, net)
    except PeerFault as fault:
        of_other_net = fault.rule == "certificate.net"
        return None, "is for another network" if of_other_net else "is damaged"
    root = certificate.root if keys.root is None else keys.root.public
    if certificate.feed == keys.feed.public and certificate.root != root:
        raise LocalFault(
            "root.key is not that of this node's account.",
            "put the right one among the keys; if the certificate is the wrong one, delete it",
        )
    if not keys.are_of(certificate):
        return None, "is for other keys"
    if now < certificate.not_before_ms:
        return certificate, "begins later than now by the clock of this host"
    if now > certificate.not_after_ms:
        return certificate, "has expired"
    if certificate.not_after_ms - now < RENEWAL_MS:
        return certificate, "ends soon"
    return certificate, ""


def _is_in_force(certificate: Certificate, now: Millis) -> bool:
    try:
        check_in_force(certificate, now)
    except PeerFault:
        return False
    return True


def _renewed(
    keys: _Keys, root: Signer, net: NetId, now: Millis, *, after: Certificate | None
) -> bytes:
    """A certificate that peers prefer to `after`.

    Where that is not known, the instant stands in for its number: peers may remember a certificate
    that we have lost, and the higher number is meant.
    """
    certificate = Certificate(
        net=net,
        root=root.public,
        feed=keys.feed.public,
        peer_id=peer_id_of(keys.peer.public),
        x25519=keys.x25519,
        not_before_ms=Millis(max(1, now - BACKDATING_MS)),
        not_after_ms=Millis(now + CERTIFICATE_LIFE_MS),
        n=after.n + 1 if after else now,
    )
    return sign_certificate(certificate, root=root, feed=keys.feed, peer=keys.peer)


class _Succession(Wire, frozen=True, kw_only=True):
    """The file of what a feed says of the one that it follows."""

    feed: Key
    """The new one."""
    bodies: tuple[bytes, ...]
    """Of SUCCESSOR entries."""


def keep_succession(home: Home, feed: PublicKey, said: Sequence[Successor]) -> None:
    """Once `feed` is ours, this is what it says at its begin. Raises LocalFault."""
    bodies = tuple(encode_numbered(each) for each in said)
    write_durably(home.succession, encode(_Succession(feed=feed, bodies=bodies)))


def _succession(home: Home, feed: PublicKey) -> tuple[Successor, ...]:
    raw = read_if_there(home.succession, size_max=_SUCCESSION_BYTES_MAX)
    if raw is None:
        return ()
    try:
        kept = decode(raw, _Succession, size_max=_SUCCESSION_BYTES_MAX)
        if kept.feed != feed:
            return ()
        return tuple(
            decode_numbered(body, Successor, size_max=BODY_BYTES_MAX) for body in kept.bodies
        )
    except PeerFault as fault:
        cure = "restore it from a backup, or delete it if the feed has begun: p2pnode ledger show"
        raise LocalFault(f"{home.succession} is damaged.", cure) from fault


def renew_next_feed(home: Home, random_bytes: Callable[[int], bytes]) -> PublicKey:
    """A new key for the next feed, which no copy of this home has. Raises LocalFault."""
    seed = random_bytes(KEY_BYTES)
    write_durably(home.keys / _NEXT, seed)
    return Signer(seed).public


def enter_next_feed(home: Home) -> None:
    """The key of the next feed becomes that of ours; the old one stays, under a name of its own.

    Until `renew_next_feed` has been called, `load_identity` refuses. Raises LocalFault.
    """
    feed, following = (_needed_key(home, name) for name in (_FEED, _NEXT))
    write_durably(home.keys / f"feed-{Signer(feed).public.hex()[:16]}.key", feed)
    write_durably(home.new_feed, Signer(following).public.hex().encode())
    write_durably(home.keys / _FEED, following)


def is_between_feeds(home: Home) -> bool:
    """Whether `renew_next_feed` must still be called. Raises LocalFault."""
    return _needed_key(home, _FEED) == _needed_key(home, _NEXT)


def is_feed_new(home: Home, feed: PublicKey) -> bool:
    """Whether nothing was ever signed with the key of this feed, which was made in this home.

    Not so once `note_feed_begun` was called, nor for keys that were brought from elsewhere.
    """
    return read_if_there(home.new_feed, size_max=2 * KEY_BYTES) == feed.hex().encode()


def note_feed_begun(home: Home) -> None:
    """The feed has its first entry, which may leave only after this. Raises LocalFault."""
    if home.new_feed.exists():
        remove_durably(home.new_feed)


def _make_key(home: Home, name: str, random_bytes: Callable[[int], bytes]) -> None:
    path = home.keys / name
    if path.exists():
        return
    seed = random_bytes(KEY_BYTES)
    assert len(seed) == KEY_BYTES
    if name == _FEED:
        # Before the key: a key without the mark would have to be asked about among peers.
        write_durably(home.new_feed, Signer(seed).public.hex().encode())
    write_new(path, seed)


def _read_keys(home: Home) -> _Keys:
    root = _read_key(home.keys / _ROOT)
    feed, peer, x25519, next_feed = (_needed_key(home, name) for name in _OTHERS)
    return _Keys(
        root=None if root is None else Signer(root),
        feed=Signer(feed),
        peer_seed=peer,
        x25519_secret=x25519,
        next_feed=Signer(next_feed).public,
    )


def _needed_key(home: Home, name: str) -> bytes:
    secret = _read_key(home.keys / name)
    if secret is None:
        raise LocalFault(
            f"{home.keys / name} is missing.",
            "restore it from a backup; on a new node run p2pnode init",
        )
    return secret


def _read_key(path: Path) -> bytes | None:
    """The secret in the file; None if there is none."""
    with host_faults(f"read {path}"):
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return None
        with file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            secret = file.read(KEY_BYTES + 1)
    if mode & 0o077:
        raise LocalFault(f"{path} is open to other users.", f"chmod 600 {path}")
    if len(secret) != KEY_BYTES:
        raise LocalFault(f"{path} does not hold a key of 32 bytes.", "restore it from a backup")
    return secret
