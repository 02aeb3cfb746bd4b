"""Makers of receipts, whole ones and ones of which a part is another's."""

from dataclasses import dataclass
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from ledger.bodies import Accept, Statement
from ledger.entry import Entry
from ledger.receipt import Receipt
from protocol.codec import encode
from protocol.lease import charge
from protocol.signing import Signer, digest
from protocol.tick import COSIGN_DOMAIN, Outcome, Tick
from protocol.units import Digest, Micros, MillisSpan, NetId, Signature
from protocol.wire import pack
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    STRANGER,
    Feed,
    at,
    certificate,
    cosigned,
    grant,
    turn_of,
    witnessed,
)

USED = MillisSpan(600_000)
PRICE = Micros(250_000)
"""That of `lease_request`."""


def tick(lease: Digest, /, **changes: Any) -> Tick:
    used = changes.get("used_ms", USED)
    return replace(
        Tick(
            lease=lease,
            n=5,
            used_ms=used,
            amount_micro=charge(used, PRICE),
            at_ms=at(HOUR),
            head_seq=2,
        ),
        **changes,
    )


def outcome(lease: Digest, /, **changes: Any) -> Outcome:
    return replace(
        Outcome(
            lease=lease,
            cause="exit",
            exit_code=0,
            ended_ms=at(HOUR),
            engine="ProcessEngine",
            isolation="process",
            enforced="time and memory",
            gpu="simulated",
        ),
        **changes,
    )


def sealed_tick(said: Tick, *, by: Signer = OWNER) -> bytes:
    return pack(said, signer=by, net=NET)


def cosign(said: Tick, *, by: Signer = RENTER, net: NetId = NET) -> Signature:
    return by.sign(COSIGN_DOMAIN, net, encode(said))


@dataclass(frozen=True, slots=True)
class Story:
    """One lease of ours from GRANT to both halves, and a second one of the same two."""

    owner: Feed
    renter: Feed
    granted: Entry
    other: Entry
    """The second GRANT."""
    accepted: Entry
    half: Entry
    answer: Entry

    def statement(self, **changes: Any) -> Statement:
        """The owner's half."""
        return statement(self.granted.id, **changes)

    def receipt(self, **changes: Any) -> Receipt:
        said = tick(self.granted.id)
        return replace(
            Receipt(
                grant=self.granted.raw,
                accept=self.accepted.raw,
                tick=sealed_tick(said),
                cosign=cosign(said),
                outcome=pack(outcome(self.granted.id), signer=OWNER, net=NET),
                owner_half=self.half.raw,
                renter_half=self.answer.raw,
                owner=certificate(OWNER),
                renter=certificate(RENTER),
            ),
            **changes,
        )

    def owners(self, **changes: Any) -> bytes:
        """Another half of the owner, in the same place."""
        return self.owner.branch().add(self.statement(**changes)).raw

    def renters(self, **changes: Any) -> bytes:
        """Another answer of the renter, in the same place."""
        fields = {"peer": OWNER.public, "half": self.half.id, **changes}
        return self.renter.branch().add(self.statement(**fields)).raw


def statement(lease: Digest, /, **changes: Any) -> Statement:
    said = digest("tick", encode(tick(lease)))
    return replace(
        Statement(
            peer=RENTER.public,
            ctr=1,
            used_ms=USED,
            amount_micro=charge(USED, PRICE),
            money="USD",
            lease=lease,
            tick=said,
        ),
        **changes,
    )


def story(*signing: Signer) -> Story:
    """The renter asks for WITNESSES, of whom two are enough, if any are `signing`."""
    owner, renter = Feed(OWNER), Feed(RENTER)
    owner.open()
    renter.open()
    body = witnessed(grant()) if signing else grant()
    granted = owner.add(body)
    after = turn_of(granted, body)
    other = owner.add(grant(after, start=2 * HOUR, end=3 * HOUR, nonce=1))
    shown = cosigned(granted, body, by=signing) if signing else UNSET
    accepted = renter.add(Accept(grant=granted.id, cosigned=shown))
    half = owner.add(statement(granted.id))
    answer = renter.add(statement(granted.id, peer=OWNER.public, half=half.id))
    return Story(owner, renter, granted, other, accepted, half, answer)


