"""What is told about the ledger, its proofs and its papers, as JSON. See `documents`."""

from typing import Literal

from msgspec import Struct, field

from p2pnode.api.job_documents import OutcomeDocument

Class = Literal["proved", "claimed", "missing"]
"""Anybody can check it; one side says so; it was never signed."""


class HeadDocument(Struct, frozen=True, kw_only=True):
    """The end of one feed."""

    feed: str
    seq: int
    id: str
    ts_ms: int
    fork: int | None


class LedgerDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode ledger show`."""

    schema: str = "p2pnode.ledger.show/1"
    feed: str
    root: str
    """One digest over all heads: equal roots mean equal ledgers."""
    heads: tuple[HeadDocument, ...]
    offences: tuple[dict[str, str], ...]
    """Each is proved: the evidence convinces anybody."""


class EntryDocument(Struct, frozen=True, kw_only=True):
    """One entry of a feed."""

    seq: int
    id: str
    ts_ms: int
    kind: int
    what: str
    """In words, the kind first."""
    is_main: bool
    """Of the branch that came here first; others are kept of a feed that is forked."""
    has_body: bool
    """Whether all of it is here; of one that was pruned the header and the signature are."""


class FeedDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode ledger show FEED`."""

    schema: str = "p2pnode.ledger.feed/1"
    feed: str
    peer: str | None
    account: str | None
    length: int
    """Entries of the main chain."""
    fork: int | None
    items: tuple[EntryDocument, ...]
    left_out: int
    """Entries of the main chain above the last one here."""


class PartDocument(Struct, frozen=True, kw_only=True):
    """An entry, a header or a message inside a proof."""

    feed: str
    """Who signed it."""
    seq: int | None
    """Place in the feed; None for a message, which is in no feed."""
    ts_ms: int | None
    what: str


class ProofDocument(Struct, frozen=True, kw_only=True):
    """One offence and the proof of it, which convinces anybody alone."""

    class_: Class = field(default="proved", name="class")
    id: str
    rule: str
    offence: str
    """What the offender did, in words."""
    offender: str
    """Its feed."""
    peer: str | None
    account: str | None
    """Of the offender, where its first entry is at hand."""
    fork: int | None
    """Where the feed forks, if that is the offence."""
    shown_by: tuple[PartDocument, ...]
    bytes: int
    hex: str


class EvidenceDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode ledger evidence`."""

    schema: str = "p2pnode.ledger.evidence/1"
    items: tuple[ProofDocument, ...]
    left_out: int


class ForkDocument(Struct, frozen=True, kw_only=True):
    """A feed that its author has forked."""

    feed: str
    peer: str | None
    account: str | None
    fork: int
    """The lowest place known."""
    proof: str
    """Id of the proof."""
    entries: tuple[EntryDocument, ...]
    """What we hold at that place."""


class ForkListDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode ledger forks`."""

    schema: str = "p2pnode.ledger.forks/1"
    items: tuple[ForkDocument, ...]


class VerifyDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode ledger verify`."""

    schema: str = "p2pnode.ledger.verify/1"
    ok: bool
    feeds: int
    entries: int
    conflicts: int
    evidence: int
    broken: str | None


class ExportOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Write the ledger, or one feed of it, to a new file on the node's host."""

    file: str
    feed: str | None = None


class ExportDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode ledger export`."""

    schema: str = "p2pnode.ledger.export/1"
    file: str
    feed: str | None
    entries: int
    conflicts: int
    proofs: int
    bytes: int
    sha256: str
    """Of the whole file."""


class PruneOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Drop what is older than so long ago."""

    older_than_ms: int


class PruneDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode ledger prune`."""

    schema: str = "p2pnode.ledger.prune/1"
    before_ms: int
    entries: int
    """Whose bodies were dropped; their headers and signatures are kept."""
    bytes: int
    feeds: int
    """Of which something was dropped."""


class ImportOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Take what a file on the node's host holds."""

    file: str


class ImportDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode ledger import`."""

    schema: str = "p2pnode.ledger.import/1"
    ok: bool
    """Whether the file is whole and all that it holds is here."""
    new: int
    known: int
    conflicts: int
    """Entries of other branches, kept or as good as kept."""
    missing: int
    """Entries whose predecessor is neither here nor in the file before them."""
    proofs: int
    offences_new: int
    """Offences that were not proved here before."""
    refused: dict[str, int]
    """Rule -> entries and proofs that break it."""
    broken: str | None
    """The rule that ends the file early; what came before was taken."""


class KnownNetworkDocument(Struct, frozen=True, kw_only=True):
    """The network that something was checked against."""

    id: str
    name: str | None
    kind: Literal["main", "test"] | None
    """Both None where only the id is known."""
    known_by: Literal["option", "home", "receipt"]
    """A receipt can name a network of which you know nothing."""


class StatementDocument(Struct, frozen=True, kw_only=True):
    """One thing that a receipt says."""

    class_: Class = field(name="class")
    by: Literal["both", "owner", "renter", "witnesses", "nobody"]
    """Who signed it."""
    text: str


class SideDocument(Struct, frozen=True, kw_only=True):
    """One of the two of a lease."""

    feed: str
    account: str


class DeliveredDocument(Struct, frozen=True, kw_only=True):
    """What a lease promised beside what was delivered."""

    promised_start_ms: int
    start_delay_ms: int | None
    """As its owner claims; null: it did not begin."""
    availability_ppm: int
    """Part of the leased time that was used."""
    remedy_promised_micro: int
    """What the owner lets off if its host fails the job; 0: it named nothing."""
    remedy_due_micro: int


class ReceiptVerifyDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode receipt verify`, of a receipt that holds."""

    schema: str = "p2pnode.receipt.verify/1"
    network: KnownNetworkDocument
    lease: str
    owner: SideDocument
    renter: SideDocument
    units: int
    start_ms: int
    end_ms: int
    micro_per_gpu_hour: int
    money: str
    used_ms: int
    amount_micro: int
    is_metered: bool
    is_settled: bool
    outcome: OutcomeDocument
    """As its owner claims."""
    delivered: DeliveredDocument
    simulated: tuple[str, ...]
    """What was not real: gpu=sim, net=test, engine=process."""
    statements: tuple[StatementDocument, ...]


class EvidenceCheckDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode ledger evidence check`, of a proof that holds."""

    schema: str = "p2pnode.ledger.evidence.check/1"
    network: KnownNetworkDocument
    proof: ProofDocument
