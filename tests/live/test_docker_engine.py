"""Real containers of a dockerd of our own, by the suite that every engine passes, and their walls."""

import gc
import http.server
import json
import os
import socketserver
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import trio

from p2pnode.clock import SystemClock
from p2pnode.execution.docker_engine import DockerEngine
from p2pnode.execution.docker_image import ImageArchive, build_python_image
from p2pnode.execution.engine import Run
from p2pnode.execution.workspace import make_workspace, workspace_of
from protocol.errors import LocalFault, Unavailable
from protocol.units import MillisSpan
from tests import engine_suite as suite
from tests.engine_suite import make_run
from tests.live.engine.dockerd import Dockerd, dockerd

pytestmark = [pytest.mark.live, pytest.mark.slow]


def python(text: str) -> suite.Argv:
    return ("python3", "-c", text)


class Python:
    """See Programs."""

    def exits(self, code: int) -> suite.Argv:
        return python(f"raise SystemExit({code})")

    def kills_itself(self) -> suite.Argv:
        return python("import os; os.kill(os.getpid(), 9)")

    def says(self, text: str) -> suite.Argv:
        return python(f"print({text!r})")

    def counts(self, lines: int) -> suite.Argv:
        return python(f"for line in range(1, {lines + 1}): print(f'{{line:07}}')")

    def sleeps(self) -> suite.Argv:
        return python(f"import time; time.sleep({suite.LONG_S})")

    def ignores_term(self) -> suite.Argv:
        return python(
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
            f"print('ready', flush=True); time.sleep({suite.LONG_S})"
        )

    def is_missing(self) -> suite.Argv:
        return ("no-such-program",)

    def is_no_program(self) -> suite.Argv:
        return ("/etc/passwd",)


@pytest.fixture(scope="module")
def image() -> ImageArchive:
    return build_python_image()


