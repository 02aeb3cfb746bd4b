"""A run in Docker's words: the container to make for it, and what must not be in it. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from p2pnode.execution.engine import Run
from p2pnode.execution.workspace import Workspace
from protocol.errors import LocalFault

Json = dict[str, Any]

WORK: Final = "/work"
"""Where a job finds its own directory."""

LABEL_RUN: Final = "p2pnode.run"
LABEL_NODE: Final = "p2pnode.node"

_MIB: Final = 2**20
_IMAGE: Final = re.compile(r"(?:[a-z0-9][a-z0-9._/:-]{0,200}@)?sha256:[0-9a-f]{64}")
_DEVICE: Final = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}")
_PRELOAD: Final = re.compile(r"LD_PRELOAD|LD_AUDIT|CUDA_INJECTION.*|NVTX_INJECTION.*")
_OURS: Final = re.compile(r"NVIDIA_.*|LD_LIBRARY_PATH")
"""Ordinary CUDA images set these, and what makes GPUs visible reads them with the host's rights."""
_LIBRARIES: Final = "/usr/local/nvidia/lib:/usr/local/nvidia/lib64:/usr/local/cuda/lib64"
_CPU_PERIOD_US: Final = 100_000
_CPU_QUOTA_US_MIN: Final = 1_000
_PIDS_MIN: Final = 2
"""The init that reaps and passes signals on, and the job."""
_MEMORY_MIB_MIN: Final = 6
"""What engines take at the least."""
_FILES_MAX: Final = 4_096
"""Few enough for hosts whose own limit a container may not exceed."""
_LOG_MIB_MAX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the engine's host lets us do, as the self-check has found it."""

    user: int
    """Who a job is inside its container."""
    owner: int
    """Who that is on the host: other than `user` where the engine remaps users."""
    group: int
    owner_group: int
    limits_swap: bool
    version: str


def name_of(run: str) -> str:
    """The container's name, which makes sure that there is one at most."""
    return f"p2pnode-{run}"


def check_image_name(image: str | None) -> str:
    """The image, if it is named by what is in it. Raises LocalFault."""
    if image is None or not _IMAGE.fullmatch(image):
        raise LocalFault(
            f"the image {image!r} is not named by its digest", "name it as NAME@sha256:..."
        )
    return image


def container_of(run: Run, workspace: Workspace, *, ground: Ground, node: str, image: Json) -> Json:
    """What to create, in the words of Docker's API; `image` is what inspecting it says.

    Raises LocalFault for variables or volumes that we do not run.
    """
    settings = image.get("Config") or {}
    if settings.get("Volumes"):
        raise LocalFault("the image wants volumes of its own", "build it without VOLUME")
    return {
        "Image": image["Id"],
        "Entrypoint": list(run.argv),
        "Cmd": [],
        "Env": _environment(run, workspace, settings.get("Env") or []),
        "User": f"{ground.user}:{ground.group}",
        "WorkingDir": WORK,
        "Hostname": "job",
        "Labels": {LABEL_RUN: run.id, LABEL_NODE: node},
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGTERM",
        "HostConfig": _host_config(run, workspace.work, ground),
    }


