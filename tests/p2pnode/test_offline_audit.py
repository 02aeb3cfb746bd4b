"""`p2pnode ledger verify --offline`: the walk of a ledger whose node is down."""

import json
import secrets
from contextlib import closing
from pathlib import Path

from ledger import keys
from ledger.file_guard import open_file_guard
from ledger.leveldb_store import open_leveldb
from p2pnode.api.schemas import schema_of
from p2pnode.cabinet import MemoryCabinet
from p2pnode.clock import SystemClock
from p2pnode.home import Home, find_home, locked
from p2pnode.identity import load_identity
from p2pnode.membership import genesis_of
from p2pnode.own_feed import open_own_feed
from protocol.genesis import net_of
from tests.json_schema import faults
from tests.p2pnode.test_cli import run

VERIFY = ("ledger", "verify", "--offline")


def founded(folder: Path) -> Home:
    """A home with a network whose ledger holds the first entry of our feed."""
    run("network", "create", "ours", "--test", home=folder)
    home = find_home(folder)
    net = net_of(genesis_of(home))
    now = SystemClock().now()
    with closing(open_leveldb(str(home.ledger))) as store:
        open_own_feed(
            load_identity(home, net, now),
            net=net,
            store=store,
            guard=open_file_guard(home.feed_guard, net),
            cabinet=MemoryCabinet(),
            incarnation=1,
            is_new=True,
            now=now,
            random_bytes=secrets.token_bytes,
        )
    return home


def test_a_sound_ledger_is_said_to_be_so(tmp_path: Path) -> None:
    founded(tmp_path)
    done = run(*VERIFY, home=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1 entries of 1 feeds, 0 proofs: ok\n")
    document = json.loads(run(*VERIFY, "--json", home=tmp_path).stdout)
    assert faults(document, schema_of("ledger.verify")) == []


def test_a_damaged_entry_is_named(tmp_path: Path) -> None:
    home = founded(tmp_path)
    with closing(open_leveldb(str(home.ledger))) as store:
        [(key, raw)] = store.range(keys.ENTRIES, keys.after(keys.ENTRIES))
        store.write({key: raw[:-1] + bytes([raw[-1] ^ 1])}, sync=True)
    done = run(*VERIFY, home=tmp_path)
    assert done.returncode == 1
    assert done.stdout.endswith(f"entry.body: entry 0 of feed {key[1:33].hex()}\n")


def test_a_node_that_is_up_is_said_to_be(tmp_path: Path) -> None:
    home = founded(tmp_path)
    with locked(home):
        done = run(*VERIFY, home=tmp_path)
    assert done.returncode == 1
    assert "another node runs on this home" in done.stderr


def test_where_there_is_no_ledger_none_is_made(tmp_path: Path) -> None:
    assert "belongs to no network" in run(*VERIFY, home=tmp_path).stderr
    run("network", "create", "ours", "--test", home=tmp_path)
    done = run(*VERIFY, home=tmp_path)
    assert done.returncode == 1
    assert "there is no ledger in " in done.stderr
    assert list(find_home(tmp_path).ledger.iterdir()) == []


def test_nothing_is_deleted_where_the_database_has_lost_its_beginning(tmp_path: Path) -> None:
    home = founded(tmp_path)
    (home.ledger / "CURRENT").unlink()
    before = sorted(home.ledger.iterdir())
    for command in (VERIFY, ("doctor",)):
        done = run(*command, home=tmp_path)
        assert done.returncode == 1
        assert "is damaged: CURRENT is missing" in done.stdout + done.stderr
        assert sorted(home.ledger.iterdir()) == before
