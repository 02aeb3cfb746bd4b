"""`p2pnode run`: submit a job and follow it to its end."""

import os
import sys
import time
from pathlib import Path
from typing import IO, Any

import click

from p2pnode.cli.client import get, get_log, post
from p2pnode.cli.exits import ENDED, EXIT_NO_MATCH, exit_code
from p2pnode.cli.output import home_option, json_option, note, print_document, say, short
from p2pnode.cli.preset import with_preset
from p2pnode.cli.several import run_on_several
from p2pnode.cli.wanted import constraints_of, instant_of, money_of, wanted_options, worth_of
from p2pnode.cli.why import print_hint
from p2pnode.execution.run_log import gap_line
from p2pnode.home import find_home
from p2pnode.quantities import (
    format_money,
    mib_ceil,
    parse_size,
    parse_span,
)
from protocol.errors import LocalFault
from protocol.units import Micros

POLL_S = 0.2


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--nodes", default=1, show_default=True, help="Nodes, all of them or none.")
@wanted_options
@click.option("--time", "time_limit", default="1h", show_default=True, help="Time limit.")
@click.option("--memory", default="2GiB", show_default=True, help="Memory limit.")
@click.option("--cpus", default="1", show_default=True, help="Cores, for example 2 or 0.5.")
@click.option("--disk", default="1GiB", show_default=True, help="Disk limit.")
@click.option("--env", "-e", multiple=True, help="NAME=VALUE; may be repeated.")
@click.option("--image", help="Image by digest, for nodes that run containers.")
@click.option("--preset", help="An image, and the CUDA it needs, by a name of `preset list`.")
@click.option(
    "--input",
    "-i",
    "input_folder",
    type=click.Path(exists=True, file_okay=False),
    help="Directory whose content the job finds where it starts.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory for what the job leaves in $P2PNODE_OUT.",
)
@click.option(
    "--wait",
    "patience",
    help="How long to wait for an offer that fits, also after a move (default: 30s; 10m with "
    "bronze).",
)
@click.option(
    "--witness", multiple=True, help="Feed or peer that must cosign the lease; may be repeated."
)
@click.option("--quorum", default=0, help="How many of the witnesses; by default over half.")
@click.option(
    "--notice", help="Warning that a bronze job needs to save its work (default for bronze: 30s)."
)
@click.option(
    "--notice-signal",
    type=click.Choice(["USR1", "USR2", "HUP", "INT", "TERM"]),
    help="What wakes it then, if it handles it; $P2PNODE_NOTICE appears in any case.",
)
@click.option(
    "--checkpoint",
    help="How often what it saves in $P2PNODE_CHECKPOINT is fetched (default for bronze: 1m).",
)
@click.option("--after-preemptions", type=int, help="So many interruptions are enough.")
@click.option("--then", default="silver", show_default=True, help="The tier after them.")
@click.option("--lease", help="Take leases of at most this, for example 1h, and renew them.")
@click.option("--start", help="When to start, for example 2026-12-24T20:00Z; for --tier gold.")
@click.option(
    "--value-of-time",
    help="What an hour of waiting costs you, for example '2 USD/h': a dearer node that starts "
    "sooner may win.",
)
@click.option(
    "--value-of-rtt",
    help="What each millisecond of round trip costs you over the whole job, for example "
    "'0.001 USD/ms': a dearer node that is nearer may win.",
)
@click.option(
    "--primary",
    type=click.Choice(["never", "first", "only", "fallback"]),
    help="Your own cluster: before the market, instead of it, or where nobody there fits.",
)
@click.option("--detach", is_flag=True, help="Print the job's id and leave it to the node.")
@home_option
@json_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    *, home: Path | None, as_json: bool, detach: bool, output: Path | None, **wanted: Any
) -> None:
    """Run COMMAND on somebody's GPU, show what it prints, and end with its exit code.

    Ctrl-C detaches: the job goes on, and `p2pnode job cancel` ends it. Exit codes of our own:
    123 nothing fits, 124 time limit, 125 the owner or its engine failed.
    """
    node = find_home(home).socket
    money = get(node, "/v1/status")["network"]["money"]
    order = order_of(money, with_preset(home, wanted))
    if order["nodes"] > 1:
        run_on_several(node, order, output=output, is_detached=detach, as_json=as_json)
    job = post(node, "/v1/jobs", order)
    if detach:
        _print_job(job, as_json=as_json)
        return
    note(f"{job['id']} submitted")
    try:
        job = follow(node, job["id"], to_stdout=not as_json)
    except KeyboardInterrupt:
        note("", f"detached; {job['id']} goes on   stop it: p2pnode job cancel {job['id']}")
        raise
    if output is not None and job["outcome"] and job["outcome"]["output_sha256"]:
        post(node, f"/v1/jobs/{job['id']}/fetch", {"folder": str(output.absolute())})
    if as_json:
        print_document(job)
    note(summary(job, output))
    if exit_code(job) == EXIT_NO_MATCH:
        print_hint(node, job["id"])
    click.get_current_context().exit(exit_code(job))


