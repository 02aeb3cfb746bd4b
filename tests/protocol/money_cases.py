"""Payment references and receipts of rails, and hidden bids, for protocol/vectors/*.json."""

from typing import Any

from protocol.auction import hidden_bid
from protocol.limits import PAYOUT_CHARACTERS_MAX, QUOTE_BYTES_MAX, SEAL_BYTES
from protocol.payment import reference_of
from protocol.units import Digest, Millis
from tests import make
from tests.make import FEED, NONCE, NOW, RENTER, STRANGER
from tests.protocol.message_cases import sealed, sealed_cases

Case = dict[str, Any]

RAIL = make.signer(6)


def commit_cases() -> list[Case]:
    return sealed_cases(make.bid_commit, FEED, {
        "rfq": (bytes(31),),
        "hidden": (bytes(33),),
        "issued_ms": (0,),
    })  # fmt: skip


def reveal_cases() -> list[Case]:
    return sealed_cases(make.bid_reveal, FEED, {
        "commit": (bytes(31),),
        "bid": (bytes(QUOTE_BYTES_MAX + SEAL_BYTES + 1),),
        "salt": (bytes(15),),
    })  # fmt: skip


def hidden_vectors() -> list[Case]:
    bids = (sealed(make.bid()), sealed(make.bid(micro_per_gpu_hour=1)))
    return [
        {"salt": salt.hex(), "bid": bid.hex(), "hidden": hidden_bid(salt, bid).hex()}
        for salt in (NONCE, bytes(16))
        for bid in bids
    ]


def payment_cases() -> list[Case]:
    return sealed_cases(make.payment, FEED, {
        "renter": (bytes(31),),
        "money": ("", "eur", "A" * 65),
        "payout": ("", "two\nlines", "bell\a", "p" * (PAYOUT_CHARACTERS_MAX + 1)),
        "reference": ("", "r" * 65),
        "issued_ms": (0,),
    })  # fmt: skip


def reference_vectors() -> list[Case]:
    pairs = ((FEED, RENTER, "TEST"), (RENTER, FEED, "TEST"), (FEED, STRANGER, "EUR"))
    return [
        {
            "owner": owner.public.hex(),
            "renter": renter.public.hex(),
            "money": money,
            "reference": reference_of(owner.public, renter.public, money),
        }
        for owner, renter, money in pairs
    ]


def rail_cases() -> list[Case]:
    shapes = sealed_cases(make.rail_receipt, RAIL, {
        "rail": ("",),
        "act": ("refund",),
        "lease": (bytes(31),),
        "payer": (bytes(31),),
        "amount_micro": (-1, 2**63),
        "hold": (bytes(31),),
        "expires_ms": (0,),
        "simulated": ("no",),
    })  # fmt: skip

    def c(name: str, rule: str | None, **changes: Any) -> Case:
        raw = sealed(make.rail_receipt(**changes), RAIL)
        return {"name": name, "bytes": raw.hex(), "rule": rule}

    hold = Digest(b"h" * 32)
    return [
        *shapes,
        c("a capture", None, act="capture", hold=hold),
        c("a void", None, act="void", hold=hold),
        c("a hold that ends another", "rail.hold", hold=hold),
        c("a capture of nothing", "rail.hold", act="capture"),
        c("held for a millisecond", None, expires_ms=Millis(NOW + 1)),
        c("over when it is issued", "rail.span", expires_ms=NOW),
        c("to whoever pays", "rail.parties", payee=RENTER.public),
    ]
