"""`p2pnode why`: why a job has no match, and why an owner has no work, with what would help."""

from pathlib import Path
from typing import Any

import click

from p2pnode.cli.client import get
from p2pnode.cli.output import home_option, json_option, note, print_document, say, short
from p2pnode.cli.since import since_option
from p2pnode.home import find_home
from p2pnode.quantities import format_money, format_span
from protocol.units import Micros, MillisSpan

NO_WORK = "no-work"
REFUSALS_SHOWN = 8
CURES = {
    "price": "p2pnode ask set, or p2pnode ask simulate",
    "closed": "p2pnode window list",
    "reach": "check this host's clock and line: p2pnode doctor",
    "policy": "p2pnode ask show",
    "expired": "jobs that were taken and refused: p2pnode bid list",
}


@click.command()
@click.argument("what", metavar="JOB|POOL|no-work")
@since_option("24h")
@home_option
@json_option
def why(what: str, since_ms: int, home: Path | None, as_json: bool) -> None:
    """Say why JOB has no match, or why this owner has no work, and what would change that.

    A job's funnel is that of the offers in this node's book now; that of a POOL, a job on several
    nodes, is of what one of them needs. A POOL is named by its id, which begins with pool-; @ is
    the newest job.
    """
    node = find_home(home).socket
    if what == NO_WORK:
        document = get(node, "/v1/no-work", since_ms=since_ms)
        lines = no_work_lines(document)
    else:
        document = get(node, f"/v1/jobs/{what}/why")
        lines = why_lines(document)
    if as_json:
        print_document(document)
    else:
        say(*lines)


def why_lines(document: dict[str, Any]) -> list[str]:
    """The funnel, the refusals and what would help, for people."""
    if document["is_matched"]:
        return [f"{document['job']} is {document['state']}: it has had a match"]
    waited, patience = (_span(document[key]) for key in ("waited_ms", "patience_ms"))
    lines = [f"{document['job']} has no match (waited {waited} of {patience})"]
    if document["pool"]:
        lines.append(f"  {document['pool']}; of what one node needs:")
    lines += _funnel_lines(document)
    for reason, count in document["shut_out"].items():
        lines.append(f"  {count} more are not asked: {reason}")
    if document["fits"]:
        lines += _answer_lines(document)
    lines += [f"  {line}" for line in change_lines(document)]
    if document["unseen"]:
        lines.append(f"  not seen: {document['unseen']}")
    return lines


def print_hint(node: Path, job: str) -> None:
    """What kept the job from a match, on stderr."""
    note(*why_lines(get(node, f"/v1/jobs/{job}/why"))[1:])


def change_lines(document: dict[str, Any]) -> list[str]:
    """What to type so that something fits; nothing where something does."""
    changes = document["changes"]
    if not changes:
        return []
    ways = " or ".join(
        f"{' '.join(change['options'])} ({_count(change['matches'], 'node')})" for change in changes
    )
    if len(changes[0]["options"]) > 1:
        return [f"smallest changes that match, all together: {ways}"]
    return [f"smallest change that matches: {ways}"]


def _funnel_lines(document: dict[str, Any]) -> list[str]:
    lines = [f"  {_count(document['seen'], 'offer')} seen"]
    for each in document["funnel"]:
        if not each["failed"]:
            continue
        reasons = ", ".join(f"{count} {reason}" for reason, count in each["failed"].items())
        lines.append(f"  - {reasons:<24} {each['asked']:<40} {each['left']:>6} left")
    return lines


def _answer_lines(document: dict[str, Any]) -> list[str]:
    lines = [f"  {_count(document['fits'], 'offer')} fit; the owners' answers in the last auction:"]
    for reason, count in sorted(document["missed"].items()):
        lines.append(f"  - {count} {reason}")
    lines += [
        f"    {short(each['owner'])} signed {each['reason']}: {each['detail']}"
        for each in document["refusals"][:REFUSALS_SHOWN]
    ]
    if len(document["refusals"]) > REFUSALS_SHOWN:
        lines.append(f"    {len(document['refusals']) - REFUSALS_SHOWN} more with --json")
    return lines


def no_work_lines(document: dict[str, Any]) -> list[str]:
    """The causes with counts, and what would have won."""
    span = _span(document["until_ms"] - document["since_ms"])
    lines = [f"{document['seen']} requests seen in {span}, {document['won']} won."]
    for cause, count in document["causes"].items():
        cure = CURES.get(cause, "")
        text = f"{count:>6}  {cause:<8} {document['details'].get(cause, '')}"
        lines.append(f"{text:<70}" + (f"  -> {cure}" if cure else ""))
    if document["floor_micro"] is not None:
        floor = format_money(Micros(document["floor_micro"]), document["money"])
        lines.append(f"an ask of {floor}/gpu-h would have won {document['floor_wins']} of them")
        lines.append("  an estimate: by the asks of rivals in this node's book then, held fixed")
    if document["alert"] is not None:
        lines.append(f"{document['alert']}: {document['alert_why']}. try: p2pnode status")
    elif not document["seen"]:
        lines.append("Nobody asked this node. try: p2pnode status, p2pnode ask show")
    return lines


def _span(ms: int) -> str:
    return format_span(MillisSpan(max(0, ms) // 1_000 * 1_000))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
