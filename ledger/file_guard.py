"""The Guard in a file outside the store's directory; the only module here that uses `os`.

SPEC.md section 6. Two slots are written in turn, each with a checksum, so that a write torn at any
byte leaves the other one.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta

from ledger.entry import Draft, read_draft
from ledger.guard import check_reservation
from ledger.limits import BODY_BYTES_MAX, HEADER_BYTES_MAX
from protocol.codec import UInt, Wire, decode, encode
from protocol.errors import LocalFault, PeerFault
from protocol.signing import digest
from protocol.units import NetId

SLOT_BYTES: Final = 12_288
"""Three pages: the longest entry, and no page shared by two slots."""
_PREFIX_BYTES: Final = 4
_CHECK_BYTES: Final = 32

assert _PREFIX_BYTES + _CHECK_BYTES + HEADER_BYTES_MAX + BODY_BYTES_MAX + 32 <= SLOT_BYTES


class Slot(Wire, frozen=True, array_like=True):
    """What one slot holds; the higher generation is the newer."""

    v: Literal[1]
    generation: UInt
    hdr: Annotated[bytes, Meta(max_length=HEADER_BYTES_MAX)]
    body: Annotated[bytes, Meta(max_length=BODY_BYTES_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The newest whole slot of a guard file."""

    generation: int
    draft: Draft


class FileGuard:
    """See Guard. `open_file_guard` makes one. The file has no other writer."""

    def __init__(self, path: Path, net: NetId) -> None:
        self._path = path
        self._net = net
        self._is_read = False
        self._newest: Held | None = None

    def reserved(self) -> Draft | None:
        held = self._held()
        return None if held is None else held.draft

    def reserve(self, draft: Draft) -> None:
        held = self._held()
        check_reservation(None if held is None else held.draft, draft)
        generation = 0 if held is None else held.generation + 1
        packed = pack_slot(Slot(1, generation, draft.hdr, draft.body))
        # Until the write is done only the file knows what it holds.
        self._is_read = False
        try:
            _write(self._path, packed, generation % 2 * SLOT_BYTES)
        except OSError as error:
            raise _fault(self._path, error) from error
        self._is_read, self._newest = True, Held(generation=generation, draft=draft)

    def _held(self) -> Held | None:
        if not self._is_read:
            try:
                raw = self._path.read_bytes()
            except OSError as error:
                raise _fault(self._path, error) from error
            self._newest = newest(raw, self._net, str(self._path))
            self._is_read = True
        return self._newest


def open_file_guard(path: Path, net: NetId) -> FileGuard:
    """The guard in this file, which is made if it is not there. Raises LocalFault."""
    try:
        if not path.exists():
            path.touch(mode=0o600)
            _sync_directory(path.parent)
    except OSError as error:
        raise _fault(path, error) from error
    return FileGuard(path, net)


def pack_slot(slot: Slot) -> bytes:
    """Length, content and checksum of a slot."""
    packed = encode(slot)
    return len(packed).to_bytes(_PREFIX_BYTES, "big") + packed + digest("guard", packed)


def newest(raw: bytes, net: NetId, path: str) -> Held | None:
    """What a guard file of these bytes holds; None if its first write was not finished.

    Raises LocalFault if both slots have been written and neither is whole.
    """
    slots = (raw[:SLOT_BYTES], raw[SLOT_BYTES:])
    held = [each for each in (_unpack(slot, net) for slot in slots) if each is not None]
    if held:
        return max(held, key=lambda each: each.generation)
    if slots[1].strip(b"\0"):
        raise LocalFault(
            f"The guard file {path} is damaged.",
            "run the node, which moves it aside and will recover our feed from its peers",
        )
    return None


def _unpack(raw: bytes, net: NetId) -> Held | None:
    length = int.from_bytes(raw[:_PREFIX_BYTES], "big")
    packed = raw[_PREFIX_BYTES : _PREFIX_BYTES + length]
    check = raw[_PREFIX_BYTES + length : _PREFIX_BYTES + length + _CHECK_BYTES]
    if check != digest("guard", packed):
        return None
    try:
        slot = decode(packed, Slot, size_max=SLOT_BYTES)
        return Held(generation=slot.generation, draft=read_draft(slot.hdr, slot.body, net))
    except PeerFault:
        return None


def _write(path: Path, packed: bytes, offset: int) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        while packed:
            written = os.pwrite(file, packed, offset)
            packed, offset = packed[written:], offset + written
        os.fdatasync(file)
    finally:
        os.close(file)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _fault(path: Path, error: OSError) -> LocalFault:
    return LocalFault(
        f"The guard file {path} cannot be used: {error.strerror}.",
        "free some space, or give the node the right to write there",
    )
