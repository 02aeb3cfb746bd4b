"""Ed25519 by libsodium, one preimage form for every use. SPEC.md section 3."""

from functools import lru_cache
from hashlib import sha256
from typing import Final

from nacl.bindings import (
    crypto_core_ed25519_is_valid_point,
    crypto_sign,
    crypto_sign_BYTES,
    crypto_sign_open,
    crypto_sign_PUBLICKEYBYTES,
    crypto_sign_seed_keypair,
)
from nacl.exceptions import BadSignatureError

from protocol.units import Digest, NetId, PeerId, PublicKey, Signature

_PEER_ID_PREFIX: Final = bytes.fromhex("002408011220")
"""Identity multihash of a libp2p public-key message that holds an Ed25519 key."""


class Signer:
    """A secret key that signs; its secret never shows in a text."""

    def __init__(self, seed: bytes) -> None:
        public, self._secret = crypto_sign_seed_keypair(seed)
        self.public: Final = PublicKey(public)

    def sign(self, domain: str, net: NetId, data: bytes) -> Signature:
        """The signature over `data`, for this use and this network only."""
        return Signature(crypto_sign(preimage(domain, net, data), self._secret)[:crypto_sign_BYTES])

    def __repr__(self) -> str:
        return f"Signer({self.public.hex()[:8]})"


def preimage(domain: str, net: NetId, data: bytes) -> bytes:
    """The bytes that are signed: use, version, network, content. SPEC.md 3.1."""
    return _prefix(domain, net) + data


@lru_cache(maxsize=64)
def _prefix(domain: str, net: NetId) -> bytes:
    return b"p2pnode/" + domain.encode("ascii") + b"/1\0" + net


def is_signed(key: PublicKey, domain: str, net: NetId, data: bytes, *, by: Signature) -> bool:
    """Whether `by` is the signature of `key` over `data` in this domain and network."""
    if len(key) != crypto_sign_PUBLICKEYBYTES or len(by) != crypto_sign_BYTES:
        return False
    try:
        crypto_sign_open(by + preimage(domain, net, data), key)
    except BadSignatureError:
        return False
    return True


def is_sound(key: PublicKey) -> bool:
    """Whether the key is a point of the prime-order group; asked when a key is first seen."""
    return crypto_core_ed25519_is_valid_point(key)


def digest(domain: str, data: bytes) -> Digest:
    """SHA-256 with the use as a prefix, so that a digest of one use is never one of another."""
    return Digest(sha256(b"p2pnode/" + domain.encode("ascii") + b"/1\0" + data).digest())


def peer_id_of(key: PublicKey) -> PeerId:
    """The libp2p peer id whose transport key is `key`."""
    return PeerId(_PEER_ID_PREFIX + key)


def key_of(peer: PeerId) -> PublicKey | None:
    """The transport key inside a peer id; None if it is of another form."""
    if len(peer) != len(_PEER_ID_PREFIX) + 32 or not peer.startswith(_PEER_ID_PREFIX):
        return None
    return PublicKey(peer[len(_PEER_ID_PREFIX) :])
