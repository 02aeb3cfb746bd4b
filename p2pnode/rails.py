"""The port through which money is held for a lease and paid out, and a rail that only pretends.

A rail is trusted for money and nothing else. What it did, its sealed receipts say
(`protocol/SPEC.md` section 15), and either party tells the ledger by an entry. What it pays out on
is proof: accounts that both have signed, or evidence of class A; never what witnesses attest.
"""

from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from ledger.entry import Entry
from ledger.evidence import check
from ledger.ledger import Ledger
from ledger.rail_bodies import RailCapture, RailHold, RailVoid
from ledger.receipt import check_receipt
from p2pnode.cabinet import Cabinet
from p2pnode.clock import WallClock
from protocol.codec import Wire, decode, encode
from protocol.errors import LocalFault
from protocol.limits import RAIL_RECEIPT_BYTES_MAX, SEAL_BYTES
from protocol.rail import RailReceipt, check_rail_receipt
from protocol.signing import Signer
from protocol.units import Digest, Micros, Millis, NetId, PublicKey
from protocol.wire import Sealed, pack, unpack

RECORD_BYTES_MAX: Final = 2 * (RAIL_RECEIPT_BYTES_MAX + SEAL_BYTES) + 64
NOT_POSSIBLE: Final = "p2pnode ledger show"


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldOrder:
    """What a payer wants to have held."""

    lease: Digest
    payer: PublicKey
    payee: PublicKey
    amount: Micros
    money: str
    expires_ms: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Why a payee may have money: a receipt of the lease with both halves of the account."""

    receipt: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """Why a payee may have all of it: evidence of class A against the payer."""

    evidence: bytes


Basis = Settled | Proved


class Rail(Protocol):
    """Where money is. `by` is who asks; that it is, the rail has made sure of.

    Every act may be repeated: the same act gives the same sealed receipt. All raise LocalFault if
    the rail will not, and change nothing then; Unavailable if it cannot be asked now; PeerFault if
    what an act rests on does not hold.
    """

    def hold(self, order: HoldOrder, *, by: PublicKey) -> bytes:
        """Keep the payer's money for a lease; the sealed hold. One for each lease."""

    def capture(self, lease: Digest, amount: Micros, basis: Basis, *, by: PublicKey) -> bytes:
        """Pay so much of it out to the payee, and give the rest back; once, before it expires."""

    def void(self, lease: Digest, *, by: PublicKey) -> bytes:
        """Give it back: when the payee asks, or to anybody once it has expired."""


class HeldRecord(Wire, frozen=True, kw_only=True):
    """All that the test rail knows of one lease."""

    hold: bytes
    end: bytes | UnsetType = UNSET
    """The sealed capture or void."""


