"""What a user may ask of a node: the same words for a job and for a look at the market."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from p2pnode.config import PrimaryUse
from p2pnode.matching.headroom import HEADROOM_PPM
from protocol.advert import Tier
from protocol.errors import LocalFault
from protocol.job import NoticeSignal

SHOWN_MAX: Final = 16_384
_LISTS: Final = {"model": "models", "region": "regions", "or_tier": "or_tiers", "prefer": "prefer"}
"""Names in a query, where each may be repeated -> fields."""


class Constraints(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every field that is 0, None or empty asks for nothing."""

    gpus: int = 1
    """On each node."""
    vram_mib_min: int = 1
    """Of each."""
    model_vram_mib: int = 0
    """Instead: what the model needs of each, so that `headroom_ppm` of the card stays free."""
    headroom_ppm: int = HEADROOM_PPM
    models: tuple[str, ...] = ()
    """As people call them; any of them will do."""
    regions: tuple[str, ...] = ()
    """Countries, or sets of them as EU and EEA."""
    isolation_min: str | None = None
    driver_min: str | None = None
    cuda_min: str | None = None
    """A version of CUDA, which asks for the driver that it came with."""
    compute_min: str | None = None
    cpus_min: int = 0
    memory_mib_min: int = 0
    disk_mib_min: int = 0
    down_kbit_s_min: int = 0
    up_kbit_s_min: int = 0
    tier: Tier = "silver"
    or_tiers: tuple[Tier, ...] = ()
    ask_micro_max: int | None = None
    """Per GPU-hour."""
    total_micro_max: int | None = None
    end_by_ms: int | None = None
    reliability_ppm_min: int = 0
    rtt_ms_max: int | None = None
    prefer: tuple[str, ...] = ()
    """KEY=VALUE or KEY=VALUE:20%: ranks, and rules nothing out."""


class OfferQuery(Constraints, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`p2pnode offer search`."""

    money: str | None = None
    """Of the limits; None takes any, and then no limit can be judged."""
    time_ms: int | None = None
    """For how long, from now on."""
    limit: int = 50


class JobOrder(Constraints, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`p2pnode run`: what to run, on what, for how much."""

    argv: tuple[str, ...]
    variables: dict[str, str] = {}
    image: str | None = None
    input_folder: str | None = None
    """A directory on the node's host; its content is what the job finds where it starts."""
    nodes: int = 1
    """More than one: `/v1/pools` takes it."""
    money: str
    time_ms: int = 3_600_000
    memory_mib: int = 2_048
    cpus_milli: int = 1_000
    pids: int = 256
    disk_mib: int = 1_024
    log_bytes: int = 16_777_216
    output_bytes: int = 1_073_741_824
    patience_ms: int | None = None
    """How long to wait for an offer that fits, also after a move; by default half a minute, and ten
    minutes where bronze is wanted."""
    witnesses: tuple[str, ...] = ()
    """Feeds or peers that must cosign a lease before it is accepted; empty: those configured."""
    quorum: int = 0
    """How many of them; 0: more than half."""
    notice_ms: int | None = None
    """Warning that the job needs to save its work; by default half a minute for bronze."""
    notice_signal: NoticeSignal | None = None
    """What wakes it then, if it handles it."""
    checkpoint_ms: int | None = None
    """How often what it saves is fetched; by default each minute for bronze, else never."""
    after_preemptions: int | None = None
    """So many interruptions are enough: from then on `then_tier` is asked for."""
    then_tier: Tier = "silver"
    lease_ms: int | None = None
    """No lease is taken for longer, and the next one in time; by default one for all of it."""
    start_ms: int | None = None
    """When it is to start; by default as soon as it can."""
    delay_micro_per_hour: int = 0
    """What an hour of waiting costs the renter: it ranks, and rules nothing out."""
    latency_micro_per_ms: int = 0
    """What each millisecond of round trip costs it, over the whole job."""
    primary: PrimaryUse | None = None
    """What the node's own primary has to do with the job; null: what is configured."""


def offer_query(given: Mapping[str, list[str]]) -> OfferQuery:
    """What the parameters of a URL ask for. Raises LocalFault."""
    fields: dict[str, object] = {}
    for name, values in given.items():
        field = _LISTS.get(name, name)
        fields[field] = values if name in _LISTS else values[-1]
    try:
        query = msgspec.convert(fields, OfferQuery, strict=False)
    except msgspec.ValidationError as error:
        raise LocalFault(f"This cannot be searched for: {error}.") from error
    return msgspec.structs.replace(query, limit=max(0, min(query.limit, SHOWN_MAX)))
