"""Bids that nobody can read until all have committed, from both sides. SPEC.md 9.5.

For gold: who quotes on request could else wait for what the others bid, and go just below.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from ledger.message_evidence import prove_bad_reveal
from protocol.auction import BidCommit, BidReveal, Reply, RevealAsk, Rfq, hidden_bid
from protocol.codec import encode
from protocol.errors import PeerFault
from protocol.limits import BIDS_OUTSTANDING_MAX
from protocol.signing import Signer, digest
from protocol.units import Digest, Millis, NetId, PeerId, PublicKey
from protocol.wire import Sealed, pack, unpack

COMMIT_S: Final = 0.6
"""Owners that have not committed by then are left out; only then is anything revealed."""


class HiddenBids:
    """An owner's bids that are committed to and not revealed yet."""

    def __init__(self, signer: Signer, net: NetId) -> None:
        self._signer = signer
        self._net = net
        self._hidden: OrderedDict[Digest, tuple[PublicKey, bytes]] = OrderedDict()

    def commit(self, rfq: Sealed[Rfq], bid: bytes, now: Millis) -> bytes:
        """Sealed: what binds us to this sealed bid, and shows nothing of it."""
        # Nobody else can make this, and we need not remember it.
        salt = digest("bid-salt", self._signer.sign("bid-salt", self._net, bid))[:16]
        body = BidCommit(rfq=rfq.digest, hidden=hidden_bid(salt, bid), issued_ms=now)
        raw = pack(body, signer=self._signer, net=self._net)
        name = unpack(raw, self._net, BidCommit).digest
        reveal = BidReveal(commit=name, bid=bid, salt=salt)
        self._hidden[name] = (rfq.signer, pack(reveal, signer=self._signer, net=self._net))
        while len(self._hidden) > BIDS_OUTSTANDING_MAX:
            self._hidden.popitem(last=False)
        return raw

    def reveal(self, commit: Digest, renter: PublicKey) -> bytes:
        """Sealed: the bid behind that. Raises PeerFault if this renter has no such."""
        owner_of, raw = self._hidden.get(commit, (None, b""))
        if owner_of != renter:
            raise PeerFault("reveal.unknown")
        return raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A renter's way to what owners hide."""

    ask: Callable[[PeerId, str, bytes], Awaitable[bytes]]
    accuse: Callable[[bytes], object]
    """Keep this evidence."""
    net: NetId

    async def reveal(self, peer: PeerId, rfq: Sealed[Rfq], committed: bytes) -> Reply:
        """The bid behind an owner's commit, which is the answer to this question.

        Raises Unavailable, or PeerFault `commit.answer`, `reveal.answer` or `reveal.hidden`.
        """
        commit = unpack(committed, self.net, BidCommit)
        if (commit.signer, commit.body.rfq) != (rfq.body.owner, rfq.digest):
            raise PeerFault("commit.answer", "commits to the answer to another question")
        asked = encode(RevealAsk(commit=commit.digest))
        shown = await self.ask(peer, "rfq.reveal", asked)
        reveal = unpack(shown, self.net, BidReveal)
        if (reveal.signer, reveal.body.commit) != (commit.signer, commit.digest):
            raise PeerFault("reveal.answer", "reveals something else")
        if hidden_bid(reveal.body.salt, reveal.body.bid) != commit.body.hidden:
            self.accuse(prove_bad_reveal(committed, shown))
            raise PeerFault("reveal.hidden", "not what it had committed to")
        return Reply(yes=reveal.body.bid)
