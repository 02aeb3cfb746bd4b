"""The document that founds a network. Its digest is part of every signature. SPEC.md section 4."""

from hashlib import sha256
from typing import Annotated, Literal

from msgspec import UNSET, Meta

from protocol.codec import (
    CurrencyCode,
    Extensions,
    Hash,
    Id16,
    Name,
    Wire,
    decode,
    encode,
)
from protocol.limits import GENESIS_BYTES_MAX
from protocol.rules import RULES_DIGEST
from protocol.units import MillisSpan, NetId

Count = Annotated[int, Meta(ge=1, le=65_536)]
BoundedSpan = Annotated[MillisSpan, Meta(ge=1_000, le=3_600_000)]


class Bounds(Wire, frozen=True, kw_only=True):
    """What every peer of one network must agree on, fixed when it is founded."""

    advert_topics: Count = 1
    """Gossip topics that adverts are spread over; small networks need one."""
    dht_shards: Count = 1
    """Shards of each class key in the DHT."""
    advert_life_ms: BoundedSpan = MillisSpan(90_000)
    """Longest life of one advert: three heartbeats of 30 s."""
    bid_life_ms: BoundedSpan = MillisSpan(60_000)
    """Longest life of one firm bid."""
    skew_ms: BoundedSpan = MillisSpan(30_000)
    """How far ahead of us a peer's clock may be before its messages are refused."""


class Genesis(Wire, frozen=True, kw_only=True):
    """A network: its name, what is allowed in it, and a nonce that makes it one of its kind."""

    v: Literal[1] = 1
    name: Name
    kind: Literal["main", "test"]
    nonce: Id16
    rules: Hash = RULES_DIGEST
    bounds: Bounds
    money: CurrencyCode
    x: Extensions = UNSET

    @property
    def simulation_allowed(self) -> bool:
        """Whether simulated GPUs may be offered here. SPEC.md 4.2."""
        return self.kind == "test"


def net_of(genesis: Genesis) -> NetId:
    """The network's id: SHA-256 of the encoded genesis."""
    return NetId(sha256(encode(genesis)).digest())


def read_genesis(raw: bytes) -> Genesis:
    """The network that these bytes found. Raises PeerFault `codec.*`."""
    return decode(raw, Genesis, size_max=GENESIS_BYTES_MAX)
