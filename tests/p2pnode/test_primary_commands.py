"""A primary behind real commands: what they are told, and that none of them can hold us up."""

import os
import sys
from pathlib import Path

import msgspec
import pytest
import trio

from p2pnode.jobs.hybrid import StillStarting
from p2pnode.jobs.primary_commands import CommandPrimary
from p2pnode.jobs.primary_template import Template, load_template, values_of
from protocol.errors import LocalFault, Unavailable
from testnet.bench.stand_in import StandIn, make_stand_in
from tests.transport_suite import until

HOSTILE = ("sh", "-c", "echo '$(reboot)'; \"{name}\" && `x` | y > z\n", "{file}", "--", "ü")


def values(name: str = "job-22222222") -> dict[str, object]:
    return values_of(
        name=name, argv=HOSTILE, variables={}, image=None, input_folder=None, models=(),
        regions=(), gpus=2, vram_mib=22_889, cpus_milli=1_000, memory_mib=1, disk_mib=1, time_ms=1,
    )  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> StandIn:
    return make_stand_in(tmp_path / "cluster")


def primary_of(cluster: StandIn, tmp_path: Path) -> CommandPrimary:
    return CommandPrimary(load_template(str(cluster.template)), tmp_path / "rentals")


def printing(program: str, **changes: object) -> Template:
    """A template all of whose commands are this Python program."""
    command = (sys.executable, "-c", program)
    template = Template(about="Prints.", start=command, state=command, stop=command, log=command)
    return msgspec.structs.replace(template, **changes)


def kept(file: str) -> tuple[object, int]:
    """What is in the file, and who may read it."""
    path = Path(file)
    return msgspec.json.decode(path.read_bytes()), path.stat().st_mode & 0o777


async def test_a_job_arrives_as_it_is_and_is_gone_when_it_is_stopped(
    cluster: StandIn, tmp_path: Path
) -> None:
    primary = primary_of(cluster, tmp_path)
    cluster.says("sent")
    assert await primary.ask("start", values()) == (0, "sent\n")
    [told] = cluster.told()
    assert (told.verb, told.name) == ("start", "job-22222222")
    assert told.words[1:] == ("gpus=2", "vram=23")
    assert kept(told.words[0]) == ({"argv": list(HOSTILE)}, 0o600)
    assert primary.template.read(*await primary.ask("state", values())) == ("ended", 3)
    assert await primary.ask("stop", values()) == (0, "\n")
    assert await primary.ask("stop", values()) == (0, "\n")
    assert primary.template.read(*await primary.ask("state", values())) == ("absent", None)
    assert await primary.read_log(values(), skip=6, size_max=4) == b"from"


async def test_out_of_stock_is_an_answer(cluster: StandIn, tmp_path: Path) -> None:
    primary = primary_of(cluster, tmp_path)
    cluster.says("no stock")
    answer = await primary.ask("start", values())
    assert answer == (75, "no stock\n")
    assert primary.template.read(*answer) == ("out_of_stock", None)


async def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    command = ("sh", "-c", "sleep 600 & echo $! > child; sleep 600")
    template = msgspec.structs.replace(printing(""), start=command, start_within="2s")
    with pytest.raises(Unavailable, match="does not answer within 2 s"):
        await CommandPrimary(template, tmp_path).ask("start", values())
    child = int((tmp_path / "job-22222222" / "child").read_text())
    await until(lambda: not lives(child))
    assert await primary_that_prints("again", tmp_path).ask("start", values()) == (0, "again\n")


def lives(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def primary_that_prints(text: str, root: Path) -> CommandPrimary:
    return CommandPrimary(printing(f"print({text!r})"), root)


async def test_what_a_command_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys\n"
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(left.pid)"
    )
    primary = CommandPrimary(printing(program), tmp_path)
    with trio.fail_after(30):
        code, printed = await primary.ask("start", values())
    os.kill(int(printed), 9)
    assert code == 0


async def test_a_flood_is_read_and_not_kept(tmp_path: Path) -> None:
    program = "import sys\nfor _ in range(80): sys.stdout.write('x' * 100_000)"
    primary = CommandPrimary(printing(program), tmp_path)
    code, printed = await primary.ask("state", values())
    assert (code, len(printed)) == (0, 4_194_304)
    assert len(await primary.read_log(values(), skip=7_999_990, size_max=50)) == 10


async def test_a_log_is_what_was_printed_without_the_complaints(tmp_path: Path) -> None:
    program = "import sys; print('log'); print('warning', file=sys.stderr)"
    primary = CommandPrimary(printing(program), tmp_path)
    assert await primary.read_log(values(), skip=0, size_max=50) == b"log\n"
    broken = CommandPrimary(printing("raise SystemExit(1)"), tmp_path)
    with pytest.raises(Unavailable):
        await broken.read_log(values(), skip=0, size_max=50)


async def test_a_log_counts_with_each_exit_code_that_the_template_names(tmp_path: Path) -> None:
    template = printing("print('so far'); raise SystemExit(101)")
    with pytest.raises(Unavailable, match="has no log"):
        await CommandPrimary(template, tmp_path).read_log(values(), skip=0, size_max=99)
    named = msgspec.structs.replace(template, log_exits=(0, 101))
    primary = CommandPrimary(named, tmp_path)
    assert await primary.read_log(values(), skip=0, size_max=99) == b"so far\n"


async def test_one_start_of_a_job_at_a_time_also_over_our_own_death(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    program = "import time; open('begun', 'w'); time.sleep(600)"
    slow = CommandPrimary(printing(program), tmp_path)

    async def start() -> None:
        await slow.ask("start", values())

    nursery.start_soon(start)
    begun = tmp_path / "job-22222222" / "begun"
    await until(begun.exists)
    quick = primary_that_prints("sent", tmp_path)
    with pytest.raises(StillStarting):
        await quick.ask("start", values())
    assert quick.is_starting(values())
    assert not quick.is_starting(values("job-33333333"))
    assert await quick.ask("state", values()) == (0, "sent\n")
    assert (await quick.ask("start", values("job-33333333")))[0] == 0
    nursery.cancel_scope.cancel()


async def test_a_program_that_is_not_here_is_said(tmp_path: Path) -> None:
    template = msgspec.structs.replace(printing(""), start=("no-such-program",))
    primary = CommandPrimary(template, tmp_path)
    with pytest.raises(LocalFault, match="no-such-program"):
        primary.check(values())
    with pytest.raises(Unavailable, match="no-such-program"):
        await primary.ask("start", values())
