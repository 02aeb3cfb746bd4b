"""What `--json` prints has a name, a schema of that name, and keeps to it."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from p2pnode.api.app import build_app
from p2pnode.api.job_documents import YieldOrder
from p2pnode.api.job_routes import job_routes
from p2pnode.api.ledger_documents import ExportOrder, ImportOrder, PruneOrder
from p2pnode.api.ledger_routes import ledger_routes
from p2pnode.api.money_routes import money_routes
from p2pnode.api.schemas import DOCUMENTS, schema_of
from p2pnode.job_views import JobViews
from p2pnode.jobs.baggage import FileBaggage
from p2pnode.jobs.jobfile import ENDED
from p2pnode.ledger_views import LedgerViews
from p2pnode.matching.search import Wish
from p2pnode.money_views import money_views
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.reputation_views import reputation_of
from p2pnode.status import arrivals_of, offer_of, offers_of, services_of, status_of
from p2pnode.why_views import why_no_match
from p2pnode.work_views import bids_of, market_of, no_work
from protocol.errors import LocalFault
from tests.json_schema import faults
from tests.make_job import make_submission
from tests.make_node import EPOCH, Party
from tests.p2pnode.test_cli import run

ROOT = Path(__file__).parent.parent.parent


def test_every_document_that_is_named_in_the_code_has_a_schema() -> None:
    texts = [path.read_text() for path in (ROOT / "p2pnode").rglob("*.py")]
    named = {name for text in texts for name in re.findall(r'"(p2pnode\.[a-z.-]+/\d+)"', text)}
    assert named == set(DOCUMENTS)
    for name in DOCUMENTS:
        assert schema_of(name)["$id"] == name


def test_a_schema_is_printed_by_its_short_name(tmp_path: Path) -> None:
    printed = json.loads(run("schema", "ledger.show", home=tmp_path).stdout)
    assert printed == schema_of("p2pnode.ledger.show/1")
    done = run("schema", "ledger.shown")
    assert done.returncode == 1
    assert "p2pnode schema lists the names" in done.stderr
    with pytest.raises(LocalFault):
        schema_of("p2pnode.ledger.show/2")


def test_what_commands_print_without_a_node_keeps_to_its_schema(tmp_path: Path) -> None:
    for arguments in (
        ("version",),
        ("schema",),
        ("init", "--name", "n", "--roles", "owner", "--region", "DE", "--ask", "", "--join", ""),
        ("network", "create", "ours", "--test"),
        ("network", "show"),
        ("network", "invite"),
        ("doctor",),
        ("preset", "list"),
        ("preset", "show", "pytorch"),
        ("primary", "list"),
        ("primary", "show", "kubernetes"),
    ):
        document = json.loads(run(*arguments, "--json", home=tmp_path).stdout)
        assert faults(document, schema_of(document["schema"])) == []


def test_a_document_that_does_not_keep_to_its_schema_is_found() -> None:
    schema = schema_of("version")
    assert faults({"schema": "p2pnode.version/1", "client": "1"}, schema) == []
    wrongs: list[object] = [
        {"schema": "p2pnode.version/1"},
        {"schema": "p2pnode.version/2", "client": "1"},
        {"schema": "p2pnode.version/1", "client": 1},
        {"schema": "p2pnode.version/1", "client": "1", "more": 1},
        [],
    ]
    for wrong in wrongs:
        assert faults(wrong, schema) != []


def as_json(document: msgspec.Struct) -> Any:
    return json.loads(msgspec.json.encode(document))


async def test_what_a_node_tells_keeps_to_its_schemas(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    owner = (await party.add(ask=300_000)).node
    renter = (await party.add(ask=None)).node
    await trio.sleep(5)
    file = renter.jobs.submit(make_submission(renter))
    with trio.fail_after(600):
        while (driver := renter.jobs.driver(file.id)).file.state not in ENDED:
            await driver.changed.wait()
    jobs = JobViews(renter, FileBaggage(tmp_path))
    ledger = LedgerViews(renter.ports.ledger, renter.replication.take, clock=renter.ports.clock)
    money = money_views(renter)
    told = [
        money.accounts(),
        money.statement(None, since_ms=None, until_ms=None),
        await money.debts(),
        status_of(renter, up_since=EPOCH),
        offers_of(renter, Wish(), limit=9),
        offer_of(renter, renter.market.offers()[0].head[0].hex()[:6]),
        arrivals_of(renter),
        jobs.list_jobs(9),
        jobs.show(file.id),
        jobs.receipt(file.id),
        jobs.auction(file.id),
        jobs.leases(),
        await why_no_match(renter, file.id),
        bids_of(owner, since_ms=0, limit=9),
        no_work(owner, since_ms=0),
        market_of(renter, since_ms=0),
        jobs.take_back(None, YieldOrder()),
        ledger.ledger(),
        ledger.feed(renter.ports.ledger.feed.hex(), first=0, limit=9),
        ledger.evidence(None, limit=9),
        ledger.forks(),
        await ledger.prune(PruneOrder(older_than_ms=86_400_000)),
        await ledger.export_to(ExportOrder(file=str(tmp_path / "export"))),
        await ledger.import_from(ImportOrder(file=str(tmp_path / "export"))),
        reputation_of(renter, owner.identity.feed.public.hex(), why=True),
    ]
    for document in map(as_json, told):
        assert faults(document, schema_of(document["schema"])) == []
    assert len({document["schema"] for document in map(as_json, told)}) == len(told)
    # The server warns of what its next version will not take; here a warning is an error.
    others = [*job_routes(jobs), *ledger_routes(ledger), *money_routes(money)]
    assert build_app(services_of(renter, up_since=EPOCH), others).routes
