"""The most memory of one GPU that a lease's job was seen to hold, from one look to the next."""

from msgspec import UNSET, UnsetType

from p2pnode.cabinet import Cabinet
from protocol.units import Digest, Mebibytes


def note_peak(cabinet: Cabinet, lease: Digest, held: Mebibytes) -> None:
    """Durable on return, if it is more than before. Raises LocalFault."""
    before = peak_of(cabinet, lease)
    if before is UNSET or held > before:
        cabinet.put(_name(lease), held.to_bytes(8, "big"))


def peak_of(cabinet: Cabinet, lease: Digest) -> Mebibytes | UnsetType:
    """What was noted of this lease; UNSET if nothing was."""
    raw = cabinet.get(_name(lease))
    return UNSET if raw is None else Mebibytes(int.from_bytes(raw, "big"))


def _name(lease: Digest) -> str:
    return f"leases/{lease.hex()}/vram-peak"
