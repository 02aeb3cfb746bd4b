"""Real processes, by the suite that every engine passes, and what only processes promise."""

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.clock import SystemClock
from p2pnode.execution.confinement import Bounds, cores
from p2pnode.execution.engine import Run, RunId
from p2pnode.execution.process_engine import ProcessEngine
from p2pnode.execution.process_tree import Process, is_alive, status_of
from p2pnode.execution.records import read_record
from p2pnode.execution.spec import Spec, read_spec, write_spec
from p2pnode.execution.workspace import list_workspaces, remove_workspace, workspace_of
from protocol.errors import LocalFault
from tests import engine_suite as suite

NODE = """
import sys, trio
from tests.p2pnode.test_process_engine import make_engine, script
from tests.engine_suite import make_run
from pathlib import Path

async def main():
    engine = make_engine(Path(sys.argv[1]))
    for number, text in enumerate(sys.argv[2:]):
        await engine.start(make_run(script(text), number=number))
    print("up", flush=True)
    await trio.sleep_forever()

trio.run(main)
"""
ROOT = Path(__file__).parents[2]
# Ignores TERM, and has left the session and the process group of the job.
STRAY = """
setsid sh -c 'trap "" TERM; echo $$ > stray; echo ready; while :; do sleep 1; done' &
"""


def make_engine(jobs: Path) -> ProcessEngine:
    return ProcessEngine(jobs, clock=SystemClock(), files=trio.CapacityLimiter(4))


def script(text: str) -> suite.Argv:
    return ("/bin/sh", "-c", text)


class Shell:
    """See Programs."""

    def exits(self, code: int) -> suite.Argv:
        return script(f"exit {code}")

    def kills_itself(self) -> suite.Argv:
        return script("kill -9 $$")

    def says(self, text: str) -> suite.Argv:
        return ("echo", text)

    def counts(self, lines: int) -> suite.Argv:
        return ("seq", "-f", "%07.0f", f"{lines}")

    def sleeps(self) -> suite.Argv:
        return ("sleep", f"{suite.LONG_S}")

    def ignores_term(self) -> suite.Argv:
        return script("trap '' TERM; echo ready; while :; do sleep 1; done")

    def is_missing(self) -> suite.Argv:
        return ("no-such-program",)

    def is_no_program(self) -> suite.Argv:
        return ("/etc/passwd",)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Path]:
    """A Home.jobs; whatever a failed test leaves running is killed."""
    yield tmp_path
    for claim in tmp_path.glob("*/records/*"):
        facts = read_record(claim) or {}
        for name in {"supervisor", "job"} & set(facts):
            process = Process.parse(facts[name])
            if is_alive(process):
                os.kill(process.pid, signal.SIGKILL)
    for space in list_workspaces(tmp_path):
        remove_workspace(space)


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
async def test_processes_conform(
    jobs: Path, check: Callable[[ProcessEngine, suite.Programs], Awaitable[None]]
) -> None:
    await check(make_engine(jobs), Shell())


async def output_of(jobs: Path, run: Run) -> str:
    engine = make_engine(jobs)
    await suite.ending_of(engine, run)
    return await suite.text_of(engine, run.id)


async def test_the_environment_is_what_the_job_named_and_our_facts(
    jobs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("P2PNODE_SECRET", "leaked")
    run = suite.make_run(
        ("env",), variables={"A": "b\nc", "HOME": "/root"}, devices=("GPU-1", "GPU-2")
    )
    work = workspace_of(jobs, run.id).work
    text = await output_of(jobs, run)
    assert "leaked" not in text
    names = [line.partition("=")[0] for line in text.splitlines() if "=" in line]
    assert sorted(names) == [
        "A", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "HOME", "LANG",
        "P2PNODE_CHECKPOINT", "P2PNODE_NOTICE", "P2PNODE_OUT", "P2PNODE_RUN", "PATH", "TMPDIR",
    ]  # fmt: skip
    assert "A=b\nc\n" in text
    assert f"HOME={work}\n" in text
    assert f"P2PNODE_OUT={work}/out\n" in text
    assert "CUDA_VISIBLE_DEVICES=GPU-1,GPU-2\n" in text


async def test_a_job_without_gpus_sees_none(jobs: Path) -> None:
    run = suite.make_run(script('echo "${CUDA_VISIBLE_DEVICES-unset}"'))
    assert await output_of(jobs, run) == "\n"


async def test_it_stands_in_its_own_directory_which_nobody_else_may_enter(jobs: Path) -> None:
    run = suite.make_run(script('pwd; umask; touch "$TMPDIR/a" "$P2PNODE_OUT/b"; ls -a'))
    space = workspace_of(jobs, run.id)
    assert (await output_of(jobs, run)).split() == [
        str(space.work), "0077", ".", "..", ".p2pnode", "checkpoint", "out", "tmp",
    ]  # fmt: skip
    assert (space.scratch / "a").stat().st_mode & 0o777 == 0o600
    assert space.folder.stat().st_mode & 0o777 == 0o700


async def test_a_socket_fits_into_the_temporary_directory_however_long_the_home(
    jobs: Path,
) -> None:
    deep = jobs / ("long" * 25)
    deep.mkdir()
    text = "import multiprocessing.connection as c; print(c.Listener(family='AF_UNIX').address)"
    run = suite.make_run((sys.executable, "-c", text))
    assert "listener-" in await output_of(deep, run)
    assert not workspace_of(deep, run.id).shortcut.is_symlink()


async def test_no_descriptor_is_inherited_and_stdin_is_empty(jobs: Path) -> None:
    leak = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leak, True)
    try:
        # 3 is the directory that ls has opened.
        assert (await output_of(jobs, suite.make_run(script("cat; ls /proc/self/fd")))).split() == [
            "0", "1", "2", "3",
        ]  # fmt: skip
    finally:
        os.close(leak)


