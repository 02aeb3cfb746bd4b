"""ledger/vectors replayed as another implementation would: from the files alone."""

import json
import re
from io import BytesIO
from typing import Any

import pytest

from ledger.bodies import GRANT, RELEASE, Grant, Release, read_body
from ledger.entry import (
    Link,
    check_link,
    check_place,
    check_seal,
    draft_entry,
    id_of,
    read_entry,
)
from ledger.evidence import check
from ledger.export import records_in
from ledger.fold import State
from ledger.intervals import Interval
from ledger.units_chain import apply
from ledger.validity import check_body
from protocol.errors import PeerFault
from protocol.units import Digest, Millis, NetId, PublicKey
from tests.ledger_vectors import FOLDER, text_of, vectors
from tests.make_ledger import newest_half


def loaded(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


def cases(name: str) -> Any:
    return [pytest.param(case, id=case["name"]) for case in loaded(name)["cases"]]


def net_of(name: str) -> NetId:
    return NetId(bytes.fromhex(loaded(name)["net"]))


def test_the_files_are_what_the_script_writes() -> None:
    made = {name: text_of(document) for name, document in vectors().items()}
    assert made.keys() == {path.name for path in FOLDER.glob("*.json")}
    for name, text in made.items():
        assert (FOLDER / name).read_text() == text, "python -m tests.ledger_vectors"


SPEC = (FOLDER.parent / "SPEC.md").read_text()


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("### 2.3", "entries.json"),
        ("### 3.3", "entries.json"),
        ("### 8.2", "evidence.json"),
        ("## 12", "receipts.json"),
        ("## 13", "exports.json"),
    ],
)
def test_each_rule_of_a_table_refuses_something(section: str, name: str) -> None:
    """A row that names several points to other tables; each that names one has a case."""
    table = re.split(r"^#", SPEC.split(f"\n{section} ")[1], flags=re.MULTILINE)[0]
    rules = re.findall(r"^\| `([a-z]+\.[a-z]+)` \|", table, flags=re.MULTILINE)
    refused = {case["rule"] for case in loaded(name)["cases"]}
    assert rules
    assert [rule for rule in rules if rule not in refused] == []


def judge(raw: bytes, after: dict[str, Any] | None, net: NetId) -> str | None:
    link = None
    if after is not None:
        link = Link(
            seq=after["seq"], id=Digest(bytes.fromhex(after["id"])), ts_ms=Millis(after["ts_ms"])
        )
    try:
        entry = read_entry(raw, net)
        check_place(entry.header)
        check_link(entry.header, link)
        check_seal(entry, net)
        check_body(read_body(entry.draft), entry.header, net)
    except PeerFault as fault:
        return fault.rule
    return None


@pytest.mark.parametrize("case", cases("entries.json"))
def test_entries_are_judged_as_the_vectors_say(case: dict[str, Any]) -> None:
    raw = bytes.fromhex(case["bytes"])
    assert judge(raw, case["after"], net_of("entries.json")) == case["rule"]


def test_an_entry_is_made_of_these_parts() -> None:
    parts = {name: bytes.fromhex(text) for name, text in loaded("entries.json")["anatomy"].items()}
    net = net_of("entries.json")
    entry = read_entry(parts["entry"], net)
    assert parts["signed"] == b"p2pnode/entry/1\0" + net + parts["hdr"]
    assert parts["hashed"] == b"p2pnode/id/1\0" + net + parts["hdr"]
    assert entry.id == parts["id"] == id_of(parts["hdr"], net)
    assert (entry.draft.hdr, entry.draft.body) == (parts["hdr"], parts["body"])


@pytest.mark.parametrize("case", cases("evidence.json"))
def test_evidence_is_judged_as_the_vectors_say(case: dict[str, Any]) -> None:
    raw, net = bytes.fromhex(case["bytes"]), net_of("evidence.json")
    if case["rule"] is not None:
        with pytest.raises(PeerFault) as caught:
            check(raw, net)
        assert caught.value.rule == case["rule"]
        return
    offence = check(raw, net)
    assert offence.rule == case["offence"] == re.split("[, ]", case["name"])[0]
    assert offence.offender.hex() == case["offender"]
    assert (offence.key.hex(), offence.seq) == (case["key"], case["fork"])


@pytest.mark.parametrize("case", cases("units.json"))
def test_units_move_on_as_the_vectors_say(case: dict[str, Any]) -> None:
    draft = draft_entry(
        feed=PublicKey(bytes(32)),
        after=None,
        ts_ms=Millis(1),
        kind=GRANT if case["kind"] == "grant" else RELEASE,
        rules=bytes(8),
        body=bytes.fromhex(case["body"]),
        net=NetId(bytes(32)),
    )
    body = read_body(draft)
    assert isinstance(body, Grant | Release)
    before = tuple(Interval(Millis(a), Millis(b), ctr) for a, b, ctr in case["before"])
    after = apply(before, body, bytes.fromhex(case["unit"]), Millis(case["ts_ms"]))
    assert [[each.start_ms, each.end_ms, each.ctr] for each in after] == case["after"]


@pytest.mark.parametrize("order", [1, -1])
def test_the_fold_is_as_the_vectors_say(order: int) -> None:
    told, net, state = loaded("fold.json"), net_of("fold.json"), State()
    for raw in told["entries"][::order]:
        state.apply(read_entry(bytes.fromhex(raw), net))
    for feed, seq in told["forks"][::order]:
        state.fork(PublicKey(bytes.fromhex(feed)), seq)
    for lease, wanted in zip(state.leases(), told["leases"], strict=True):
        for name, value in wanted.items():
            got = getattr(lease, name)
            assert (got.hex() if isinstance(got, bytes) else got) == value
    for wanted in told["turns"]:
        owner, unit = bytes.fromhex(wanted["owner"]), bytes.fromhex(wanted["unit"])
        turn = state.turn(PublicKey(owner), unit)
        assert turn is not None
        assert (turn.ctr, turn.id.hex()) == (wanted["ctr"], wanted["id"])
        lease = state.leases()[0]
        halves = state.halves(lease.owner, lease.renter, money="USD")
        assert [half.id.hex() for half in halves] == told["halves"]
        assert newest_half(state, lease.owner, lease.renter) is None
        assert told["newest_half"] is None


@pytest.mark.parametrize("case", cases("exports.json"))
def test_exports_are_read_as_the_vectors_say(case: dict[str, Any]) -> None:
    records: list[list[str]] = []
    rule = None
    source = BytesIO(bytes.fromhex(case["bytes"]))
    try:
        records += (
            [record.tag.decode(), record.raw.hex()]
            for record in records_in(source.read, net_of("exports.json"))
        )
    except PeerFault as fault:
        rule = fault.rule
    assert records == case["records"]
    assert rule == case["rule"]
