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
@click.option("--leave-leases", is_flag=True, help="Although some have not ended.")
@home_option
@json_option
def rotate(
    *, dry_run: bool, yes: bool, leave_leases: bool, home: Path | None, as_json: bool
) -> None:
    """Go on in a new feed, for good: the old one forked, or must not be used any more.

    The node must be stopped, and root.key at hand. The account stays, and answers for all of its
    feeds; the new feed begins as a newcomer. The next p2pnode up tells the network.

    Only the key of the feed is changed. Whoever has copied peer.key or x25519.key can still pass
    for this peer, and read jobs that were sent to it.
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
    done = succession.rotate_feed(where, now, secrets.token_bytes, leave_leases=leave_leases)
    _end(done, "finished" if done is None else "done", as_json)


def _tell(plan: Any) -> None:
    where = f"at its fork, entry {plan.ended}" if plan.is_forked else f"before entry {plan.ended}"
    say(f"old feed  {plan.old.hex()}", f"          ends {where}")
    if plan.open_leases:
        note(f"leases that have not ended are lost: {plan.open_leases}")
    for money, micro in plan.due.items():
        note(f"owed to the old feed, and never to be confirmed: {format_money(micro, money)}")
    for money, micro in plan.owes.items():
        note(f"owed by the old feed, and by its account from now on: {format_money(micro, money)}")


def _end(rotation: Any, state: str, as_json: bool) -> None:
    if as_json:
        known = {"old": None, "new": None, "ended": None, "is_forked": None, "open_leases": None}
        sums: dict[str, Any] = {"due": (), "owes": ()}
        if rotation is not None:
            known = {
                "old": rotation.old.hex(),
                "new": rotation.new and rotation.new.hex(),
                "ended": rotation.ended,
                "is_forked": rotation.is_forked,
                "open_leases": rotation.open_leases,
            }
            sums = {name: _sums(getattr(rotation, name)) for name in sums}
        print_document({"schema": "p2pnode.key.rotate/1", "state": state, **known, **sums})
    elif state == "planned":
        say("nothing is changed" if rotation else "a change that was cut short must be finished")
    else:
        say(f"new feed  {rotation.new.hex()}" if rotation else "the change is finished")
        say("next: p2pnode up")


def _sums(of: dict[str, int]) -> list[dict[str, Any]]:
    return [{"money": money, "micro": micro} for money, micro in of.items()]
