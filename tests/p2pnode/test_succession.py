"""`p2pnode key rotate`: an account goes on in a new feed, wherever a crash comes between."""

import json
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import UNSET

from ledger.bodies import Genesis, encode_body, read_body
from ledger.continuity_bodies import RULES_SIGNAL, RulesSignal, Successor
from ledger.entry import draft_entry, link_of, read_entry, seal
from ledger.fork_evidence import prove_fork
from ledger.ledger import Ledger
from ledger.leveldb_store import open_leveldb
from p2pnode.api.schemas import schema_of
from p2pnode.cabinet import FileCabinet, MemoryCabinet
from p2pnode.clock import SystemClock
from p2pnode.home import Home, find_home, locked
from p2pnode.identity import (
    is_between_feeds,
    is_feed_new,
    keep_succession,
    load_identity,
    note_feed_begun,
)
from p2pnode.jobs.jobfile import State, load_all, save
from p2pnode.membership import genesis_of
from p2pnode.own_feed import open_own_feed
from p2pnode.own_store import open_own_guard
from p2pnode.succession import WHY_ENDED, plan_rotation, rotate_feed
from protocol.errors import LocalFault
from protocol.genesis import net_of
from protocol.tick import Cause
from protocol.units import Digest, Millis, PublicKey
from protocol.wire import pack
from tests import make
from tests.json_schema import faults
from tests.make_job import make_jobfile
from tests.p2pnode.test_cli import run

NOW = SystemClock().now()


@contextmanager
def opened(home: Home) -> Iterator[Ledger]:
    """The ledger as a node opens it."""
    net = net_of(genesis_of(home))
    identity = load_identity(home, net, NOW)
    with closing(open_leveldb(str(home.ledger))) as store:
        yield open_own_feed(
            identity,
            net=net,
            store=store,
            guard=open_own_guard(home.feed_guard, net),
            cabinet=MemoryCabinet(),
            incarnation=1,
            is_new=is_feed_new(home, identity.feed.public),
            now=NOW,
            random_bytes=secrets.token_bytes,
        )
        note_feed_begun(home)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """One whose feed has an entry."""
    run("network", "create", "ours", "--test", home=tmp_path)
    made = find_home(tmp_path)
    with opened(made):
        pass
    return made


def feed_of(home: Home) -> PublicKey:
    return load_identity(home, net_of(genesis_of(home)), NOW).feed.public


def entries(ledger: Ledger) -> list[object]:
    """What our feed says."""
    raws = ledger.entries(ledger.feed, 0, 99)
    return [read_body(read_entry(raw, ledger.net).draft) for raw in raws]


def check_goes_on(home: Home, old: PublicKey, *, ended: int = 1) -> None:
    with opened(home) as ledger:
        assert ledger.feed != old
        first, second = entries(ledger)
        assert isinstance(first, Genesis)
        assert isinstance(second, Successor)
        assert second.ended == ended
        assert ledger.state.is_forked(old, ended)
        assert not ended or not ledger.state.is_forked(old, ended - 1)
        assert {old, ledger.feed} <= set(ledger.state.feeds_of_account(old))
        assert ledger.fault() is None
    with opened(home) as ledger:
        assert len(entries(ledger)) == 2


def test_the_next_feed_is_begun_as_the_successor_of_the_old(home: Home) -> None:
    old = feed_of(home)
    plan = plan_rotation(home, NOW)
    assert feed_of(home) == old
    done = rotate_feed(home, NOW, secrets.token_bytes)
    assert plan is not None
    assert done is not None
    assert done == replace(plan, new=done.new)
    assert plan.new is None
    assert (done.old, done.new, done.ended) == (old, feed_of(home), 1)
    assert (done.is_forked, done.open_leases, done.due, done.owes) == (False, 0, {}, {})
    check_goes_on(home, old)


def test_the_old_key_and_guard_are_kept(home: Home) -> None:
    old = feed_of(home)
    secret, guard = (home.keys / "feed.key").read_bytes(), home.feed_guard.read_bytes()
    rotate_feed(home, NOW, secrets.token_bytes)
    kept = home.keys / f"feed-{old.hex()[:16]}.key"
    assert kept.read_bytes() == secret
    assert kept.stat().st_mode & 0o777 == 0o600
    assert (home.guard / "feed.before-1").read_bytes() == guard


def test_it_can_be_done_again_and_again(home: Home) -> None:
    feeds = [feed_of(home)]
    for ended in (1, 2, 2):
        rotate_feed(home, NOW, secrets.token_bytes)
        check_goes_on(home, feeds[-1], ended=ended)
        feeds.append(feed_of(home))
    assert len(set(feeds)) == 4
    assert run("ledger", "verify", "--offline", home=home.data_dir).stdout.endswith(": ok\n")


