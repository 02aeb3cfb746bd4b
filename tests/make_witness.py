"""A witness over memory, for tests, and the renter that asks it."""

from dataclasses import dataclass, field

import trio
from msgspec import UNSET

from ledger.bodies import Grant
from ledger.entry import Entry
from ledger.ledger import Ledger
from ledger.witness_bodies import Cosigning, is_cosigned, turns_to_cosign
from p2pnode.cabinet import Cabinet, MemoryCabinet
from p2pnode.witness import (
    Witness,
)
from protocol.certificate import Certificate, read_certificate
from protocol.codec import decode, encode
from protocol.errors import Unavailable
from protocol.lease_stream import LeaseName
from protocol.limits import FRAME_BYTES_MAX
from protocol.signing import Signer, peer_id_of
from protocol.units import Digest, PeerId, PublicKey
from protocol.witness import WitnessAnswer, WitnessAsk
from tests.make_desk import Clock
from tests.make_ledger import (
    NET,
    OWNER,
    RENTER,
    STRANGER,
    WITNESSES,
    Feed,
    at,
    certificate,
    cosigned,
    opened_ledger,
)

FIRST = WITNESSES[0]


def who_is(peer: PeerId) -> Certificate:
    parties = {peer_id_of(each.public): each for each in (OWNER, RENTER, STRANGER)}
    return read_certificate(certificate(parties[peer]), NET)


@dataclass
class Stand:
    """One witness; `owner_says` is what an owner answers when it is asked for a lease."""

    by: Signer = FIRST
    cabinet: Cabinet = field(default_factory=MemoryCabinet)
    clock: Clock = field(default_factory=lambda: Clock(at(2_000)))
    is_willing: bool = True
    owner_says: bool = True
    has_met_owner: bool = True
    renter_has: tuple[Entry, ...] = ()
    """What the asking peer has of the feed that it is asked for; it hangs if that is nothing."""
    grown: int = 0
    fetched: int = 0

    def __post_init__(self) -> None:
        self.ledger: Ledger = opened_ledger(self.by)
        if self.has_met_owner:
            self.ledger.ingest(Feed(OWNER).open().raw)
        self.witness = Witness(
            ledger=self.ledger,
            signer=self.by,
            cabinet=self.cabinet,
            who_is=who_is,
            ask_feed=self._ask_owner,
            fetch=self._fetch,
            grown=self._grow,
            is_willing=self.is_willing,
            clock=self.clock,
        )

    async def _ask_owner(self, feed: PublicKey, kind: str, _body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        assert (feed, kind) == (OWNER.public, "lease.alive")
        if not self.owner_says:
            raise Unavailable("no route")
        return b""

    async def _fetch(self, peer: PeerId, feed: PublicKey) -> None:
        assert peer == peer_id_of(RENTER.public)
        self.fetched += 1
        if not self.renter_has:
            await trio.sleep_forever()
        for entry in self.renter_has:
            await trio.lowlevel.checkpoint()
            if entry.feed == feed:
                self.ledger.ingest(entry.raw)

    def _grow(self) -> None:
        self.grown += 1

    async def cosign(self, entry: Entry, *, asker: Signer = RENTER) -> WitnessAnswer:
        asked = encode(WitnessAsk(grant=entry.raw))
        answer = await self.witness.handlers["witness.cosign"](peer_id_of(asker.public), asked)
        return decode(answer, WitnessAnswer, size_max=FRAME_BYTES_MAX)

    async def probe(self, lease: Digest, *, asker: Signer = RENTER) -> bytes:
        asked = encode(LeaseName(lease=lease))
        return await self.witness.handlers["witness.probe"](peer_id_of(asker.public), asked)


def is_signed(answer: WitnessAnswer, of: tuple[Entry, Grant], by: Signer = FIRST) -> bool:
    entry, body = of
    assert answer.yes is not UNSET
    shown = cosigned(entry, body).turns
    items = turns_to_cosign(entry.feed, shown, entry.id, answer.yes.at_ms)
    return is_cosigned(Cosigning(by.public, answer.yes.at_ms, answer.yes.by), items, NET)
