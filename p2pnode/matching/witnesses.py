"""A renter's side of witnessed leases: gathers cosignatures, tells on who signs twice.

`protocol/SPEC.md` section 17.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import trio
from msgspec import UNSET

from ledger.bodies import Grant, read_body
from ledger.entry import Entry, check_seal, read_entry
from ledger.fold import Lease
from ledger.ledger import Ledger
from ledger.message_evidence import prove_cosigned_twice
from ledger.unit_evidence import prove_same_counter
from ledger.validity import check_body
from ledger.witness_bodies import (
    Cosign,
    Cosigned,
    CosignedTurn,
    Cosigning,
    is_cosigned,
    read_cosign,
    turns_to_cosign,
)
from p2pnode.clock import WallClock
from p2pnode.matching.let_go import letting_go
from protocol.codec import decode, encode
from protocol.errors import PeerFault, Unavailable
from protocol.lease_stream import LeaseName
from protocol.limits import FRAME_BYTES_MAX
from protocol.signing import Signer
from protocol.units import Digest, PeerId, PublicKey, Signature
from protocol.witness import OtherGrant, WitnessAnswer, WitnessAsk

log = logging.getLogger(__name__)

COSIGN_S: Final = 3.0
"""Witnesses that have not answered by then are counted as silent."""
FETCH_S: Final = 3.0
"""For the owner's feed, which we need anyway before we take the lease."""
PROBE_S: Final = 5.0
"""A job that has lost its owner waits no longer than this for witnesses to look after it."""

SEEN_MAX: Final = 1_024
"""Turns of which this node remembers what it was shown: those of its last hundred leases."""

_Turn = tuple[PublicKey, PublicKey, bytes, int]
"""Witness, owner, unit, counter."""
Fetch = Callable[[PeerId, PublicKey, int], Awaitable[None]]
"""fetch(peer, feed, seq): the feed is here up to there. Raises Unavailable or PeerFault."""
AskFeed = Callable[[PublicKey, str, bytes], Awaitable[bytes]]
"""ask(feed, kind, body). Raises Unavailable."""


@dataclass(slots=True)
class _Gathered:
    """What the witnesses of one GRANT have said so far."""

    entry: Entry
    owner: PublicKey
    turns: tuple[CosignedTurn, ...]
    quorum: int
    enough: trio.CancelScope
    signed: dict[PublicKey, Cosigning] = field(default_factory=dict)
    conflict: str = ""


