"""Exports for ledger/vectors; written by `python -m tests.ledger_vectors`."""

from io import BytesIO
from typing import Any

from ledger.export import DIGEST_BYTES, HEAD_BYTES, Record, file_of, records_in
from protocol.errors import PeerFault
from tests.make_ledger import NET, RENTER, STRANGER, Feed, opened_ledger, statement

Case = dict[str, Any]


def export_case(name: str, raw: bytes) -> Case:
    records: list[Record] = []
    rule = None
    try:
        records.extend(records_in(BytesIO(raw).read, NET))
    except PeerFault as fault:
        rule = fault.rule
    told = [[record.tag.decode("ascii"), record.raw.hex()] for record in records]
    return {"name": name, "bytes": raw.hex(), "records": told, "rule": rule}


def export_vectors() -> Case:
    """A fork with its proof, an empty ledger, and files that are not whole."""
    mine, liar = opened_ledger(RENTER), Feed(STRANGER)
    entries = [liar.open()]
    other = liar.branch()
    entries += [liar.add(statement()), other.add(statement(ctr=1))]
    for entry in entries:
        mine.ingest(entry.raw)
    whole = b"".join(file_of(mine.begin_export(STRANGER.public), NET))
    empty = b"".join(file_of(iter(()), NET))
    body = HEAD_BYTES
    return {
        "net": NET.hex(),
        "cases": [
            export_case("a feed of two branches, and the proof", whole),
            export_case("nothing", empty),
            export_case("cut within the digest", empty[:-1]),
            export_case("cut before the end", empty[:body]),
            export_case("something behind", empty + b"\0"),
            export_case("another digest", empty[:-1] + bytes([empty[-1] ^ 1])),
            export_case("another version", empty[:15] + b"\x02" + empty[16:]),
            export_case("another network", empty[:16] + bytes(32) + empty[48:]),
            export_case("a record of an unknown kind", empty[:body] + b"q" + empty[body:]),
            export_case("a record that is too long", empty[:body] + b"e\xff\xff\xff\xff"),
            export_case("no export", bytes(DIGEST_BYTES)),
        ],
    }