@pytest.fixture(scope="module", params=[True, False], ids=["remapped", "plain"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Dockerd]:
    with dockerd(remaps=request.param) as engine:
        yield engine


def make_engine(jobs: Path, socket: Path, image: ImageArchive) -> DockerEngine:
    return DockerEngine(
        jobs,
        socket=socket,
        node="test",
        clock=SystemClock(),
        files=trio.CapacityLimiter(4),
        default_image=image.id,
    )


@pytest.fixture
async def engine(
    tmp_path: Path, daemon: Dockerd, image: ImageArchive, nursery: trio.Nursery
) -> DockerEngine:
    made = make_engine(tmp_path, daemon.socket, image)
    await nursery.start(made.run)
    await made.load(image)
    return made


@pytest.mark.parametrize("check", suite.CHECKS, ids=lambda check: check.__name__)
async def test_containers_conform(
    engine: DockerEngine, check: Callable[[DockerEngine, suite.Programs], Awaitable[None]]
) -> None:
    await check(engine, Python())


async def output_of(engine: DockerEngine, run: Run) -> str:
    ending = await suite.ending_of(engine, run)
    text = await suite.text_of(engine, run.id)
    assert (ending.cause, ending.exit_code) == ("exit", 0), text
    return text


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
print(open("/sys/fs/cgroup/cpu/cpu.stat").read() if os.path.exists("/sys/fs/cgroup/cpu")
      else open("/sys/fs/cgroup/cpu.stat").read())
"""
    bounds = suite.limits()
    run = make_run(python(text), bounds=type(bounds)(**{**_fields(bounds), "cpus_milli": 200}))
    throttled = [
        line.split()[1]
        for line in (await output_of(engine, run)).splitlines()
        if line.startswith("nr_throttled")
    ]
    assert int(throttled[0]) > 5


def _fields(bounds: object) -> dict[str, int]:
    return {name: getattr(bounds, name) for name in type(bounds).__struct_fields__}  # type: ignore[attr-defined]


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


async def test_a_container_that_somebody_removes_is_noticed(
    engine: DockerEngine, daemon: Dockerd
) -> None:
    run = make_run(python("import time; print('here', flush=True); time.sleep(600)"))
    await engine.start(run)
    await suite.wait_said(engine, run.id, "here")
    daemon.client("DELETE", f"/containers/p2pnode-{run.id}?force=1")
    with trio.fail_after(5):
        ending = await engine.wait(run.id)
    assert (ending.cause, ending.exit_code) == ("engine", None)
    assert await engine.stop(run.id, grace_ms=MillisSpan(0)) == ending
    assert await suite.text_of(engine, run.id) == "here\n"


TICKS = "import time\nfor n in range(600): print(n, flush=True); time.sleep(0.05)"


def numbers(text: str) -> list[int]:
    return [int(line) for line in text.split()]


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
async def test_an_engine_that_is_killed_and_comes_back_keeps_the_job(
    engine: DockerEngine, daemon: Dockerd
) -> None:
    run = make_run(python(TICKS))
    await engine.start(run)
    await suite.wait_said(engine, run.id, "5\n")
    await trio.to_thread.run_sync(daemon.kill)
    await trio.sleep(0.5)
    await trio.to_thread.run_sync(daemon.start)
    before = len(await suite.text_of(engine, run.id))
    with trio.fail_after(suite.PATIENCE_S):
        while len(await suite.text_of(engine, run.id)) < before + 60:  # noqa: ASYNC110
            await trio.sleep(0.05)
    ending = await engine.stop(run.id, grace_ms=MillisSpan(5_000))
    assert ending.cause == "stopped"
    said = numbers(await suite.text_of(engine, run.id))
    assert said == list(range(len(said)))
    lose_sockets()


async def test_a_node_that_was_killed_adopts_its_runs_and_misses_no_log(
    tmp_path: Path, daemon: Dockerd, image: ImageArchive
) -> None:
    ticking, ending_soon = make_run(python(TICKS)), make_run(python("print('bye')"), number=2)
    async with trio.open_nursery() as nursery:
        engine = make_engine(tmp_path, daemon.socket, image)
        await nursery.start(engine.run)
        await engine.load(image)
        await engine.start(ticking)
        await suite.wait_said(engine, ticking.id, "5\n")
        await engine.start(ending_soon)
        nursery.cancel_scope.cancel()
    await trio.sleep(0.5)
    async with trio.open_nursery() as nursery:
        engine = make_engine(tmp_path, daemon.socket, image)
        await nursery.start(engine.run)
        assert await engine.adopt() == (ticking.id, ending_soon.id)
        await engine.start(ticking)
        assert (await engine.wait(ending_soon.id)).exit_code == 0
        assert await suite.text_of(engine, ending_soon.id) == "bye\n"
        await suite.wait_said(engine, ticking.id, "25\n")
        ending = await engine.stop(ticking.id, grace_ms=MillisSpan(5_000))
        assert ending.cause == "stopped"
        said = numbers(await suite.text_of(engine, ticking.id))
        assert said == list(range(len(said)))
        nursery.cancel_scope.cancel()


async def test_a_run_that_vanished_while_the_node_was_down_is_no_fault_of_the_job(
    tmp_path: Path, daemon: Dockerd, image: ImageArchive
) -> None:
    run = make_run(Python().sleeps())
    for is_first in (True, False):
        async with trio.open_nursery() as nursery:
            engine = make_engine(tmp_path, daemon.socket, image)
            await nursery.start(engine.run)
            await engine.load(image)
            await engine.start(run)
            if not is_first:
                assert (await engine.wait(run.id)).cause == "engine"
            nursery.cancel_scope.cancel()
        daemon.client("DELETE", f"/containers/p2pnode-{run.id}?force=1")


async def test_containers_of_no_run_are_removed_and_other_nodes_ones_kept(
    tmp_path: Path, daemon: Dockerd, image: ImageArchive
) -> None:
    run = make_run(Python().sleeps())
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with trio.open_nursery() as nursery:
        engine = make_engine(tmp_path / "one", daemon.socket, image)
        await nursery.start(engine.run)
        await engine.load(image)
        await engine.start(run)
        nursery.cancel_scope.cancel()
    other = DockerEngine(
        tmp_path / "two",
        socket=daemon.socket,
        node="other",
        clock=SystemClock(),
        files=trio.CapacityLimiter(1),
    )
    for engine, is_left in (
        (other, True),
        (make_engine(tmp_path / "two", daemon.socket, image), False),
    ):
        async with trio.open_nursery() as nursery:
            await nursery.start(engine.run)
            nursery.cancel_scope.cancel()
        assert (run.id in daemon.client("GET", "/containers/json?all=1")) == is_left


async def test_bytes_of_any_kind_are_logged_as_they_are(engine: DockerEngine) -> None:
    run = make_run(python("import os; os.write(1, bytes(range(256)) * 300); os.write(2, b'end')"))
    await suite.ending_of(engine, run)
    parts = await suite.whole_log(engine, run.id)
    assert b"".join(part.data for part in parts) == bytes(range(256)) * 300 + b"end"


async def test_many_followers_leave_neither_threads_nor_descriptors(
    tmp_path: Path, daemon: Dockerd, image: ImageArchive
) -> None:
    run = make_run(Python().sleeps())
    counts = []
    for _ in range(6):
        async with trio.open_nursery() as nursery:
            engine = make_engine(tmp_path, daemon.socket, image)
            await nursery.start(engine.run)
            await engine.load(image)
            await engine.start(run)
            await trio.sleep(0.2)
            nursery.cancel_scope.cancel()
        engine._docker._api.close()
        counts.append(len(os.listdir("/proc/self/fd")))
    assert max(counts[2:]) <= counts[1] + 1, counts


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


class Podman(http.server.BaseHTTPRequestHandler):
    """Answers like an engine that takes whatever it is asked for."""

    made: ClassVar[list[str]] = []
    INFO: ClassVar[dict[str, object]] = {
        "MemoryLimit": True,
        "CpuCfsQuota": True,
        "PidsLimit": True,
        "SecurityOptions": ["name=seccomp,profile=default"],
    }

    def address_string(self) -> str:
        return "a socket"

    def log_message(self, *args: object) -> None:
        pass

    def answer(self, status: int, body: object) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def do_GET(self) -> None:
        self.answer(200, self.INFO if "info" in self.path else {"ApiVersion": "1.41"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.made.append("c1")
        self.answer(201, {"Id": "c1"})

    def do_DELETE(self) -> None:
        self.made.remove("c1")
        self.answer(200, {})


async def test_an_engine_that_takes_any_runtime_is_refused(
    tmp_path: Path, image: ImageArchive
) -> None:
    with socketserver.UnixStreamServer(str(tmp_path / "docker.sock"), Podman) as server:
        server_thread = threading.Thread(target=server.serve_forever)
        server_thread.start()
        try:
            engine = make_engine(tmp_path, tmp_path / "docker.sock", image)
            with pytest.raises(LocalFault, match="ignores what it does not understand"):
                await engine.run()
        finally:
            server.shutdown()
            server_thread.join()
    assert Podman.made == []


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
async def test_an_engine_that_is_not_there_is_unavailable(
    tmp_path: Path, image: ImageArchive
) -> None:
    with pytest.raises(Unavailable):
        await make_engine(tmp_path, tmp_path / "none", image).run()
    lose_sockets()


def lose_sockets() -> None:
    """Docker-py forgets the sockets that did not connect; collect them where they are expected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_an_image_is_the_same_each_time(image: ImageArchive) -> None:
    assert build_python_image() == image


def test_nothing_is_left_on_the_host() -> None:
    with dockerd(remaps=False) as engine:
        assert engine.client("GET", "/_ping") == "OK"
    assert not engine.folder.exists()
    assert str(engine.folder) not in Path("/proc/mounts").read_text()
