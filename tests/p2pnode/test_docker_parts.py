"""What the Docker engine decides without Docker: containers, hosts, endings, logs."""

import copy
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.execution.docker_container import (
    Ground,
    check_image_name,
    check_made_as_asked,
    container_of,
)
from p2pnode.execution.docker_ending import ending_from_facts, ending_to_facts, judge_end, vanished
from p2pnode.execution.docker_ground import read_ground
from p2pnode.execution.docker_log import LogCopy
from p2pnode.execution.docker_records import (
    Bounds,
    claim_ending,
    claim_intent,
    is_started,
    keep_bounds,
    mark_started,
    read_bounds,
    read_ending,
    read_intent,
    started_runs,
    unfinished_runs,
)
from p2pnode.execution.engine import Ending, Run
from p2pnode.execution.run_log import RunLog, read_part
from p2pnode.execution.workspace import Workspace, make_workspace, workspace_of
from protocol.errors import LocalFault
from protocol.units import Millis
from tests.engine_suite import limits, make_run

GROUND = Ground(
    user=65_534, group=65_534, owner=265_534, owner_group=265_534, limits_swap=True, version="26"
)
RUN = make_run(("a", "b"))
SPACE = workspace_of(Path("/jobs"), RUN.id)
IMAGE: dict[str, Any] = {"Id": f"sha256:{'a' * 64}", "Config": {}}


def asked_for(run: Run = RUN, *, ground: Ground = GROUND, **image: Any) -> dict[str, Any]:
    whole = {**IMAGE, "Config": image}
    return container_of(run, SPACE, ground=ground, node="n", image=whole)


def variables(asked: dict[str, Any]) -> dict[str, str | None]:
    return {
        name: value if equals else None
        for name, equals, value in (each.partition("=") for each in asked["Env"])
    }


def made(asked: dict[str, Any]) -> dict[str, Any]:
    """What Docker would say of a container that is as asked, with what it adds."""
    found = copy.deepcopy(asked)
    found["HostConfig"] |= {"CapAdd": None, "Binds": None, "Runtime": "runc", "OomScoreAdj": 0}
    return {
        "HostConfig": found["HostConfig"],
        "Config": {"User": asked["User"]},
        "Mounts": [{"Type": "bind", "Destination": "/work"}],
    }


def test_a_container_as_asked_passes() -> None:
    check_made_as_asked(asked_for(), made(asked_for()))


@pytest.mark.parametrize("key", sorted(asked_for()["HostConfig"]))
def test_any_other_setting_is_refused(key: str) -> None:
    asked = asked_for(make_run(("a",), devices=("GPU-1",)))
    found = made(asked)
    was = found["HostConfig"][key]
    found["HostConfig"][key] = True if was is False else None if was else "other"
    with pytest.raises(LocalFault, match=key):
        check_made_as_asked(asked, found)


def test_another_user_and_more_mounts_are_refused() -> None:
    changes: list[dict[str, Any]] = [
        {"Config": {"User": "0"}},
        {"Mounts": []},
        {"Mounts": [{"Destination": "/"}]},
    ]
    for change in changes:
        with pytest.raises(LocalFault):
            check_made_as_asked(asked_for(), made(asked_for()) | change)


