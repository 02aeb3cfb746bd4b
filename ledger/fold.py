"""What a set of entries adds up to: leases, units, accounts, forks. SPEC.md section 7.

The state depends on the set alone, never on the order or on repetition. It keeps facts under what
names them and decides only when it is asked.
"""

from bisect import bisect_left
from dataclasses import dataclass

from msgspec import UNSET

from ledger.bodies import (
    Accept,
    Body,
    Genesis,
    Grant,
    GrantTurn,
    Reason,
    Release,
    ReleaseTurn,
    Statement,
    read_body,
    requested,
)
from ledger.capability_bodies import Capacity
from ledger.checkpoints import CheckpointPart
from ledger.continuity_bodies import Checkpoint, Successor
from ledger.entry import Entry
from ledger.rail_bodies import RailCapture, RailHold, RailTold, RailVoid, told_by
from ledger.statements import is_answer
from ledger.units_chain import Turn, turns_of
from ledger.witness_bodies import Cosign, Cosigned, Probe, Verdict, cosigns_in, witnesses_of
from protocol.certificate import certificate_known
from protocol.lease import LeaseRequest
from protocol.units import Digest, Millis, PublicKey, Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """A GRANT as it was written."""

    owner: PublicKey
    seq: int
    renter: PublicKey
    request: LeaseRequest
    witnesses: tuple[PublicKey, ...]
    quorum: int
    """How many of the witnesses must agree; zero where none are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A RELEASE as it was written."""

    owner: PublicKey
    at_ms: Millis
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """A PROBE as it was written: one witness's word."""

    witness: PublicKey
    seq: int
    ts_ms: Millis
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What is known of a lease; that its time is over by itself is for the reader's clock."""

    id: Digest
    owner: PublicKey
    renter: PublicKey
    request: LeaseRequest
    """Units, interval, tier, price and all else that both agreed to."""
    is_accepted: bool
    """Whether the renter has written its half."""
    ended_ms: Millis
    """Where the lease ends: as agreed, or where a RELEASE has put it."""
    reason: Reason | None
    """Of the RELEASE that ended it; None while there is none."""
    is_forked: bool
    """Whether the GRANT stands at or after a fork: it binds its owner and gives it no right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One side's STATEMENT and where it stands."""

    author: PublicKey
    seq: int
    id: Digest
    ts_ms: Millis
    rules: bytes
    """The bundle that its author judged by."""
    statement: Statement


_WitnessedTurn = tuple[PublicKey, PublicKey, bytes, int]
"""Witness, owner, unit, counter."""
Account = tuple[PublicKey, PublicKey, str, bool]
"""Author, peer, unit of money, and whether its halves answer those of the peer."""


