"""An owner's rules on whole nodes: signed refusals with reasons, at once, kept, never undone."""

from itertools import combinations, product
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from msgspec import UNSET
from msgspec.structs import replace

from p2pnode.api.owner_documents import RuleOrder, RuleTestOrder
from p2pnode.cabinet import MemoryCabinet
from p2pnode.cli.why import why_lines
from p2pnode.config import Workloads
from p2pnode.jobs.jobfile import JobFile
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from p2pnode.own_rules import OwnRules
from p2pnode.rule_views import RuleViews
from p2pnode.screening import Guest, Kind, Rule, Verdict
from p2pnode.why_views import why_no_match
from protocol.advert import WorkloadPolicy, keeps_out
from protocol.auction import Refusal
from protocol.codec import decode
from protocol.errors import LocalFault
from protocol.limits import AUCTION_BYTES_MAX
from protocol.scoring import AuctionRecord
from protocol.wire import unpack
from tests import make
from tests.make_desk import Clock, Owner
from tests.make_job import make_submission
from tests.make_node import Party, Started, ended, stop


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


def views(node: Node) -> RuleViews:
    return RuleViews(node.terms.rules)


async def runs(renter: Started) -> JobFile:
    return await ended(renter, renter.node.jobs.submit(make_submission(renter.node)).id)


def key_of(renter: Started) -> str:
    return renter.node.identity.feed.public.hex()


