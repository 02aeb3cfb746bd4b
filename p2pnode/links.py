"""How this node deals with one other peer: asks it, follows its feed, takes its grants."""

import logging
from typing import Final

import trio

from ledger.bodies import Grant, read_body
from ledger.entry import read_entry
from ledger.fold import Lease
from ledger.ledger import Ledger
from ledger.witness_bodies import Cosigned
from p2pnode.accounts import certificate_in
from p2pnode.clock import WallClock
from p2pnode.jobs.desk import LeaseOver
from p2pnode.matching.book import Book
from p2pnode.matching.let_go import letting_go
from p2pnode.network.exchange import Exchange
from p2pnode.network.peers import Peers
from p2pnode.network.transport import Streams
from p2pnode.replication.replication import Replication
from protocol.certificate import Certificate, read_certificate
from protocol.codec import encode
from protocol.errors import PeerFault, Unavailable
from protocol.lease_stream import Kept, LeaseName
from protocol.signing import Signer
from protocol.units import Digest, PeerId, PublicKey

log = logging.getLogger(__name__)

STREAM_S: Final = 10


class Links:
    """Wiring between the network's parts and the ledger; keeps nothing of its own."""

    def __init__(
        self,
        *,
        exchange: Exchange,
        peers: Peers,
        streams: Streams,
        replication: Replication,
        book: Book,
        clock: WallClock,
    ) -> None:
        self._exchange = exchange
        self._peers = peers
        self._streams = streams
        self._replication = replication
        self._book = book
        self._clock = clock

    @property
    def _ledger(self) -> Ledger:
        return self._replication.ledger

    async def ask(self, peer: PeerId, kind: str, body: bytes) -> bytes:
        """See Exchange.ask; dials the peer first if need be."""
        await self._peers.reach(peer)
        return await self._exchange.ask(peer, kind, body)

    async def ask_feed(self, feed: PublicKey, kind: str, body: bytes) -> bytes:
        """Ask the peer that writes this feed. Raises Unavailable if we do not know who it is."""
        raw = certificate_in(self._ledger, feed)
        if raw is not None:
            return await self.ask(read_certificate(raw, self._ledger.net).peer_id, kind, body)
        for offer in self._book.open_offers(self._clock.now()):
            if offer.signer == feed:
                return await self.ask(offer.certificate.peer_id, kind, body)
        raise Unavailable("the feed's peer is not known")

    def who_is(self, peer: PeerId) -> Certificate:
        """The certificate from the peer's HELLO. Raises PeerFault if there has been none."""
        known = self._exchange.acquaintance(peer)
        if known is None:
            raise PeerFault("hello.none", "say HELLO first")
        return known.certificate

    async def open_stream(self, peer: PeerId, protocol: str) -> trio.abc.Stream:
        """A stream to a peer that knows who we are. Raises Unavailable."""
        try:
            with trio.fail_after(STREAM_S):
                await self._peers.reach(peer)
                # The peer may have restarted since we last met; it must know who asks.
                await self._exchange.greet(peer)
                return await self._streams.open_stream(peer, protocol)
        except trio.TooSlowError as error:
            raise Unavailable("the peer does not answer") from error

    async def fetch_upto(self, peer: PeerId, feed: PublicKey, seq: int) -> None:
        """See Replication.fetch."""
        await self._replication.fetch(peer, feed, seq)

    async def fetch_more(self, peer: PeerId, feed: PublicKey) -> None:
        """Bring our copy of the feed further, if the peer has more. Raises PeerFault."""
        head = self._ledger.head(feed)
        try:
            await self._replication.fetch(peer, feed, 0 if head is None else head.seq + 1)
        except Unavailable as error:
            log.debug("nothing newer", extra={"peer": peer.hex(), "why": str(error)})
            await trio.lowlevel.checkpoint()

    async def confirm(self, peer: PeerId, raw: bytes, cosigned: Cosigned | None = None) -> Lease:
        """The lease that this GRANT gives us, its owner's feed judged, our ACCEPT written.

        `cosigned` is what its witnesses have signed.

        Raises LeaseOver if it ended before we took it; Unavailable or PeerFault.
        """
        entry = read_entry(raw, self._ledger.net)
        if not isinstance(read_body(entry.draft), Grant):
            raise PeerFault("grant.kind")
        if entry.feed != self.who_is(peer).feed:
            raise PeerFault("grant.owner", "somebody else's entry")
        await self.fetch_upto(peer, entry.feed, entry.seq)
        lease = self._ledger.lease(entry.id)
        if lease is None or lease.renter != self._ledger.feed or lease.is_forked:
            raise PeerFault("grant.lease", "the owner's feed does not hold it")
        now = self._clock.now()
        if not lease.is_accepted and lease.ended_ms <= now:
            raise LeaseOver("the lease was over before we took it")
        self._ledger.accept(entry.id, now, cosigned=cosigned)
        self._replication.tell(peer)
        return lease

    async def let_go(self, signer: Signer, peer: PeerId, lease: Lease) -> None:
        """Consent to the end of a lease before it begins. Raises Unavailable or PeerFault."""
        entry = self._ledger.entry(lease.id)
        body = None if entry is None else read_body(entry.draft)
        if entry is None or not isinstance(body, Grant):
            return
        now, net = self._clock.now(), self._ledger.net
        asked = letting_go(entry, body, signer=signer, net=net, now=now)
        await self.ask(peer, "lease.settle", asked)

    async def stop_lease(self, peer: PeerId, lease: Digest) -> None:
        """Tell the owner to end the job. Raises Unavailable."""
        await self.ask(peer, "lease.stop", encode(LeaseName(lease=lease)))

    async def note_kept(self, peer: PeerId, lease: Digest, saved: Digest) -> None:
        """Tell the owner that we have what the job saved. Raises Unavailable or PeerFault."""
        await self.ask(peer, "lease.kept", encode(Kept(lease=lease, saved=saved)))
