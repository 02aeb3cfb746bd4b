"""What a proved offence costs its author, by the rules bundle that its own entries name.

SPEC.md section 14.2. Nothing is retroactive: a bundle that is added judges only what names it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from msgspec import UNSET

from ledger.bodies import Grant, Release, read_body
from ledger.entry import Entry, Header, read_entry
from ledger.evidence import check
from ledger.fold import State
from ledger.intervals import Interval
from ledger.judging import Offence
from ledger.limits import EVIDENCE_BYTES_MAX, HEADER_BYTES_MAX
from ledger.units_chain import is_disjoint, turn_in
from protocol.auction import BidCommit
from protocol.codec import decode, decode_plain
from protocol.errors import PeerFault
from protocol.lease import LeaseRequest
from protocol.rules import BUNDLE, KEPT_PPM_MAX, Bundle, Penalty, digest_of_bundle
from protocol.signing import digest
from protocol.units import Digest, NetId, PublicKey
from protocol.wire import unpack

PREFIX_BYTES: Final = 8
"""As much of a bundle's digest as a header names."""
OF_UNITS: Final = ("A4", "A5", "A6")
"""These break a unit's chain, which a fork does by itself."""
APART: Final = "apart"
"""One of them, by a fork in which no leases of the unit meet, as after a restored backup."""


def prefix_of(bundle: Bundle) -> bytes:
    """What the headers of entries name the bundle by."""
    return digest_of_bundle(bundle)[:PREFIX_BYTES]


def table_of(*bundles: Bundle) -> dict[bytes, Bundle]:
    """The bundles by their prefix."""
    return {prefix_of(bundle): bundle for bundle in bundles}


BUNDLES: Final = table_of(BUNDLE)
"""All that this program knows. One is added, never changed."""


class Promise(NamedTuple):
    """A unit's part of a lease, and the request that it answers."""

    grant: Digest
    interval: Interval
    renter: PublicKey
    nonce: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What evidence shows by itself, its seals verified; the same wherever it is read."""

    id: Digest
    """Of the evidence: what sync names it by."""
    offence: Offence
    named: tuple[bytes, ...]
    """Prefixes of the bundles that the offender's entries in it name, sorted."""
    ts_ms: int
    """When it was done, by the offender's own word; 0 of A13, which tells none."""
    seq: int
    """Of the last of them in its feed; 0 if there is none."""
    entries: tuple[Digest, ...]
    """Of the offender, as far as they are whole in it, sorted."""
    reserved: tuple[Interval, ...]
    """Of OF_UNITS: all that the entries leave open of the unit."""
    promised: tuple[Promise, ...]
    """Of OF_UNITS: the leases of the unit that the entries grant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one offence costs."""

    case: Case
    name: str
    """The row of the bundle's table."""
    epoch: int
    """In which it was done, by the offender's own clock."""
    penalties: tuple[Penalty, ...]
    """Of each known bundle that it names, or else of the network's; none: it has no row there."""

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
        ts_ms=_done_ms(offence, own, parts, net),
        seq=max((header.seq for header in own), default=0),
        entries=tuple(sorted(entry.id for entry in entries if entry.feed == offence.offender)),
        reserved=_reserved(offence, entries) if offence.rule in OF_UNITS else (),
        promised=_promised(offence, entries, net) if offence.rule in OF_UNITS else (),
    )


def _done_ms(offence: Offence, own: list[Header], parts: list[bytes], net: NetId) -> int:
    if offence.rule == "A9":  # of messages alone
        return unpack(parts[0], net, BidCommit).body.issued_ms
    return max((header.ts_ms for header in own), default=0)


def judge(
    cases: Iterable[Case],
    state: State,
    *,
    bundles: Mapping[bytes, Bundle] = BUNDLES,
    home: Bundle = BUNDLE,
) -> tuple[Verdict, ...]:
    """What each case costs, by the bundles that it names and that are known; by id, each once.

    `home` is the network's own bundle. It judges all that names none that is known: every signature
    covers the network, and that names `home`. Else who names nonsense could not be judged at all.
    """
    by_id = {case.id: case for case in cases}
    granted = _granted(by_id.values(), state)
    verdicts = []
    for _, case in sorted(by_id.items()):
        named = [bundles[prefix] for prefix in case.named if prefix in bundles] or [home]
        name = _row_of(case, state, granted)
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


