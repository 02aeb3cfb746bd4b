"""The whole ledger on LevelDB and a guard file, through reopening and a kill."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledger.file_guard import open_file_guard
from ledger.ledger import Ledger
from ledger.leveldb_store import LevelDbStore, open_leveldb
from protocol.errors import LocalFault
from tests.make_ledger import (
    NET,
    OWNER,
    RENTER,
    Feed,
    at,
    genesis,
    ledger,
    opened_ledger,
    sealed_request,
    statement,
)

ROOT = Path(__file__).parent.parent.parent


def on_disk(home: Path) -> tuple[Ledger, LevelDbStore]:
    store = open_leveldb(str(home / "db"))
    return ledger(store=store, guard=open_file_guard(home / "guard", NET)), store


def test_a_ledger_is_reopened_as_it_was(tmp_path: Path) -> None:
    mine, store = on_disk(tmp_path)
    mine.append(genesis(OWNER), at(0))
    granted = mine.grant(sealed_request(), at(0))
    mine.ingest(Feed(RENTER).open().raw)
    heads, state = mine.heads(), mine.state
    store.close()
    again, store = on_disk(tmp_path)
    assert again.heads() == heads
    assert again.state == state
    assert again.grant(sealed_request(), at(9)) == granted
    assert again.verify().broken is None
    store.close()


def test_an_audit_in_another_thread_is_of_the_moment_in_which_it_began(tmp_path: Path) -> None:
    mine, store = on_disk(tmp_path)
    mine.append(genesis(OWNER), at(0))
    audit = mine.begin_audit()
    mine.ingest(Feed(RENTER).open().raw)
    mine.append(statement(), at(1))
    with ThreadPoolExecutor(max_workers=1) as threads:
        report = threads.submit(audit, lambda: None).result()
    assert (report.feeds, report.entries, report.broken) == (1, 1, None)
    report = mine.verify()
    assert (report.feeds, report.entries, report.broken) == (2, 3, None)
    store.close()


def test_an_audit_ends_when_its_caller_does_not_want_it_any_more() -> None:
    mine = opened_ledger()
    walked: list[int] = []

    def go_on() -> None:
        walked.append(1)
        if len(walked) == 2:
            raise KeyboardInterrupt

    mine.append(statement(), at(1))
    mine.append(statement(ctr=1), at(2))
    with pytest.raises(KeyboardInterrupt):
        mine.begin_audit()(go_on)
    assert len(walked) == 2


def test_a_database_that_lost_its_tail_is_noticed_by_the_guard(tmp_path: Path) -> None:
    mine, store = on_disk(tmp_path)
    mine.append(genesis(OWNER), at(0))
    for n in range(5):
        mine.append(statement(ctr=n), at(n))
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "db", copy / "db")
    shutil.copy(tmp_path / "guard", copy / "guard")
    store.close()
    (copy / "db" / "LOCK").unlink()
    [log] = (copy / "db").glob("*.log")
    log.write_bytes(log.read_bytes()[:-900])
    again, store = on_disk(copy)
    with pytest.raises(LocalFault, match="recover"):
        again.append(statement(ctr=9), at(9))
    store.close()


CHILD = """
import sys
from pathlib import Path
from tests.ledger.test_on_disk import on_disk
from tests.make_ledger import OWNER, at, genesis, statement
mine, _ = on_disk(Path(sys.argv[1]))
print(mine.append(genesis(OWNER), at(0)).raw.hex(), flush=True)
for n in range(100_000):
    print(mine.append(statement(ctr=n), at(n)).raw.hex(), flush=True)
"""


def test_what_was_handed_out_before_a_kill_is_there(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        handed = [bytes.fromhex(child.stdout.readline().decode()) for _ in range(20)]
        child.kill()
        rest = child.stdout.read().decode().split("\n")[:-1]
    handed += [bytes.fromhex(line) for line in rest]
    again, store = on_disk(tmp_path)
    entries = list(again.entries(again.feed, 0, 10**6))
    assert entries[: len(handed)] == handed
    assert len(entries) <= len(handed) + 1
    assert again.fault() is None
    again.append(statement(ctr=10**6, used=10**6), at(10**6))
    assert again.verify().broken is None
    store.close()