def order_of(money: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """The options as the API takes them; `money`: of the network. Raises LocalFault."""
    money = money_of(wanted) or money
    return {
        "argv": list(wanted["command"]),
        "variables": variables_of(wanted["env"]),
        "image": wanted["image"],
        "input_folder": os.path.abspath(wanted["input_folder"]) if wanted["input_folder"] else None,  # noqa: PTH100
        "nodes": wanted["nodes"],
        **constraints_of(wanted),
        "money": money,
        "time_ms": parse_span(wanted["time_limit"]),
        "memory_mib": mib_ceil(parse_size(wanted["memory"])),
        "cpus_milli": thousandths(wanted["cpus"]),
        "disk_mib": mib_ceil(parse_size(wanted["disk"])),
        "patience_ms": parse_span(wanted["patience"]) if wanted["patience"] else None,
        "witnesses": list(wanted["witness"]),
        "quorum": wanted["quorum"],
        "notice_ms": parse_span(wanted["notice"]) if wanted["notice"] else None,
        "notice_signal": wanted["notice_signal"],
        "checkpoint_ms": parse_span(wanted["checkpoint"]) if wanted["checkpoint"] else None,
        "after_preemptions": wanted["after_preemptions"],
        "then_tier": wanted["then"],
        "lease_ms": parse_span(wanted["lease"]) if wanted["lease"] else None,
        "start_ms": instant_of(wanted["start"]) if wanted["start"] else None,
        "primary": wanted["primary"],
        **worth_of(wanted, money),
    }


def variables_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE texts as a map. Raises LocalFault."""
    found = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise LocalFault(f"{pair!r} is no variable.", "--env NAME=VALUE")
        found[name] = value
    return found


def thousandths(text: str) -> int:
    """A number of cores in thousandths. Raises LocalFault."""
    whole, _, part = text.partition(".")
    if not (whole + part).isdigit() or len(part) > 3:
        raise LocalFault(f"{text!r} is no number of cores.", "--cpus 2 or --cpus 0.5")
    return int(whole or "0") * 1_000 + int((part or "0").ljust(3, "0"))


def follow(node: Path, job: str, *, to_stdout: bool) -> dict[str, Any]:
    """Show the job's states on stderr and its log on stdout until it has ended; how it did."""
    offset, said = 0, ""
    out = (sys.stdout if to_stdout else sys.stderr).buffer
    while True:
        document: dict[str, Any] = get(node, f"/v1/jobs/{job}")
        state = _state_line(document)
        if state != said and state:
            note(state)
        said = state
        offset = print_log(node, job, offset, out)
        if document["state"] in ENDED:
            return document
        time.sleep(POLL_S)


def print_log(node: Path, job: str, offset: int, out: IO[bytes]) -> int:
    """Print the log from this offset on, as far as there is one; where it ended."""
    while True:
        begin, piece = get_log(node, job, offset)
        if not piece:
            return offset
        if begin > offset:
            out.write(gap_line(begin - offset))
        out.write(piece)
        out.flush()
        offset = begin + len(piece)


def _state_line(job: dict[str, Any]) -> str:
    if job["state"] == "primary":
        at = job["primary"]
        return f"{at['phase']} on the primary{': ' + at['why'] if at['why'] else ''}"
    if job["state"] == "matching":
        return f"looking for an offer{': ' + job['why'] if job['why'] else ''}"
    if job["state"] in {"staging", "running"} and job["micro_per_gpu_hour"] is not None:
        price = format_money(job["micro_per_gpu_hour"], job["lease_money"])
        why = f" ({job['why']})" if job["why"] else ""
        return f"{job['state']} on {short(job['owner'])} at {price}/gpu-h{remedy_words(job)}{why}"
    return ""


def remedy_words(job: dict[str, Any]) -> str:
    """What the owner lets off if its host fails, where it names something."""
    if not job["remedy_micro"]:
        return ""
    named = format_money(Micros(job["remedy_micro"]), job["lease_money"])
    return f", {named} let off if the host fails"


def summary(job: dict[str, Any], output: Path | None) -> str:
    """The last line: how it ended, how long it took, what it cost, what is simulated."""
    outcome = job["outcome"]
    if job["primary"] and job["primary"]["exit_code"] is not None:
        return f"{job['id']} {job['state']}: exit {job['primary']['exit_code']} on the primary"
    if outcome is None:
        return f"{job['id']} failed: {job['why']}"
    how = f"exit {outcome['exit_code']}" if outcome["cause"] == "exit" else outcome["cause"]
    took_ms = outcome["ended_ms"] - (outcome["started_ms"] or outcome["ended_ms"])
    parts = [
        f"{job['id']} {job['state']}: {how}",
        f"{took_ms / 1_000:.1f} s",
        format_money(Micros(job["cost_micro"]), job["money"]),
    ]
    if outcome["output_sha256"]:
        where = f" in {output}" if output else f"; p2pnode job fetch {job['id']} DIR"
        parts.append(f"output {outcome['output_bytes']} bytes, sha256 checked{where}")
    if job["vram"]["is_over"]:
        peak, planned = job["vram"]["peak_mib"], job["vram"]["planned_mib"]
        parts.append(f"warning: {peak} MiB of a GPU's memory in use, {planned} were planned")
    if outcome["gpu"] == "simulated":
        parts.append("GPU simulated")
    return " · ".join(parts)


def _print_job(job: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_document(job)
    else:
        say(job["id"])
