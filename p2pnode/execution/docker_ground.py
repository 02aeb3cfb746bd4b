"""What Docker and its host can enforce, read from what it says about itself. Pure."""

import re
from typing import Any, Final

from p2pnode.execution.docker_container import Ground
from protocol.errors import LocalFault

API: Final = "1.41"
"""Of Docker 20.10; later ones speak it too."""

NOBODY: Final = 65_534
_ENFORCED: Final = {
    "MemoryLimit": "memory",
    "CpuCfsQuota": "processor time",
    "PidsLimit": "the number of processes",
}


def read_ground(info: dict[str, Any], version: dict[str, Any], *, user: int, group: int) -> Ground:
    """What jobs run on; `user` and `group` are the node's own.

    Raises LocalFault if the engine cannot keep a job within its limits.
    """
    if _numbers(version.get("ApiVersion", "0")) < _numbers(API):
        raise LocalFault("the container engine is too old", "install Docker 20.10 or later")
    for key, what in _ENFORCED.items():
        if not info.get(key):
            raise LocalFault(
                f"the container engine cannot limit {what}", "enable that cgroup controller"
            )
    options = {
        option.partition(",")[0].removeprefix("name="): option
        for option in info.get("SecurityOptions") or ()
    }
    if "seccomp" not in options or "unconfined" in options["seccomp"]:
        raise LocalFault(
            "the container engine filters no system calls", "remove seccomp-profile=unconfined"
        )
    if "rootless" in options:
        raise LocalFault("rootless Docker is not supported yet", "run Docker as root")
    base, group_base = _remapping(info, is_remapped="userns" in options)
    if user == 0:
        ground_user, ground_group = NOBODY, NOBODY
    elif (base, group_base) == (0, 0):
        # Only root can give the working directory to somebody else.
        ground_user, ground_group = user, group
    else:
        raise LocalFault(
            "Docker remaps users, so a node that is not root cannot read what jobs write",
            "run the node as root, or Docker without userns-remap",
        )
    return Ground(
        user=ground_user,
        group=ground_group,
        owner=base + ground_user,
        owner_group=group_base + ground_group,
        limits_swap=bool(info.get("SwapLimit")),
        version=str(info.get("ServerVersion", "")),
    )


def _remapping(info: dict[str, Any], *, is_remapped: bool) -> tuple[int, int]:
    """(uid, gid) that root of a container has on the host; Docker names its data after them."""
    if not is_remapped:
        return 0, 0
    found = re.search(r"/(\d+)\.(\d+)/*\Z", str(info.get("DockerRootDir", "")))
    if found is None:
        raise LocalFault("Docker remaps users, but does not say to whom")
    return int(found[1]), int(found[2])


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
