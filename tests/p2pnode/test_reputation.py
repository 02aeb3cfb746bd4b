"""What a node tells of a peer's standing, and where each number comes from."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from litestar import Litestar

from ledger.rules import BUNDLES
from ledger.succession import end_of, successors
from p2pnode.api.app import exception_handlers
from p2pnode.api.reputation_documents import (
    FindingDocument,
    ReputationDocument,
    StandingOffence,
)
from p2pnode.api.reputation_routes import reputation_routes
from p2pnode.api.schemas import schema_of
from p2pnode.api.server import serve_api
from p2pnode.home import find_home
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from p2pnode.reputation_views import reputation_of
from protocol.units import PublicKey
from tests.json_schema import faults
from tests.make_job import make_submission
from tests.make_ledger import Feed, at, certificate, genesis, signer
from tests.make_node import LISTED_S, Party, ended
from tests.p2pnode.test_ledger_views import p2pnode
from tests.p2pnode.test_standing import cheat

NUMBERS = {
    "kept_ppm",
    "reliability_ppm",
    "credit_micro",
    "flow_micro",
    "reserved_micro",
    "good_micro",
    "bad_micro",
    "failures_seen",
}

ENDED = ReputationDocument(
    feed="aaaa",
    ego="cccc",
    epoch=1,
    bundle="",
    money="TEST",
    standing="ended",
    kept_ppm=0,
    reliability_ppm=0,
    credit_micro=0,
    flow_micro=0,
    reserved_micro=0,
    good_micro=0,
    bad_micro=0,
    failures_seen=0,
    rivals=(),
    offences=(
        StandingOffence(
            rule="A4", what="it cheated", evidence="", feed="bbbb", kept_ppm=0, ends_standing=True
        ),
    ),
    attested=(),
    why=(
        FindingDocument(
            name="kept_ppm",
            value=0,
            entries=("02",),
            proofs=("04",),
            overdue=("03",),
            said_by=("01",),
            note="why not",
            left_out=9,
        ),
    ),
    digest="",
)


def checked(document: ReputationDocument) -> Any:
    """The document as JSON, which follows its schema and gives a reason for each number."""
    plain = json.loads(msgspec.json.encode(document))
    assert faults(plain, schema_of(plain["schema"])) == []
    assert {each["name"]: each["value"] for each in plain["why"]} == {
        name: plain[name] for name in NUMBERS
    }
    for each in plain["why"]:
        assert each["entries"] or each["note"]
    return plain


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


def rotate(of: Node, known_to: Node) -> PublicKey:
    """The other node learns that this one's account goes on in another feed: which."""
    own, root, new = of.identity.feed.public, of.identity.root, signer(77)
    assert root is not None
    here, there = of.ports.ledger, known_to.ports.ledger
    head = here.head(own)
    assert head is not None
    said = successors(
        here.state,
        certificate=of.identity.certificate_raw,
        ended=end_of(here.state, own, head=head.seq),
        into=new.public,
        root=root,
        net=of.net,
        at=at(0),
    )
    feed = Feed(new, net=of.net, rules=next(iter(BUNDLES)))
    named = certificate(new, net=of.net, root=root)
    begun = msgspec.structs.replace(genesis(new), certificate=named)
    old = here.entries(own, 0, head.seq + 1)
    for raw in (*old, feed.add(begun).raw, *(feed.add(body).raw for body in said)):
        there.ingest(raw)
    assert own in there.state.feeds_of_account(new.public)
    return new.public


async def test_an_offender_that_goes_on_in_a_new_feed_is_ended_there_too_with_the_proof(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    bad = (await party.add(ask=300_000)).node
    node = (await party.add(ask=None)).node
    await trio.sleep(LISTED_S)
    new, old = rotate(bad, node), bad.identity.feed.public
    before = checked(reputation_of(node, new.hex(), why=True))
    assert (before["standing"], before["offences"]) == ("good", [])
    cheat(bad, node)
    for feed in (new, old):
        document = checked(reputation_of(node, feed.hex(), why=True))
        assert (document["standing"], document["kept_ppm"]) == ("ended", 0)
        [offence] = document["offences"]
        assert (offence["rule"], offence["feed"]) == ("A4", old.hex())
        kept = next(each for each in document["why"] if each["name"] == "kept_ppm")
        assert kept["proofs"] == [offence["evidence"]]
        assert len(kept["entries"]) == 2
        assert (node.standing.bars(feed) or "").startswith("proved: A4")


async def test_after_a_job_every_number_has_its_reason_and_long_lists_are_cut(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = (await party.add(ask=300_000)).node
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    node, feed = renter.node, owner.identity.feed.public.hex()
    assert (await ended(renter, node.jobs.submit(make_submission(node)).id)).state == "done"
    await trio.sleep(1)
    whole = checked(reputation_of(node, feed, why=True))
    assert whole["good_micro"] > 0
    assert whole["flow_micro"] > 0
    why = {each["name"]: each for each in whole["why"]}
    for name in ("credit_micro", "flow_micro", "good_micro", "reliability_ppm"):
        assert (len(why[name]["entries"]), why[name]["left_out"]) == (2, 0)
    assert why["good_micro"]["said_by"] == [node.identity.feed.public.hex()]
    cut = {each.name: each for each in reputation_of(node, feed, why=True, limit=1).why}
    assert (len(cut["flow_micro"].entries), cut["flow_micro"].left_out) == (1, 1)


@pytest.mark.slow
async def test_the_command_prints_what_each_number_comes_from(tmp_path: Path) -> None:
    asked = []

    def show(peer: str, why: bool, limit: int) -> ReputationDocument:
        asked.append((peer, why, limit))
        return ENDED

    app = Litestar(
        route_handlers=reputation_routes(show),
        exception_handlers=exception_handlers(),
        logging_config=None,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_api, app, find_home(tmp_path).socket)
        told = await p2pnode(tmp_path, "reputation", "show", "ab", "--why", "--limit", "-1")
        nursery.cancel_scope.cancel()
    assert asked == [("ab", True, 0)]
    assert "proved       A4: it cheated, as feed bbbb\n" in told
    assert told.endswith(
        "kept_ppm = 0 comes from\n  why not\n  word of 01\n  entry 02\n  overdue 03\n  proof 04\n"
        "  and 9 more; see them with --limit\n"
    )
