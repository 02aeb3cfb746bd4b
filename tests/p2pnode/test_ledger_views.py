"""What is told of a ledger, its proofs and its files, by the API and by the commands."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from litestar import Litestar

from ledger.entry import seal
from ledger.ledger import Ledger
from ledger.limits import PRUNE_AT_ONCE
from p2pnode.api.app import exception_handlers
from p2pnode.api.ledger_documents import ExportOrder, ImportOrder, PruneOrder
from p2pnode.api.ledger_routes import ledger_routes
from p2pnode.api.schemas import schema_of
from p2pnode.api.server import serve_api
from p2pnode.home import find_home
from p2pnode.known_network import KnownNetwork
from p2pnode.ledger_views import LedgerViews
from p2pnode.proofs import verify_proof
from p2pnode.receipt_check import verify_receipt
from protocol.errors import LocalFault
from protocol.units import Millis, NetId
from tests.json_schema import faults
from tests.ledger.test_export import WHOLE, exported, forked
from tests.make_history import Market
from tests.make_ledger import (
    HOUR,
    NET,
    OWNER,
    RENTER,
    STRANGER,
    Feed,
    at,
    grant,
    lease_request,
    opened_ledger,
    sealed,
    statement,
)

LIAR = STRANGER.public.hex()


class Clock:
    """See WallClock. A year after the entries of the tests."""

    def now(self) -> Millis:
        return at(366 * 24 * HOUR)


def views(of: Ledger) -> LedgerViews:
    return LedgerViews(of, of.ingest, clock=Clock())


def checked(document: msgspec.Struct) -> Any:
    """The document as JSON, which follows its schema."""
    plain = json.loads(msgspec.json.encode(document))
    assert faults(plain, schema_of(plain["schema"])) == []
    return plain


def test_a_fork_is_told_with_both_entries_and_its_proof() -> None:
    [fork] = checked(views(forked()).forks())["items"]
    assert (fork["feed"], fork["fork"]) == (LIAR, 1)
    assert [entry["is_main"] for entry in fork["entries"]] == [True, False]
    assert fork["peer"].startswith("12D3KooW")
    [proof] = checked(views(forked()).evidence(None, limit=9))["items"]
    assert fork["proof"] == proof["id"]


def test_a_proof_is_told_in_words_with_what_shows_it() -> None:
    [proof] = checked(views(forked()).evidence(LIAR[:8], limit=9))["items"]
    assert (proof["class"], proof["rule"], proof["offender"]) == ("proved", "A1", LIAR)
    assert proof["offence"] == "forked its feed: two entries at one place"
    assert [(part["feed"], part["seq"]) for part in proof["shown_by"]] == [(LIAR, 1)] * 2
    assert {part["what"] for part in proof["shown_by"]} == {"STATEMENT: states an account"}


def test_entries_inside_a_proof_are_found_whatever_its_form() -> None:
    mine, owner = opened_ledger(), Feed(STRANGER)
    mine.ingest(owner.open().raw)
    overlapping = grant(opens=((1_000, 3_601_000, 0), (1_500, 1_600, 0)))
    body = msgspec.structs.replace(overlapping, request=sealed(lease_request(owner=STRANGER)))
    mine.ingest(owner.add(body).raw)
    [proof] = checked(views(mine).evidence(None, limit=9))["items"]
    assert proof["rule"] == "A5"
    assert [part["what"] for part in proof["shown_by"]] == ["GRANT: leases GPUs"]


def test_evidence_is_limited_and_says_so() -> None:
    document = checked(views(forked()).evidence(None, limit=0))
    assert (document["items"], document["left_out"]) == ([], 1)


def test_a_feed_is_shown_with_all_its_branches() -> None:
    document = checked(views(forked()).feed(LIAR[:6], first=None, limit=50))
    assert (document["length"], document["fork"], document["left_out"]) == (4, 1, 0)
    assert [item["seq"] for item in document["items"]] == [0, 1, 1, 2, 2, 3, 3]
    part = checked(views(forked()).feed(LIAR, first=1, limit=1))
    assert [item["seq"] for item in part["items"]] == [1, 1]
    assert part["left_out"] == 2
    assert checked(views(forked()).feed(LIAR, first=2**63 - 1, limit=5))["items"] == []


def test_an_unknown_kind_is_shown_as_such() -> None:
    mine, odd = opened_ledger(), Feed(STRANGER)
    mine.ingest(odd.open().raw)
    mine.ingest(seal(odd.draft_raw(77, b"\xa1\x17\x63\x1b[2"), signer=STRANGER, net=NET).raw)
    document = checked(views(mine).feed(LIAR, first=1, limit=1))
    assert document["items"][0]["what"] == "kind 77, unknown here"


@pytest.mark.parametrize("name", ["", "zz", "\x1b[2J", "0" * 64])
def test_a_feed_must_be_named_by_a_unique_beginning(name: str) -> None:
    with pytest.raises(LocalFault) as caught:
        views(forked()).feed(name, first=None, limit=1)
    assert "\x1b" not in caught.value.what


async def test_a_ledger_goes_through_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    written = checked(await views(forked()).export_to(ExportOrder(file=str(file))))
    assert file.read_bytes() == WHOLE
    assert (written["entries"], written["conflicts"], written["proofs"]) == (8, 3, 1)
    here = opened_ledger(RENTER)
    taken = checked(await views(here).import_from(ImportOrder(file=str(file))))
    assert taken == {
        "schema": "p2pnode.ledger.import/1",
        "ok": True,
        "new": 7,
        "known": 1,
        "conflicts": 3,
        "missing": 0,
        "proofs": 1,
        "offences_new": 1,
        "refused": {},
        "broken": None,
    }
    again = checked(await views(here).import_from(ImportOrder(file=str(file))))
    assert (again["ok"], again["new"], again["known"], again["offences_new"]) == (True, 0, 11, 0)
    assert checked(await views(here).verify())["ok"]


async def test_an_export_never_replaces_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    file.write_text("mine")
    with pytest.raises(LocalFault, match="is there already"):
        await views(forked()).export_to(ExportOrder(file=str(file)))
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (WHOLE[:15] + b"\x02" + WHOLE[16:], "export.version"),
        (WHOLE[:16] + bytes(32) + WHOLE[48:], "export.net"),
        (b"", "export.magic"),
        (None, "No such file"),
    ],
)
async def test_what_is_not_for_this_ledger_is_refused_whole(
    tmp_path: Path, raw: bytes | None, said: str
) -> None:
    file, here = tmp_path / "ledger", opened_ledger(RENTER)
    if raw is not None:
        file.write_bytes(raw)
    heads = here.heads()
    with pytest.raises(LocalFault, match=said):
        await views(here).import_from(ImportOrder(file=str(file)))
    assert here.heads() == heads
    with pytest.raises(LocalFault, match="is no file"):
        await views(here).import_from(ImportOrder(file=str(tmp_path)))


async def test_a_cut_file_gives_what_is_before_the_cut(tmp_path: Path) -> None:
    file, here = tmp_path / "ledger", opened_ledger(RENTER)
    file.write_bytes(WHOLE[: len(WHOLE) // 2])
    taken = checked(await views(here).import_from(ImportOrder(file=str(file))))
    assert (taken["ok"], taken["broken"]) == (False, "export.short")
    assert taken["new"] > 0
    assert checked(await views(here).verify())["ok"]


async def test_a_damaged_entry_is_refused_and_its_followers_miss_it(tmp_path: Path) -> None:
    file, here = tmp_path / "ledger", opened_ledger(STRANGER)
    mine = opened_ledger(OWNER)
    for n in range(3):
        mine.append(statement(ctr=n), grant().start_ms)
    raw = bytearray(exported(mine))
    [second] = mine.entries(OWNER.public, 1, 2)
    raw[raw.index(second) + len(second) // 2] ^= 1
    file.write_bytes(raw)
    taken = checked(await views(here).import_from(ImportOrder(file=str(file))))
    assert (taken["new"], taken["missing"], taken["ok"]) == (1, 2, False)
    assert sum(taken["refused"].values()) == 1
    assert taken["broken"] == "export.digest"


@asynccontextmanager
async def served(home: Path, of: Ledger) -> AsyncIterator[None]:
    """The ledger's part of a node's API, on the socket of this home."""
    app = Litestar(
        route_handlers=ledger_routes(views(of)),
        exception_handlers=exception_handlers(),
        logging_config=None,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_api, app, find_home(home).socket)
        yield
        nursery.cancel_scope.cancel()


async def p2pnode(home: Path, *arguments: str, code: int = 0) -> str:
    done = await trio.to_thread.run_sync(
        lambda: subprocess.run(
            [sys.executable, "-m", "p2pnode", *arguments, "--home", str(home)],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.slow
async def test_the_commands_print_what_the_node_tells(tmp_path: Path) -> None:
    home, file, proof = tmp_path, tmp_path / "ledger", tmp_path / "proof"
    async with served(home, forked()):
        assert "forked   proved, at entry 1" in await p2pnode(home, "ledger", "show", LIAR[:8])
        assert f"A1 by {LIAR[:16]}" in await p2pnode(home, "ledger", "show")
        assert f"feed {LIAR} forks at entry 1" in await p2pnode(home, "ledger", "forks")
        told = await p2pnode(home, "ledger", "evidence", "--save", str(proof))
        assert told.startswith("proved: A1 forked its feed: two entries at one place\n")
        assert "8 entries, 3 of other" in await p2pnode(home, "ledger", "export", str(file))
        await p2pnode(home, "ledger", "export", str(file), code=1)
        assert "8 entries of 3 feeds" in await p2pnode(home, "ledger", "verify")
        for arguments in (["show"], ["show", LIAR], ["forks"], ["evidence"], ["verify"]):
            document = json.loads(await p2pnode(home, "ledger", *arguments, "--json"))
            assert faults(document, schema_of(document["schema"])) == []
    async with served(home, opened_ledger(RENTER)):
        assert "entries  7 new, 1 known" in await p2pnode(home, "ledger", "import", str(file))
        await trio.Path(file).write_bytes(WHOLE[:-40])
        assert "damaged  export." in await p2pnode(home, "ledger", "import", str(file), code=1)
    named = ("--network", NET.hex())
    checked_again = await p2pnode(home, "ledger", "evidence", "check", str(proof), *named)
    assert f"offender feed {LIAR}" in checked_again
    foreign = ("--network", NetId(bytes(32)).hex())
    await p2pnode(home, "ledger", "evidence", "check", str(proof), *foreign, code=1)
    await p2pnode(home, "ledger", "evidence", "check", str(proof), code=1)
    await p2pnode(home, "ledger", "evidence", "check", str(tmp_path / "none"), *named, code=3)


KNOWN = KnownNetwork(net=NET, genesis=None, by="option")
[PROOF] = forked().evidence()


def test_a_saved_proof_is_checked_alone() -> None:
    document = checked(verify_proof(PROOF, KNOWN))
    assert document["proof"]["offender"] == LIAR
    # Who stands behind the feed is only known where the feed is.
    assert document["proof"]["peer"] is None


@given(place=st.integers(0, len(PROOF) - 1), flip=st.integers(1, 255))
def test_no_altered_byte_of_a_proof_goes_unseen(place: int, flip: int) -> None:
    raw = PROOF[:place] + bytes([PROOF[place] ^ flip]) + PROOF[place + 1 :]
    with pytest.raises(LocalFault, match="proves nothing in network"):
        verify_proof(raw, KNOWN)


@given(raw=st.binary(max_size=400))
def test_noise_proves_nothing(raw: bytes) -> None:
    with pytest.raises(LocalFault):
        verify_proof(raw, KNOWN)
    with pytest.raises(LocalFault):
        verify_receipt(raw, KNOWN)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(place=st.integers(48, len(WHOLE) - 1), flip=st.integers(1, 255))
def test_whatever_is_damaged_in_a_file_what_is_taken_holds(
    tmp_path: Path, place: int, flip: int
) -> None:
    file, here = tmp_path / "ledger", opened_ledger(RENTER)
    file.write_bytes(WHOLE[:place] + bytes([WHOLE[place] ^ flip]) + WHOLE[place + 1 :])
    taken = trio.run(views(here).import_from, ImportOrder(file=str(file)))
    assert not taken.ok
    assert here.verify().broken is None
    assert {head.feed for head in here.heads()} <= {head.feed for head in forked().heads()}


async def test_what_is_old_and_summed_up_is_dropped_and_the_walk_still_holds() -> None:
    market = Market()
    for _ in range(3):
        market.lease()
    market.owner.checkpoint(at(market.now))
    market.publish()
    shown = views(market.here)
    with pytest.raises(LocalFault, match="younger than a day"):
        await shown.prune(PruneOrder(older_than_ms=1))
    done = await shown.prune(PruneOrder(older_than_ms=180 * 24 * HOUR))
    assert (done.entries, done.feeds) == (4, 1)
    assert done.bytes > 1_000
    assert (await shown.verify()).ok
    feed = shown.feed(OWNER.public.hex(), first=None, limit=99)
    assert [entry.seq for entry in feed.items] == list(range(feed.length))
    assert sum(not entry.has_body for entry in feed.items) == done.entries
    again = await shown.prune(PruneOrder(older_than_ms=180 * 24 * HOUR))
    assert again.entries == 0


async def test_others_run_while_much_is_dropped() -> None:
    market = Market()
    for _ in range(2 * PRUNE_AT_ONCE):
        market.lease()
    market.owner.checkpoint(at(market.now))
    market.publish()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        done = await views(market.here).prune(PruneOrder(older_than_ms=180 * 24 * HOUR))
        nursery.cancel_scope.cancel()
    assert done.entries > 3 * PRUNE_AT_ONCE
    assert turns > len(market.here.heads()), "not only between feeds"
