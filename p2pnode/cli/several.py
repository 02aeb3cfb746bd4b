"""Follows a job on several nodes to its end: what each prints, in whole lines, with its rank."""

import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import click

from p2pnode.cli.client import get, get_log, post
from p2pnode.cli.exits import ENDED, EXIT_NO_MATCH, EXIT_OWNER, exit_code
from p2pnode.cli.output import note, print_document, say
from p2pnode.execution.run_log import gap_line
from p2pnode.home import host_faults
from p2pnode.quantities import format_money
from protocol.units import Micros

POLL_S = 0.2


def run_on_several(
    node: Path, order: dict[str, Any], *, output: Path | None, is_detached: bool, as_json: bool
) -> NoReturn:
    """Submit the order and follow it; outputs go to OUTPUT/RANK. Ends with the worst exit code."""
    pool = post(node, "/v1/pools", order)
    if is_detached:
        if as_json:
            print_document(pool)
        else:
            say(pool["id"])
        click.get_current_context().exit(0)
    note(f"{pool['id']} submitted: {', '.join(pool['jobs'])}")
    try:
        pool = follow_pool(node, pool["id"], to_stdout=not as_json)
    except KeyboardInterrupt:
        note("", f"detached; {pool['id']} goes on   stop it: p2pnode pool cancel {pool['id']}")
        raise
    jobs = [get(node, f"/v1/jobs/{job}") for job in pool["jobs"]] if pool["has_leases"] else []
    if output is not None:
        _fetch_all(node, jobs, output)
    if as_json:
        print_document(pool)
    note(pool_summary(pool))
    click.get_current_context().exit(pool_exit_code(pool, jobs))


def _fetch_all(node: Path, jobs: list[dict[str, Any]], output: Path) -> None:
    with host_faults(f"make the directory {output}"):
        output.mkdir(parents=True, exist_ok=True)
    for rank, job in enumerate(jobs):
        if job["outcome"] and job["outcome"]["output_sha256"]:
            folder = str((output / str(rank)).absolute())
            post(node, f"/v1/jobs/{job['id']}/fetch", {"folder": folder})


def follow_pool(node: Path, name: str, *, to_stdout: bool) -> dict[str, Any]:
    """Show its states on stderr and its nodes' lines on stdout until it has ended; how it did."""
    said = ""
    tails: dict[str, _Tail] = {}
    while True:
        pool: dict[str, Any] = get(node, f"/v1/pools/{name}")
        state = f"{pool['state']}{': ' + pool['why'] if pool['why'] else ''}"
        if state != said:
            note(state)
        said = state
        if pool["has_leases"]:
            for rank, job in enumerate(pool["jobs"]):
                tail = tails.setdefault(job, _Tail(node, job, rank))
                tail.print_news(to_stdout=to_stdout, is_last=pool["state"] in ENDED)
        if pool["state"] in ENDED:
            return pool
        time.sleep(POLL_S)


def pool_summary(pool: dict[str, Any]) -> str:
    """The last line: how it ended, on how many nodes, what it cost."""
    why = f": {pool['why']}" if pool["why"] else ""
    cost = format_money(Micros(pool["cost_micro"]), pool["money"])
    return f"{pool['id']} {pool['state']}{why} · {len(pool['jobs'])} nodes · {cost}"


def pool_exit_code(pool: dict[str, Any], jobs: list[dict[str, Any]]) -> int:
    """The worst of its nodes; 123 where nothing fitted."""
    if not jobs:
        return EXIT_NO_MATCH if pool["why"].startswith("no match") else EXIT_OWNER
    return max(exit_code(job) for job in jobs)


class _Tail:
    """One node's log, printed line by line."""

    def __init__(self, node: Path, job: str, rank: int) -> None:
        self._node = node
        self._job = job
        self._mark = f"[{rank}] ".encode()
        self._offset = 0
        self._rest = b""

    def print_news(self, *, to_stdout: bool, is_last: bool) -> None:
        """Print the whole lines that have come; at the last also one without an end."""
        out = (sys.stdout if to_stdout else sys.stderr).buffer
        while True:
            begin, piece = get_log(self._node, self._job, self._offset)
            if not piece:
                break
            gap = gap_line(begin - self._offset) if begin > self._offset else b""
            self._rest += gap + piece
            self._offset = begin + len(piece)
        *lines, self._rest = self._rest.split(b"\n")
        if is_last and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            out.write(self._mark + line + b"\n")
        out.flush()
