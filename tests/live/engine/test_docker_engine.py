"""Real containers: the suite of all engines, and the walls that only they have."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from p2pnode.execution.docker_engine import DockerEngine
from p2pnode.execution.engine import Run
from p2pnode.execution.workspace import make_workspace, workspace_of
from protocol.errors import LocalFault
from protocol.units import MillisSpan
from tests import engine_suite as suite
from tests.engine_suite import make_run
from tests.live.engine.containers import Python, output_of, python
from tests.live.engine.dockerd import Dockerd

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
async def test_containers_conform(
    engine: DockerEngine, check: Callable[[DockerEngine, suite.Programs], Awaitable[None]]
) -> None:
    await check(engine, Python())


async def test_the_images_that_are_here_are_told(engine: DockerEngine) -> None:
    assert engine._default_image is not None
    named = bytes.fromhex(engine._default_image.removeprefix("sha256:"))
    assert named in (await engine.images() or ())


async def test_there_is_no_network_but_loopback(engine: DockerEngine) -> None:
    run = make_run(python("import socket; print([name for _, name in socket.if_nameindex()])"))
    assert await output_of(engine, run) == "['lo']\n"


async def test_a_job_is_nobody_and_has_no_capability(engine: DockerEngine) -> None:
    run = make_run(
        python(
            "import os, re; print(os.getuid(), os.getgid(), os.getgroups());"
            "print(*re.findall('(?:CapBnd|CapEff|NoNewPrivs|Seccomp):.*', "
            "open('/proc/self/status').read()))"
        )
    )
    words = (await output_of(engine, run)).split()
    assert words[:3] == ["65534", "65534", "[]"] or words[:3] == ["65534", "65534", "[65534]"]
    assert dict(zip(words[3::2], words[4::2], strict=True)) == {
        "CapEff:": "0" * 16,
        "CapBnd:": "0" * 16,
        "NoNewPrivs:": "1",
        "Seccomp:": "2",
    }


async def test_only_the_own_directory_and_tmp_can_be_written(
    engine: DockerEngine, tmp_path: Path
) -> None:
    text = """
import os
for path in ("/", "/usr", "/etc", "/work", "/work/given", os.environ["P2PNODE_OUT"], "/tmp",
             os.environ["TMPDIR"], os.environ["HOME"], "/dev/shm"):
    try:
        open(path + "/file", "w").write("x")
        print(path, "yes")
    except OSError as error:
        print(path, error.strerror)
os.chmod(os.environ["P2PNODE_OUT"] + "/file", 0)
"""
    run = make_run(python(text))
    workspace = workspace_of(tmp_path, run.id)
    make_workspace(workspace)
    given = workspace.work / "given"
    given.mkdir(0o700)
    (given / "input").write_text("1")
    said = dict(line.split(" ", 1) for line in (await output_of(engine, run)).splitlines())
    assert [path for path, can in said.items() if can == "yes"] == [
        *("/work", "/work/given", "/work/out", "/tmp", "/work/tmp", "/dev/shm")
    ]
    assert (workspace.out / "file").read_text() == "x"


async def test_the_memory_limit_ends_a_job(engine: DockerEngine) -> None:
    run = make_run(python("x = b'x' * (1 << 30)"), bounds=suite.limits(memory_mib=64))
    ending = await suite.ending_of(engine, run)
    assert (ending.cause, ending.exit_code, ending.signal) == ("memory", None, 9)


async def test_a_child_that_the_memory_limit_ends_is_mentioned(engine: DockerEngine) -> None:
    child = "import subprocess, sys; print(subprocess.call([sys.executable, '-c', {!r}]))"
    run = make_run(python(child.format("x = b'x' * (1 << 30)")), bounds=suite.limits(memory_mib=64))
    ending = await suite.ending_of(engine, run)
    assert (ending.cause, ending.exit_code) == ("exit", 0)
    assert ending.detail == "the memory limit killed a part of the job"


async def test_what_is_in_tmp_is_memory(engine: DockerEngine) -> None:
    text = """
for path in ("/tmp/big", "/dev/shm/big"):
    open(path, "wb").write(bytes(48 << 20))
x = b"x" * (40 << 20)
"""
    ending = await suite.ending_of(
        engine, make_run(python(text), bounds=suite.limits(memory_mib=128))
    )
    assert (ending.cause, ending.signal) == ("memory", 9)


async def test_the_number_of_processes_is_bounded(engine: DockerEngine) -> None:
    text = """
import os
for count in range(100):
    try:
        if os.fork() == 0:
            import time
            time.sleep(60)
    except BlockingIOError:
        break
print(count)
"""
    run = make_run(python(text), bounds=suite.limits(pids=10))
    assert await output_of(engine, run) == "8\n"


async def test_processor_time_is_bounded(engine: DockerEngine) -> None:
    text = """