class Witnesses:
    """Asks those that a request of ours has named."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        signer: Signer,
        ask_feed: AskFeed,
        fetch: Fetch,
        clock: WallClock,
    ) -> None:
        self._ledger = ledger
        self._signer = signer
        self._ask_feed = ask_feed
        self._fetch = fetch
        self._clock = clock
        self._seen: OrderedDict[_Turn, tuple[Cosign, Signature]] = OrderedDict()

    async def gather(self, peer: PeerId, raw: bytes, request: bytes) -> Cosigned | None:
        """What the quorum of our witnesses has signed for this GRANT; None if we named none.

        `peer` is its owner's.

        Raises PeerFault if the GRANT does not hold or is not for this request, and
        `witness.conflict` if one of its turns is in another GRANT too; Unavailable if too few
        have signed in time.
        """
        entry, grant = self._read(raw, request)
        if grant.witnesses is UNSET or grant.quorum is UNSET:
            return None
        await self._learn_feed(peer, entry)
        gathered = _Gathered(
            entry=entry,
            owner=entry.feed,
            turns=tuple(CosignedTurn(turn.unit, turn.ctr) for turn in grant.units),
            quorum=grant.quorum,
            enough=trio.CancelScope(),
        )
        with trio.move_on_after(COSIGN_S), gathered.enough:
            async with trio.open_nursery() as nursery:
                for witness in grant.witnesses:
                    nursery.start_soon(self._ask, witness, gathered)
        if gathered.conflict:
            raise PeerFault("witness.conflict", gathered.conflict)
        if len(gathered.signed) < gathered.quorum:
            await self._let_go(entry, grant)
            raise Unavailable(
                f"{len(gathered.signed)} of {len(grant.witnesses)} witnesses have cosigned, "
                f"{gathered.quorum} are needed"
            )
        by = tuple(gathered.signed[witness] for witness in sorted(gathered.signed))
        return Cosigned(gathered.owner, gathered.turns, by)

    async def _learn_feed(self, peer: PeerId, entry: Entry) -> None:
        """We have the owner's feed, if it can be had: witnesses that never met it ask us for it."""
        try:
            with trio.fail_after(FETCH_S):
                await self._fetch(peer, entry.feed, entry.seq)
        except (Unavailable, trio.TooSlowError) as error:
            log.info("feed not here", extra={"owner": entry.feed.hex(), "why": str(error)})

    async def _let_go(self, entry: Entry, grant: Grant) -> None:
        """Consent to the end of a lease that we do not take, so that its units are free again."""
        body = letting_go(
            entry, grant, signer=self._signer, net=self._ledger.net, now=self._clock.now()
        )
        try:
            with trio.fail_after(COSIGN_S):
                await self._ask_feed(entry.feed, "lease.settle", body)
        except (Unavailable, trio.TooSlowError) as error:
            log.info("not let go", extra={"lease": entry.id.hex(), "why": str(error)})

    async def call(self, lease: Lease) -> None:
        """Ask the witnesses of a lease of ours to look whether its owner answers for it."""
        named = () if lease.request.witnesses is UNSET else lease.request.witnesses
        with trio.move_on_after(PROBE_S):
            async with trio.open_nursery() as nursery:
                for witness in named:
                    nursery.start_soon(self._ask_to_probe, witness, lease.id)

    async def _ask_to_probe(self, witness: PublicKey, lease: Digest) -> None:
        try:
            await self._ask_feed(witness, "witness.probe", encode(LeaseName(lease=lease)))
        except Unavailable as error:
            log.info("not probed", extra={"witness": witness.hex(), "why": str(error)})

    def _read(self, raw: bytes, request: bytes) -> tuple[Entry, Grant]:
        """The GRANT, judged but for its place in its feed."""
        entry = read_entry(raw, self._ledger.net)
        check_seal(entry, self._ledger.net)
        grant = read_body(entry.draft)
        if not isinstance(grant, Grant):
            raise PeerFault("grant.kind")
        if grant.request != request:
            raise PeerFault("grant.lease", "for another request")
        check_body(grant, entry.header, self._ledger.net)
        return entry, grant

    async def _ask(self, witness: PublicKey, gathered: _Gathered) -> None:
        try:
            asked = encode(WitnessAsk(grant=gathered.entry.raw))
            body = await self._ask_feed(witness, "witness.cosign", asked)
            answer = decode(body, WitnessAnswer, size_max=FRAME_BYTES_MAX)
            if answer.no is not UNSET:
                self._hear_no(witness, answer.no, gathered)
                return
            assert answer.yes is not UNSET
            signed = Cosigning(witness, answer.yes.at_ms, answer.yes.by)
            self._hear_yes(signed, gathered)
        except Unavailable as error:
            log.info("not cosigned", extra={"witness": witness.hex(), "why": str(error)})
        except PeerFault as fault:
            log.warning("not cosigned", extra={"witness": witness.hex(), "why": str(fault)})

    def _hear_yes(self, signed: Cosigning, gathered: _Gathered) -> None:
        items = turns_to_cosign(gathered.owner, gathered.turns, gathered.entry.id, signed.at_ms)
        if not is_cosigned(signed, items, self._ledger.net):
            raise PeerFault("witness.answer", "not signed by the witness")
        for said, by in zip(items, signed.by, strict=True):
            if self._is_signed_twice(signed.witness, said, by):
                self._stop(gathered, "a witness has signed another GRANT of the turn too")
                return
        gathered.signed[signed.witness] = signed
        if len(gathered.signed) >= gathered.quorum:
            gathered.enough.cancel()

    def _hear_no(self, witness: PublicKey, no: OtherGrant, gathered: _Gathered) -> None:
        said = read_cosign(no.item)
        is_about = said.owner == gathered.owner and said.grant != gathered.entry.id
        turn = CosignedTurn(said.unit, said.ctr)
        signed = Cosigning(witness, said.at_ms, (no.by,))
        if not is_about or turn not in gathered.turns:
            raise PeerFault("witness.answer", "about none of the turns")
        if not is_cosigned(signed, (said,), self._ledger.net):
            raise PeerFault("witness.answer", "not signed by the witness")
        self._is_signed_twice(witness, said, no.by)
        if no.grant is UNSET:
            return
        other = read_entry(no.grant, self._ledger.net)
        if other.id != said.grant:
            raise PeerFault("witness.answer", "another GRANT than it has signed")
        # The evidence is judged as anybody's: what proves nothing is the witness's fault.
        self._ledger.accuse(prove_same_counter(said.unit, gathered.entry, other))
        self._stop(gathered, "a witness has shown another GRANT of the turn")

    def _is_signed_twice(self, witness: PublicKey, said: Cosign, by: Signature) -> bool:
        """Whether the witness has signed for another GRANT too; then that is kept as evidence.

        What renters have shown in their feeds is asked, and what this node has been shown itself.
        """
        turn = (witness, said.owner, said.unit, said.ctr)
        found = self._ledger.state.cosigns(*turn)
        if turn in self._seen:
            found.append(self._seen[turn])
        self._seen[turn] = (said, by)
        while len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        others = [(other, sig) for other, sig in found if other.grant != said.grant]
        for other, sig in others:
            one = (encode(said), by)
            self._ledger.accuse(prove_cosigned_twice(witness, one, (encode(other), sig)))
        return bool(others)

    def _stop(self, gathered: _Gathered, why: str) -> None:
        gathered.conflict = why
        gathered.enough.cancel()
