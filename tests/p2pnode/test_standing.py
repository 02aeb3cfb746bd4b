"""What a node makes of its ledger: whom it shuns, and whom it expects to finish."""

from pathlib import Path

import pytest
import trio

from ledger.fork_evidence import prove_fork
from ledger.ledger import Ledger
from ledger.rules import BUNDLES
from ledger.unit_evidence import prove_same_counter
from p2pnode.matching.judging import HAZARD_PPM_PER_HOUR
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.network.peer_text import peer_text
from p2pnode.node import Node
from p2pnode.reputation_views import reputation_of
from p2pnode.standing import REST_US_PER_ACCOUNT, Standing
from p2pnode.words import OFFENCES
from protocol.auction import Refusal
from protocol.codec import decode
from protocol.errors import LocalFault
from protocol.limits import AUCTION_BYTES_MAX
from protocol.rules import BUNDLE
from protocol.scoring import PPM, AuctionRecord
from protocol.signing import peer_id_of
from protocol.units import Micros, Millis, PublicKey
from protocol.wire import unpack
from tests.ledger.test_attested import Past
from tests.make_desk import Clock
from tests.make_history import Market as History
from tests.make_history import share
from tests.make_job import make_submission
from tests.make_ledger import (
    HOUR,
    OWNER,
    RENTER,
    STRANGER,
    UNIT,
    UNIT2,
    WITNESSES,
    Feed,
    at,
    grant,
    lease_request,
    opened_ledger,
    sealed,
    signer,
    statement,
)
from tests.make_node import LISTED_S, Party, ended
from tests.make_standing import Story


def standing(ledger: Ledger) -> tuple[Standing, Clock, dict[PublicKey, int]]:
    """Our standing over this ledger, its clock, and what we have seen fail."""
    clock, seen = Clock(at(0)), dict[PublicKey, int]()
    return Standing(ledger=ledger, money="USD", failures=lambda: seen, clock=clock), clock, seen


def owner_feed() -> tuple[Ledger, Feed]:
    """A renter's ledger, and an owner's feed that is in it."""
    ledger, feed = opened_ledger(RENTER), Feed(OWNER, rules=next(iter(BUNDLES)))
    ledger.ingest(feed.open().raw)
    return ledger, feed


def double_lease(feed: Feed) -> bytes:
    branch = feed.branch()
    pair = feed.add(grant()), branch.add(grant(start=5, end=HOUR, nonce=1))
    one, other = sorted(pair, key=lambda each: each.draft.hdr)
    return prove_same_counter(UNIT, one, other)


def test_an_owner_without_history_has_the_value_of_a_newcomer() -> None:
    ledger, _ = owner_feed()
    assert standing(ledger)[0].reliability_ppm(OWNER.public) == 500_000


def test_nobody_deals_with_an_owner_that_leased_twice_from_the_moment_it_is_proved() -> None:
    ledger, feed = owner_feed()
    here, _, _ = standing(ledger)
    assert here.bars(OWNER.public) is None
    assert here.reliability_ppm(OWNER.public) > 0
    ledger.accuse(double_lease(feed))
    assert (here.bars(OWNER.public) or "").startswith("proved: A4, it leased a GPU twice")
    assert here.reliability_ppm(OWNER.public) == 0
    assert here.bars(STRANGER.public) is None


def test_a_fork_without_a_double_lease_bars_nobody() -> None:
    ledger, feed = owner_feed()
    here, _, _ = standing(ledger)
    branch = feed.branch()
    proof = prove_fork(feed.add(statement(used=1)), branch.add(statement(used=2)))
    assert proof is not None
    ledger.accuse(proof)
    assert here.bars(OWNER.public) is None
    assert 0 < here.reliability_ppm(OWNER.public) < 500_000


def test_a_newcomer_has_little_behind_it_and_nothing_bad() -> None:
    ledger, feed = owner_feed()
    here, _, seen = standing(ledger)
    assert here.is_newcomer(OWNER.public)
    assert here.is_clean(STRANGER.public)
    seen[OWNER.public] = 1
    assert not here.is_newcomer(OWNER.public)
    assert not here.is_clean(OWNER.public)
    seen.clear()
    branch = feed.branch()
    proof = prove_fork(feed.add(statement(used=1)), branch.add(statement(used=2)))
    assert proof is not None
    ledger.accuse(proof)
    here.reckon()
    assert not here.is_newcomer(OWNER.public)
    assert here.is_newcomer(STRANGER.public)


