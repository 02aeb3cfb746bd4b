"""`p2pnode job`: look after jobs."""

import sys
from pathlib import Path
from typing import Any

import click

from p2pnode.cli.auction import print_bids, save_option
from p2pnode.cli.client import get, get_bytes, post
from p2pnode.cli.exits import ENDED, exit_code
from p2pnode.cli.output import (
    home_option,
    json_option,
    note,
    print_document,
    print_table,
    say,
    short,
)
from p2pnode.cli.run import follow, print_log, summary
from p2pnode.home import find_home, write_new
from p2pnode.quantities import format_money
from protocol.units import Micros


@click.group()
def job() -> None:
    """Look after jobs. JOB is an id, a unique beginning of one, or @ for the newest."""


@job.command("list")
@click.option("--limit", default=50, show_default=True, help="Rows to show.")
@home_option
@json_option
def list_jobs(limit: int, home: Path | None, as_json: bool) -> None:
    """List the jobs of this node, newest first."""
    document = get(find_home(home).socket, "/v1/jobs", limit=limit)
    if as_json:
        print_document(document)
        return
    rows = [
        (
            item["id"],
            item["state"],
            short(item["owner"] or "-"),
            format_money(Micros(item["cost_micro"]), item["money"]),
            item["why"],
        )
        for item in document["items"]
    ]
    if rows:
        print_table(("JOB", "STATE", "NODE", "COST", "WHY"), rows)
    if document["left_out"]:
        note(f"{document['left_out']} more; see them with --limit")


@job.command()
@click.argument("name")
@home_option
@json_option
def show(name: str, home: Path | None, as_json: bool) -> None:
    """Show one job."""
    document = get(find_home(home).socket, f"/v1/jobs/{name}")
    if as_json:
        print_document(document)
        return
    for key in ("id", "state", "why", "attempt", "owner", "lease", "log_path"):
        say(f"{key:<10} {document[key]}")
    if document["remedy_micro"]:
        named = format_money(Micros(document["remedy_micro"]), document["lease_money"])
        say(f"{'remedy':<10} {named} let off if the host fails")
    if at := document["primary"]:
        say(f"{'primary':<10} {at['use']}: {at['phase']} {at['why']}".rstrip())
    say(f"{'vram':<10} {vram_text(document['vram'])}")
    if document["outcome"]:
        say(f"{'outcome':<10} {summary(document, None)}")
        say(f"{'enforced':<10} {document['outcome']['enforced']}")
        if document["outcome"]["detail"]:
            say(f"{'detail':<10} {document['outcome']['detail']}")


def vram_text(vram: dict[str, Any]) -> str:
    """The same in words."""
    asked, planned, peak = vram["asked_mib"], vram["planned_mib"], vram["peak_mib"]
    text = f"{asked} MiB asked of each GPU" if asked > 1 else "none asked for"
    if planned < asked:
        text += f", {planned} MiB planned to be used"
    if peak is not None:
        text += f", {peak} MiB measured at the most"
    return f"{text}: more than planned" if vram["is_over"] else text


@job.command()
@click.argument("name")
@click.option("-f", "--follow", "is_followed", is_flag=True, help="Until the job ends.")
@home_option
def logs(name: str, is_followed: bool, home: Path | None) -> None:
    """Print what a job has printed, in whatever state it is."""
    node = find_home(home).socket
    document = get(node, f"/v1/jobs/{name}")
    if is_followed and document["state"] not in ENDED:
        follow(node, document["id"], to_stdout=True)
        return
    print_log(node, document["id"], 0, sys.stdout.buffer)


@job.command()
@click.argument("name")
@home_option
@json_option
def wait(name: str, home: Path | None, as_json: bool) -> None:
    """Wait until a job has ended, and end with its exit code."""
    node = find_home(home).socket
    document = follow(node, get(node, f"/v1/jobs/{name}")["id"], to_stdout=False)
    if as_json:
        print_document(document)
    note(summary(document, None))
    click.get_current_context().exit(exit_code(document))


@job.command()
@click.argument("name")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@home_option
@json_option
def fetch(name: str, folder: Path, home: Path | None, as_json: bool) -> None:
    """Unpack a job's output into FOLDER, which must be empty or missing."""
    document = post(
        find_home(home).socket, f"/v1/jobs/{name}/fetch", {"folder": str(folder.absolute())}
    )
    if as_json:
        print_document(document)
    else:
        say(f"{folder}  sha256 of the archive {document['outcome']['output_sha256']}")


@job.command()
@click.argument("name")
@home_option
@json_option
def cancel(name: str, home: Path | None, as_json: bool) -> None:
    """Ask for a job's end. It still costs until its state is failed."""
    document = post(find_home(home).socket, f"/v1/jobs/{name}/cancel", {})
    if as_json:
        print_document(document)
    else:
        say(f"{document['id']} {document['state']}, stop requested")


@job.command()
@click.argument("name")
@save_option
@home_option
@json_option
def bids(name: str, save: Path | None, home: Path | None, as_json: bool) -> None:
    """Show what was bid for a job, and check that the choice followed the rule."""
    node = find_home(home).socket
    if save is not None:
        write_new(save, get_bytes(node, f"/v1/jobs/{name}/auction"))
    document = get(node, f"/v1/jobs/{name}/bids")
    if as_json:
        print_document(document)
        return
    print_bids(document)


@job.command()
@click.argument("name")
@click.option("--to", type=click.Path(path_type=Path, dir_okay=False), help="Write it there.")
@home_option
@json_option
def receipt(name: str, to: Path | None, home: Path | None, as_json: bool) -> None:
    """Show what a job's receipt proves."""
    document = get(find_home(home).socket, f"/v1/jobs/{name}/receipt")
    if to is not None:
        to.write_bytes(bytes.fromhex(document["hex"]))
    if as_json:
        print_document(document)
    else:
        _print_receipt(document)


@job.command("check-receipt")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@home_option
@json_option
def check_receipt(file: Path, home: Path | None, as_json: bool) -> None:
    """Check a receipt FILE, also somebody else's."""
    document = post(find_home(home).socket, "/v1/receipts/check", {"hex": file.read_bytes().hex()})
    if as_json:
        print_document(document)
    else:
        _print_receipt(document)


def _print_receipt(document: dict[str, Any]) -> None:
    amount = format_money(Micros(document["amount_micro"]), document["money"])
    outcome = document["outcome"]
    say(f"lease     {document['lease']}")
    say(f"owner     {document['owner']}", f"renter    {document['renter']}")
    say(f"used      {document['used_ms']} GPU-ms, {amount}   proved: co-signed by both")
    settled = "both halves agree" if document["is_settled"] else "a half is missing"
    say(f"account   {settled}")
    say(f"outcome   {outcome['cause']} {outcome['exit_code']}   claimed by the owner")
    if outcome["detail"]:
        say(f"          {outcome['detail']}")
    if outcome["vram_peak_mib"] is not None:
        say(f"vram      {outcome['vram_peak_mib']} MiB of one GPU seen in use at the most")
    say(f"ran under {outcome['enforced']}; GPU {outcome['gpu']}")
