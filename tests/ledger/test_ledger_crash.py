"""A writer on real files is killed, and loses power. Small counts; `make shows` runs the large."""

import os
import random
import shutil
from pathlib import Path

import pytest

from testnet.ledger_author import make_folders
from testnet.ledger_crash import CrashPlan, Toll, _Place, run_ledger_crash
from testnet.world_checks import Broken

pytestmark = pytest.mark.slow
needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="a C compiler is missing: .ci/headers installs it"
)


def crash(*, kills: int, loses_power: bool, group: int = 1, is_synced: bool = True) -> Toll:
    plan = CrashPlan(
        kills=kills, appends=400, loses_power=loses_power, seed=7, group=group, is_synced=is_synced
    )
    return run_ledger_crash(plan, say=lambda _text: None)


def test_a_killed_writer_has_lost_nothing_that_it_acknowledged() -> None:
    toll = crash(kills=4, loses_power=False)
    assert toll.holds, toll
    assert toll.kills == 4
    assert toll.appends >= 400


@needs_compiler
def test_a_writer_that_lost_power_has_lost_nothing_that_it_acknowledged() -> None:
    toll = crash(kills=6, loses_power=True)
    assert toll.holds, toll
    assert toll.kills == 6
    assert toll.appends >= 400


@needs_compiler
def test_a_writer_of_groups_that_lost_power_has_handed_out_nothing_that_it_takes_back() -> None:
    toll = crash(kills=6, loses_power=True, group=20)
    assert toll.holds, toll
    assert toll.appends >= 400


@needs_compiler
def test_a_loss_of_power_takes_what_was_not_synced_and_the_guard_notices() -> None:
    toll = crash(kills=2, loses_power=True, is_synced=False)
    assert toll.lost > 0
    assert toll.forks == 0
    assert sum(toll.refusals.values()) == 2, "a feed was continued that had lost its end"
    assert not toll.holds


def test_a_writer_that_hangs_is_told_of_and_killed(tmp_path: Path) -> None:
    make_folders(tmp_path)
    # LevelDB opens this to read it, and nobody will ever write.
    os.mkfifo(tmp_path / "db" / "CURRENT")
    plan = CrashPlan(kills=1, appends=1, loses_power=False, seed=7, hangs_s=1)
    place = _Place(home=tmp_path, name="hangs", plan=plan, toll=Toll(), disk=None)
    with pytest.raises(Broken, match="hangs after 0 appends"):
        place.live_and_die(random.Random(7), 1)
