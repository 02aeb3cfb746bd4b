"""`p2pnode key rotate`: an account goes on in a new feed, wherever a crash comes between."""

import json
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ledger.bodies import Genesis, encode_body, read_body
from ledger.continuity_bodies import RULES_SIGNAL, RulesSignal, Successor
from ledger.entry import draft_entry, link_of, read_entry, seal
from ledger.fork_evidence import prove_fork
from ledger.ledger import Ledger
from ledger.leveldb_store import open_leveldb
from p2pnode import home as home_module
from p2pnode import identity as identity_module
from p2pnode.api.schemas import schema_of
from p2pnode.cabinet import MemoryCabinet
from p2pnode.clock import SystemClock
from p2pnode.home import Home, find_home, locked
from p2pnode.identity import (
    is_cut_short,
    is_feed_new,
    keep_succession,
    load_identity,
    note_feed_begun,
)
from p2pnode.membership import genesis_of
from p2pnode.own_feed import open_own_feed
from p2pnode.own_store import open_own_guard
from p2pnode.succession import plan_rotation, rotate_feed
from protocol.errors import LocalFault
from protocol.genesis import net_of
from protocol.units import Digest, PublicKey
from tests.json_schema import faults
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
    assert plan == done
    assert done is not None
    assert (done.old, done.new, done.ended) == (old, feed_of(home), 1)
    assert (done.is_forked, done.open_leases, done.due) == (False, 0, {})
    check_goes_on(home, old)


def test_the_old_key_and_guard_are_kept(home: Home) -> None:
    old = feed_of(home)
    secret, guard = (home.keys / "feed.key").read_bytes(), home.feed_guard.read_bytes()
    rotate_feed(home, NOW, secrets.token_bytes)
    name = f"feed-{old.hex()[:16]}"
    assert (home.keys / f"{name}.key").read_bytes() == secret
    assert (home.keys / f"{name}.key").stat().st_mode & 0o777 == 0o600
    assert (home.guard / name).read_bytes() == guard


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


@pytest.mark.parametrize("count", range(1, 9))
def test_a_crash_at_any_write_leaves_the_old_feed_or_what_can_be_finished(
    home: Home, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    old = feed_of(home)
    left = count

    def dying(path: Path, data: bytes) -> None:
        nonlocal left
        left -= path.name != "node.pid"
        if left == 0:
            raise Killed
        home_module.write_durably(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(identity_module, "write_durably", dying)
        try:
            rotate_feed(home, NOW, secrets.token_bytes)
        except Killed:
            was_killed = True
        else:
            was_killed = False
    assert was_killed == (count <= 6)
    if is_cut_short(home):
        with pytest.raises(LocalFault, match="was cut short"):
            feed_of(home)
        assert plan_rotation(home, NOW) is None
        assert rotate_feed(home, NOW, secrets.token_bytes) is None
    elif feed_of(home) == old:
        assert rotate_feed(home, NOW, secrets.token_bytes) is not None
    check_goes_on(home, old)


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
