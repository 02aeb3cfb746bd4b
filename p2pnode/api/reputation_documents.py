"""What the node tells of a peer's standing, as JSON."""

from typing import Literal

from msgspec import Struct

from p2pnode.api.documents import RivalDocument


class StandingOffence(Struct, frozen=True, kw_only=True):
    """One offence that is proved, and what it costs."""

    rule: str
    what: str
    evidence: str
    """Id of the proof."""
    feed: str
    """The feed of the peer's account that did it."""
    kept_ppm: int
    """What it leaves of the peer's weight in this epoch."""
    ends_standing: bool
    claim: Literal["proved"] = "proved"
    """How sure this is: proved offline by the peer's own signatures."""


class AttestedDocument(Struct, frozen=True, kw_only=True):
    """What some of the witnesses of a lease say of its owner: no proof, and no offence."""

    lease: str
    renter: str
    """Who named the witnesses, and in whose mouth it counts."""
    period: int
    k: int
    n: int
    quorum: int
    """From how many on it counts."""
    text: str
    probes: tuple[str, ...]
    """Ids of the entries that say it."""
    left_out: int
    """More of them, beyond the limit."""
    claim: Literal["attested"] = "attested"


class FindingDocument(Struct, frozen=True, kw_only=True):
    """One number, and the ids of the entries and proofs that it comes from."""

    name: str
    value: int
    entries: tuple[str, ...]
    proofs: tuple[str, ...]
    """Of what lessens the weight of the peer, or of one on the way to it."""
    overdue: tuple[str, ...]
    """Entries of which the other side is late, so that their author does not vouch for it."""
    said_by: tuple[str, ...]
    """The feeds whose word it is, if it is somebody's."""
    note: str
    """What no entry tells; never empty where none is named."""
    left_out: int
    """Ids beyond the limit, of all lists together."""


class ReputationDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode reputation show`: a peer in the eyes of this node, and of no other."""

    schema: str = "p2pnode.reputation/1"
    feed: str
    ego: str
    """This node's feed."""
    epoch: int
    bundle: str
    """Digest of the rules bundle by which this was reckoned."""
    money: str
    standing: Literal["good", "cut", "ended"]
    kept_ppm: int
    """What offences leave of the peer's weight."""
    reliability_ppm: int
    credit_micro: int
    flow_micro: int
    """What can still flow from this node to the peer."""
    reserved_micro: int
    """Flow set aside for what this node has at risk, with whomever."""
    good_micro: int
    bad_micro: int
    """Periods of service that are believed good and bad, in flow."""
    failures_seen: int
    """Jobs that the peer did not finish for this node since it came up: its own observation."""
    offences: tuple[StandingOffence, ...]
    attested: tuple[AttestedDocument, ...]
    """Periods of leases of the peer of which witnesses say that nothing was delivered."""
    rivals: tuple[RivalDocument, ...]
    """Who else offers GPUs that this peer offers now. It moves no number."""
    why: tuple[FindingDocument, ...]
    """Empty unless it was asked for."""
    digest: str
    """Of all inputs and numbers: nodes that have the same entries, for the same `ego`, agree."""
