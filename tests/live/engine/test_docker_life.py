"""What becomes of containers when the node or the engine goes away."""

import http.server
import json
import socketserver
import threading
from pathlib import Path
from typing import ClassVar

import pytest
import trio

from p2pnode.clock import SystemClock
from p2pnode.execution.docker_engine import DockerEngine
from p2pnode.execution.docker_image import ImageArchive, build_python_image
from protocol.errors import LocalFault, Unavailable
from protocol.units import MillisSpan
from tests import engine_suite as suite
from tests.engine_suite import make_run
from tests.live.engine.containers import Python, make_engine, output_of, python
from tests.live.engine.dockerd import Dockerd, dockerd

pytestmark = [pytest.mark.live, pytest.mark.slow]


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
        docker_socket=daemon.socket,
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
        counts.append(held())
    # The first round may start threads that are kept for the next.
    descriptors, threads = counts[1]
    assert max(count[0] for count in counts[2:]) <= descriptors, counts
    assert max(count[1] for count in counts[2:]) <= threads, counts


def held() -> tuple[int, int]:
    """How many descriptors and threads this process has."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


async def test_gpus_are_given_by_name_and_no_others(tmp_path: Path, image: ImageArchive) -> None:
    with dockerd(remaps=False) as engine_of_gpus:
        engine_of_gpus.add_gpu_hook()
        engine_of_gpus.kill()
        engine_of_gpus.start()
        engine = make_engine(tmp_path, engine_of_gpus.socket, image)
        async with trio.open_nursery() as inner:
            await inner.start(engine.run)
            await engine.load(image)
            text = "import os; print(os.environ['CUDA_DEVICE_ORDER'])"
            run = make_run(
                python(text),
                devices=("GPU-1", "GPU-2"),
                variables={"NVIDIA_VISIBLE_DEVICES": "all"},
            )
            assert await output_of(engine, run) == "PCI_BUS_ID\n"
            inner.cancel_scope.cancel()
        told = json.loads((engine_of_gpus.folder / "gpu-config.json").read_text())
    shown = [each for each in told["process"]["env"] if each.startswith("NVIDIA_VISIBLE_DEVICES=")]
    assert {*shown} == {"NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2"}


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


async def test_an_engine_that_is_not_there_is_unavailable(
    tmp_path: Path, image: ImageArchive
) -> None:
    with pytest.raises(Unavailable):
        await make_engine(tmp_path, tmp_path / "none", image).run()


def test_an_image_is_the_same_each_time(image: ImageArchive) -> None:
    assert build_python_image() == image


def test_nothing_is_left_on_the_host() -> None:
    with dockerd(remaps=False) as engine:
        assert engine.client("GET", "/_ping") == "OK"
    assert not engine.folder.exists()
    assert str(engine.folder) not in Path("/proc/mounts").read_text()