def test_an_owner_that_took_bronze_back_from_us_is_expected_to_do_so_again() -> None:
    past = History()
    here, clock, _ = standing(past.renter)
    assert here.hazard_ppm_per_hour(OWNER.public) == HAZARD_PPM_PER_HOUR
    for _ in range(4):
        past.lease()  # for half an hour each
    share(past.owner, past.renter)
    clock.at = past.day()
    assert here.hazard_ppm_per_hour(OWNER.public) == -(-PPM // 22)
    request = lease_request(
        ((UNIT2, past.owner.state.turn(OWNER.public, UNIT2).ctr + 1),),  # type: ignore[union-attr]
        start=past.now,
        end=past.now + 3 * HOUR,
        nonce=100,
        issued=past.now,
    )
    granted = past.owner.grant(sealed(request), at(past.now))
    share(past.owner, past.renter)
    past.renter.accept(granted.id, at(past.now))
    clock.at = at(past.now + HOUR)
    assert here.hazard_ppm_per_hour(OWNER.public) == -(-PPM // 23)
    past.owner.release(granted.id, clock.at, at_ms=at(past.now + 2 * HOUR), reason="preempted")
    share(past.owner, past.renter)
    clock.at = at(past.now + 3 * HOUR)
    assert here.hazard_ppm_per_hour(OWNER.public) == -(-2 * PPM // 24)
    # What it did to others, or says that it did not, is nothing that we have met.
    share(past.owner, past.here)
    other, _, _ = standing(past.here)
    assert other.hazard_ppm_per_hour(OWNER.public) == HAZARD_PPM_PER_HOUR


def test_what_this_node_saw_fail_counts_at_once() -> None:
    ledger, _ = owner_feed()
    here, _, seen = standing(ledger)
    before = here.reliability_ppm(OWNER.public)
    seen[OWNER.public] = 1
    once = here.reliability_ppm(OWNER.public)
    seen[OWNER.public] = 5
    assert here.reliability_ppm(OWNER.public) < once < before


@pytest.mark.parametrize("attested", [0, 1])
def test_entries_that_came_count_once_the_last_reckoning_is_old_enough(attested: int) -> None:
    """Also when witnesses attest a failure, of which this node has seen nothing."""
    ledger, story, past = opened_ledger(STRANGER), Story(), Past()
    for witness in WITNESSES[:2]:
        past.probe(witness)
    for entry in past.entries if attested else []:
        ledger.ingest(entry.raw)
    here, clock, seen = standing(ledger)

    def trades() -> int:
        return len(here.trust().view.facts.trades)

    assert trades() == 0
    assert len(here.trust().view.failures) == attested
    story.settle(signer(4), signer(5), 600_000)
    for entry in story.entries:
        ledger.ingest(entry.raw)
    assert trades() == 0
    clock.at = Millis(at(0) + len(ledger.state.accounts()) * REST_US_PER_ACCOUNT // 1_000 + 1)
    assert trades() == 1
    reckoned = here.trust()
    clock.at = Millis(clock.at + HOUR)
    assert here.trust() is reckoned, "nothing has changed"
    seen[OWNER.public] = 1
    assert len(here.trust().view.failures) == attested + 1


def test_each_row_of_the_bundle_has_its_words() -> None:
    assert set(OFFENCES) == set(BUNDLE.penalties)


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


def cheat(of: Node, known_to: Node) -> None:
    """The other node learns of a double lease of this one."""
    feed = Feed(of.identity.feed, net=of.net, rules=next(iter(BUNDLES)))
    feed.open()
    known_to.ports.ledger.accuse(double_lease(feed))


async def test_a_renter_does_not_ask_an_owner_that_leased_twice(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    bad, good = [(await party.add(ask=ask)).node for ask in (300_000, 400_000)]
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    cheat(bad, renter.node)
    file = renter.node.jobs.submit(make_submission(renter.node))
    assert (await ended(renter, file.id)).state == "done"
    assert (bad.desk.quoted, bad.desk.refused, good.desk.granted) == (0, {}, 1)
    alone = renter.node.jobs.submit(make_submission(renter.node, ask_max=Micros(350_000)))
    assert "1 offender" in (await ended(renter, alone.id)).why


async def test_an_owner_refuses_a_renter_that_leased_twice_and_says_why(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = (await party.add(ask=300_000)).node
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    cheat(renter.node, owner)
    file = renter.node.jobs.submit(make_submission(renter.node))
    assert (await ended(renter, file.id)).state == "failed"
    raw = renter.node.ports.cabinet.get(f"jobs/{file.id}/auction-1")
    assert raw is not None
    record = decode(raw, AuctionRecord, size_max=AUCTION_BYTES_MAX)
    told = [unpack(refusal, owner.net, Refusal).body for refusal in record.refusals]
    assert {(each.reason, each.detail) for each in told} == {
        ("POLICY", "proved: A4, it leased a GPU twice: two entries bear one counter of it")
    }
    assert owner.desk.granted == 0


async def test_after_a_job_its_owner_is_more_reliable_and_the_reasons_can_be_shown(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = (await party.add(ask=300_000)).node
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    node, feed = renter.node, owner.identity.feed.public
    before = reputation_of(node, peer_text(owner.identity.certificate.peer_id), why=False)
    assert (before.standing, before.reliability_ppm, before.why) == ("good", 500_000, ())
    file = node.jobs.submit(make_submission(node))
    assert (await ended(renter, file.id)).state == "done"
    await trio.sleep(1)
    after = reputation_of(node, feed.hex()[:16], why=True)
    assert after.reliability_ppm == node.standing.reliability_ppm(feed) > 500_000
    by_name = {each.name: each for each in after.why}
    own = node.identity.feed.public
    [half] = node.ports.ledger.state.halves(feed, own, money="TEST")
    assert half.id.hex() in by_name["reliability_ppm"].entries
    assert len(by_name["reliability_ppm"].entries) == 2
    assert after.offences == ()
    cheat(owner, node)
    ended_now = reputation_of(node, feed.hex(), why=True)
    assert (ended_now.standing, ended_now.kept_ppm, ended_now.credit_micro) == ("ended", 0, 0)
    assert [(each.rule, each.claim) for each in ended_now.offences] == [("A4", "proved")]
    assert ended_now.digest != after.digest


async def test_a_name_that_is_nobodys_is_said_to_be(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    node = (await party.add(ask=None)).node
    stranger = peer_text(peer_id_of(STRANGER.public))
    for name, what in (("00" * 32, "No feed"), ("x", "no peer id"), (stranger, "not met")):
        with pytest.raises(LocalFault, match=what):
            reputation_of(node, name, why=False)
    own = node.identity.certificate
    assert reputation_of(node, peer_text(own.peer_id), why=False).feed == own.feed.hex()
