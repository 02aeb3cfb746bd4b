"""Adverts of one class and tier in NumPy columns, in order of what they cost at least."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from p2pnode.matching.book import Offer
from p2pnode.matching.judging import HAZARD_PPM_PER_HOUR, down_kbit_s
from p2pnode.matching.packed import quantities_of
from protocol.advert import Advert, Tier, ask_for, price_for
from protocol.limits import LEASE_UNITS_MAX
from protocol.scoring import PPM

ASK: Final = 0
WORSE: Final = 1
"""2 less the reliability: how often the time is paid, in the mean."""
COST: Final = 2
"""The ask so many times, by which the rows are in order."""
KBIT: Final = 3
RTT: Final = 4
HAZARD: Final = 5
"""Interruptions of a bronze lease in an hour."""
EXTRA: Final = 6
"""By what the ask is multiplied for a job of one GPU; the next columns are for more of them."""
FACTS: Final = EXTRA + LEASE_UNITS_MAX
TAIL_MAX: Final = 64
"""Rows that wait behind the others until they are put in their places."""
PIECE: Final = 256
PIECE_MAX: Final = 8_192
"""Rows that are looked at in one go: few at first, because the best are near the front."""

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What the node thinks of the owner, whatever the job."""

    reliability_ppm: int
    rtt_ms: int = 0
    hazard_ppm_per_hour: int = HAZARD_PPM_PER_HOUR


@dataclass(frozen=True, slots=True)
class Row:
    """What the exact rule needs."""

    offer: Offer
    opinion: Opinion


class Piece(Struct, frozen=True, order=True):
    """Rows that may be looked at next; none of them scores below `low`."""

    low: float
    place: int
    """Of its rows among those of the other classes, so that two pieces are never equal."""
    start: int
    end: int
    rows: "Rows"

    def rest(self, gpu_hours: float) -> "Piece | None":
        """The piece behind this one, twice as long."""
        rows = self.rows
        if self.end >= rows.sorted:
            return None
        end = min(rows.sorted, self.end + min(PIECE_MAX, 2 * (self.end - self.start)))
        low = float(rows.facts[COST, self.end]) * gpu_hours
        return Piece(low, self.place, self.end, end, rows)


class Rows:
    """The first `sorted` rows are in order of their cost; the others are not yet."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self._where: dict[bytes, int] = {}
        self.rows: list[Row | None] = []
        self.sorted = 0
        self.has_extra = False
        self.vram_most = 0
        """Of any row that has been here."""
        self.quantities: Words = np.zeros(TAIL_MAX, np.uint64)
        self.properties: Words = np.zeros(TAIL_MAX, np.uint64)
        self.facts: Floats = np.zeros((FACTS, TAIL_MAX))

    def __len__(self) -> int:
        return len(self._where)

    def put(self, offer: Offer, opinion: Opinion, properties: int) -> None:
        """Take or replace the row of this offer; in its place if its cost is the same."""
        key, advert = offer.head[0], offer.advert
        ask = float(ask_for(advert, self._tier) or 0)
        worse = 2 - opinion.reliability_ppm / PPM
        at = self._where.get(key)
        if at is None or self.facts[COST, at] != ask * worse:
            self.drop(key)
            at = self._append(key)
        self.vram_most = max(self.vram_most, advert.vram_mib)
        self.rows[at] = Row(offer, opinion)
        self.quantities[at] = quantities_of(advert)
        self.properties[at] = properties
        self.facts[:EXTRA, at] = (
            ask, worse, ask * worse, down_kbit_s(advert), opinion.rtt_ms,
            opinion.hazard_ppm_per_hour / PPM,
        )  # fmt: skip
        self.facts[EXTRA:, at] = self._extra(advert)

    def drop(self, key: bytes) -> None:
        """Forget the row of this group, if there is one."""
        at = self._where.pop(key, None)
        if at is not None:
            self.rows[at] = None
            self.quantities[at] = 0  # without its guards no wish lets it pass

    def settle(self) -> None:
        """Put the rows of the tail in their places, if they are many."""
        if len(self.rows) - self.sorted >= TAIL_MAX:
            self._sort(room=len(self._where) + TAIL_MAX)

    def pieces(self, gpu_hours: float, place: int) -> Iterator[Piece]:
        """Where to begin to look."""
        if self.sorted:
            end = min(PIECE, self.sorted)
            yield Piece(float(self.facts[COST, 0]) * gpu_hours, place, 0, end, self)
        if (end := len(self.rows)) > self.sorted:
            least = float(self.facts[COST, self.sorted : end].min())
            yield Piece(least * gpu_hours, place, self.sorted, end, self)

    def _append(self, key: bytes) -> int:
        if len(self.rows) == len(self.quantities):
            self._sort(room=2 * len(self._where) + TAIL_MAX)
        at = len(self.rows)
        self.rows.append(None)
        self._where[key] = at
        return at

    def _sort(self, *, room: int) -> None:
        held = len(self.rows)
        live = np.flatnonzero(self.quantities[:held])
        live = live[np.argsort(self.facts[COST, live], kind="stable")]
        self.sorted = len(live)
        self.quantities = _moved(self.quantities, live, room)
        self.properties = _moved(self.properties, live, room)
        facts = np.zeros((FACTS, room))
        facts[:, : len(live)] = self.facts[:, live]
        self.facts = facts
        rows = self.rows
        self.rows = [rows[at] for at in live.tolist()]
        self._where = {row.offer.head[0]: at for at, row in enumerate(self.rows) if row is not None}

    def _extra(self, advert: Advert) -> list[float] | float:
        """The surcharge of each size of job, as a factor of the ask."""
        ask = ask_for(advert, self._tier)
        if not ask or not advert.surcharges:
            return 1.0
        self.has_extra = True
        prices = [price_for(advert, self._tier, n) or 0 for n in range(1, LEASE_UNITS_MAX + 1)]
        return [price / ask for price in prices]


def _moved(words: Words, order: NDArray[np.intp], room: int) -> Words:
    moved: Words = np.zeros(room, np.uint64)
    moved[: len(order)] = words[order]
    return moved