async def test_signals_are_as_at_a_login_and_the_owner_comes_first(jobs: Path) -> None:
    text = (
        "grep -E 'SigBlk|SigIgn' /proc/self/status; nice; ulimit -c; cat /proc/self/oom_score_adj"
    )
    _, blocked, _, ignored, *rest = (await output_of(jobs, suite.make_run(script(text)))).split()
    assert int(blocked, 16) == 0
    # Signals 32 and 33 are libc's own: it lets nobody set them back for a child.
    assert int(ignored, 16) & ~(3 << 31) == 0
    assert rest == [str(min(19, os.nice(0) + 10)), "0", "800"]


async def stray_of(jobs: Path, run: RunId) -> int:
    return int((workspace_of(jobs, run).work / "stray").read_text())


async def test_a_stop_kills_a_grandchild_that_left_the_session_and_ignores_term(
    jobs: Path,
) -> None:
    engine = make_engine(jobs)
    run = suite.make_run(script(STRAY + "wait"))
    await engine.start(run)
    await suite.wait_said(engine, run.id, "ready")
    await engine.stop(run.id, grace_ms=suite.SHORT_MS)
    assert status_of(await stray_of(jobs, run.id)) is None


async def test_nothing_outlives_the_job_that_left_it_behind(jobs: Path) -> None:
    engine = make_engine(jobs)
    run = suite.make_run(script(STRAY + "while ! test -s stray; do sleep 0.01; done; exit 4"))
    ending = await suite.ending_of(engine, run)
    assert (ending.cause, ending.exit_code) == ("exit", 4)
    assert status_of(await stray_of(jobs, run.id)) is None


async def test_a_chain_that_forks_away_from_its_signals_is_caught(jobs: Path) -> None:
    chain = "while True:\n if os.fork(): os._exit(0)\n os.setsid()"
    text = f"import os, time\nif os.fork(): time.sleep(60)\nprint('ready', flush=True)\n{chain}"
    engine = make_engine(jobs)
    run = suite.make_run((sys.executable, "-S", "-c", text))
    await engine.start(run)
    await suite.wait_said(engine, run.id, "ready")
    with trio.fail_after(suite.PATIENCE_S):
        assert (await engine.stop(run.id, grace_ms=suite.SHORT_MS)).cause == "stopped"


async def test_two_nodes_that_start_one_run_start_one_process(jobs: Path) -> None:
    run = suite.make_run(script("echo $$ >> started"))
    engines = [make_engine(jobs), make_engine(jobs)]
    async with trio.open_nursery() as nursery:
        for engine in engines:
            nursery.start_soon(engine.start, run)
    for engine in engines:
        await engine.wait(run.id)
    assert len((workspace_of(jobs, run.id).work / "started").read_text().split()) == 1


