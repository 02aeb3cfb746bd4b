"""Receipts for ledger/vectors; written by `python -m tests.ledger_vectors`."""

from typing import Any

from ledger.receipt import check_receipt
from protocol.codec import encode
from protocol.errors import PeerFault
from tests.make_ledger import NET, WITNESSES
from tests.make_receipt import altered, story, unsettled

Case = dict[str, Any]


def receipt_case(name: str, raw: bytes) -> Case:
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
        "witnesses": [each.hex() for each in proven.witnesses],
        "is_witnessed": proven.is_witnessed,
    }


def receipt_vectors() -> Case:
    of = story()
    wrong = {name: receipt for name, (receipt, _) in altered(of).items()}
    rows = {
        "whole": of.receipt(),
        "cosigned by enough witnesses": story(*WITNESSES[:2]).receipt(),
        "cosigned by too few witnesses": story(WITNESSES[0]).receipt(),
        **unsettled(of),
        **wrong,
    }
    cases = [receipt_case(name, encode(receipt)) for name, receipt in rows.items()]
    whole = encode(of.receipt())
    cases.append(receipt_case("another version", whole[:3] + b"\x02" + whole[4:]))
    return {"net": NET.hex(), "cases": cases}