def test_limits_become_what_the_kernel_enforces() -> None:
    host = asked_for(make_run(("a",), bounds=limits(memory_mib=100, pids=7)))["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 100 << 20
    assert (host["PidsLimit"], host["CpuQuota"], host["CpuPeriod"]) == (7, 100_000, 100_000)
    assert asked_for(ground=replace(GROUND, limits_swap=False))["HostConfig"]["MemorySwap"] == -1


def test_what_the_gpu_runtime_reads_is_ours_and_the_rest_the_renters() -> None:
    run = make_run(
        ("a",),
        devices=("GPU-1", "MIG-2"),
        variables={"NVIDIA_VISIBLE_DEVICES": "all", "LD_LIBRARY_PATH": "/x", "HOME": "/", "A": "="},
    )
    found = variables(
        asked_for(run, Env=["NVIDIA_REQUIRE_CUDA=x", "LD_LIBRARY_PATH=/y", "PATH=/bin"])
    )
    assert found["NVIDIA_VISIBLE_DEVICES"] == "GPU-1,MIG-2"
    assert str(found["LD_LIBRARY_PATH"]).startswith("/usr/local/nvidia/lib:")
    assert (found["HOME"], found["A"], found["P2PNODE_OUT"]) == ("/work", "=", "/work/out")
    assert found["NVIDIA_REQUIRE_CUDA"] is None, "taken away"
    assert "PATH" not in found, "the image's own stays"


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_AUDIT", "CUDA_INJECTION64_PATH"])
def test_variables_that_load_code_are_refused_wherever_they_come_from(name: str) -> None:
    with pytest.raises(LocalFault, match=name):
        asked_for(make_run(("a",), variables={name: ""}))
    with pytest.raises(LocalFault, match=name):
        asked_for(Env=[f"{name}=/lib.so"])


def test_an_image_with_volumes_is_refused() -> None:
    with pytest.raises(LocalFault, match="volumes"):
        asked_for(Volumes={"/data": {}})


def test_images_are_named_by_digest() -> None:
    for good in (f"sha256:{'0' * 64}", f"ghcr.io/a/b@sha256:{'f' * 64}"):
        assert check_image_name(good) == good
    for bad in (None, "", "python", "python:3", f"sha256:{'0' * 63}", f"-x@sha256:{'0' * 64}"):
        with pytest.raises(LocalFault):
            check_image_name(bad)


INFO: dict[str, Any] = {
    "MemoryLimit": True,
    "SwapLimit": True,
    "CpuCfsQuota": True,
    "PidsLimit": True,
    "SecurityOptions": ["name=seccomp,profile=default", "name=userns"],
    "DockerRootDir": "/var/lib/docker/100000.200000",
    "ServerVersion": "26.1",
}
PLAIN: dict[str, Any] = {
    "SecurityOptions": ["name=seccomp,profile=builtin"],
    "DockerRootDir": "/var/lib/docker",
}


def ground_of(*, user: int = 0, api: str = "1.45", **changes: Any) -> Ground:
    return read_ground(INFO | changes, {"ApiVersion": api}, user=user, group=user)


def test_users_are_as_the_engine_maps_them() -> None:
    ground = ground_of()
    assert (ground.user, ground.group) == (65_534, 65_534)
    assert (ground.owner, ground.owner_group) == (165_534, 265_534)
    assert ground_of(**PLAIN).owner == 65_534


def test_a_node_that_is_not_root_runs_jobs_as_itself() -> None:
    ground = ground_of(user=1_000, **PLAIN)
    assert (ground.user, ground.owner, ground.group, ground.owner_group) == (1_000,) * 4


@pytest.mark.parametrize(
    "changes",
    [
        {"api": "1.40"},
        {"MemoryLimit": False},
        {"CpuCfsQuota": False},
        {"PidsLimit": False},
        {"SecurityOptions": []},
        {"SecurityOptions": ["name=seccomp,profile=unconfined"]},
        {"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]},
        {"DockerRootDir": "/var/lib/docker"},
        {"user": 1_000},
    ],
)
def test_an_engine_that_cannot_keep_a_job_in_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(LocalFault):
        ground_of(**changes)


STATE: dict[str, Any] = {
    "ExitCode": 0,
    "OOMKilled": False,
    "Error": "",
    "StartedAt": "1970-01-01T00:00:01.500000000Z",
    "FinishedAt": "1970-01-01T00:00:02.123456789Z",
}
NEVER = "0001-01-01T00:00:00Z"


def judged(*, intent: str = "", at_ms: int = 1_800, away: bool = False, **state: Any) -> Ending:
    why = {"cause": intent, "detail": "why", "at_ms": str(at_ms)} if intent else None
    return judge_end(STATE | state, why, now=Millis(9_000), was_away=away)


@pytest.mark.parametrize(
    ("case", "cause", "exit_code", "signal"),
    [
        ({}, "exit", 0, None),
        ({"ExitCode": 137}, "exit", 137, None),
        ({"ExitCode": 137, "OOMKilled": True}, "memory", None, 9),
        ({"ExitCode": 1, "OOMKilled": True}, "memory", 1, None),
        ({"ExitCode": 0, "OOMKilled": True}, "exit", 0, None),
        ({"ExitCode": 137, "intent": "time"}, "time", None, 9),
        ({"ExitCode": 143, "intent": "stopped"}, "stopped", None, 15),
        ({"ExitCode": 5, "intent": "stopped"}, "stopped", 5, None),
        ({"ExitCode": 5, "intent": "stopped", "at_ms": 2_124}, "exit", 5, None),
        ({"ExitCode": 137, "away": True}, "engine", None, 9),
        ({"ExitCode": 1, "away": True}, "exit", 1, None),
        ({"ExitCode": 137, "away": True, "intent": "stopped"}, "stopped", None, 9),
    ],
)
def test_endings_are_told_apart(
    case: dict[str, Any], cause: str, exit_code: int | None, signal: int | None
) -> None:
    ending = judged(**case)
    assert (ending.cause, ending.exit_code, ending.signal) == (cause, exit_code, signal)
    assert (ending.started_ms, ending.ended_ms) == (1_500, 2_123)
    assert ending_from_facts(ending_to_facts(ending)) == ending


def test_an_end_that_docker_did_not_see_is_now() -> None:
    assert judged(FinishedAt=NEVER).ended_ms == 9_000
    assert judged(FinishedAt=NEVER, StartedAt=NEVER).started_ms == 9_000
    assert vanished(Millis(3), Millis(4)).cause == "engine"


def test_records_outlive_the_node(tmp_path: Path) -> None:
    space = workspace_of(tmp_path, RUN.id)
    make_workspace(space)
    assert (started_runs(tmp_path), unfinished_runs(tmp_path), is_started(space)) == ((), (), False)
    bounds = Bounds.of(limits(), Millis(5))
    keep_bounds(space, bounds)
    assert (started_runs(tmp_path), unfinished_runs(tmp_path)) == ((), (RUN.id,))
    mark_started(space)
    assert read_bounds(space) == bounds
    assert (started_runs(tmp_path), unfinished_runs(tmp_path)) == ((RUN.id,), (RUN.id,))
    claim_intent(space, "time", "first", Millis(6))
    claim_intent(space, "stopped", "later", Millis(7))
    assert read_intent(space) == {"cause": "time", "detail": "first", "at_ms": "6"}
    ending = judged(intent="time")
    claim_ending(space, ending)
    claim_ending(space, judged())
    assert read_ending(space) == ending
    assert (started_runs(tmp_path), unfinished_runs(tmp_path)) == ((RUN.id,), ())


@dataclass(frozen=True)
class Piece:
    """A line or so, as it lies in Docker's log."""

    at_s: int
    data: bytes
    kind: int = 1

    @property
    def frame(self) -> bytes:
        instant = f"{datetime.fromtimestamp(self.at_s, UTC):%Y-%m-%dT%H:%M:%S}.000000000Z"
        body = instant.encode() + b" " + self.data
        return bytes([self.kind, 0, 0, 0]) + len(body).to_bytes(4, "big") + body


def sent(pieces: list[Piece], since: str, *, until: int, chunk: int) -> list[bytes]:
    """What Docker sends from `since` on, in chunks, broken off after so many bytes."""
    data = b"".join(piece.frame for piece in pieces if piece.at_s >= int(since))[:until]
    return [data[start : start + chunk] for start in range(0, len(data), chunk)]


@st.composite
def written(draw: st.DrawFn) -> list[Piece]:
    """Two kinds, each in order of its instants; a piece may be written down up to a minute late."""
    steps = st.tuples(st.sampled_from((1, 2)), st.sampled_from((0, 1, 40)), st.binary(max_size=40))
    pieces, latest = [], {1: 1_000, 2: 1_000}
    for kind, step, data in draw(st.lists(steps, max_size=12)):
        latest[kind] = max(latest[kind] + step, max(latest.values()) - 60)
        pieces.append(Piece(latest[kind], data, kind))
    return pieces


@given(
    pieces=written(),
    attempts=st.lists(
        st.tuples(st.integers(0, 500), st.integers(1, 60), st.booleans()), max_size=5
    ),
)
def test_each_byte_is_copied_once_however_often_the_copy_breaks_off(
    pieces: list[Piece], attempts: list[tuple[int, int, bool]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        space = Workspace(folder=Path(folder))
        for until, chunk, is_orderly in [*attempts, (10**6, 100, True)]:
            log = RunLog(space.log, bytes_max=1 << 20)
            copy_of = LogCopy(log, space.folder / "position")
            since = copy_of.open()
            copy_of.take(sent(pieces, since, until=until, chunk=chunk))
            if is_orderly:
                copy_of.close()
            else:
                log.close()
        _, kept = read_part(space.log, 0, 1 << 20)
    assert kept == b"".join(piece.data for piece in pieces)


@pytest.mark.parametrize("taken", range(4))
def test_a_piece_that_docker_writes_down_late_is_kept(taken: int, tmp_path: Path) -> None:
    # The last, unfinished line of stdout, after a line of stderr that bears a later instant.
    pieces = [Piece(5, b"a"), Piece(9, b"end", 2), Piece(7, b"b")]
    space = Workspace(folder=tmp_path)
    for until in (sum(len(piece.frame) for piece in pieces[:taken]), 10**6):
        log = RunLog(space.log, bytes_max=1 << 20)
        copy_of = LogCopy(log, space.folder / "position")
        copy_of.take(sent(pieces, copy_of.open(), until=until, chunk=100))
        copy_of.close()
    _, kept = read_part(space.log, 0, 1 << 20)
    assert kept == b"aendb"