async def start_and_die(jobs: Path, *texts: str) -> None:
    """Be a node that starts these scripts as runs 0, 1, ... and is killed at once."""
    node = await trio.lowlevel.open_process(
        [sys.executable, "-c", NODE, str(jobs), *texts], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert node.stdout is not None
    async with node.stdout:
        try:
            assert (await node.stdout.receive_some()).startswith(b"up")
        finally:
            node.kill()
            with trio.CancelScope(shield=True):
                await node.wait()


async def test_a_job_goes_on_and_ends_while_its_node_is_dead(jobs: Path) -> None:
    short, long = suite.make_run((), number=0).id, suite.make_run((), number=1).id
    with trio.fail_after(suite.PATIENCE_S):
        await start_and_die(jobs, "sleep 0.2; exit 5", "echo ready; sleep 600")
        engine = make_engine(jobs)
        before = read_record(workspace_of(jobs, long).records / "job") or {}
        assert await engine.adopt() == (short, long)
        assert (await engine.wait(short)).exit_code == 5
        await engine.start(suite.make_run(script("echo another"), number=1))
        assert is_alive(Process.parse(before["job"]))
        assert await suite.text_of(engine, long) == "ready\n"
        assert (await engine.stop(long, grace_ms=suite.SHORT_MS)).cause == "stopped"
    assert not is_alive(Process.parse(before["job"]))


async def test_a_job_that_ended_while_its_node_was_dead_is_found_with_its_ending(
    jobs: Path,
) -> None:
    run = suite.make_run((), number=0).id
    ending = workspace_of(jobs, run).records / "ending"
    with trio.fail_after(suite.PATIENCE_S):
        await start_and_die(jobs, "sleep 0.2; echo done; exit 6")
        while read_record(ending) is None:  # noqa: ASYNC110 - files tell nobody
            await trio.sleep(0.02)
        engine = make_engine(jobs)
        assert await engine.adopt() == (run,)
        assert (await engine.wait(run)).exit_code == 6
        assert await suite.text_of(engine, run) == "done\n"


async def test_the_end_of_a_supervisor_is_the_end_of_its_run_and_nobody_blames_the_job(
    jobs: Path,
) -> None:
    engine = make_engine(jobs)
    run = suite.make_run(script(STRAY + "wait"))
    await engine.start(run)
    await suite.wait_said(engine, run.id, "ready")
    claim = read_record(workspace_of(jobs, run.id).records / "claim") or {}
    os.kill(Process.parse(claim["supervisor"]).pid, signal.SIGKILL)
    with trio.fail_after(suite.PATIENCE_S):
        ending = await engine.wait(run.id)
    assert (ending.cause, ending.exit_code, ending.signal) == ("engine", None, None)
    stray = status_of(await stray_of(jobs, run.id))
    assert stray is None or stray.state == "Z"


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("memory", "exec {python} -c 'x = bytearray(96 << 20); import time; time.sleep(60)'"),
        ("memory", "{python} -c 'x = bytearray(96 << 20); exit(1)'"),
        ("disk", "head -c 5000000 /dev/zero > a; head -c 5000000 /dev/zero > b; sleep 60"),
        ("pids", "for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; wait"),
    ],
)
async def test_a_job_beyond_a_limit_is_ended_and_told_why(
    jobs: Path, cause: str, text: str
) -> None:
    bounds = suite.limits(memory_mib=64, disk_mib=8, pids=8)
    run = suite.make_run(script(text.format(python=sys.executable)), bounds=bounds)
    ending = await suite.ending_of(make_engine(jobs), run)
    assert (ending.cause, ending.ended_ms - ending.started_ms < 10_000) == (cause, True)


async def test_a_file_cannot_be_larger_than_the_disk_that_was_agreed(jobs: Path) -> None:
    run = suite.make_run(("head", "-c", "9000000", "/dev/zero"), bounds=suite.limits(disk_mib=8))
    assert (await suite.ending_of(make_engine(jobs), run)).cause == "exit", "the log is no file"
    run = suite.make_run(
        script("exec head -c 9000000 /dev/zero > a"), number=2, bounds=suite.limits(disk_mib=8)
    )
    ending = await suite.ending_of(make_engine(jobs), run)
    assert (ending.cause, ending.signal) == ("disk", signal.SIGXFSZ)


async def test_a_signal_without_a_name_is_told_by_its_number(jobs: Path) -> None:
    text = "import os; os.kill(os.getpid(), 40)"
    ending = await suite.ending_of(
        make_engine(jobs), suite.make_run((sys.executable, "-S", "-c", text))
    )
    assert (ending.cause, ending.signal) == ("signal", 40)


async def test_images_are_refused(jobs: Path) -> None:
    run = Run(id=RunId("a" * 64), argv=("true",), image="sha256:1", limits=suite.limits())
    with pytest.raises(LocalFault, match="no images"):
        await make_engine(jobs).start(run)


async def test_a_run_that_cannot_be_recorded_is_not_started(jobs: Path) -> None:
    run = suite.make_run(("true",))
    space = workspace_of(jobs, run.id)
    space.folder.mkdir()
    space.log.write_text("in the way")
    engine = make_engine(jobs)
    with pytest.raises(LocalFault):
        await engine.start(run)
    assert await engine.adopt() == ()


@given(
    argv=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1),
    variables=st.dictionaries(
        st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]*\Z"),
        st.text(st.characters(codec="utf-8", exclude_characters="\0")),
    ),
    numbers=st.lists(st.integers(0, 2**63 - 1), min_size=5, max_size=5),
)
def test_a_supervisor_is_told_exactly_what_to_run(
    argv: list[str], variables: dict[str, str], numbers: list[int]
) -> None:
    spec = Spec(
        work=Path("/a\udcff/w=k"),
        log=Path("/l"),
        records=Path("/r"),
        argv=tuple(argv),
        variables=variables,
        bounds=Bounds(**dict(zip(Bounds.__slots__, numbers, strict=True))),
        log_bytes=7,
    )
    assert read_spec(write_spec(spec)) == spec


def test_cores_are_whole_and_at_most_those_that_there_are() -> None:
    assert cores(1_000, [0, 1, 2], 7) == [1]
    assert cores(1_001, [0, 1, 2], 2) == [2, 0]
    assert cores(0, [4], 3) == [4]
    assert cores(64_000, [0, 1], 1) == [1, 0]
