"""What commands tell that need no running node, as JSON. See `documents`."""

from typing import Literal

from msgspec import Struct, field


class NetworkShowDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode network create`, `join` and `show`."""

    schema: str = "p2pnode.network.show/1"
    id: str
    name: str
    kind: Literal["main", "test"]
    money: str
    bootstrap: tuple[str, ...]


class InviteDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode network invite`."""

    schema: str = "p2pnode.network.invite/1"
    link: str


class InitDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode init`."""

    schema: str = "p2pnode.init/1"
    config: str
    network: NetworkShowDocument | None


class FindingDocument(Struct, frozen=True, kw_only=True):
    """What one check of the host found."""

    check: str
    state: Literal["ok", "warn", "fail", "skip"]
    text: str
    cure: str = field(name="try")


class DoctorDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode doctor`."""

    schema: str = "p2pnode.doctor/1"
    items: tuple[FindingDocument, ...]


class UpDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode up`, once the node answers."""

    schema: str = "p2pnode.up/1"
    name: str
    peer: str
    network: str
    addresses: tuple[str, ...]
    socket: str


class VersionDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode version`."""

    schema: str = "p2pnode.version/1"
    client: str


class PrimaryTemplate(Struct, frozen=True, kw_only=True):
    """A template for a place that runs jobs besides the market."""

    name: str
    about: str


class PrimaryListDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode primary list`."""

    schema: str = "p2pnode.primary.list/1"
    items: tuple[PrimaryTemplate, ...]


class PrimaryShowDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode primary show`."""

    schema: str = "p2pnode.primary.show/1"
    name: str
    about: str
    text: str


class PresetDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode preset show`: an image by its digest, under a short name."""

    schema: str = "p2pnode.preset.show/1"
    name: str
    image: str
    cuda: str
    """The CUDA version that the driver must run; empty: none."""
    about: str


class PresetListDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode preset list`."""

    schema: str = "p2pnode.preset.list/1"
    items: tuple[PresetDocument, ...]


class DueDocument(Struct, frozen=True, kw_only=True):
    """A sum of money."""

    money: str
    micro: int


class KeyRotateDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode key rotate`; see `succession.Rotation`."""

    schema: str = "p2pnode.key.rotate/1"
    state: Literal["planned", "done", "finished"]
    """`finished`: an earlier call was cut short, and the facts were in its output."""
    old: str | None
    new: str | None
    ended: int | None
    is_forked: bool | None
    open_leases: int | None
    due: tuple[DueDocument, ...]
    owes: tuple[DueDocument, ...]


class SchemaListDocument(Struct, frozen=True, kw_only=True):
    """`p2pnode schema`."""

    schema: str = "p2pnode.schema.list/1"
    items: tuple[str, ...]
