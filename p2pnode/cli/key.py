"""`p2pnode key`: the key that a node signs its feed with."""

import importlib
import secrets
from pathlib import Path
from typing import Any

import click

from p2pnode.cli.output import home_option, json_option, note, print_document, say
from p2pnode.clock import SystemClock
from p2pnode.home import find_home
from p2pnode.quantities import format_money
from protocol.errors import LocalFault


@click.group()
def key() -> None:
    """Change the key that this node signs with."""


@key.command()
@click.option("--dry-run", is_flag=True, help="Say what it means, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@home_option
@json_option
def rotate(*, dry_run: bool, yes: bool, home: Path | None, as_json: bool) -> None:
    """Go on in a new feed, for good: the old one forked, or others have its key.

    The node must be stopped, and root.key at hand. The account stays, and answers for all of its
    feeds; the new feed begins as a newcomer. The next p2pnode up tells the network.
    """
    succession = importlib.import_module("p2pnode.succession")
    where, now = find_home(home), SystemClock().now()
    plan = succession.plan_rotation(where, now)
    if plan is not None and not as_json:
        _tell(plan)
    if dry_run:
        _end(plan, "planned", as_json)
        return
    if not yes:
        if as_json:
            raise LocalFault("--json asks no questions.", "add --yes or --dry-run")
        click.confirm("Give up the old feed for good?", abort=True, err=True)
    succession.rotate_feed(where, now, secrets.token_bytes)
    _end(plan, "finished" if plan is None else "done", as_json)


def _tell(plan: Any) -> None:
    where = f"at its fork, entry {plan.ended}" if plan.is_forked else f"before entry {plan.ended}"
    say(f"old feed  {plan.old.hex()}", f"          ends {where}", f"new feed  {plan.new.hex()}")
    if plan.open_leases:
        note(f"leases that have not ended are lost: {plan.open_leases}")
    for money, micro in plan.due.items():
        note(f"owed to the old feed, and never to be confirmed: {format_money(micro, money)}")


def _end(plan: Any, state: str, as_json: bool) -> None:
    if as_json:
        print_document(
            {
                "schema": "p2pnode.key.rotate/1",
                "state": state,
                "old": plan and plan.old.hex(),
                "new": plan and plan.new.hex(),
                "ended": plan and plan.ended,
                "is_forked": plan and plan.is_forked,
                "open_leases": plan and plan.open_leases,
                "due": [
                    {"money": money, "micro": micro}
                    for money, micro in (plan.due if plan else {}).items()
                ],
            }
        )
    elif state == "planned":
        say("nothing is changed" if plan else "a change that was cut short has to be finished")
    else:
        say("the new feed is ours", "next: p2pnode up")
