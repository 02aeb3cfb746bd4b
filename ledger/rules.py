"""What a proved offence costs its author, by the rules bundle that its own entries name.

SPEC.md section 13.2. Nothing is retroactive: a bundle that is added judges only what names it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import UNSET

from ledger.bodies import Grant, Interval, Release, read_body
from ledger.entry import Entry, Header, read_entry
from ledger.evidence import Offence, check
from ledger.fold import State
from ledger.limits import EVIDENCE_BYTES_MAX, HEADER_BYTES_MAX
from ledger.units_chain import is_disjoint, turn_in
from protocol.codec import decode, decode_plain
from protocol.errors import PeerFault
from protocol.rules import BUNDLE, KEPT_PPM_MAX, Bundle, Penalty, digest_of_bundle
from protocol.signing import digest
from protocol.units import Digest, NetId, PublicKey

PREFIX_BYTES: Final = 8
"""As much of a bundle's digest as a header names."""
FORKS: Final = ("A1", "A2", "A3")
"""These break the feed itself, whatever bundle it names."""
SAME_COUNTER: Final = "A4"
APART: Final = "A4-apart"
"""A counter used twice for reservations that do not meet, as after an old state was restored."""


def prefix_of(bundle: Bundle) -> bytes:
    """What the headers of entries name the bundle by."""
    return digest_of_bundle(bundle)[:PREFIX_BYTES]


def table_of(*bundles: Bundle) -> dict[bytes, Bundle]:
    """The bundles by their prefix."""
    return {prefix_of(bundle): bundle for bundle in bundles}


BUNDLES: Final = table_of(BUNDLE)
"""All that this program knows. One is added, never changed."""


def bundle_of(prefix: bytes) -> Bundle | None:
    """The bundle that a header names; None if it is not known here."""
    return BUNDLES.get(prefix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What evidence shows by itself, its seals verified; the same wherever it is read."""

    id: Digest
    """Of the evidence: what sync names it by."""
    offence: Offence
    named: tuple[bytes, ...]
    """Prefixes of the bundles that the offender's entries in it name, sorted."""
    ts_ms: int
    """Of the newest of these entries; 0 if there is none."""
    entries: tuple[Digest, ...]
    """Of the offender, as far as they are whole in it, sorted."""
    reserved: tuple[Interval, ...]
    """Of A4: all that its two entries leave open of the unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one offence costs."""

    case: Case
    name: str
    """The row of the bundle's table."""
    epoch: int
    """In which it was done, by the offender's own clock."""
    penalties: tuple[Penalty, ...]
    """Of each known bundle that it names; none: it is inert here."""

    @property
    def offender(self) -> PublicKey:
        """Whom it costs something."""
        return self.case.offence.offender

    @property
    def ends_standing(self) -> bool:
        """Whether nobody should deal with the offender again."""
        return any(penalty.ends_standing for penalty in self.penalties)

    def kept_ppm(self, epoch: int) -> int:
        """What is left of the offender's weight in this epoch, by this verdict alone."""
        left = (
            penalty.kept_ppm
            for penalty in self.penalties
            if penalty.epochs is UNSET or epoch < self.epoch + penalty.epochs
        )
        return min(left, default=KEPT_PPM_MAX)


def read_case(raw: bytes, net: NetId) -> Case:
    """The case that this evidence makes. Raises PeerFault as `evidence.check`."""
    offence = check(raw, net)
    parts = list(_parts(raw))
    entries = [entry for part in parts if (entry := _entry(part, net)) is not None]
    headers = [entry.header for entry in entries]
    headers += [header for part in parts if (header := _header(part)) is not None]
    own = [header for header in headers if header.feed == offence.offender]
    return Case(
        id=digest("sync-proof", raw),
        offence=offence,
        named=tuple(sorted(dict.fromkeys(header.rules for header in own))),
        ts_ms=max((header.ts_ms for header in own), default=0),
        entries=tuple(sorted(entry.id for entry in entries if entry.feed == offence.offender)),
        reserved=_reserved(offence, entries) if offence.rule == SAME_COUNTER else (),
    )


def judge(
    cases: Iterable[Case],
    state: State,
    *,
    bundles: Mapping[bytes, Bundle] = BUNDLES,
    home: Bundle = BUNDLE,
) -> tuple[Verdict, ...]:
    """What each case costs, by the bundles that it names and that are known; by id, each once.

    `home` is the network's own bundle. It judges what names none: every signature covers the
    network, and that names `home`. It judges forks whose bundle is not known here as well.
    """
    by_id = {case.id: case for case in cases}
    granted = _granted(by_id.values(), state)
    verdicts = []
    for _, case in sorted(by_id.items()):
        named = [bundles[prefix] for prefix in case.named if prefix in bundles]
        if not named and (not case.named or case.offence.rule in FORKS):
            named = [home]
        name = _row_of(case, granted.get(_turn_of(case), []))
        rows = (bundle.penalties.get(name) for bundle in named)
        verdicts.append(
            Verdict(
                case=case,
                name=name,
                epoch=case.ts_ms // home.epoch_ms,
                penalties=tuple(row for row in rows if row is not None),
            )
        )
    return tuple(verdicts)


_Turn = tuple[PublicKey, bytes, int]
"""Owner, unit, counter."""


def _turn_of(case: Case) -> _Turn:
    """The turn that an A4 is about."""
    key = case.offence.key
    return case.offence.offender, key[1:17], int.from_bytes(key[17:25], "big")


def _granted(cases: Iterable[Case], state: State) -> dict[_Turn, list[Interval]]:
    """What was granted under each counter that an A4 is about; all leases are gone through once."""
    granted: dict[_Turn, list[Interval]] = {
        _turn_of(case): [] for case in cases if case.offence.rule == SAME_COUNTER
    }
    for lease in state.leases() if granted else ():
        request = lease.request
        for unit in request.units:
            turn = (lease.owner, unit.unit, unit.ctr)
            if turn in granted:
                granted[turn].append(Interval(request.start_ms, request.end_ms, unit.ctr))
    return granted


def _row_of(case: Case, granted: list[Interval]) -> str:
    """The row of the table.

    Of an A4 all GRANTs with its counter are asked, because the two that are kept as evidence are
    the least and not the worst. If nothing that was reserved meets, no renter was cheated.
    """
    if case.offence.rule == SAME_COUNTER:
        reserved = tuple(dict.fromkeys((*case.reserved, *granted)))
        return APART if is_disjoint(reserved) else SAME_COUNTER
    return case.offence.rule


def _parts(raw: bytes) -> Iterator[bytes]:
    """The byte strings in evidence, also those in a list of them."""
    plain = decode_plain(raw, size_max=EVIDENCE_BYTES_MAX)
    assert isinstance(plain, list)
    for part in plain:
        inner = part if isinstance(part, list) else [part]
        yield from (each for each in inner if isinstance(each, bytes))


def _entry(part: bytes, net: NetId) -> Entry | None:
    try:
        return read_entry(part, net)
    except PeerFault:
        return None


def _header(part: bytes) -> Header | None:
    try:
        return decode(part, Header, size_max=HEADER_BYTES_MAX)
    except PeerFault:
        return None


def _reserved(offence: Offence, entries: list[Entry]) -> tuple[Interval, ...]:
    """What the entries of an A4 leave open of the unit, each interval once, sorted."""
    unit = offence.key[1:17]
    bodies = (read_body(entry.draft) for entry in entries)
    turns = (turn_in(body, unit) for body in bodies if isinstance(body, Grant | Release))
    opened = (each for turn in turns if turn is not None for each in turn.open)
    return tuple(sorted(dict.fromkeys(opened)))
