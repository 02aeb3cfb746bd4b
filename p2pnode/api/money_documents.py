"""What the node tells of debts and payments, as JSON. Sums in micro-units of a named money."""

from typing import Literal

from msgspec import Struct

Side = Literal["owner", "renter"]
"""Whether this node is owed, or owes."""


class AccountDocument(Struct, frozen=True, kw_only=True):
    """One account: a peer, a unit of money and a side. All sums are cumulative."""

    side: Side
    own_feed: str
    """Ours, or the one that it succeeded."""
    peer_feed: str
    money: str
    used_ms: int
    """GPU-milliseconds that both have signed."""
    agreed_micro: int
    """What both have signed: proved."""
    claimed_micro: int
    """What the owner states besides, and the renter has not signed: claimed."""
    paid_micro: int
    """What has arrived by the owner's own signed word."""
    due_micro: int
    since_ms: int | None
    """When the oldest part that is not paid was signed by both."""
    late: bool
    """Whether it should have been paid by now, by the `[pricing] billing` of this node."""
    reference: str
    """Under which a payment is looked for; both sides can work it out."""


class EnergyDocument(Struct, frozen=True, kw_only=True):
    """What energy costs this node, by its `[pricing]`."""

    money: str
    micro_per_kwh: int
    watts: int
    """Of one GPU with its part of the host."""


class AccountListDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode earn list` and `spend list`."""

    schema: str = "p2pnode.account.list/1"
    items: tuple[AccountDocument, ...]
    energy: EnergyDocument | None = None
    """Null where the owner has not said."""


class TotalDocument(Struct, frozen=True, kw_only=True):
    """All accounts of one side in one money."""

    money: str
    agreed_micro: int
    claimed_micro: int
    paid_micro: int
    due_micro: int
    used_ms: int
    energy_micro: int | None = None
    """What the energy of all of it cost, by `[pricing] energy` and `watts` as they are now."""
    net_micro: int | None = None
    """Agreed without it; null where this node has not said what energy costs."""


class SummaryDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode earn summary` and `spend summary`: a total for each money."""

    schema: str = "p2pnode.account.summary/1"
    items: tuple[TotalDocument, ...]


class LineDocument(Struct, frozen=True, kw_only=True):
    """What one statement of an owner added to its account; all lines add up to the account.

    A statement of which both have signed only a part makes two lines.
    """

    side: Side
    own_feed: str
    """Ours, or the one that it succeeded."""
    peer_feed: str
    money: str
    at_ms: int
    half: str
    """Id of the statement."""
    lease: str | None
    used_ms: int
    amount_micro: int
    paid_micro: int
    claim: Literal["proved", "claimed"]
    """Proved: both have signed for the use and the amount. What is paid is the owner's word."""


class StatementDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode earn export` and `spend export`: the lines of accounts, oldest first."""

    schema: str = "p2pnode.account.statement/1"
    items: tuple[LineDocument, ...]


class DebtDocument(Struct, frozen=True, kw_only=True):
    """What this node owes one owner, and how that wants to be paid."""

    own_feed: str
    peer_feed: str
    money: str
    due_micro: int
    since_ms: int | None
    late: bool
    """Whether it should have been paid by now, by the `[pricing] billing` of this node."""
    reference: str
    payout: str | None
    """By the owner's own signed word, for people; None if it could not be asked."""
    signed: str | None
    """That word, sealed by the owner, in hexadecimal."""
    why: str
    """Why there is no payout."""


class DebtListDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode spend settle`."""

    schema: str = "p2pnode.debt.list/1"
    items: tuple[DebtDocument, ...]


class ConfirmOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A payment that has arrived."""

    peer: str
    amount_micro: int
    money: str


class ConfirmedDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode earn confirm`."""

    schema: str = "p2pnode.payment.confirmed/1"
    half: str
    """Id of our statement that says so."""
    account: AccountDocument
