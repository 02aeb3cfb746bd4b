"""Which of libp2p's peer ids are ours; ours hold an Ed25519 public key."""

from typing import Final

_PREFIX: Final = bytes.fromhex("002408011220")
_KEY_BYTES: Final = 32


def is_peer_id(raw: bytes) -> bool:
    """Is this a `PeerId`? The library also lets in peers with RSA and secp256k1 keys."""
    return len(raw) == len(_PREFIX) + _KEY_BYTES and raw.startswith(_PREFIX)