class TestRail:
    """See Rail. No money moves, and each receipt says so; for tests and test networks.

    Its state is in a cabinet: durable before a receipt is handed out.
    """

    __test__ = False  # its name is no test's

    def __init__(self, *, signer: Signer, net: NetId, cabinet: Cabinet, clock: WallClock) -> None:
        """`signer` is the rail's own key, which is no feed's."""
        self._signer = signer
        self._net = net
        self._cabinet = cabinet
        self._clock = clock

    @property
    def key(self) -> PublicKey:
        """What its receipts are sealed with."""
        return self._signer.public

    def hold(self, order: HoldOrder, *, by: PublicKey) -> bytes:
        if by != order.payer:
            raise _refused("Only the payer can have its money held.")
        said = RailReceipt(
            rail="test",
            act="hold",
            lease=order.lease,
            payer=order.payer,
            payee=order.payee,
            amount_micro=order.amount,
            money=order.money,
            issued_ms=self._clock.now(),
            expires_ms=order.expires_ms,
            simulated="yes",
        )
        known = self._record(order.lease)
        if known is not None:
            return self._same(known.hold, said, "There is another hold for this lease.")
        if order.expires_ms <= said.issued_ms or order.amount <= 0:
            raise _refused("A hold is of something, and for some time.")
        check_rail_receipt(said)
        return self._put(order.lease, HeldRecord(hold=self._seal(said))).hold

    def capture(self, lease: Digest, amount: Micros, basis: Basis, *, by: PublicKey) -> bytes:
        record, hold = self._held(lease)
        if by != hold.body.payee:
            raise _refused("Only the payee can be paid.")
        said = self._ending(hold, "capture", amount)
        if record.end is not UNSET:
            return self._same(record.end, said, "The hold has ended already.")
        if said.issued_ms >= hold.body.expires_ms:
            raise _refused("The hold has expired.")
        most = min(hold.body.amount_micro, self._covered(hold.body, basis))
        if not 0 < amount <= most:
            raise _refused(f"{most} micro-{hold.body.money} can be captured, not {amount}.")
        return self._end(record, said)

    def void(self, lease: Digest, *, by: PublicKey) -> bytes:
        record, hold = self._held(lease)
        said = self._ending(hold, "void", hold.body.amount_micro)
        if by != hold.body.payee and said.issued_ms < hold.body.expires_ms:
            raise _refused("Only the payee can let go of a hold before it expires.")
        if record.end is not UNSET:
            return self._same(record.end, said, "The hold has ended already.")
        return self._end(record, said)

    def _covered(self, hold: RailReceipt, basis: Basis) -> Micros:
        """How much the basis gives the payee. Raises PeerFault if it does not hold."""
        match basis:
            case Settled():
                proven = check_receipt(basis.receipt, self._net)
                sides = (proven.lease, proven.renter, proven.owner, proven.request.money)
                if sides != (hold.lease, hold.payer, hold.payee, hold.money):
                    raise _refused("The receipt is of another lease, or in other money.")
                if not proven.is_settled:
                    raise _refused("The receipt lacks a half of the account.")
                return Micros(proven.amount_micro)
            case Proved():
                if check(basis.evidence, self._net).offender != hold.payer:
                    raise _refused("The evidence is not against the payer.")
                return hold.amount_micro

    def _ending(self, hold: Sealed[RailReceipt], act: str, amount: Micros) -> RailReceipt:
        now = self._clock.now()
        return msgspec.structs.replace(
            hold.body,
            act=act,
            amount_micro=amount,
            hold=hold.digest,
            issued_ms=now,
            # A void may come when the hold is over; its receipt has to end after it begins.
            expires_ms=Millis(max(hold.body.expires_ms, now + 1)),
        )

    def _end(self, record: HeldRecord, said: RailReceipt) -> bytes:
        check_rail_receipt(said)
        sealed = self._seal(said)
        self._put(Digest(said.lease), HeldRecord(hold=record.hold, end=sealed))
        return sealed

    def _same(self, raw: bytes, wanted: RailReceipt, why: str) -> bytes:
        """The receipt of before, if the act is the same but for when it is asked for."""
        before = unpack(raw, self._net, RailReceipt).body
        timeless = msgspec.structs.replace(wanted, issued_ms=before.issued_ms)
        if before.act != "hold":
            timeless = msgspec.structs.replace(timeless, expires_ms=before.expires_ms)
        if timeless != before:
            raise _refused(why)
        return raw

    def _held(self, lease: Digest) -> tuple[HeldRecord, Sealed[RailReceipt]]:
        record = self._record(lease)
        if record is None:
            raise _refused("Nothing is held for this lease.")
        return record, unpack(record.hold, self._net, RailReceipt)

    def _record(self, lease: Digest) -> HeldRecord | None:
        raw = self._cabinet.get(_name(lease))
        return None if raw is None else decode(raw, HeldRecord, size_max=RECORD_BYTES_MAX)

    def _put(self, lease: Digest, record: HeldRecord) -> HeldRecord:
        self._cabinet.put(_name(lease), encode(record))
        return record

    def _seal(self, said: RailReceipt) -> bytes:
        return pack(said, signer=self._signer, net=self._net)


def tell(ledger: Ledger, receipt: bytes, now: Millis) -> Entry:
    """Our entry that tells what a rail has sealed.

    Raises PeerFault if the receipt does not hold or is of two others; LocalFault.
    """
    match unpack(receipt, ledger.net, RailReceipt).body.act:
        case "hold":
            return ledger.append(RailHold(receipt=receipt), now)
        case "capture":
            return ledger.append(RailCapture(receipt=receipt), now)
        case "void":
            return ledger.append(RailVoid(receipt=receipt), now)


def _name(lease: Digest) -> str:
    return f"rail/{lease.hex()}"


def _refused(why: str) -> LocalFault:
    return LocalFault(why, NOT_POSSIBLE)