def _environment(run: Run, workspace: Workspace, of_image: list[str]) -> list[str]:
    from_image = {name: value for name, _, value in (each.partition("=") for each in of_image)}
    for name in (*from_image, *run.variables):
        if _PRELOAD.fullmatch(name):
            raise LocalFault(f"the variable {name} loads code into every program: refused")
    chosen = {name: value for name, value in run.variables.items() if not _OURS.fullmatch(name)}
    chosen |= {
        "HOME": WORK,
        "TMPDIR": _inside(workspace, workspace.scratch),
        "P2PNODE_OUT": _inside(workspace, workspace.out),
        "P2PNODE_CHECKPOINT": _inside(workspace, workspace.checkpoint),
        "P2PNODE_NOTICE": _inside(workspace, workspace.notice),
        # Lets the init pass TERM on to the job's children too.
        "TINI_KILL_PROCESS_GROUP": "1",
        "LD_LIBRARY_PATH": _LIBRARIES,
        "NVIDIA_VISIBLE_DEVICES": ",".join(run.devices) or "void",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "P2PNODE_RUN": run.id,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    # A name without a value takes the image's variable away.
    foreign = [name for name in from_image if _OURS.fullmatch(name) and name not in chosen]
    return [f"{name}={value}" for name, value in sorted(chosen.items())] + sorted(foreign)


def _inside(workspace: Workspace, path: Path) -> str:
    return f"{WORK}/{path.relative_to(workspace.work)}"


def _host_config(run: Run, work: Path, ground: Ground) -> Json:
    limits = run.limits
    memory = max(limits.memory_mib, _MEMORY_MIB_MIN) * _MIB
    log_mib = min(max(limits.log_bytes // _MIB, 1), _LOG_MIB_MAX)
    return {
        "NetworkMode": "none",
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "PidMode": "",
        "UTSMode": "",
        "UsernsMode": "",
        "Privileged": False,
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "CapAdd": [],
        "SecurityOpt": ["no-new-privileges"],
        "Sysctls": {},
        "Binds": [],
        "VolumesFrom": [],
        "Devices": [],
        "GroupAdd": [],
        "Mounts": [{"Type": "bind", "Source": str(work), "Target": WORK}],
        # Half the memory, as Linux does; what is in it counts as memory of the job.
        "Tmpfs": {"/tmp": _tmpfs(memory // 2, ground)},  # noqa: S108 - in the container
        "ShmSize": memory // 2,
        "Memory": memory,
        "MemorySwap": memory if ground.limits_swap else -1,
        "OomKillDisable": False,
        "PidsLimit": max(limits.pids, _PIDS_MIN),
        "CpuPeriod": _CPU_PERIOD_US,
        "CpuQuota": max(limits.cpus_milli * _CPU_PERIOD_US // 1_000, _CPU_QUOTA_US_MIN),
        "Ulimits": [
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "nofile", "Soft": _FILES_MAX, "Hard": _FILES_MAX},
        ],
        # The driver that keeps the bytes as they are: json-file mends what is not UTF-8.
        "LogConfig": {
            "Type": "local",
            "Config": {"max-size": f"{log_mib}m", "max-file": "2", "compress": "false"},
        },
        "Init": True,
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "AutoRemove": False,
        "DeviceRequests": _device_requests(run.devices),
    }


def _tmpfs(size: int, ground: Ground) -> str:
    # Owned by the job: runc gives it the mode that the directory has in the image, whatever we say.
    return f"rw,nosuid,nodev,exec,uid={ground.user},gid={ground.group},mode=1777,size={size}"


def _device_requests(devices: Iterable[str]) -> list[Json]:
    named = list(devices)
    for device in named:
        if not _DEVICE.fullmatch(device):
            raise LocalFault(f"{device!r} is no GPU that a container can be given")
    if not named:
        return []
    return [
        {"Driver": "", "Count": 0, "DeviceIDs": named, "Capabilities": [["gpu"]], "Options": {}}
    ]


def check_made_as_asked(asked: Json, found: Json) -> None:
    """Raises LocalFault if the engine made another container than it was asked for.

    Some engines accept what they do not understand and leave it out.
    """
    host, wanted = found["HostConfig"], asked["HostConfig"]
    for key, value in wanted.items():
        if not _is_same(value, host.get(key)):
            raise LocalFault(
                f"the container engine makes {key} {host.get(key)!r} of {value!r}: refused",
                "run Docker itself, 20.10 or later",
            )
    if found["Config"].get("User") != asked["User"]:
        raise LocalFault("the container engine runs jobs as another user: refused")
    if [mount.get("Destination") for mount in found.get("Mounts") or []] != [WORK]:
        raise LocalFault("the container engine mounts more than it was asked for: refused")


def _is_same(asked: Any, found: Any) -> bool:  # noqa: ANN401 - JSON
    if isinstance(asked, dict) and isinstance(found, dict):
        return all(_is_same(asked.get(key), found.get(key)) for key in {*asked, *found})
    if isinstance(asked, list) and isinstance(found, list):
        return len(asked) == len(found) and all(map(_is_same, asked, found))
    return bool(asked == found) or not (asked or found)