class State:
    """The fold of all entries applied so far. One owner."""

    def __init__(self) -> None:
        self._granted: dict[Digest, Granted] = {}
        self._between: dict[tuple[PublicKey, PublicKey], dict[Digest, None]] = {}
        self._accepted: dict[Digest, dict[PublicKey, None]] = {}
        self._cosigned: dict[Digest, dict[tuple[PublicKey, Digest], Cosigned]] = {}
        self._cosigns: dict[_WitnessedTurn, dict[tuple[Digest, Millis], Signature]] = {}
        self._rails: dict[Digest, dict[RailTold, None]] = {}
        self._released: dict[Digest, dict[Digest, Released]] = {}
        self._turns: dict[tuple[PublicKey, bytes], Turn] = {}
        self._halves: dict[Account, list[Half]] = {}
        self._units: dict[PublicKey, dict[bytes, None]] = {}
        self._accounts: dict[PublicKey, dict[Account, None]] = {}
        self._forks: dict[PublicKey, int] = {}
        self._devices: dict[tuple[PublicKey, bytes], dict[Digest, bytes]] = {}
        self._roots: dict[PublicKey, dict[PublicKey, None]] = {}  # a fork at 0 can have many
        self._of_root: dict[PublicKey, dict[PublicKey, None]] = {}
        self._ended: dict[tuple[PublicKey, PublicKey | None], int] = {}
        self._checkpoints: dict[PublicKey, dict[Digest, CheckpointPart]] = {}
        self._probes: dict[tuple[Digest, int], dict[Digest, Probed]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def lease(self, grant: Digest) -> Lease | None:
        """The lease of this GRANT, if the GRANT is here."""
        granted = self._granted.get(grant)
        if granted is None:
            return None
        release = self._release_of(grant, granted.owner)
        agreed = granted.request.end_ms
        return Lease(
            id=grant,
            owner=granted.owner,
            renter=granted.renter,
            request=granted.request,
            is_accepted=granted.renter in self._accepted.get(grant, {}),
            ended_ms=agreed if release is None else Millis(min(agreed, release.at_ms)),
            reason=None if release is None else release.reason,
            is_forked=self.is_forked(granted.owner, granted.seq),
        )

    def _release_of(self, grant: Digest, owner: PublicKey) -> Released | None:
        """The release that ends the lease earliest; among equals the one with the smaller id."""
        ends = [
            (release.at_ms, release_id, release)
            for release_id, release in self._released.get(grant, {}).items()
            if release.owner == owner
        ]
        return min(ends, key=lambda end: end[:2])[2] if ends else None

    def leases_of(self, owner: PublicKey, renter: PublicKey) -> list[Digest]:
        """The leases between these two, sorted."""
        return sorted(self._between.get((owner, renter), {}))

    def leases(self) -> list[Lease]:
        """All leases, in the order of their ids."""
        found = (self.lease(grant) for grant in sorted(self._granted))
        return [lease for lease in found if lease is not None]

    def turn(self, owner: PublicKey, unit: bytes) -> Turn | None:
        """The newest entry of the owner's unit; where counters are equal, the smaller id."""
        return self._turns.get((owner, unit))

    def units_of(self, owner: PublicKey) -> list[bytes]:
        """All units of which the owner has written a turn, sorted."""
        return sorted(self._units.get(owner, {}))

    def accounts_of(self, author: PublicKey) -> list[Account]:
        """All accounts of which the author has written a half, sorted."""
        return sorted(self._accounts.get(author, {}))

    def accounts(self) -> list[Account]:
        """All accounts in which a half is here, sorted."""
        return sorted(self._halves)

    def halves(
        self, author: PublicKey, peer: PublicKey, *, money: str, is_answer: bool = False
    ) -> list[Half]:
        """The author's statements of its account with the peer, by counter, then id.

        Those by which it is owed, or with `is_answer` those by which it owes.
        """
        return list(self._halves.get((author, peer, money, is_answer), ()))

    def last_half(
        self, author: PublicKey, peer: PublicKey, *, money: str, is_answer: bool = False
    ) -> Half | None:
        """The author's last statement, on whichever branch."""
        halves = self._halves.get((author, peer, money, is_answer))
        return halves[-1] if halves else None

    def units_of_device(self, owner: PublicKey, fingerprint: bytes) -> dict[Digest, bytes]:
        """What the owner's CAPACITY entries call this device: id of the entry -> unit."""
        return dict(self._devices.get((owner, fingerprint), {}))

    def probes(self, lease: Digest, period: int) -> dict[Digest, Probed]:
        """What was found in a period of a lease, by whomever, by the ids of the entries."""
        return dict(self._probes.get((lease, period), {}))

    def checkpoints(self, author: PublicKey) -> list[CheckpointPart]:
        """The author's checkpoints, each part by itself, by the ids of their entries."""
        return [part for _, part in sorted(self._checkpoints.get(author, {}).items())]

    def probed(self) -> list[tuple[Digest, int]]:
        """The leases and periods of which anybody has said something, sorted."""
        return sorted(self._probes)

    def witnessed(self, grant: Digest) -> tuple[PublicKey, ...]:
        """The witnesses that the GRANT names who have cosigned it, as its renter shows; sorted."""
        granted = self._granted.get(grant)
        shown = self._cosigned.get(grant, {})
        if granted is None:
            return ()
        signed = (
            witness
            for (renter, _), cosigned in shown.items()
            if renter == granted.renter
            for witness in witnesses_of(
                cosigned,
                owner=granted.owner,
                turns=granted.request.units,
                named=granted.witnesses,
            )
        )
        return tuple(sorted(dict.fromkeys(signed)))

    def cosigns(
        self, witness: PublicKey, owner: PublicKey, unit: bytes, ctr: int
    ) -> list[tuple[Cosign, Signature]]:
        """What this witness has signed for the turn, by grant, then instant."""
        found = self._cosigns.get((witness, owner, unit, ctr), {})
        return [
            (Cosign(owner, unit, ctr, grant, at_ms), by)
            for (grant, at_ms), by in sorted(found.items())
        ]

    def rail_told(self, lease: Digest) -> list[RailTold]:
        """What rails have sealed about this lease, as either side has told; sorted."""
        return sorted(self._rails.get(lease, {}))

    def granted(self, grant: Digest) -> Granted | None:
        """The GRANT with this id as it was written."""
        return self._granted.get(grant)

    def fork_of(self, feed: PublicKey) -> int | None:
        """Where the feed is known to fork, lowest place first; None if it is not."""
        return self._forks.get(feed)

    def is_forked(self, feed: PublicKey, seq: int) -> bool:
        """Whether this place is at or after a fork of its feed, or where its account ended it."""
        root = min(self._roots.get(feed, ()), default=None)
        ended = self._ended.get((feed, root), seq + 1)
        return seq >= min(self._forks.get(feed, seq + 1), ended)

    def feeds_of_account(self, feed: PublicKey) -> list[PublicKey]:
        """The feeds here whose first entries name the same root key as this one's, sorted.

        The feed alone if its own first entry is not here. Two first entries of one feed make one
        account of two: else a second one would free the others of what the feed has done.
        """
        feeds, left, known = {feed: None}, [feed], dict[PublicKey, None]()
        while left:
            for root in self._roots.get(left.pop(), {}).keys() - known:
                known[root] = None
                left += [other for other in self._of_root[root] if other not in feeds]
                feeds |= self._of_root[root]
        return sorted(feeds)

    def fork(self, feed: PublicKey, seq: int) -> None:
        """Learns that the feed forks there; the lowest place known is kept."""
        self._forks[feed] = min(seq, self._forks.get(feed, seq))

    def apply(self, entry: Entry) -> None:
        """Adds what an entry says that was judged; one of an unknown kind says nothing."""
        self.add(entry, read_body(entry.draft))

    def add(self, entry: Entry, body: Body | None) -> None:
        """As `apply`, where the entry's body has been read already."""
        self._apply_turns(entry, turns_of(body))
        match body:
            case Grant():
                renter, request = requested(body)
                self._between.setdefault((entry.feed, renter), {})[entry.id] = None
                self._granted[entry.id] = Granted(
                    owner=entry.feed,
                    seq=entry.seq,
                    renter=renter,
                    request=request,
                    witnesses=body.witnesses or (),
                    quorum=body.quorum or 0,
                )
            case Release():
                self._released.setdefault(body.grant, {})[entry.id] = Released(
                    owner=entry.feed, at_ms=body.at_ms, reason=body.reason
                )
            case Accept():
                self._accepted.setdefault(body.grant, {})[entry.feed] = None
                self._apply_cosigned(entry, body)
            case Statement():
                half = Half(
                    author=entry.feed,
                    seq=entry.seq,
                    id=entry.id,
                    ts_ms=entry.header.ts_ms,
                    rules=entry.header.rules,
                    statement=body,
                )
                account = (entry.feed, body.peer, body.money, is_answer(body))
                self._accounts.setdefault(entry.feed, {})[account] = None
                _insert(self._halves.setdefault(account, []), half)
            case _:
                self._add_other(entry, body)

    def _add_other(self, entry: Entry, body: Body | None) -> None:
        """What is neither a lease nor an account."""
        match body:
            case Capacity():
                for each in body.units:
                    device = (entry.feed, each.fingerprint)
                    self._devices.setdefault(device, {})[entry.id] = each.unit
            case Genesis():
                root = certificate_known(body.certificate).root
                self._roots.setdefault(entry.feed, {})[root] = None
                self._of_root.setdefault(root, {})[entry.feed] = None
            case Successor():
                old = certificate_known(body.certificate)
                ended = (old.feed, old.root)  # who has a feed's key can certify it by another root
                self._ended[ended] = min(body.ended, self._ended.get(ended, body.ended))
            case Checkpoint():
                part = CheckpointPart(
                    upto=body.upto,
                    start=body.start,
                    stop=None if body.stop is UNSET else body.stop,
                    ts_ms=entry.header.ts_ms,
                )
                self._checkpoints.setdefault(entry.feed, {})[entry.id] = part
            case Probe():
                period = (body.lease, body.period)
                self._probes.setdefault(period, {})[entry.id] = Probed(
                    witness=entry.feed,
                    seq=entry.seq,
                    ts_ms=entry.header.ts_ms,
                    verdict=body.verdict,
                )
            case RailHold() | RailCapture() | RailVoid():
                told = told_by(body)
                self._rails.setdefault(told.lease, {})[told] = None
            case _:
                pass

    def _apply_cosigned(self, entry: Entry, body: Accept) -> None:
        if body.cosigned is UNSET:
            return
        grant = Digest(body.grant)
        self._cosigned.setdefault(grant, {})[entry.feed, entry.id] = body.cosigned
        for witness, said, by in cosigns_in(body.cosigned, grant):
            turn = (witness, said.owner, said.unit, said.ctr)
            found = self._cosigns.setdefault(turn, {})
            # A signer can make several signatures over the same bytes: the smallest is kept, so
            # that order changes nothing.
            found[grant, said.at_ms] = min(by, found.get((grant, said.at_ms), by))

    def _apply_turns(self, entry: Entry, turns: tuple[GrantTurn | ReleaseTurn, ...]) -> None:
        for turn in turns:
            new = Turn(ctr=turn.ctr, seq=entry.seq, id=entry.id, open=turn.open)
            unit = (entry.feed, turn.unit)
            self._units.setdefault(entry.feed, {})[turn.unit] = None
            old = self._turns.get(unit)
            if old is None or (-new.ctr, new.id) < (-old.ctr, old.id):
                self._turns[unit] = new


def _order(half: Half) -> tuple[int, Digest]:
    return half.statement.ctr, half.id


def _insert(halves: list[Half], new: Half) -> None:
    """Puts the half where it belongs, unless it is there."""
    if not halves or _order(halves[-1]) < _order(new):
        halves.append(new)
        return
    place = bisect_left(halves, _order(new), key=_order)
    if halves[place : place + 1] != [new]:
        halves.insert(place, new)
