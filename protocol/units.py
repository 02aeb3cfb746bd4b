"""The words for ids, instants, spans, sizes and money. Every one is an integer or bytes."""

from typing import NewType

PeerId = NewType("PeerId", bytes)
"""A libp2p peer id in its binary form: 38 bytes that hold an Ed25519 public key."""

PublicKey = NewType("PublicKey", bytes)
"""An Ed25519 public key, 32 bytes."""

Signature = NewType("Signature", bytes)
"""An Ed25519 signature, 64 bytes."""

Digest = NewType("Digest", bytes)
"""A SHA-256 digest, 32 bytes."""

NetId = NewType("NetId", bytes)
"""The digest of a network's genesis; part of every signature and every DHT key."""

Millis = NewType("Millis", int)
"""An instant: milliseconds since 1970-01-01 UTC."""

MillisSpan = NewType("MillisSpan", int)
"""A span of time in milliseconds."""

Micros = NewType("Micros", int)
"""A sum of money in millionths of the unit named beside it."""

Mebibytes = NewType("Mebibytes", int)
"""A size in units of 2**20 bytes."""
