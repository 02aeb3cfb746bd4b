"""Looks at everything that a node needs on this host, and names the first broken thing's cure.

Each check is a function that returns a Finding; none raises. The node need not run.
"""

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Literal

import trio

from ledger.file_guard import open_file_guard
from ledger.ledger import open_ledger
from p2pnode.clock import SystemClock
from p2pnode.config import Config, load_config
from p2pnode.execution.nvml_probe import NvmlProbe
from p2pnode.home import Home, check_socket, locked, make_folders
from p2pnode.identity import load_identity
from p2pnode.membership import bootstrap_in, genesis_of
from p2pnode.own_store import open_own_store
from p2pnode.own_terms import windows_in
from protocol.errors import LocalFault, Unavailable
from protocol.genesis import net_of
from protocol.units import PublicKey

DISK_FREE_MIN: Final = 1_073_741_824
"""A ledger and a few logs fit; jobs say what they need themselves."""
_DRIVER: Final = "nvidia-smi must show every GPU: install NVIDIA's driver, or reset the GPU"
PINNED: Final = {"libp2p": "0.8.1"}

State = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    name: str
    state: State
    text: str
    cure: str = ""


Check = Callable[[Home], Finding]


def examine(home: Home) -> list[Finding]:
    """All findings, in the order in which a node needs the things."""
    return [check(home) for check in CHECKS]


def _python(_home: Home) -> Finding:
    at = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11) <= sys.version_info < (3, 14):
        return Finding(
            name="python", state="fail", text=f"{at} is not supported", cure="Python 3.11 to 3.13"
        )
    return Finding(name="python", state="ok", text=at)


def _libraries(_home: Home) -> Finding:
    for name, wanted in PINNED.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "missing"
        if found != wanted:
            return Finding(
                name="libraries",
                state="fail",
                text=f"{name} is {found}, and {wanted} is what this version mends",
                cure="make setup",
            )
    return Finding(name="libraries", state="ok", text="as pinned")


def _files(home: Home) -> Finding:
    with _caught("files") as found:
        make_folders(home)
        check_socket(home.socket)
        found.append(Finding(name="files", state="ok", text=str(home.data_dir)))
    return found[0]


def _disk(home: Home) -> Finding:
    free = shutil.disk_usage(home.data_dir if home.data_dir.exists() else "/").free
    text = f"{free / 2**30:.0f} GiB free"
    if free < DISK_FREE_MIN:
        return Finding(name="disk", state="fail", text=text, cure="free some space")
    return Finding(name="disk", state="ok", text=text)


def _config(home: Home) -> Finding:
    with _caught("config") as found:
        windows_in(load_config(home.config), SystemClock().now())
        text = str(home.config) if home.config.exists() else "all defaults"
        found.append(Finding(name="config", state="ok", text=text))
    return found[0]


def _network(home: Home) -> Finding:
    with _caught("network") as found:
        genesis = genesis_of(home)
        found.append(Finding(name="network", state="ok", text=f"{genesis.name} ({genesis.kind})"))
    return found[0]


def _keys(home: Home) -> Finding:
    with _caught("keys") as found:
        identity = load_identity(home, net_of(genesis_of(home)), SystemClock().now())
        where = "here" if identity.root is not None else "kept elsewhere"
        found.append(Finding(name="keys", state="ok", text=f"in order, root key {where}"))
    return found[0]


def _ledger(home: Home) -> Finding:
    with _caught("ledger") as found:
        try:
            with locked(home):
                found.append(_stored(home))
        except LocalFault as fault:
            if "another node" not in fault.what:
                raise
            found.append(
                Finding(name="ledger", state="skip", text="a node runs: p2pnode ledger verify")
            )
    return found[0]


def _stored(home: Home) -> Finding:
    net = net_of(genesis_of(home))
    identity = load_identity(home, net, SystemClock().now())
    with closing(open_own_store(home.ledger)) as store:
        ledger = open_ledger(
            store=store,
            guard=open_file_guard(home.feed_guard, net),
            signer=identity.feed,
            net=net,
            uuid=os.urandom(16),
        )
        report = ledger.verify()
        return _judged(ledger.fault(), report.broken, report.entries)


