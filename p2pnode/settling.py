"""Debts, payments and their confirmations, from either side of an account."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from ledger.bodies import Statement
from ledger.debts import Debt, Line, debt_of, debts_of, lines_of
from ledger.entry import Entry
from ledger.fold import Lease
from ledger.ledger import Ledger
from ledger.statements import paid_of
from ledger.succession import carried_on
from p2pnode.clock import WallClock
from p2pnode.network.exchange import Handler
from protocol.certificate import Certificate
from protocol.codec import decode, encode
from protocol.errors import LocalFault, PeerFault, Unavailable
from protocol.payment import PaymentAsk, PaymentReference, reference_of
from protocol.signing import Signer
from protocol.units import Micros, PeerId, PublicKey
from protocol.wire import Sealed, pack, unpack

ASK_BYTES_MAX: Final = 64
ASK_S: Final = 10


class Settling:
    """What we owe and are owed, and what has been paid."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        signer: Signer,
        payout: str,
        ask_feed: Callable[[PublicKey, str, bytes], Awaitable[bytes]],
        who_is: Callable[[PeerId], Certificate],
        tell: Callable[[PublicKey], None],
        clock: WallClock,
    ) -> None:
        """`payout` is how we are paid; `tell` lets the peer of a feed know that ours has grown."""
        self._ledger = ledger
        self._signer = signer
        self._payout = payout
        self._ask_feed = ask_feed
        self._who_is = who_is
        self._tell = tell
        self._clock = clock
        self._known_feeds: tuple[int | None, list[PublicKey]] = (None, [])
        """At which count of the ledger's writes they were found, and they."""

    @property
    def handlers(self) -> dict[str, Handler]:
        """The questions that this part answers."""
        return {"payment.reference": self._answer_reference}

    @property
    def feeds(self) -> list[PublicKey]:
        """Ours, with those that it carries on, and they: what they owe is still ours to pay.

        Not other living ones of our root key: they have homes of their own.
        """
        changes, feeds = self._known_feeds
        if changes != self._ledger.changes:
            feeds = self._carried_on()
            self._known_feeds = (self._ledger.changes, feeds)
        return feeds

    def _carried_on(self) -> list[PublicKey]:
        found: dict[PublicKey, None] = {}
        to_read = [self._ledger.feed]
        while to_read:
            feed = to_read.pop()
            head = self._ledger.head(feed)
            if feed not in found and head is not None:
                entries = self._ledger.entries(feed, 0, head.seq + 1)
                to_read += carried_on(entries, self._ledger.net)
            found[feed] = None
        return sorted(found)

    def debts(self) -> list[Debt]:
        """All accounts of ours, in both roles; each once, also if both sides of it are ours."""
        state = self._ledger.state
        return list(dict.fromkeys(debt for feed in self.feeds for debt in debts_of(state, feed)))

    def lines(self) -> list[Line]:
        """All lines of our accounts, oldest first."""
        state = self._ledger.state
        lines = dict.fromkeys(line for feed in self.feeds for line in lines_of(state, feed))
        return sorted(lines, key=lambda line: line.ts_ms)

    async def reference(
        self, owner: PublicKey, money: str
    ) -> tuple[Sealed[PaymentReference], bytes]:
        """How this owner wants to be paid by us, by its own signed word; read, and as it came.

        The word is about the account of our present feed; what an earlier one owes is paid
        likewise, under that account's own reference.

        Raises Unavailable if it cannot be reached or goes on in another feed, Refused
        `payment.none` if it has not said, and PeerFault `payment.answer` for the answer to another
        question.
        """
        asked = encode(PaymentAsk(money=money))
        with trio.fail_after(ASK_S):
            raw = await self._ask_feed(owner, "payment.reference", asked)
        sealed = unpack(raw, self._ledger.net, PaymentReference)
        wanted = (owner, self._ledger.feed, money, reference_of(owner, self._ledger.feed, money))
        said = sealed.body
        if sealed.signer in set(self._ledger.state.feeds_of_account(owner)) - {owner}:
            raise Unavailable("it goes on in another feed")
        if (sealed.signer, said.renter, said.money, said.reference) != wanted:
            raise PeerFault("payment.answer", "for another account")
        return sealed, raw

    async def _answer_reference(self, peer: PeerId, body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        asked = decode(body, PaymentAsk, size_max=ASK_BYTES_MAX)
        if not self._payout:
            raise PeerFault("payment.none")
        renter = self._who_is(peer).feed
        said = PaymentReference(
            renter=renter,
            money=asked.money,
            payout=self._payout,
            reference=reference_of(self._ledger.feed, renter, asked.money),
            issued_ms=self._clock.now(),
        )
        return pack(said, signer=self._signer, net=self._ledger.net)

    def paid(self, lease: Lease) -> Micros:
        """What we have signed as paid in the account of a lease of ours."""
        money = lease.request.money
        last = self._ledger.state.last_half(self._ledger.feed, lease.renter, money=money)
        return Micros(0 if last is None else paid_of(last.statement))

    def let_off(self, lease: Lease, amount: Micros) -> None:
        """So much less is owed in the account of a lease of ours, as far as anything is."""
        debt = debt_of(self._ledger.state, self._ledger.feed, lease.renter, lease.request.money)
        least = min(amount, 0 if debt is None else debt.owed_micro)
        if least > 0:
            self.confirm(lease.renter, Micros(least), lease.request.money)

    def confirm(self, renter: PublicKey, amount: Micros, money: str) -> Entry:
        """Our signed word that so much more has arrived from this renter.

        Raises LocalFault if it owes us nothing in this money, or less: what is signed here cannot
        be taken back.
        """
        debt = debt_of(self._ledger.state, self._ledger.feed, renter, money)
        due = 0 if debt is None else debt.owed_micro
        if not 0 < amount <= due:
            raise LocalFault(
                f"{renter.hex()[:16]} owes {due} micro-{money}, not {amount}.",
                "p2pnode earn list shows who owes what",
            )
        last = self._ledger.state.last_half(self._ledger.feed, renter, money=money)
        assert last is not None
        said = last.statement
        entry = self._ledger.append(
            Statement(
                peer=renter,
                ctr=said.ctr + 1,
                used_ms=said.used_ms,
                amount_micro=said.amount_micro,
                money=money,
                paid_micro=Micros(paid_of(said) + amount),
            ),
            self._clock.now(),
        )
        self._tell(renter)
        return entry
