"""What an owner would have leased at another price: its journal, played again. Pure.

Rivals' answers are held fixed, and leases last as long as was asked for. What never reached this
node is not in its journal, so a lower price would have brought more than is seen here.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from p2pnode.matching.journal import Note
from p2pnode.matching.strategies import Energy
from protocol.advert import Tier
from protocol.lease import charge
from protocol.units import Micros, Millis, MillisSpan

NOT_OF_PRICE: Final = frozenset({"POLICY", "SHAPE", "STALE", "CLOSED", "BUSY"})
"""Whom we refused for these no price would have won."""

PriceOf = Callable[[Tier], Micros]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a price would have come to."""

    asked: int
    """Requests that price decides about."""
    leases: int
    used_ms: MillisSpan
    """GPU-milliseconds."""
    use_ppm: int
    """Of all that the units could have given in the time."""
    gross: Micros
    energy: Micros | None
    """None where the owner has not said what it costs."""

    @property
    def fill_ppm(self) -> int:
        """How many of the requests became leases."""
        return self.leases * 1_000_000 // self.asked if self.asked else 0

    @property
    def net(self) -> Micros | None:
        """What is left after the energy."""
        return None if self.energy is None else Micros(self.gross - self.energy)


def replay(
    notes: Iterable[Note],
    units: Mapping[bytes, int],
    *,
    price_of: PriceOf | None,
    money: str,
    span_ms: MillisSpan,
    until: Millis,
    energy: Energy | None,
) -> Outcome:
    """What comes of these requests if each tier has this price; None: the one that was bid.

    `units` tells how many GPUs each group has. Of a lease that goes on beyond `until`, what comes
    before counts.
    """
    held: dict[bytes, list[tuple[Millis, Millis, int]]] = {}
    asked = leases = used = gross = 0
    for note in sorted(notes, key=lambda note: (note.start_ms, note.seen_ms)):
        if not _is_decided_by_price(note, money) or note.group not in units:
            continue
        asked += 1
        price = _price(note, price_of)
        if price is None or not _wins(note, price) or not _has_room(note, units, held):
            continue
        held.setdefault(note.group, []).append((note.start_ms, note.end_ms, note.need.gpus))
        ran_ms = max(0, min(note.end_ms, until) - note.start_ms)
        gpu_ms = MillisSpan(ran_ms * note.need.gpus)
        leases, used = leases + 1, used + gpu_ms
        gross += charge(gpu_ms, price)
    whole = sum(units.values()) * span_ms
    return Outcome(
        asked=asked,
        leases=leases,
        used_ms=MillisSpan(used),
        use_ppm=used * 1_000_000 // whole if whole else 0,
        gross=Micros(gross),
        energy=None if energy is None else energy.cost(used),
    )


def _is_decided_by_price(note: Note, money: str) -> bool:
    return note.money == money and (note.reason is UNSET or note.reason not in NOT_OF_PRICE)


def _price(note: Note, price_of: PriceOf | None) -> Micros | None:
    if price_of is not None:
        return price_of(note.tier)
    return None if note.ask_micro is UNSET else note.ask_micro


def _wins(note: Note, price: Micros) -> bool:
    """Whether the renter would have chosen us at this price, as far as we can tell.

    What was won at a price is won at a lower one, and what was lost is lost at a higher one; in
    between the lowest rival decides, who is not known of everybody.
    """
    if note.ask_micro is not UNSET:
        if note.result == "won" and price <= note.ask_micro:
            return True
        if note.result in {"lost", "expired"} and price >= note.ask_micro:
            return False
    if note.rival_micro is not UNSET:
        return price < note.rival_micro
    return note.rivals is not UNSET and note.rivals == 0


def _has_room(
    note: Note, units: Mapping[bytes, int], held: Mapping[bytes, list[tuple[Millis, Millis, int]]]
) -> bool:
    """Whether as many units are free all the time; the requests come in order of their starts."""
    taken = sum(gpus for _, end, gpus in held.get(note.group, ()) if end > note.start_ms)
    return taken + note.need.gpus <= units[note.group]