def _judged(fault: LocalFault | None, broken: object, entries: int) -> Finding:
    if fault is not None:
        return Finding(name="ledger", state="fail", text=fault.what, cure=fault.cure)
    if broken is not None:
        return Finding(
            name="ledger", state="fail", text=f"broken at {broken}", cure="restore the data folder"
        )
    return Finding(name="ledger", state="ok", text=f"{entries} entries verify")


def _listen(home: Home) -> Finding:
    with _caught("listen") as found:
        for address in load_config(home.config).network.listen:
            parts = address.split("/")
            if len(parts) == 5 and parts[1] == "ip4" and parts[3] == "tcp":
                _try_port(parts[2], int(parts[4]))
        found.append(Finding(name="listen", state="ok", text="the ports can be bound"))
    return found[0]


def _try_port(host: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise LocalFault(
                f"port {port} cannot be bound: {error.strerror}",
                "another port in [network] listen, or stop what has it",
            ) from error


def _bootstrap(home: Home) -> Finding:
    with _caught("bootstrap") as found:
        network = load_config(home.config).network
        count = len((*network.bootstrap, *bootstrap_in(home)))
        if count:
            found.append(Finding(name="bootstrap", state="ok", text=f"{count} first peers known"))
        else:
            whom = "only who is on its local network" if network.mdns else "nobody by itself"
            found.append(
                Finding(
                    name="bootstrap",
                    state="warn",
                    text=f"no first peer is known: this node finds {whom}",
                    cure="p2pnode network join LINK, from a peer that is up",
                )
            )
    return found[0]


def _gpus(home: Home) -> Finding:
    with _caught("gpu") as found:
        found.append(_gpu_finding(load_config(home.config)))
    return found[0]


def _gpu_finding(config: Config) -> Finding:
    if "owner" not in config.roles:
        return Finding(name="gpu", state="skip", text="this node only rents")
    if config.gpu.simulated:
        count = sum(kind.count for kind in config.gpu.simulated)
        return Finding(name="gpu", state="warn", text=f"{count} simulated, for test networks")
    # Who it is told for does not matter here: the feed only salts the names of units.
    probe = NvmlProbe(PublicKey(bytes(32)))
    try:
        fit = trio.run(probe.read)
    except Unavailable as error:
        return Finding(name="gpu", state="fail", text=str(error), cure=_DRIVER)
    text = ", ".join(f"{gpu.model} {gpu.vram} MiB" for gpu in fit) or "none to offer"
    if probe.problems:
        text = f"{text}; not offered: {'; '.join(probe.problems)}"
    state: State = "fail" if not fit else "warn" if probe.problems else "ok"
    return Finding(name="gpu", state=state, text=text, cure="" if state == "ok" else _DRIVER)


def _price(home: Home) -> Finding:
    with _caught("price") as found:
        config = load_config(home.config)
        if "owner" in config.roles and config.pricing.ask is None:
            found.append(
                Finding(
                    name="price",
                    state="warn",
                    text="no ask is set, so nothing is offered",
                    cure='ask = "0.38 USD/gpu-h" under [pricing] in config.toml',
                )
            )
        else:
            found.append(Finding(name="price", state="ok", text="set, or not needed"))
    return found[0]


@contextmanager
def _caught(name: str) -> Iterator[list[Finding]]:
    """A list for one finding; a LocalFault becomes one."""
    found: list[Finding] = []
    try:
        yield found
    except LocalFault as fault:
        found.append(Finding(name=name, state="fail", text=fault.what, cure=fault.cure))


CHECKS: Final[tuple[Check, ...]] = (
    _python,
    _libraries,
    _files,
    _disk,
    _config,
    _network,
    _keys,
    _ledger,
    _listen,
    _bootstrap,
    _gpus,
    _price,
)
