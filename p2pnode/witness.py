"""What this node does for others as a witness: cosigns grants, looks after their leases.

`protocol/SPEC.md` section 17. Anybody may ask, so what one peer can cause is bounded.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

import trio
from msgspec import UNSET, Meta

from ledger.bodies import Grant, read_body, requested
from ledger.entry import Entry, check_seal, read_entry
from ledger.fold import Lease
from ledger.ledger import Ledger
from ledger.validity import check_body
from ledger.witness_bodies import (
    Cosign,
    CosignedTurn,
    Probe,
    Verdict,
    read_cosign,
    sign_cosign,
    turns_to_cosign,
)
from p2pnode.cabinet import Cabinet
from p2pnode.clock import WallClock
from p2pnode.network.budget import Budget
from p2pnode.network.exchange import PEERS_MAX, Handler
from protocol.certificate import Certificate
from protocol.codec import Hash, Id16, Seal, UInt, Wire, decode, encode
from protocol.errors import PeerFault, Unavailable
from protocol.lease_stream import LeaseName
from protocol.limits import COSIGN_BYTES_MAX, FRAME_BYTES_MAX, REPLY_BYTES_MAX
from protocol.signing import Signer
from protocol.units import Digest, Millis, NetId, PeerId, PublicKey
from protocol.witness import Cosignatures, OtherGrant, WitnessAnswer, WitnessAsk

log = logging.getLogger(__name__)

ASKED_PER_S: Final = 0.5
ASKED_BURST: Final = 30
"""Each costs a synced write, so a peer gets as many as somebody who rents all day."""
UNITS_KEPT_MAX: Final = 128
"""Units of one owner: their records, each with its GRANT, make half of one in the cabinet."""
OWNERS_KEPT_MAX: Final = 16_384
"""Owners whose units are kept. Nothing is forgotten to make room: that would be signing anew."""
NEW_PER_S: Final = 64 / 3_600
NEW_BURST: Final = 64
"""Owners of whom nothing was kept that one peer may bring: all places in ten days."""
ALL_NEW_PER_S: Final = 128 / 3_600
ALL_NEW_BURST: Final = 1_024
"""All peers together, since peers are made up as easily as owners: five days for them."""
FETCH_S: Final = 2.0
"""For the feed of an owner that we never met; the renter waits three for our answer."""
KEPT_BYTES_MAX: Final = UNITS_KEPT_MAX * (REPLY_BYTES_MAX + 512)
NAME_BYTES_MAX: Final = 512
PROBE_S: Final = 3.0
"""An owner that has not answered by then has failed."""
FOLDER: Final = "witness"


class KeptTurn(Wire, frozen=True, kw_only=True):
    """The last turn of a unit that we have cosigned."""

    unit: Id16
    ctr: UInt
    grant: Hash
    item: Annotated[bytes, Meta(max_length=COSIGN_BYTES_MAX)]
    by: Seal
    entry: Annotated[bytes, Meta(max_length=REPLY_BYTES_MAX)]


class KeptTurns(Wire, frozen=True, kw_only=True):
    """All of one owner, in the order of their units."""

    turns: Annotated[tuple[KeptTurn, ...], Meta(max_length=UNITS_KEPT_MAX)] = ()


class Witness:
    """Signs for one turn once. What it has signed is in the cabinet before it leaves."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        signer: Signer,
        cabinet: Cabinet,
        who_is: Callable[[PeerId], Certificate],
        ask_feed: Callable[[PublicKey, str, bytes], Awaitable[bytes]],
        fetch: Callable[[PeerId, PublicKey], Awaitable[None]],
        grown: Callable[[], None],
        is_willing: bool,
        clock: WallClock,
    ) -> None:
        """`fetch` brings our copy of a feed up to what a peer has; raises PeerFault.

        `grown` is called when our feed has; `is_willing` is the choice of the node's owner.
        """
        self._ledger = ledger
        self._signer = signer
        self._cabinet = cabinet
        self._who_is = who_is
        self._ask_feed = ask_feed
        self._fetch = fetch
        self._grown = grown
        self._is_willing = is_willing
        self._clock = clock
        self._asked: Budget[PeerId] = Budget(
            per_s=ASKED_PER_S, burst=ASKED_BURST, keys_max=PEERS_MAX
        )
        self._new: Budget[PeerId] = Budget(per_s=NEW_PER_S, burst=NEW_BURST, keys_max=PEERS_MAX)
        self._all_new: Budget[None] = Budget(per_s=ALL_NEW_PER_S, burst=ALL_NEW_BURST, keys_max=1)
        self._owners: int | None = None
        """Of how many owners something is kept; None until that is counted."""
        self._probing: dict[Digest, None] = {}
        self.cosigned = 0
        """GRANTs, since this node came up."""

    @property
    def handlers(self) -> dict[str, Handler]:
        """The questions that this part answers."""
        return {"witness.cosign": self._answer_cosign, "witness.probe": self._answer_probe}

    def _check_asker(self, peer: PeerId) -> PublicKey:
        """The feed of the peer, which may ask now. Raises Unavailable."""
        if not self._is_willing:
            raise Unavailable("this node is no witness")
        if not self._asked.is_within(peer, trio.current_time()):
            raise Unavailable("asked too often")
        return self._who_is(peer).feed

    async def _answer_cosign(self, peer: PeerId, body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        asker = self._check_asker(peer)
        raw = decode(body, WitnessAsk, size_max=FRAME_BYTES_MAX).grant
        entry, grant = granted_in(raw, self._ledger.net)
        renter, _ = requested(grant)
        named = () if grant.witnesses is UNSET else grant.witnesses
        if renter != asker or self._ledger.feed not in named:
            raise PeerFault("witness.grant", "not the asking peer's, or we are not named")
        if self._cabinet.get(_name(entry.feed)) is None:
            self._check_goes_on(grant)
            await self._meet_owner(peer, entry.feed)
        return encode(self.cosign(entry, grant))

    def _check_goes_on(self, grant: Grant) -> None:
        """Raises Unavailable for a lease that is over: late is no fault, and nobody takes it."""
        if grant.end_ms <= self._clock.now():
            raise Unavailable("the lease is over")

    async def _meet_owner(self, peer: PeerId, owner: PublicKey) -> None:
        """An owner of whom nothing is kept has its feed in our ledger on return.

        Anybody can make up owners, and what is kept of one is kept for good. Raises Unavailable or
        PeerFault.
        """
        now_s = trio.current_time()
        if self._all_new.left(None, now_s) < 1 or not self._new.is_within(peer, now_s):
            raise Unavailable("too many new owners")
        self._all_new.draw(None, now_s)
        if self._ledger.head(owner) is None:
            with trio.move_on_after(FETCH_S):
                await self._fetch(peer, owner)
        if self._ledger.head(owner) is None:
            raise Unavailable("the owner's feed is not here")

    def cosign(self, entry: Entry, grant: Grant) -> WitnessAnswer:
        """Our signatures for the turns of this GRANT, or what we have signed for one before.

        Raises Unavailable if a later turn was cosigned, the lease is over or too much is kept;
        LocalFault.
        """
        name = _name(entry.feed)
        record = self._cabinet.get(name)
        kept = {turn.unit: turn for turn in _read(record).turns}
        turns = tuple(CosignedTurn(turn.unit, turn.ctr) for turn in grant.units)
        for turn in turns:
            if (other := self._other(entry, turn, kept.get(turn.unit))) is not None:
                return WitnessAnswer(no=other)
        before = [kept.get(turn.unit) for turn in turns]
        same = [each for each in before if each is not None and each.grant == entry.id]
        if len(same) == len(turns):
            at_ms = read_cosign(same[0].item).at_ms
            return WitnessAnswer(yes=Cosignatures(at_ms=at_ms, by=tuple(each.by for each in same)))
        self._check_goes_on(grant)
        items = turns_to_cosign(entry.feed, turns, entry.id, self._clock.now())
        signed = tuple(self._kept(said, entry) for said in items)
        kept.update((each.unit, each) for each in signed)
        owners = self._count_owners() + (record is None)
        if len(kept) > UNITS_KEPT_MAX or owners > OWNERS_KEPT_MAX:
            raise Unavailable("too many units are kept")
        self._cabinet.put(name, encode(KeptTurns(turns=tuple(kept[unit] for unit in sorted(kept)))))
        self._owners = owners
        self.cosigned += 1
        log.info("grant cosigned", extra={"lease": entry.id.hex(), "owner": entry.feed.hex()})
        by = tuple(each.by for each in signed)
        return WitnessAnswer(yes=Cosignatures(at_ms=items[0].at_ms, by=by))

    def _other(self, entry: Entry, turn: CosignedTurn, kept: KeptTurn | None) -> OtherGrant | None:
        """What we have signed for another GRANT of this turn. Raises Unavailable if for a later."""
        if kept is not None and kept.ctr > turn.ctr:
            raise Unavailable("a later turn of the unit was cosigned")
        if kept is not None and kept.ctr == turn.ctr and kept.grant != entry.id:
            return OtherGrant(item=kept.item, by=kept.by, grant=kept.entry)
        # Our cabinet may be older than what we have signed; renters show that in their feeds.
        own = self._ledger.feed
        for said, by in self._ledger.state.cosigns(own, entry.feed, turn.unit, turn.ctr):
            if said.grant != entry.id:
                other = self._ledger.entry(said.grant)
                return OtherGrant(
                    item=encode(said), by=by, grant=UNSET if other is None else other.raw
                )
        return None

    def _kept(self, said: Cosign, entry: Entry) -> KeptTurn:
        return KeptTurn(
            unit=said.unit,
            ctr=said.ctr,
            grant=said.grant,
            item=encode(said),
            by=sign_cosign(said, signer=self._signer, net=self._ledger.net),
            entry=entry.raw,
        )

    def _count_owners(self) -> int:
        # Once in each life: to list a full folder takes a twentieth of a second.
        if self._owners is None:
            self._owners = len(self._cabinet.names(FOLDER))
        return self._owners

    async def _answer_probe(self, peer: PeerId, body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        asker = self._check_asker(peer)
        asked = decode(body, LeaseName, size_max=NAME_BYTES_MAX)
        lease = self._ledger.lease(asked.lease)
        if lease is None or not lease.is_accepted:
            raise Unavailable("the lease is not known here yet")
        named = () if lease.request.witnesses is UNSET else lease.request.witnesses
        if lease.renter != asker or self._ledger.feed not in named:
            raise PeerFault("witness.lease", "not the asking peer's, or we are not named")
        return await self.probe(lease)

    async def probe(self, lease: Lease) -> bytes:
        """Our PROBE of the lease for the period that it is now; one is written if there is none.

        Raises Unavailable if one is under way, or the period ended meanwhile; PeerFault
        `witness.lease` if the lease does not run; LocalFault.
        """
        period = period_of(lease, self._clock.now())
        if (known := self._said(lease.id, period)) is not None:
            return known
        if lease.id in self._probing:
            raise Unavailable("a probe is under way")
        self._probing[lease.id] = None
        try:
            verdict = await self._try(lease)
        finally:
            del self._probing[lease.id]
        now = self._clock.now()
        if period_of(lease, self._ledger.clamped(now)) != period:
            raise Unavailable("the period ended meanwhile")
        said = Probe(lease=lease.id, period=period, verdict=verdict)
        entry = self._ledger.append(said, now)
        self._grown()
        log.info("lease probed", extra={"lease": lease.id.hex(), "verdict": verdict})
        return entry.raw

    async def _try(self, lease: Lease) -> Verdict:
        asked = encode(LeaseName(lease=lease.id))
        try:
            with trio.fail_after(PROBE_S):
                await self._ask_feed(lease.owner, "lease.alive", asked)
        except (Unavailable, trio.TooSlowError):
            return "fail"
        return "ok"

    def _said(self, lease: Digest, period: int) -> bytes | None:
        """What we have said of this period."""
        for probe, said in self._ledger.state.probes(lease, period).items():
            entry = self._ledger.entry(probe)
            if said.witness == self._ledger.feed and entry is not None:
                return entry.raw
        return None


def _name(owner: PublicKey) -> str:
    return f"{FOLDER}/{owner.hex()}"


def granted_in(raw: bytes, net: NetId) -> tuple[Entry, Grant]:
    """The GRANT in these bytes, judged but for its place in its feed.

    Raises PeerFault `entry.*`, those of the kind, or `witness.grant`.
    """
    entry = read_entry(raw, net)
    check_seal(entry, net)
    body = read_body(entry.draft)
    if not isinstance(body, Grant):
        raise PeerFault("witness.grant", "no GRANT")
    check_body(body, entry.header, net)
    return entry, body


def period_of(lease: Lease, now: Millis) -> int:
    """The period of the lease in which this instant lies. Raises PeerFault `witness.lease`."""
    request = lease.request
    if not request.start_ms <= now < lease.ended_ms or request.period_ms == 0:
        raise PeerFault("witness.lease", "it does not run now")
    return (now - request.start_ms) // request.period_ms


def _read(record: bytes | None) -> KeptTurns:
    """What we have signed for one owner. Raises Unavailable: not knowing it, we sign nothing."""
    if record is None:
        return KeptTurns()
    try:
        return decode(record, KeptTurns, size_max=KEPT_BYTES_MAX)
    except PeerFault as fault:
        log.warning("a record of what we cosigned is damaged", extra={"why": str(fault)})
        raise Unavailable("what was cosigned before cannot be read") from fault