def altered(of: Story) -> dict[str, tuple[Receipt, str]]:
    """Receipts of which one thing is wrong, and the rule that each breaks."""
    lease, other = of.granted.id, of.other.id
    said = tick(lease)
    dear, far = tick(lease, amount_micro=Micros(said.amount_micro + 1)), tick(other)
    strangers = Feed(STRANGER)
    strangers.open()
    theirs = strangers.branch().add(Accept(grant=lease))
    whole = of.receipt
    rows: dict[str, tuple[Receipt, str]] = {
        "an ACCEPT for a GRANT": (whole(grant=of.accepted.raw), "receipt.grant"),
        "a GRANT for an ACCEPT": (whole(accept=of.granted.raw), "receipt.accept"),
        "another GRANT": (whole(grant=of.other.raw), "receipt.accept"),
        "an ACCEPT of another GRANT": (
            whole(accept=of.renter.branch().add(Accept(grant=other)).raw), "receipt.accept"),
        "an ACCEPT of a stranger": (whole(accept=theirs.raw), "receipt.accept"),
        "a GRANT that is not signed": (whole(grant=unsigned(of.granted)), "entry.seal"),
        "an ACCEPT that is not signed": (whole(accept=unsigned(of.accepted)), "entry.seal"),
        "a half that is not signed": (whole(owner_half=unsigned(of.half)), "entry.seal"),
        "the owner's certificate for another": (
            whole(owner=certificate(STRANGER)), "receipt.certificate"),
        "the renter's certificate for another": (
            whole(renter=certificate(STRANGER)), "receipt.certificate"),
        "a certificate of another network": (
            whole(renter=certificate(RENTER, net=NetId(bytes(32)))), "certificate.net"),
        "an outcome of another": (
            whole(outcome=pack(outcome(lease), signer=STRANGER, net=NET)), "receipt.outcome"),
        "an outcome of another lease": (
            whole(outcome=pack(outcome(other), signer=OWNER, net=NET)), "receipt.outcome"),
        "a tick of another": (
            whole(tick=sealed_tick(said, by=STRANGER)), "receipt.tick"),
        "a tick of another lease": (
            whole(tick=sealed_tick(far), cosign=cosign(far)), "receipt.tick"),
        "a cosign of another": (whole(cosign=cosign(said, by=OWNER)), "receipt.cosign"),
        "a cosign of another tick": (
            whole(cosign=cosign(tick(lease, n=4))), "receipt.cosign"),
        "a cosign of another network": (
            whole(cosign=cosign(said, net=NetId(bytes(32)))), "receipt.cosign"),
        "a cosign in the domain of the tick": (
            whole(cosign=RENTER.sign("tick", NET, encode(said))), "receipt.cosign"),
        "an amount that is not the charge": (
            whole(tick=sealed_tick(dear), cosign=cosign(dear)), "receipt.amount"),
        "no STATEMENT of the owner": (whole(owner_half=of.granted.raw), "receipt.half"),
        "no STATEMENT of the renter": (whole(renter_half=of.accepted.raw), "receipt.half"),
        "the owner's half twice": (whole(renter_half=of.half.raw), "receipt.half"),
        "the renter's half twice": (whole(owner_half=of.answer.raw), "receipt.half"),
    }  # fmt: skip
    return rows | _altered_halves(of)


def unsigned(entry: Entry) -> bytes:
    """The entry with a bit of its signature altered."""
    place = entry.raw.index(entry.signature)
    return entry.raw[:place] + bytes([entry.raw[place] ^ 1]) + entry.raw[place + 1 :]


def _altered_halves(of: Story) -> dict[str, tuple[Receipt, str]]:
    changes: dict[str, Any] = {
        "peer": STRANGER.public,
        "lease": of.other.id,
        "ctr": 2,
        "used_ms": MillisSpan(USED + 1),
        "amount_micro": Micros(1),
        "money": "EUR",
    }
    rows: dict[str, tuple[Receipt, str]] = {}
    for name, value in changes.items():
        owners, renters = of.owners(**{name: value}), of.renters(**{name: value})
        rows[f"the owner's {name}"] = (of.receipt(owner_half=owners), "receipt.half")
        rows[f"the renter's {name}"] = (of.receipt(renter_half=renters), "receipt.half")
    rows["an answer to another half"] = (
        of.receipt(renter_half=of.renters(half=of.other.id)), "receipt.half")  # fmt: skip
    rows["an answer to no half"] = (
        of.receipt(renter_half=of.renters(half=UNSET)), "receipt.half")  # fmt: skip
    rows["halves without the tick that they name"] = (
        of.receipt(tick=UNSET, cosign=UNSET), "receipt.half")  # fmt: skip
    rows["halves that name a tick without cosign"] = (
        of.receipt(cosign=UNSET), "receipt.half")  # fmt: skip
    for name, named in (("another", of.other.id), ("no", UNSET)):
        rows[f"halves that name {name} tick"] = (_both(of, tick=named), "receipt.half")
    return rows


def _both(of: Story, **changes: Any) -> Receipt:
    """A receipt with both halves so, the one answering the other."""
    owners = of.owner.branch().add(of.statement(**changes))
    renters = of.renters(half=owners.id, **changes)
    return of.receipt(owner_half=owners.raw, renter_half=renters)


def unsettled(of: Story) -> dict[str, Receipt]:
    """Receipts that hold and lack something."""
    return {
        "no half of the owner": of.receipt(owner_half=UNSET),
        "no half of the renter": of.receipt(renter_half=UNSET),
        "no halves": of.receipt(owner_half=UNSET, renter_half=UNSET),
        "no halves and no tick": of.receipt(
            owner_half=UNSET, renter_half=UNSET, tick=UNSET, cosign=UNSET
        ),
        "no halves and no cosign": of.receipt(owner_half=UNSET, renter_half=UNSET, cosign=UNSET),
    }