def test_what_was_begun_before_is_not_said_by_a_feed_that_it_is_not_for(home: Home) -> None:
    keep_succession(home, PublicKey(bytes(32)), [])
    assert load_identity(home, net_of(genesis_of(home)), NOW).succeeds == ()
    home.succession.write_bytes(b"x")
    with pytest.raises(LocalFault, match="is damaged"):
        feed_of(home)


class Killed(Exception):
    """The host went down there."""


STEPS = (
    "p2pnode.identity.write_durably",
    "p2pnode.succession.sync_folder",
    "p2pnode.succession.end_all_under_way",
)
"""What changes the disk, and a little more."""


def dying(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies before that many of these steps."""
    left = count

    def step(done: Callable[..., object]) -> Callable[..., object]:
        def or_die(*arguments: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed
            return done(*arguments)

        return or_die

    for name in STEPS:
        module, _, function = name.rpartition(".")
        monkeypatch.setattr(name, step(getattr(sys.modules[module], function)))


@pytest.mark.parametrize("count", range(1, 11))
def test_a_crash_at_any_step_leaves_the_old_feed_or_what_can_be_finished(
    home: Home, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    old, was_killed = feed_of(home), False
    with monkeypatch.context() as patch:
        dying(count, patch)
        try:
            rotate_feed(home, NOW, secrets.token_bytes)
        except Killed:
            was_killed = True
    assert was_killed == (count < 10)
    if is_between_feeds(home):
        with pytest.raises(LocalFault, match="cut short"):
            feed_of(home)
        assert plan_rotation(home, NOW) is None
        assert rotate_feed(home, NOW, secrets.token_bytes) is None
    elif feed_of(home) == old:
        with opened(home) as ledger:
            assert ledger.fault() is None
            assert len(entries(ledger)) == 1
        assert rotate_feed(home, NOW, secrets.token_bytes) is not None
    check_goes_on(home, old)


def test_copies_of_one_home_go_on_in_feeds_of_their_own(home: Home, tmp_path: Path) -> None:
    old = feed_of(home)
    copy = find_home(tmp_path / "copy")
    shutil.copytree(home.data_dir, copy.data_dir, ignore=shutil.ignore_patterns("copy"))
    for each in (home, copy):
        rotate_feed(each, NOW, secrets.token_bytes)
        check_goes_on(each, old)
    assert feed_of(home) != feed_of(copy)


def test_a_home_from_before_signs_no_more_once_it_hears_of_the_new_feed(
    home: Home, tmp_path: Path
) -> None:
    old = feed_of(home)
    before = find_home(tmp_path / "copy")
    shutil.copytree(home.data_dir, before.data_dir, ignore=shutil.ignore_patterns("copy"))
    rotate_feed(home, NOW, secrets.token_bytes)
    with opened(home) as ledger:
        said = [*ledger.entries(ledger.feed, 0, 9)]
    with opened(before) as ledger:
        for raw in said:
            ledger.ingest(raw)
        fault = ledger.fault()
        assert fault is not None
        assert "p2pnode key rotate" in fault.cure
        with pytest.raises(LocalFault, match="goes on in another"):
            ledger.append(RulesSignal(bundle=Digest(b"a" * 32)), NOW)
    rotate_feed(before, NOW, secrets.token_bytes)
    check_goes_on(before, old)


def test_another_root_key_ends_nothing(home: Home) -> None:
    old, certificate = feed_of(home), home.certificate.read_bytes()
    (home.keys / "root.key").write_bytes(b"r" * 32)
    with pytest.raises(LocalFault, match="not that of this node's account"):
        rotate_feed(home, NOW, secrets.token_bytes)
    assert home.certificate.read_bytes() == certificate
    home.certificate.unlink()
    with pytest.raises(LocalFault, match="not the one with which our feed was begun"):
        rotate_feed(home, NOW, secrets.token_bytes)
    assert feed_of(home) == old


def test_a_store_behind_its_guard_is_recovered_first(home: Home) -> None:
    with closing(open_leveldb(str(home.ledger))) as store:
        kept = dict(store.range(b"", b"\xff" * 64))
    with opened(home) as ledger:
        for bundle in (b"a", b"b"):
            ledger.append(RulesSignal(bundle=Digest(bundle * 32)), NOW)
    shutil.rmtree(home.ledger)
    with closing(open_leveldb(str(home.ledger))) as store:
        store.write(kept, sync=True)
    with pytest.raises(LocalFault, match="must not be continued"):
        rotate_feed(home, NOW, secrets.token_bytes)


def test_a_crash_between_its_first_entries_leaves_the_others_to_write(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = feed_of(home)
    rotate_feed(home, NOW, secrets.token_bytes)
    with monkeypatch.context() as patch:
        patch.setattr("p2pnode.identity._succession", lambda *_: ())
        patch.setattr(f"{__name__}.note_feed_begun", lambda _: None)
        with opened(home) as ledger:
            assert len(entries(ledger)) == 1
    check_goes_on(home, old)


def test_a_forked_feed_ends_at_its_fork(home: Home) -> None:
    identity = load_identity(home, net_of(genesis_of(home)), NOW)
    old = identity.feed.public
    with opened(home) as ledger:
        [first] = ledger.entries(old, 0, 1)
        mine = ledger.append(RulesSignal(bundle=Digest(b"a" * 32)), NOW)
        draft = draft_entry(
            feed=old,
            after=link_of(read_entry(first, ledger.net).draft),
            ts_ms=NOW,
            kind=RULES_SIGNAL,
            rules=mine.header.rules,
            body=encode_body(RulesSignal(bundle=Digest(b"b" * 32))),
            net=ledger.net,
        )
        proof = prove_fork(mine, seal(draft, signer=identity.feed, net=ledger.net))
        assert proof is not None
        ledger.accuse(proof)
        fault = ledger.fault()
        assert fault is not None
        assert "p2pnode key rotate" in fault.cure
    done = rotate_feed(home, NOW, secrets.token_bytes)
    assert done is not None
    assert (done.is_forked, done.ended) == (True, 1)
    check_goes_on(home, old)


def lease_in(home: Home) -> Millis:
    """When a lease ends that the feed of this home has given."""
    identity = load_identity(home, net_of(genesis_of(home)), NOW)
    terms = make.lease_request(
        owner=identity.feed.public,
        units=make.turns(1),
        start_ms=Millis(NOW + 1_000),
        end_ms=Millis(NOW + 2_000),
        issued_ms=NOW,
        not_after_ms=Millis(NOW + 1_500),
    )
    net = net_of(genesis_of(home))
    with opened(home) as ledger:
        ledger.grant(pack(terms, signer=make.RENTER, net=net), NOW)
    return terms.end_ms


def test_a_lease_that_has_not_ended_is_only_left_when_that_is_said(home: Home) -> None:
    end_ms = lease_in(home)
    with pytest.raises(LocalFault, match="have not ended: 1"):
        rotate_feed(home, NOW, secrets.token_bytes)
    assert not home.succession.exists()
    plan = plan_rotation(home, end_ms)
    assert plan is not None
    assert plan.open_leases == 0
    done = rotate_feed(home, NOW, secrets.token_bytes, leave_leases=True)
    assert done is not None
    assert done.open_leases == 1


@pytest.mark.parametrize(
    ("cause", "state", "ends_as"),
    [
        ("exit", "settling", "done"),
        ("memory", "settling", "failed"),
        ("exit", "fetching", "failed"),
        (None, "running", "failed"),
        (None, "matching", "matching"),
    ],
)
def test_jobs_under_a_lease_of_the_old_feed_end(
    home: Home, cause: Cause | None, state: State, ends_as: State
) -> None:
    outcome = cause and pack(make.outcome(cause=cause), signer=make.FEED, net=make.NET)
    file = make_jobfile(
        state=state,
        lease=UNSET if state == "matching" else Digest(b"l" * 32),
        outcome=outcome or UNSET,
    )
    cabinet = FileCabinet(home.records)
    save(cabinet, file)
    rotate_feed(home, NOW, secrets.token_bytes)
    [left] = load_all(cabinet)
    assert left.state == ends_as
    assert (left.why == WHY_ENDED) == (ends_as != "matching")


def test_without_the_root_key_nothing_is_done(home: Home) -> None:
    files = sorted(home.keys.iterdir())
    (home.keys / "root.key").rename(home.data_dir / "root.key")
    with pytest.raises(LocalFault, match="Only the root key"):
        rotate_feed(home, NOW, secrets.token_bytes)
    (home.data_dir / "root.key").rename(home.keys / "root.key")
    assert sorted(home.keys.iterdir()) == files
    assert not home.succession.exists()


def test_a_feed_that_was_never_begun_needs_no_other(tmp_path: Path) -> None:
    run("network", "create", "ours", "--test", home=tmp_path)
    with pytest.raises(LocalFault, match="no feed here"):
        rotate_feed(find_home(tmp_path), NOW, secrets.token_bytes)


def test_the_command_asks_and_says_what_is_lost(home: Home) -> None:
    old = feed_of(home)
    with locked(home):
        assert "another node runs" in run("key", "rotate", "--yes", home=home.data_dir).stderr
    planned = run("key", "rotate", "--dry-run", home=home.data_dir)
    assert planned.stdout.startswith(f"old feed  {old.hex()}\n          ends before entry 1\n")
    assert run("key", "rotate", home=home.data_dir).returncode == 130
    assert "asks no questions" in run("key", "rotate", "--json", home=home.data_dir).stderr
    assert feed_of(home) == old
    done = json.loads(run("key", "rotate", "--yes", "--json", home=home.data_dir).stdout)
    assert faults(done, schema_of("key.rotate")) == []
    assert (done["state"], done["old"], done["new"]) == ("done", old.hex(), feed_of(home).hex())
    check_goes_on(home, old)
