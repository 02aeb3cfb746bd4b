"""Whether what an owner has is what a renter needs. Pure."""

from msgspec import UNSET

from p2pnode.matching.drivers import version_of, version_text
from p2pnode.matching.gpu_names import is_model
from p2pnode.matching.provider import Posting, Shelf
from protocol.answers import ISOLATIONS
from protocol.auction import Need


def shortfall(need: Need, shelf: Shelf, posting: Posting) -> str | None:
    """The first thing that is missing, as the end of "this owner ..."; None if nothing is."""
    if need.gpus > len(shelf.units):
        return f"has {len(shelf.units)} GPUs"
    if need.vram_mib_min > shelf.vram:
        return f"has {shelf.vram} MiB"
    if need.models is not UNSET and not any(
        is_model(shelf.model, name, shelf.vram) for name in need.models
    ):
        return f"is a {shelf.model}"
    if need.regions is not UNSET and posting.region not in need.regions:
        return f"is in {posting.region}"
    if need.isolation_min is not UNSET and ISOLATIONS.index(posting.isolation) < ISOLATIONS.index(
        need.isolation_min
    ):
        return f"isolates by {posting.isolation}"
    return _driver(need, shelf) or _host(need, posting)


def _driver(need: Need, shelf: Shelf) -> str | None:
    if need.driver_min is not UNSET:
        driver = version_of(shelf.driver)
        if driver is None:
            return "does not know its driver"
        if driver < need.driver_min:
            return f"has driver {shelf.driver}, below {version_text(need.driver_min)}"
    if need.compute_min is not UNSET:
        if shelf.compute is None:
            return "does not know its compute capability"
        if shelf.compute < need.compute_min:
            return f"has compute capability {shelf.compute[0]}.{shelf.compute[1]}"
    return None


def _host(need: Need, posting: Posting) -> str | None:
    for wanted, there, name in (
        (need.cpus_min, posting.cpus, "cores"),
        (need.memory_mib_min, posting.memory_mib, "MiB of memory"),
        (need.disk_mib_min, posting.disk_mib, "MiB of disk"),
        (need.down_kbit_s_min, posting.down_kbit_s, "kbit/s down"),
        (need.up_kbit_s_min, posting.up_kbit_s, "kbit/s up"),
    ):
        if wanted is UNSET:
            continue
        if there is None:
            return f"does not know its {name}"
        if wanted > there:
            return f"has {there} {name}"
    return None