def verdicts_by_feed(
    verdicts: Iterable[Verdict], account: Callable[[PublicKey], list[PublicKey]]
) -> dict[PublicKey, list[Verdict]]:
    """Feed -> what it answers for, in the order of `verdicts`: all that its account has done.

    `account` tells all feeds of a feed's account, itself among them.
    """
    found: dict[PublicKey, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.offender not in found:
            # One list for all of them: an account may have as many feeds as it likes.
            shared: list[Verdict] = []
            found.update((feed, shared) for feed in account(verdict.offender))
        found[verdict.offender].append(verdict)
    return found


def ending(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The first for which nobody should deal with the offender again; None if there is none."""
    return next((verdict for verdict in verdicts if verdict.ends_standing), None)


_Unit = tuple[PublicKey, bytes]
"""Owner and unit."""


def _unit_of(case: Case) -> _Unit:
    """The unit that a case of OF_UNITS is about."""
    return case.offence.offender, case.offence.key[1:17]


def _granted(cases: Iterable[Case], state: State) -> dict[_Unit, list[Promise]]:
    """When the units of these cases are leased; all leases are gone through once."""
    granted: dict[_Unit, list[Promise]] = {
        _unit_of(case): [] for case in cases if case.offence.rule in OF_UNITS
    }
    for lease in state.leases() if granted else ():
        start = lease.request.start_ms
        for turn in lease.request.units:
            unit = (lease.owner, turn.unit)
            if unit in granted:
                interval = Interval(start, max(start, lease.ended_ms), turn.ctr)
                nonce = lease.request.nonce
                granted[unit].append(Promise(lease.id, interval, lease.renter, nonce))
    return granted


def _row_of(case: Case, state: State, granted: Mapping[_Unit, list[Promise]]) -> str:
    """The row of the table.

    All leases of the unit are asked, because the entries that are kept as evidence are the least
    and not the worst. If no two of them meet, no renter was cheated.
    """
    if case.offence.rule not in OF_UNITS:
        return case.offence.rule
    fork = state.fork_of(case.offence.offender)
    if fork is None or fork > case.seq:
        return case.offence.rule
    known = granted[_unit_of(case)]
    # Of a lease that is known here it is known too where it ended.
    ended = [each.grant for each in known]
    told = [each for each in case.promised if each.grant not in ended]
    promised = [each for each in (*told, *known) if each.interval.start_ms < each.interval.end_ms]
    given = dict.fromkeys(each.interval for each in promised)
    # One interval for two requests cheats a renter as two that overlap do, and looks like one.
    requests = dict.fromkeys((each.interval, each.renter, each.nonce) for each in promised)
    begun = [(each.interval.start_ms, each.interval.ctr) for each in known]
    open_ones = (each for each in case.reserved if (each.start_ms, each.ctr) not in begun)
    leased = tuple(dict.fromkeys((*open_ones, *given)))
    is_harmless = is_disjoint(leased) and len(given) == len(requests)
    return APART if is_harmless else case.offence.rule


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
    """What the entries leave open of the unit, each interval once, sorted."""
    unit = offence.key[1:17]
    bodies = (read_body(entry.draft) for entry in entries)
    turns = (turn_in(body, unit) for body in bodies if isinstance(body, Grant | Release))
    opened = (each for turn in turns if turn is not None for each in turn.open)
    return tuple(sorted(dict.fromkeys(opened)))


def _promised(offence: Offence, entries: list[Entry], net: NetId) -> tuple[Promise, ...]:
    """The leases of the unit that the entries grant, each once, by entry.

    Evidence is no judgement of requests: one that does not hold promises nobody anything.
    """
    unit = offence.key[1:17]
    promised: list[Promise] = []
    for entry in (each for each in entries if each.feed == offence.offender):
        body = read_body(entry.draft)
        turn = turn_in(body, unit) if isinstance(body, Grant) else None
        if not isinstance(body, Grant) or turn is None or body.start_ms >= body.end_ms:
            continue
        try:
            request = unpack(body.request, net, LeaseRequest)
        except PeerFault:
            continue
        interval = Interval(body.start_ms, body.end_ms, turn.ctr)
        nonce = request.body.nonce
        promised.append(Promise(entry.id, interval, request.signer, nonce))
    return tuple(dict.fromkeys(promised))