async def test_a_denied_renter_gets_nothing_and_the_next_owner_serves_it(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    # M7
    owner, renter = await party.add(ask=300_000), await party.add(ask=None)
    await trio.sleep(3)
    added = views(owner.node).add_rule(
        RuleOrder(verdict="deny", kind="renter", pattern=key_of(renter))
    )
    file = await runs(renter)
    assert file.state == "failed"
    assert "policy" in str(file.why)
    other = await party.add(ask=350_000)
    await trio.sleep(3)
    assert (await runs(renter)).state == "done"
    assert len(other.node.books.leases()) == 1
    views(owner.node).remove_rule(added.rule.name)
    assert (await runs(renter)).state == "done"
    assert len(owner.node.books.leases()) == 1


async def test_an_image_that_is_not_wanted_costs_nobody_anything(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    # M7
    renter = await party.add(ask=None)
    dear = await party.add(ask=350_000)
    picky = await party.start(
        party.build(
            ask=300_000,
            choose=lambda config: replace(
                config, workloads=Workloads(allow_images=("ghcr.io/me/*",))
            ),
        )
    )
    await trio.sleep(3)
    job = make_submission(renter.node, image=f"ghcr.io/you/app@sha256:{'a' * 64}")
    assert (await ended(renter, renter.node.jobs.submit(job).id)).state == "done"
    assert picky.node.desk.refused == {"POLICY": 1}
    assert picky.node.books.leases() == []
    assert len(dear.node.books.leases()) == 1
    assert renter.node.standing.bars(picky.node.identity.feed.public) is None


async def test_rules_hold_after_a_restart_and_never_end_a_lease(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    # M7
    renter = await party.add(ask=None)
    owner = await party.add(ask=300_000)
    await trio.sleep(3)
    job = renter.node.jobs.submit(make_submission(renter.node)).id
    driver = renter.node.jobs.driver(job)
    while driver.file.state != "running":
        await driver.changed.wait()
    views(owner.node).add_rule(RuleOrder(verdict="deny", kind="renter", pattern=key_of(renter)))
    assert (await ended(renter, job)).state == "done"
    await stop(owner)
    again = await party.start(party.revive(owner.node))
    await trio.sleep(3)
    [item] = views(again.node).rules().items
    assert (item.name, item.origin, item.pattern) == ("r1", "allow add", key_of(renter))
    assert (await runs(renter)).state == "failed"


async def test_what_is_said_of_rules_is_what_they_do(party: Party) -> None:
    choice = Workloads(deny_regions=("FR",), allow_networks=("10.0.0.0/8",))
    node = party.build(ask=1, choose=lambda config: replace(config, workloads=choice))
    own = node.identity.certificate
    tried = views(node).test_rules
    assert tried(RuleTestOrder(region="DE")).let_in
    assert tried(RuleTestOrder(region="FR")).why == "the owner denies renters of region FR"
    assert tried(RuleTestOrder(region="FR", renter=own.root.hex())).let_in
    assert not tried(RuleTestOrder(address="192.0.2.1")).let_in
    assert [item.name for item in views(node).rules().items] == ["c1", "c2"]
    for name, said in (("c1", "from config.toml"), ("r1", "No rule")):
        with pytest.raises(LocalFault, match=said):
            views(node).remove_rule(name)
    with pytest.raises(LocalFault):
        views(node).add_rule(RuleOrder(verdict="deny", kind="region", pattern="europe"))


async def test_a_refusal_is_signed_and_says_why() -> None:
    # M7
    owner = Owner(1, Clock())
    owner.screened[make.RENTER.public] = "the owner denies renters of region FR"
    reply = await owner.ask("rfq", owner.rfq(region="FR"))
    assert isinstance(reply.no, bytes)
    refusal = unpack(reply.no, make.NET, Refusal)
    assert refusal.signer == owner.key.public
    assert (refusal.body.reason, refusal.body.detail) == (
        "POLICY",
        "the owner denies renters of region FR",
    )


async def test_a_renters_region_is_judged_with_its_question(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    renter = await party.add(ask=None)  # it says that it is in DE
    owner = await party.add(ask=300_000)
    await trio.sleep(3)
    rule = RuleOrder(verdict="allow", kind="region", pattern="NL")
    views(owner.node).add_rule(rule)
    assert (await runs(renter)).state == "failed"
    views(owner.node).add_rule(RuleOrder(verdict="allow", kind="region", pattern="DE"))
    assert (await runs(renter)).state == "done"


OTHERS = tuple(f"A{letter}" for letter in "ABCDEFGHIJKLMNOPQ")
"""More regions than an advert tells, so that the owner is asked."""


@pytest.mark.parametrize(
    ("verdict", "regions", "why"),
    [
        ("deny", (*OTHERS, "DE"), "the owner denies renters of region DE"),
        ("allow", OTHERS, "the owner allows region AA, AB"),
    ],
)
async def test_a_renter_hears_under_the_owners_key_why_its_region_is_kept_out(
    party: Party,
    autojump_clock: trio.abc.Clock,
    verdict: Verdict,
    regions: tuple[str, ...],
    why: str,
) -> None:
    """At once, without a restart, and for no lease that runs already."""
    renter = await party.add(ask=None)  # it says that it is in DE
    owner = await party.add(ask=300_000)
    await trio.sleep(3)
    job = renter.node.jobs.submit(make_submission(renter.node)).id
    driver = renter.node.jobs.driver(job)
    while driver.file.state != "running":
        await driver.changed.wait()
    for region in regions:
        views(owner.node).add_rule(RuleOrder(verdict=verdict, kind="region", pattern=region))
    assert (await ended(renter, job)).state == "done"
    file = await runs(renter)
    assert file.state == "failed"
    raw = renter.node.ports.cabinet.get(f"jobs/{file.id}/auction-{file.attempt}")
    assert raw is not None
    record = decode(raw, AuctionRecord, size_max=AUCTION_BYTES_MAX)
    said = [unpack(each, renter.node.net, Refusal) for each in record.refusals]
    assert {(each.signer, each.body.renter) for each in said} == {
        (owner.node.identity.feed.public, renter.node.identity.feed.public)
    }
    for each in said:
        assert each.body.reason == "POLICY"
        assert str(each.body.detail).startswith(why)
    assert len(owner.node.books.leases()) == 1


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (("deny", "region", "DE"), "no renters of DE"),
        (("allow", "region", "NL"), "renters of NL only"),
        (("allow", "image", "ghcr.io/me/*"), "jobs with an image of the owner's list only"),
    ],
)
async def test_whom_an_advert_keeps_out_does_not_ask_and_hears_why(
    party: Party, autojump_clock: trio.abc.Clock, rule: tuple[Any, Any, str], why: str
) -> None:
    renter = await party.add(ask=None)  # it says that it is in DE
    owner = await party.add(ask=300_000)
    await trio.sleep(3)
    verdict, kind, pattern = rule
    added = views(owner.node).add_rule(RuleOrder(verdict=verdict, kind=kind, pattern=pattern))
    await trio.sleep(2)
    file = await runs(renter)
    assert file.state == "failed"
    assert why in file.why
    assert owner.node.desk.refused == {}
    told = await why_no_match(renter.node, file.id)
    assert told.shut_out == {why: 1}
    assert f"  1 more are not asked: {why}" in why_lines(msgspec.to_builtins(told))
    views(owner.node).remove_rule(added.rule.name)
    await trio.sleep(2)
    assert (await runs(renter)).state == "done"


def test_adverts_tell_of_rules_what_a_renter_can_judge_and_no_names() -> None:
    own = make.certificate()
    rules = OwnRules(Workloads(), own=own, cabinet=MemoryCabinet())

    def told() -> WorkloadPolicy | None:
        return rules.stated

    assert told() is None
    rules.add(Rule("deny", "renter", "7f" * 32))
    rules.add(Rule("deny", "image", "nginx"))
    assert told() is None
    rules.add(Rule("allow", "renter", "80" * 32))
    rules.add(Rule("allow", "region", "NL"))
    rules.add(Rule("allow", "region", "DE"))
    rules.add(Rule("deny", "region", "FR"))
    expected = WorkloadPolicy(regions=("DE", "NL"), not_regions=("FR",), only=("renters",))
    assert told() == expected
    for region in OTHERS:
        rules.add(Rule("allow", "region", region))
    assert told() == WorkloadPolicy(not_regions=("FR",), only=("renters",))


def test_an_advert_keeps_out_nobody_whom_its_owner_would_let_in() -> None:
    """All sets of three rules, and all renters: who is left alone would have been refused."""
    words: list[tuple[Verdict, Kind, str]] = [
        ("allow", "region", "DE"), ("deny", "region", "DE"), ("allow", "region", "NL"),
        ("deny", "region", "NL"), ("allow", "image", "nginx"), ("deny", "image", "nginx"),
        ("allow", "network", "10.0.0.0/8"), ("deny", "renter", "7f" * 32),
    ]  # fmt: skip
    kept_out = 0
    for some in combinations(words, 3):
        rules = OwnRules(Workloads(), own=make.certificate(), cabinet=MemoryCabinet())
        for each in some:
            rules.add(Rule(*each))
        advert = make.advert(policy=rules.stated or UNSET)
        for region, image in product((None, "DE", "NL"), (None, f"nginx@sha256:{'a' * 64}")):
            if keeps_out(advert, region=region, has_image=image is not None):
                kept_out += 1
                guest = Guest(image=image, region=region, address="10.0.0.1")
                assert rules.why_not(guest, ("region", "image")) is not None
    assert kept_out > 100


def test_what_bars_an_account_bars_the_jobs_of_all_its_peers() -> None:
    account, first, second = (make.signer(number).public for number in (7, 8, 9))
    one, other = (make.certificate(root=account, feed=feed) for feed in (first, second))
    rules = OwnRules(Workloads(), own=make.certificate(), cabinet=MemoryCabinet())
    job = make.job()
    assert rules.bars_job(job, one) is rules.bars_job(job, other) is None
    rules.add(Rule("deny", "renter", account.hex()))
    for renter in (one, other):
        assert rules.bars_job(job, renter) == rules.bars(renter, None, None)
        assert rules.bars_job(job, renter) == "the owner denies this renter"
    stranger = make.certificate(root=make.signer(10).public, feed=make.signer(10).public)
    assert rules.bars_job(job, stranger) is None


def test_an_owners_other_peers_may_run_what_strangers_may_not() -> None:
    own = make.certificate()
    rules = OwnRules(Workloads(allow_images=("ghcr.io/me/*",)), own=own, cabinet=MemoryCabinet())
    job = make.job()
    assert rules.bars_job(job, make.certificate(feed=make.signer(9).public)) is None
    stranger = make.certificate(root=make.signer(10).public, feed=make.signer(10).public)
    assert rules.bars_job(job, stranger) == "the owner allows image ghcr.io/me/* only"
