"""What `p2pnode earn` and `p2pnode spend` have in common: accounts seen from one side."""

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from p2pnode.api.money_documents import SummaryDocument, TotalDocument
from p2pnode.cli.client import get
from p2pnode.cli.output import (
    home_option,
    json_option,
    note,
    print_document,
    print_struct,
    print_table,
    say,
)
from p2pnode.home import Home, find_home
from p2pnode.quantities import format_money
from p2pnode.words import instant_words
from protocol.errors import LocalFault
from protocol.units import Micros

COLUMNS: Final = (
    "at", "peer_feed", "money", "amount_micro", "paid_micro", "used_ms", "claim", "lease", "half",
)  # fmt: skip
_SUMS: Final = ("agreed_micro", "claimed_micro", "paid_micro", "due_micro")
_DAY: Final = click.DateTime(formats=["%Y-%m-%d"])


def add_books(group: click.Group, *, side: str, accounts: str, lines: str) -> None:
    """Give the group `summary`, `list` and `export` of that side of our accounts.

    `accounts` and `lines` are the help of the latter two.
    """

    @group.command()
    @home_option
    @json_option
    def summary(home: Path | None, as_json: bool) -> None:
        """Sum up what was agreed, paid and is due; each money for itself."""
        document = get(find_home(home).socket, "/v1/accounts")
        energy = document["energy"] if side == "owner" else None
        items = [item for item in document["items"] if item["side"] == side]
        _print_summary(items, energy, as_json=as_json)

    @group.command("list", help=accounts)
    @home_option
    @json_option
    def list_accounts(home: Path | None, as_json: bool) -> None:
        _print_accounts(_accounts_of(find_home(home), side), as_json=as_json)

    @group.command(help=lines)
    @click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
    @click.option("--since", type=_DAY, help="From the start of this day, in UTC.")
    @click.option("--until", type=_DAY, help="Up to the start of this day, in UTC.")
    @click.option("--peer", help="Only with this peer: its feed or peer id.")
    @home_option
    @json_option
    def export(
        file: Path,
        since: datetime | None,
        until: datetime | None,
        peer: str | None,
        home: Path | None,
        as_json: bool,
    ) -> None:
        where, period = find_home(home), (since, until)
        _export_lines(where, file, side, as_json=as_json, peer=peer, period=period)


def _accounts_of(home: Home, side: str) -> list[dict[str, Any]]:
    """The accounts in which this node is on that side."""
    document = get(home.socket, "/v1/accounts")
    return [item for item in document["items"] if item["side"] == side]


def _print_accounts(items: list[dict[str, Any]], *, as_json: bool) -> None:
    """One row for each counterparty and money."""
    if as_json:
        print_document({"schema": "p2pnode.account.list/1", "items": items})
        return
    if not items:
        note("no accounts yet")
        return
    print_table(
        ("PEER", "GPU-H", "AGREED", "CLAIMED", "PAID", "DUE", "SINCE", "REFERENCE"),
        [
            (
                item["peer_feed"][:16],
                f"{item['used_ms'] / 3_600_000:.2f}",
                *(format_money(Micros(item[name]), item["money"]) for name in _SUMS),
                _since(item),
                item["reference"],
            )
            for item in items
        ],
    )
    note("agreed: signed by both; claimed: by the owner alone; paid: by the owner's word")


def _print_summary(
    items: list[dict[str, Any]], energy: dict[str, Any] | None, *, as_json: bool
) -> None:
    """One line for each money: different ones are never added up.

    `energy` is what that costs an owner, if it is known.
    """
    totals: dict[str, dict[str, int]] = {}
    for item in items:
        total = totals.setdefault(item["money"], dict.fromkeys((*_SUMS, "used_ms"), 0))
        for name in total:
            total[name] += item[name]
    if as_json:
        rows = tuple(
            TotalDocument(money=money, **total, **_net(money, total, energy))
            for money, total in sorted(totals.items())
        )
        print_struct(SummaryDocument(items=rows))
        return
    if not totals:
        note("no accounts yet")
    for money, total in sorted(totals.items()):
        sums = {name: format_money(Micros(total[name]), money) for name in _SUMS}
        say(
            f"agreed {sums['agreed_micro']}  paid {sums['paid_micro']}  due {sums['due_micro']}"
            f"  claimed {sums['claimed_micro']}  {total['used_ms'] / 3_600_000:.2f} GPU-h"
        )
        if net := _net(money, total, energy):
            say(
                f"energy {format_money(Micros(net['energy_micro']), money)}"
                f"  net {format_money(Micros(net['net_micro']), money)}"
            )


def _net(money: str, total: dict[str, int], energy: dict[str, Any] | None) -> dict[str, int]:
    """What is left without the cost of energy; empty if that is not known in this money."""
    if energy is None or energy["money"] != money:
        return {}
    cost = -(-total["used_ms"] * energy["watts"] * energy["micro_per_kwh"] // 3_600_000_000)
    return {"energy_micro": cost, "net_micro": total["agreed_micro"] - cost}


def _export_lines(
    home: Home,
    file: Path,
    side: str,
    *,
    as_json: bool,
    peer: str | None,
    period: tuple[datetime | None, datetime | None],
) -> None:
    """Write the lines of that side, as CSV, or as one JSON document."""
    document = get(
        home.socket,
        "/v1/accounts/statement",
        peer=peer,
        since_ms=_ms(period[0]),
        until_ms=_ms(period[1]),
    )
    items = [item for item in document["items"] if item["side"] == side]
    try:
        with file.open("x", newline="", encoding="utf-8") as out:
            if as_json:
                out.write(json.dumps({**document, "items": items}, indent=2) + "\n")
            else:
                rows = csv.DictWriter(out, COLUMNS, extrasaction="ignore")
                rows.writeheader()
                rows.writerows({"at": instant_words(item["at_ms"]), **item} for item in items)
    except FileExistsError as error:
        raise LocalFault(f"{file} is there already.", "name another file") from error
    except OSError as error:
        raise LocalFault(f"{file} cannot be written: {error.strerror}.", "name another") from error
    note(f"{len(items)} lines written to {file}")


def _since(item: dict[str, Any]) -> str:
    if item["since_ms"] is None:
        return "-"
    day = instant_words(item["since_ms"])[:10]
    return f"{day} LATE" if item["late"] else day


def _ms(day: datetime | None) -> int | None:
    return None if day is None else int(day.replace(tzinfo=UTC).timestamp()) * 1_000
