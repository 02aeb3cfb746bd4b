"""Of the owners that failed a job as many are remembered as its file has room for."""

from types import SimpleNamespace
from typing import cast

from msgspec import UNSET

from ledger.fold import Lease
from p2pnode.cabinet import MemoryCabinet
from p2pnode.jobs.desk import Desk
from p2pnode.jobs.driver import Driver
from p2pnode.jobs.jobfile import AVOID_MAX, JobFile, TakingRecord, load_all, save
from p2pnode.jobs.moving import moved
from protocol.errors import PeerFault
from protocol.signing import peer_id_of
from protocol.units import Micros, PublicKey
from tests import make
from tests.make_job import make_jobfile

OWNERS = [PublicKey(number.to_bytes(32, "big")) for number in range(AVOID_MAX + 2)]


def kept(file: JobFile) -> JobFile:
    """As the node has it after its next start."""
    cabinet = MemoryCabinet()
    save(cabinet, file)
    [found] = load_all(cabinet)
    return found


def test_a_job_that_many_owners_failed_moves_on_and_is_there_after_a_start() -> None:
    file = make_jobfile()
    for owner in OWNERS:
        request = SimpleNamespace(money="TEST", end_ms=make.NOW)
        lease = cast("Lease", SimpleNamespace(owner=owner, request=request))
        file = moved(
            file, lease, why="", is_preempted=False, now=make.NOW, owed=Micros(0), nonce=bytes(16)
        )
    assert kept(file).avoid == tuple(OWNERS[-AVOID_MAX:])


async def test_an_owner_that_breaks_a_rule_before_its_lease_takes_the_place_of_the_oldest() -> None:
    failed: list[PublicKey] = []
    cabinet = MemoryCabinet()
    desk = SimpleNamespace(failed=failed.append, cabinet=cabinet)
    file = make_jobfile(avoid=tuple(OWNERS[:AVOID_MAX]))
    driver = Driver(cast("Desk", desk), file)
    for owner in OWNERS[AVOID_MAX:]:
        driver.change(
            taking=TakingRecord(peer=peer_id_of(make.PEER.public), owner=owner, request=b"")
        )
        await driver._leave(PeerFault("grant.form"))
    assert failed == OWNERS[AVOID_MAX:]
    assert (driver.file.avoid, driver.file.taking) == (tuple(OWNERS[-AVOID_MAX:]), UNSET)
    assert load_all(cabinet) == [driver.file]
