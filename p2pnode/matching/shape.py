"""Whether what an owner has is what a renter needs. Pure."""

from msgspec import UNSET

from p2pnode.matching.provider import Posting, Shelf
from p2pnode.matching.search import is_model
from protocol.answers import ISOLATIONS
from protocol.auction import Need


def shortfall(need: Need, shelf: Shelf, posting: Posting) -> str | None:
    """The first thing that is missing, as the end of "this owner ..."; None if nothing is."""
    if need.gpus > len(shelf.units):
        return f"has {len(shelf.units)} GPUs"
    if need.vram_mib_min > shelf.vram:
        return f"has {shelf.vram} MiB"
    if need.models is not UNSET and not any(is_model(shelf.model, name) for name in need.models):
        return f"is a {shelf.model}"
    if need.regions is not UNSET and posting.region not in need.regions:
        return f"is in {posting.region}"
    if need.isolation_min is not UNSET and ISOLATIONS.index(posting.isolation) < ISOLATIONS.index(
        need.isolation_min
    ):
        return f"isolates by {posting.isolation}"
    return _host(need, posting)


def _host(need: Need, posting: Posting) -> str | None:
    for wanted, there, name in (
        (need.cpus_min, posting.cpus, "cores"),
        (need.memory_mib_min, posting.memory_mib, "MiB of memory"),
        (need.disk_mib_min, posting.disk_mib, "MiB of disk"),
    ):
        if wanted is not UNSET and wanted > there:
            return f"has {there} {name}"
    return None