import os, time
while time.process_time() < 0.5: pass
first, second = "/sys/fs/cgroup/cpu/cpu.stat", "/sys/fs/cgroup/cpu.stat"
print(open(first if os.path.exists(first) else second).read())
"""
    run = make_run(python(text), bounds=replace(suite.limits(), cpus_milli=200))
    stat = dict(line.split() for line in (await output_of(engine, run)).splitlines() if line)
    assert int(stat["nr_throttled"]) > 5


async def test_the_disk_limit_ends_a_job(engine: DockerEngine) -> None:
    text = "import time; open('big', 'wb').write(bytes(40 << 20)); time.sleep(60)"
    run = make_run(python(text), bounds=suite.limits(disk_mib=8))
    ending = await suite.ending_of(engine, run)
    assert (ending.cause, ending.exit_code, ending.signal) == ("disk", None, 9)
    assert ending.detail.endswith("MiB of 8")


async def test_a_stop_reaches_children_too(engine: DockerEngine) -> None:
    text = """
import os, signal, sys, time
def end(*_):
    print("child ended", flush=True)
    os._exit(0)
if os.fork() == 0:
    signal.signal(signal.SIGTERM, end)
    print("ready", flush=True)
    time.sleep(600)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
os.wait()
"""
    run = make_run(python(text))
    await engine.start(run)
    await suite.wait_said(engine, run.id, "ready")
    ending = await engine.stop(run.id, grace_ms=MillisSpan(10_000))
    assert (ending.cause, ending.exit_code) == ("stopped", 5)
    assert "child ended" in await suite.text_of(engine, run.id)


async def refusal(engine: DockerEngine, run: Run) -> str:
    with pytest.raises(LocalFault) as caught:
        await engine.start(run)
    with pytest.raises(LocalFault):
        await engine.wait(run.id)
    assert await engine.adopt() == ()
    return caught.value.what


async def test_what_this_engine_has_not_is_refused(engine: DockerEngine, daemon: Dockerd) -> None:
    unknown = f"sha256:{'1' * 64}"
    run = make_run(Python().says("x"))
    cases = {
        "is not named by its digest": Run(id=run.id, argv=run.argv, limits=run.limits, image="a:b"),
        "is not on this host": Run(id=run.id, argv=run.argv, limits=run.limits, image=unknown),
        "is no GPU": make_run(Python().says("x"), devices=("all",)),
        # There is none on a host without a GPU; with one, the job would get it.
        "capabilities: [[gpu]]": make_run(Python().says("x"), devices=("GPU-0",)),
        "LD_PRELOAD loads code": make_run(Python().says("x"), variables={"LD_PRELOAD": "x"}),
        "CUDA_INJECTION64_PATH loads": make_run(
            Python().says("x"), variables={"CUDA_INJECTION64_PATH": "x"}
        ),
    }
    for why, refused in cases.items():
        assert why in await refusal(engine, refused)
    assert daemon.client("GET", "/containers/json?all=1").strip() == "[]"
    assert await output_of(engine, run) == "x\n"


async def test_what_the_gpu_runtime_reads_is_ours(engine: DockerEngine) -> None:
    text = "import os; print(*(f'{k}={v}' for k, v in sorted(os.environ.items())), sep='\\n')"
    run = make_run(
        python(text),
        variables={"NVIDIA_VISIBLE_DEVICES": "all", "LD_LIBRARY_PATH": "/work", "MINE": "1 2"},
    )
    said = dict(line.split("=", 1) for line in (await output_of(engine, run)).splitlines())
    assert said["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert said["LD_LIBRARY_PATH"].startswith("/usr/local/nvidia")
    assert said["MINE"] == "1 2"
    assert said["HOME"] == "/work"


async def test_the_last_unfinished_line_is_logged_however_its_pipe_is_read(
    engine: DockerEngine,
) -> None:
    # Docker may write the end of the one pipe down after later pieces of the other.
    text = "import os; os.write(1, b'a'); os.write(2, b'%d\\n'); os.write(1, b'last')"
    for number in range(20):
        run = make_run(python(text % number), number=100 + number)
        await suite.ending_of(engine, run)
        log = b"".join([part.data for part in await suite.whole_log(engine, run.id)])
        assert sorted(log) == sorted(b"a%d\nlast" % number)


async def test_bytes_of_any_kind_are_logged_as_they_are(engine: DockerEngine) -> None:
    run = make_run(python("import os; os.write(1, bytes(range(256)) * 300); os.write(2, b'end')"))
    await suite.ending_of(engine, run)
    log = b"".join([part.data for part in await suite.whole_log(engine, run.id)])
    # Docker reads the two pipes by turns, so where one comes among the other is not told.
    assert log.count(b"end") == 1
    assert log.replace(b"end", b"") == bytes(range(256)) * 300
