"""What a run in a container leaves on disk, so that a node that was killed knows it again.

`docker` holds the limits that the node enforces and whether the container was started, `intent`
why the node ends it, `ending` how it ended. An OSError leaves here as a LocalFault.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from p2pnode.execution.docker_container import Ground
from p2pnode.execution.docker_ending import Facts, ending_from_facts, ending_to_facts
from p2pnode.execution.engine import Cause, Ending, RunId
from p2pnode.execution.records import claim_record, read_record, write_record
from p2pnode.execution.workspace import (
    Workspace,
    list_workspaces,
    make_job_folders,
    make_workspace,
)
from p2pnode.home import host_faults
from protocol.job import JobLimits
from protocol.units import Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the kernel does not enforce of a run's limits, and when it began."""

    time_ms: int
    disk_mib: int
    log_bytes: int
    began_ms: int

    @classmethod
    def of(cls, limits: JobLimits, began: Millis) -> "Bounds":
        """Those of a run that begins now."""
        return cls(
            time_ms=limits.time_ms,
            disk_mib=limits.disk_mib,
            log_bytes=limits.log_bytes,
            began_ms=began,
        )


def prepare_work(workspace: Workspace, ground: Ground) -> None:
    """The job's directories are there and, with all in them, belong to whom the job runs as."""
    make_workspace(workspace)
    make_job_folders(workspace)
    if ground.owner == os.geteuid():
        return
    with host_faults(f"give {workspace.work} to the job"):
        os.chown(workspace.work, ground.owner, ground.owner_group)
        for _, folders, files, descriptor in os.fwalk(workspace.work, follow_symlinks=False):
            for name in (*folders, *files):
                os.chown(
                    name,
                    ground.owner,
                    ground.owner_group,
                    dir_fd=descriptor,
                    follow_symlinks=False,
                )


def keep_bounds(workspace: Workspace, bounds: Bounds) -> None:
    """The run is about to start; durable on return."""
    _write(workspace, {name: str(getattr(bounds, name)) for name in Bounds.__slots__})


def read_bounds(workspace: Workspace) -> Bounds:
    """What `keep_bounds` has kept."""
    facts = _read(workspace, "docker") or {}
    return Bounds(**{name: int(facts[name]) for name in Bounds.__slots__})


def mark_started(workspace: Workspace) -> None:
    """The run's container was started; durable on return."""
    _write(workspace, (_read(workspace, "docker") or {}) | {"started": "yes"})


def is_started(workspace: Workspace) -> bool:
    """Whether the run was ever started."""
    return "started" in (_read(workspace, "docker") or {})


def started_runs(jobs: Path) -> tuple[RunId, ...]:
    """The runs that were ever started and not yet removed, sorted."""
    return tuple(space.run for space in list_workspaces(jobs) if is_started(space))


def unfinished_runs(jobs: Path) -> tuple[RunId, ...]:
    """The runs that were begun, perhaps not quite, and have no ending; sorted."""
    return tuple(
        space.run
        for space in list_workspaces(jobs)
        if _read(space, "docker") is not None and _read(space, "ending") is None
    )


def claim_intent(workspace: Workspace, cause: Cause, detail: str, now: Millis) -> None:
    """Write down why we end the run, before we do; the first reason holds."""
    _claim(workspace, "intent", {"cause": str(cause), "detail": detail, "at_ms": str(now)})


def read_intent(workspace: Workspace) -> Facts | None:
    """Why we ended the run; None if we did not."""
    return _read(workspace, "intent")


def claim_ending(workspace: Workspace, ending: Ending) -> None:
    """The ending is durable; the first one holds."""
    _claim(workspace, "ending", ending_to_facts(ending))


def read_ending(workspace: Workspace) -> Ending | None:
    """How the run ended; None if it did not."""
    facts = _read(workspace, "ending")
    return None if facts is None else ending_from_facts(facts)


def _read(workspace: Workspace, name: str) -> Facts | None:
    with host_faults(f"read {workspace.records}"):
        return read_record(workspace.records / name)


def _write(workspace: Workspace, facts: Facts) -> None:
    with host_faults(f"write to {workspace.records}"):
        write_record(workspace.records / "docker", facts)


def _claim(workspace: Workspace, name: str, facts: Facts) -> None:
    with host_faults(f"write to {workspace.records}"):
        claim_record(workspace.records / name, facts)
