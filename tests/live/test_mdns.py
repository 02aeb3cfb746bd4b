"""Nodes in network namespaces of their own, joined by a cable: they find each other by mDNS alone.

No node knows an address of another one; the namespaces reach nothing outside.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.live.commands import document, p2pnode

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

SEEN_S = 30


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str, str]]:
    """Three hosts on one wire, 10.77.0.1 to 3."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the command ip")
    own = os.getpid()
    names = tuple(f"p2p{own}-{number}" for number in (1, 2, 3))
    bridge = f"p2p{own}-b"
    with ExitStack() as stack:
        for name in (bridge, *names):
            ip("netns", "add", name)
            stack.callback(subprocess.run, ["ip", "netns", "del", name], check=False)
        ip("-n", bridge, "link", "add", "wire", "type", "bridge", "mcast_snooping", "0")
        ip("-n", bridge, "link", "set", "wire", "up")
        for number, name in enumerate(names, start=1):
            ip("-n", name, "link", "set", "lo", "up")
            end = f"port{number}"
            ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", end, "netns", bridge)
            ip("-n", bridge, "link", "set", end, "master", "wire", "up")
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
        yield names[0], names[1], names[2]


@contextmanager
def node(namespace: str, home: Path) -> Iterator[None]:
    """A node up in this namespace; it ends in order at the end."""
    command = [sys.executable, "-m", "p2pnode", "up", "--home", str(home)]
    process = subprocess.Popen(
        ["ip", "netns", "exec", namespace, *command], stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout is not None
            assert "stop: Ctrl-C\n" in process.stdout  # it is up when it says so
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0


def set_up(home: Path, link: str = "", **variables: str) -> None:
    p2pnode("init", "--name", home.name, "--roles", "owner,renter", "--region", "DE",
            "--ask", "0.38 TEST/gpu-h", "--join", link, "--home", str(home))  # fmt: skip
    for key, value in variables.items():
        path = home / "config.toml"
        text = path.read_text()
        assert text.count(f"\n{key} = ") == 1
        before, _, rest = text.partition(f"\n{key} = ")
        path.write_text(f"{before}\n{key} = {value}{rest[rest.index(chr(10)) :]}")


def found_network(home: Path) -> str:
    """A network of that home's own; the link names no address."""
    set_up(home)
    p2pnode("network", "create", "garage", "--test", "--home", str(home))
    link: str = document("network", "invite", "--home", str(home))["link"]
    return link


def status(home: Path) -> Any:
    return document("status", "--home", str(home))


def until(home: Path, *, neighbours: int) -> Any:
    deadline = time.monotonic() + SEEN_S
    while True:
        seen = status(home)
        if len(seen["neighbours"]) == neighbours:
            return seen
        assert time.monotonic() < deadline, seen
        time.sleep(0.2)


def test_two_nodes_on_one_wire_find_each_other_and_another_network_stays_unseen(
    namespaces: tuple[str, str, str], tmp_path: Path
) -> None:
    ours, theirs, strangers = (tmp_path / name for name in ("ours", "theirs", "strangers"))
    link = found_network(ours)
    set_up(theirs, link)
    assert document("network", "show", "--home", str(theirs))["bootstrap"] == []
    found_network(strangers)
    with ExitStack() as stack:
        for namespace, home in zip(namespaces, (ours, theirs, strangers), strict=True):
            stack.enter_context(node(namespace, home))
        for home, other in ((ours, theirs), (theirs, ours)):
            seen = until(home, neighbours=1)
            assert seen["neighbours"] == seen["nearby"] == [status(other)["peer"]]
        seen = status(strangers)
        assert seen["neighbours"] == seen["nearby"] == []


def test_who_wants_no_mdns_is_neither_found_nor_finds(
    namespaces: tuple[str, str, str], tmp_path: Path
) -> None:
    ours, theirs, hidden = (tmp_path / name for name in ("ours", "theirs", "hidden"))
    link = found_network(ours)
    set_up(theirs, link)
    set_up(hidden, link, mdns="false")
    with ExitStack() as stack:
        for namespace, home in zip(namespaces, (hidden, ours, theirs), strict=True):
            stack.enter_context(node(namespace, home))
        until(ours, neighbours=1)
        seen = status(hidden)
        assert seen["neighbours"] == seen["nearby"] == []


def test_a_node_that_leaves_says_so_and_an_address_that_changes_is_told(
    namespaces: tuple[str, str, str], tmp_path: Path
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    set_up(theirs, found_network(ours))
    with node(namespaces[0], ours):
        with node(namespaces[1], theirs):
            until(ours, neighbours=1)
            ip("-n", namespaces[1], "addr", "flush", "dev", "eth0")
            ip("-n", namespaces[1], "addr", "add", "10.77.0.200/24", "dev", "eth0")
            until(ours, neighbours=0)
            until(ours, neighbours=1)
        assert until(ours, neighbours=0)["nearby"] == []
