"""Receipts for ledger/vectors; written by `python -m tests.ledger_vectors`."""

from typing import Any

from ledger.receipt import Receipt, check_receipt
from protocol.codec import encode
from protocol.errors import PeerFault
from tests.make_ledger import NET
from tests.make_receipt import altered, story, unsettled

Case = dict[str, Any]


def receipt_case(name: str, receipt: Receipt) -> Case:
    raw = encode(receipt)
    case: Case = {"name": name, "bytes": raw.hex()}
    try:
        proven = check_receipt(raw, NET)
    except PeerFault as fault:
        return case | {"rule": fault.rule}
    return case | {
        "rule": None,
        "lease": proven.lease.hex(),
        "owner": proven.owner.hex(),
        "renter": proven.renter.hex(),
        "used_ms": proven.used_ms,
        "amount_micro": proven.amount_micro,
        "is_settled": proven.is_settled,
    }


def receipt_vectors() -> Case:
    of = story()
    wrong = {name: receipt for name, (receipt, _) in altered(of).items()}
    rows = {"whole": of.receipt(), **unsettled(of), **wrong}
    return {
        "net": NET.hex(),
        "cases": [receipt_case(name, receipt) for name, receipt in rows.items()],
    }
