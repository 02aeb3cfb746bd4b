"""Real nodes as processes on loopback, under one supervisor. `stop` leaves nothing behind.

The supervisor loads the node's code once and forks, so that twenty nodes share its memory. If it
dies, its children die with it.
"""

import ctypes
import gc
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NoReturn

from p2pnode.home import find_home
from p2pnode.membership import create_network, invite_to, join_network
from p2pnode.network.libp2p_adapter.host import SEEN_S
from p2pnode.up import Ready, run_node
from protocol.errors import LocalFault, P2PError
from testnet.plan import NodePlan
from testnet.state import STOP_S, Running, RunningNode, dump, parse, started_ticks

NODE_READY_S: Final = 60
EXIT_BUG: Final = 70
_PR_SET_PDEATHSIG: Final = 1


RunPlan = Callable[[NodePlan, Callable[[Ready], None]], None]
"""run(plan, on_ready): be this node until a signal."""


def run_plan(plan: NodePlan, on_ready: Callable[[Ready], None]) -> None:
    """Be a node as it ships."""
    run_node(find_home(plan.home), on_ready=on_ready, seen_s=plan.seen_s or SEEN_S)


def start(
    plans: tuple[NodePlan, ...],
    state: Path,
    *,
    name: str,
    heartbeat: str,
    run: RunPlan = run_plan,
) -> Running:
    """Start a supervisor with all these nodes, detached from us; returns when all answer.

    `run` is another way to be a node, for experiments. Raises LocalFault that names the node that
    did not come up; nothing runs then.
    """
    prepare(plans, name=name)
    pipe, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(pipe)
        _end_with(
            lambda: _supervisor(plans, state, pipe=theirs, name=name, heartbeat=heartbeat, run=run)
        )
    os.close(theirs)
    with os.fdopen(pipe) as lines:
        # One line, not to the end: the nodes inherit the other end of the pipe.
        said = lines.readline()
    if said.startswith("{"):
        return parse(said)
    os.waitpid(pid, 0)
    what, _, cure = said.rstrip().partition("\t")
    raise LocalFault(what or "the supervisor ended", cure or f"cat {state / 'supervisor.log'}")


def prepare(plans: tuple[NodePlan, ...], *, name: str) -> None:
    """A home for each node, all of one fresh network. Raises LocalFault."""
    first, *others = plans
    create_network(find_home(first.home), name=name, kind="test", money=None)
    link = invite_to(find_home(first.home), ())
    for plan in others:
        join_network(find_home(plan.home), link)


def _supervisor(
    plans: tuple[NodePlan, ...],
    state: Path,
    *,
    pipe: int,
    name: str,
    heartbeat: str,
    run: RunPlan,
) -> int:
    """The whole life of the supervisor; its exit code."""
    os.setsid()
    _log_to(state / "supervisor.log")

    def on_up(running: Running) -> None:
        os.write(pipe, dump(running).encode() + b"\n")
        os.close(pipe)

    try:
        supervise(plans, name=name, heartbeat=heartbeat, on_up=on_up, run=run)
    except LocalFault as fault:
        os.write(pipe, f"{fault.what}\t{fault.cure}\n".encode())
        return 1
    except SystemExit:
        return 0
    return 0


def _log_to(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(nothing)


def supervise(
    plans: tuple[NodePlan, ...],
    *,
    name: str,
    heartbeat: str,
    on_up: Callable[[Running], None],
    run: RunPlan = run_plan,
) -> None:
    """Start the nodes, tell when all answer, and stay until SIGTERM or until all have ended.

    Raises LocalFault that names the node that did not come up.
    """
    gc.freeze()
    pids: dict[int, NodePlan] = {}
    with _stopping(pids):
        running: list[RunningNode] = []
        bootstrap: tuple[str, ...] = ()
        starting: list[tuple[NodePlan, int, int]] = []
        for plan in plans:
            plan.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            find_home(plan.home).config.write_text(
                plan.config_text(bootstrap=bootstrap, heartbeat=heartbeat)
            )
            pid, pipe = fork_node(plan, run)
            pids[pid] = plan
            starting.append((plan, pid, pipe))
            if plan is plans[0]:
                running.append(wait_ready(*starting.pop()))
                bootstrap = running[0].addresses[:1]
        running += [wait_ready(*one) for one in starting]
        on_up(
            Running(
                name=name,
                supervisor=os.getpid(),
                started=started_ticks(os.getpid()),
                invite=invite_to(find_home(plans[0].home), bootstrap),
                nodes=tuple(running),
            )
        )
        _wait_all(pids)


def fork_node(plan: NodePlan, run: RunPlan) -> tuple[int, int]:
    """The child's pid and the pipe on which it tells that it is ready."""
    pipe, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(pipe)
        _end_with(lambda: _child(plan, theirs, run))
    os.close(theirs)
    return pid, pipe


def _end_with(life: Callable[[], int]) -> NoReturn:
    """End this forked process with its exit code; a bug of ours must not return into the parent."""
    code = EXIT_BUG
    try:
        code = life()
    except BaseException:  # noqa: BLE001, ASYNC103 - the process ends here whatever it was
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _child(plan: NodePlan, pipe: int, run: RunPlan) -> int:
    """The whole life of one node's process; its exit code."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _log_to(plan.home / "output.log")

    def on_ready(ready: Ready) -> None:
        os.write(pipe, json.dumps(asdict(ready)).encode() + b"\n")
        os.close(pipe)

    try:
        run(plan, on_ready)
    except P2PError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201 - the node's log
        return 1
    return 0


def wait_ready(plan: NodePlan, pid: int, pipe: int) -> RunningNode:
    """The node once it answers. Raises LocalFault if it ends before, or is silent for too long."""
    text = b""
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([pipe], [], [], NODE_READY_S)
        piece = os.read(pipe, 65_536) if ready else b""
        if not piece:
            raise LocalFault(
                f"node {plan.name} did not come up: {_last_line(plan)}",
                f"cat {plan.home}/output.log",
            )
        text += piece
    os.close(pipe)
    ready_document: dict[str, Any] = json.loads(text)
    return RunningNode(
        index=plan.index,
        name=plan.name,
        roles=plan.roles,
        pid=pid,
        home=str(plan.home),
        peer=ready_document["peer"],
        socket=ready_document["socket"],
        addresses=tuple(ready_document["addresses"]),
    )


def _last_line(plan: NodePlan) -> str:
    try:
        lines = (plan.home / "output.log").read_text().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else f"nothing heard within {NODE_READY_S} s"


@contextmanager
def _stopping(pids: dict[int, NodePlan]) -> Iterator[None]:
    """However the block ends, all children are gone after it."""

    def on_term(_number: int, _frame: object) -> None:
        raise SystemExit(0)

    def on_alarm(_number: int, _frame: object) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGINT, on_term)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        signal.signal(signal.SIGALRM, on_alarm)
        signal.alarm(STOP_S)
        _wait_all(pids)
        signal.alarm(0)


def _wait_all(pids: dict[int, NodePlan]) -> None:
    """Until every child has ended; `pids` then is empty."""
    while pids:
        pid, _ = os.wait()
        pids.pop(pid, None)
