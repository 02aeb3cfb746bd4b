"""What a node tells and is told of its owner's decisions. See `documents`."""

from typing import Literal

from msgspec import Struct


class WindowOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A window that the owner wants: either hours or events."""

    hours: str = ""
    events: str = ""
    """A calendar by RFC 5545."""
    zone: str
    excepted: tuple[str, ...] = ()
    kind: Literal["open", "closed"] = "open"
    floor_micro: int | None = None
    money: str | None = None


class WindowTestOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to try: all windows, or one that there is not yet."""

    span_ms: int
    window: WindowOrder | None = None


class WindowName(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which window or rule is meant."""

    name: str


class WindowDocument(Struct, frozen=True, kw_only=True):
    """One window."""

    name: str
    hours: str
    """In the short form; empty if an imported calendar has the times."""
    zone: str
    excepted: tuple[str, ...]
    kind: Literal["open", "closed"]
    floor_micro: int | None
    origin: Literal["config.toml", "window add"]


class WindowAddDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode window add` and `import`."""

    schema: str = "p2pnode.window.add/1"
    window: WindowDocument
    applies: str = "now, to new leases"


class WindowRemoveDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode window remove`."""

    schema: str = "p2pnode.window.remove/1"
    name: str
    applies: str = "now, to new leases"


class WindowListDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode window list`."""

    schema: str = "p2pnode.window.list/1"
    items: tuple[WindowDocument, ...]
    money: str
    open_now: bool
    open_until_ms: int | None
    """When it closes; null if it is closed, or does not close within five weeks."""


class OpeningDocument(Struct, frozen=True, kw_only=True):
    """A time at which the node is open; the end is not part of it."""

    start_ms: int
    end_ms: int


class WindowTestDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode window test`."""

    schema: str = "p2pnode.window.test/1"
    start_ms: int
    end_ms: int
    items: tuple[OpeningDocument, ...]


class WindowExportDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode window export`."""

    schema: str = "p2pnode.window.export/1"
    events: str
    """A calendar by RFC 5545."""


class PauseOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For how long to pause; null: until `resume`."""

    for_ms: int | None = None


class PauseDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode ask pause` and `resume`."""

    schema: str = "p2pnode.ask.pause/1"
    paused: bool
    since_ms: int | None
    until_ms: int | None
    """Null: until `p2pnode ask resume`."""


class AskLineDocument(Struct, frozen=True, kw_only=True):
    """The price of one tier of one kind of GPU now, per GPU-hour."""

    group: str
    model: str
    tier: str
    ask_micro: int
    floor_micro: int
    rivals: int
    """Open offers of other accounts whose asks were looked at."""
    why: str
    """Where the price comes from, in words."""


class OwnUseDocument(Struct, frozen=True, kw_only=True):
    """What is seen of one GPU's use by others than renters' jobs."""

    unit: str
    load_ppm: int
    since_ms: int | None
    """When it was found to be in use; null: it is not."""


class UseOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`auto`: as it is seen; `never`, `now`: whatever is seen."""

    mode: Literal["auto", "never", "now"]


class AskShowDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode ask show`."""

    schema: str = "p2pnode.ask.show/1"
    micro_per_gpu_hour: int | None
    """The silver one."""
    money: str
    offered: tuple[str, ...]
    items: tuple[AskLineDocument, ...]
    strategy: str
    by_use: bool
    gold_remedy_ppm: int | None
    """Of a gold lease's whole price, let off if this host fails its job; null without gold."""
    origin: Literal["config.toml", "ask set"]
    set_ms: int | None
    """When `ask set` last changed something; null: it did not."""
    paused: bool
    paused_until_ms: int | None
    open_now: bool
    open_until_ms: int | None
    energy_micro_per_kwh: int | None
    watts: int | None
    use_mode: Literal["auto", "never", "now"]
    """Whether GPUs in own use are kept from renters; see `p2pnode ask yield`."""
    own_use: tuple[OwnUseDocument, ...]
    kept: int
    """Units that are kept from renters for that now."""


class AskChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change of the prices; what is null stays."""

    micro_per_gpu_hour: int | None = None
    floor_micro: int | None = None
    money: str | None = None
    """Of both."""
    tier: Literal["gold", "silver", "bronze"] = "silver"
    strategy: str | None = None
    by_use: bool | None = None
    gold_remedy_ppm: int | None = None


class AskSetDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode ask set` and `reset`."""

    schema: str = "p2pnode.ask.set/1"
    applies: str = "now, to new leases"


class RuleOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule that the owner wants."""

    verdict: Literal["allow", "deny"]
    kind: Literal["image", "renter", "region", "network"]
    pattern: str


class RuleDocument(Struct, frozen=True, kw_only=True):
    """One rule."""

    name: str
    verdict: Literal["allow", "deny"]
    kind: Literal["image", "renter", "region", "network"]
    pattern: str
    origin: Literal["config.toml", "allow add"]


class RuleListDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode allow list`. Deny goes before allow; a kind without `allow` allows all."""

    schema: str = "p2pnode.allow.list/1"
    items: tuple[RuleDocument, ...]


class RuleAddDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode allow add`."""

    schema: str = "p2pnode.allow.add/1"
    rule: RuleDocument
    applies: str = "now, to new leases"


class RuleRemoveDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode allow remove`."""

    schema: str = "p2pnode.allow.remove/1"
    name: str
    applies: str = "now, to new leases"


class RuleTestOrder(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who and what would want in; null is not asked for."""

    image: str | None = None
    renter: str | None = None
    region: str | None = None
    address: str | None = None


class RuleTestDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode allow test`."""

    schema: str = "p2pnode.allow.test/1"
    let_in: bool
    why: str | None
    """What a renter would be told."""


class SimulatedAskDocument(Struct, frozen=True, kw_only=True):
    """What one price would have come to."""

    silver_micro: int | None
    """Null: the prices that were bid."""
    asked: int
    """Requests that price decides about."""
    leases: int
    fill_ppm: int
    """Leases among the requests."""
    use_ppm: int
    """Of what the GPUs could have given."""
    gross_micro: int
    energy_micro: int | None
    """Null: the owner has not said what it costs."""
    net_micro: int | None


class AskSimulateDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode ask simulate`. Rivals' answers are held fixed, leases last as was asked for."""

    schema: str = "p2pnode.ask.simulate/1"
    since_ms: int
    until_ms: int
    money: str
    seen: int
    """Requests in the journal of that time."""
    items: tuple[SimulatedAskDocument, ...]
    """The first is what was bid."""
