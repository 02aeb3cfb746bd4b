"""A throw-away dockerd in network, process and mount namespaces of its own.

It touches neither the host's firewall nor its users, and is gone, with all that it ran, when the
block ends. A plain dockerd would rewrite iptables and switch forwarding on.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

INSIDE = Path(__file__).parent / "inside.sh"
START_S = 30
# What Docker runs for each container that asks for GPUs; this one only notes what it was told.
GPU_HOOK = """#!/bin/sh
bundle=$(sed -n 's/.*"bundle":"\\([^"]*\\)".*/\\1/p')
cp "$bundle/config.json" "$(dirname "$0")/../gpu-config.json"
"""
REMAP_FROM = 200_000


class Dockerd:
    """One engine; `kill` and `start` as often as you like."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "docker.sock"
        self._group = f"p2pnode-test-{os.getpid()}"
        self._pid_files = [folder / "docker.pid", folder / "exec/containerd/containerd.pid"]
        self._ended = folder / "ended"
        self._inside: subprocess.Popen[bytes] | None = None

    def enter(self, *, remaps: bool) -> None:
        """The namespaces are there, with the engine in them."""
        self.folder.chmod(0o711)
        (self.folder / "passwd").write_text(
            Path("/etc/passwd").read_text() + "dockremap:x:2101:2101::/:/usr/sbin/nologin\n"
        )
        (self.folder / "group").write_text(Path("/etc/group").read_text() + "dockremap:x:2101:\n")
        (self.folder / "subid").write_text(f"dockremap:{REMAP_FROM}:65536\n")
        settings = {
            "data-root": str(self.folder / "data"),
            "exec-root": str(self.folder / "exec"),
            "pidfile": str(self.folder / "docker.pid"),
            "hosts": [f"unix://{self.socket}"],
            "cgroup-parent": f"/{self._group}",
            "bridge": "none",
            "iptables": False,
            "ip6tables": False,
            "ip-forward": False,
            "live-restore": True,
            "no-new-privileges": True,
            **({"userns-remap": "dockremap"} if remaps else {}),
        }
        (self.folder / "daemon.json").write_text(json.dumps(settings))
        spaces = ["--net", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child=KILL"]
        self._inside = subprocess.Popen(
            ["unshare", *spaces, "bash", INSIDE, self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._inside.stdout is not None
        if self._inside.stdout.readline() != b"ready\n":
            self._inside.wait(START_S)
            pytest.skip("namespaces cannot be made here")
        try:
            self.start()
        except TimeoutError as error:
            pytest.skip(str(error))

    def start(self) -> None:
        """Dockerd answers. Raises TimeoutError."""
        for path in (*self._pid_files, self._ended, self.socket):
            path.unlink(missing_ok=True)
        command = (
            f"PATH={self.folder}/bin:$PATH dockerd --config-file {self.folder}/daemon.json; "
            f"touch {self._ended}"
        )
        with (self.folder / "log").open("ab") as log:
            self._run_inside("sh", "-c", f"setsid sh -c '{command}' &", log=log)
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._ended.exists() or time.monotonic() > deadline:
                raise TimeoutError(f"dockerd does not start: {self._last_words()}")
            time.sleep(0.05)

    def add_gpu_hook(self) -> None:
        """From the next start on, containers can have GPUs, which do not exist."""
        hook = self.folder / "bin" / "nvidia-container-runtime-hook"
        hook.parent.mkdir()
        hook.write_text(GPU_HOOK)
        hook.chmod(0o755)

    def kill(self) -> None:
        """Dockerd and its containerd die at once; what they run goes on."""
        pids = [path.read_text() for path in self._pid_files]
        # Most containerds have died with dockerd by the time that their turn comes.
        self._run_inside("sh", "-c", f"kill -9 {pids[0]}; kill -9 {pids[1]} || true")
        deadline = time.monotonic() + START_S
        while not self._ended.exists():
            assert time.monotonic() < deadline, "dockerd survives a kill"
            time.sleep(0.01)

    def wipe(self) -> None:
        """All that it ran is dead, and it comes back knowing of nothing."""
        # Everything in the namespace but its process 1 and the shell that says so.
        self._run_inside("sh", "-c", "kill -9 -1")
        for name in ("data", "exec"):
            # What is mounted in there goes with the namespaces.
            (self.folder / name).rename(self.folder / f"{name}-wiped")
        self.start()

    def client(self, *words: str) -> str:
        """What one call of the engine's API says, by way of curl."""
        command = ["curl", "-sS", "--unix-socket", str(self.socket), "-X", *words[:1]]
        done = subprocess.run(
            [*command, f"http://d/v1.41{words[1]}"], capture_output=True, text=True, check=True
        )
        return done.stdout

    def leave(self) -> None:
        """Nothing of it is left."""
        if self._inside is not None:
            self._inside.kill()
            self._inside.wait(START_S)
            for pipe in (self._inside.stdin, self._inside.stdout):
                assert pipe is not None
                pipe.close()
        groups = [*Path("/sys/fs/cgroup").glob(f"*/{self._group}")]
        groups += [path for path in [Path("/sys/fs/cgroup") / self._group] if path.exists()]
        deadline = time.monotonic() + START_S
        while any(not _is_removed(group) for group in groups) and time.monotonic() < deadline:
            time.sleep(0.05)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        with suppress(subprocess.CalledProcessError):
            return self.client("GET", "/_ping") == "OK"
        return False

    def _run_inside(self, *command: str, log: object = None) -> None:
        assert self._inside is not None
        # The process that unshare has forked; its namespaces are not unshare's own.
        children = Path(f"/proc/{self._inside.pid}/task/{self._inside.pid}/children")
        inside = children.read_text().split()[0]
        subprocess.run(
            ["nsenter", "--target", inside, "--net", "--pid", "--mount", "--", *command],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=log,  # type: ignore[call-overload]
            stderr=log,
        )

    def _last_words(self) -> str:
        return " ".join((self.folder / "log").read_text().splitlines()[-3:])


def _is_removed(group: Path) -> bool:
    for root, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):
            Path(root).rmdir()
    return not group.exists()


@contextmanager
def dockerd(*, remaps: bool) -> Iterator[Dockerd]:
    """The engine while the block runs; skips the test where it cannot be."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a dockerd of its own")
    missing = [
        name for name in ("dockerd", "unshare", "nsenter", "curl", "ip") if not shutil.which(name)
    ]
    if missing:
        pytest.skip(f"{', '.join(missing)} missing: .ci/engine installs it")
    # Not under pytest's folder, which remapped users may not pass through.
    engine = Dockerd(Path(tempfile.mkdtemp(prefix="p2pnode-engine-")))
    try:
        engine.enter(remaps=remaps)
        yield engine
    finally:
        engine.leave()
