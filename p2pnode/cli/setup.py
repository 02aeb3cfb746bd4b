"""`p2pnode init` and `doctor`: from nothing to a node that can start."""

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from p2pnode.cli.output import home_option, json_option, note, print_document, say
from p2pnode.config import Config, Network, Pricing, read_config
from p2pnode.config_text import default_config_text
from p2pnode.home import find_home, make_folders, read_if_there, write_durably
from p2pnode.quantities import parse_rate
from protocol.errors import LocalFault

EXIT_FAILED = 1
CONFIG_BYTES_MAX = 1_048_576


@click.command()
@click.option("--name", help="What others see this node called.")
@click.option("--roles", help="owner, renter, or owner,renter.")
@click.option("--region", help="ISO 3166 country, for example DE.")
@click.option("--ask", help="Price per GPU-hour, for example '0.38 USD/gpu-h'; empty for none.")
@click.option("--join", "link", help="Invitation to a network; empty to found none and join later.")
@home_option
@json_option
def init(
    *,
    name: str | None,
    roles: str | None,
    region: str | None,
    ask: str | None,
    link: str | None,
    home: Path | None,
    as_json: bool,
) -> None:
    """Answer five questions and write config.toml; options answer without asking."""
    where = find_home(home)
    if read_if_there(where.config, size_max=CONFIG_BYTES_MAX) is not None:
        raise LocalFault(f"{where.config} is there already.", "edit it, or take another --home")
    answers = {
        "name": name if name is not None else _ask("Name of this node", "node"),
        "roles": roles if roles is not None else _ask("Roles", "owner,renter"),
        "region": region if region is not None else _ask("Country (ISO 3166)", "ZZ"),
        "ask": ask if ask is not None else _ask("Price per GPU-hour, empty for none", ""),
    }
    invitation = link if link is not None else _ask("Invitation link, empty for none", "")
    text = default_config_text(_config_of(answers))
    make_folders(where)
    write_durably(where.config, text.encode())
    joined = None
    if invitation:
        joined = importlib.import_module("p2pnode.membership").join_network(where, invitation)
    if as_json:
        print_document({"schema": "p2pnode.init/1", "config": str(where.config), "network": joined})
        return
    say(f"wrote {where.config}")
    say(f"joined {joined['name']}" if joined else "next: p2pnode network join LINK")
    say("then: p2pnode doctor, p2pnode up")


def _ask(question: str, default: str) -> str:
    if not sys.stdin.isatty():
        raise LocalFault(
            "init asks questions, and nobody is there to answer.",
            "p2pnode init --name rig --roles owner,renter --region DE --ask '' --join ''",
        )
    answer: str = click.prompt(question, default=default, show_default=bool(default))
    return answer


def _config_of(answers: dict[str, str]) -> Config:
    """The answers, judged as the file will be. Raises LocalFault."""
    wanted = [role.strip() for role in answers["roles"].split(",")]
    roles: Any = tuple(role for role in ("owner", "renter") if role in wanted)
    if not roles or len(roles) != len(wanted):
        raise LocalFault(f"{answers['roles']!r} are no roles.", "owner, renter, or owner,renter")
    config = Config(
        name=answers["name"],
        roles=roles,
        network=Network(region=answers["region"].upper()),
        pricing=Pricing(ask=parse_rate(answers["ask"]) if answers["ask"] else None),
    )
    return read_config(default_config_text(config), origin="the answers", variables={})


@click.command()
@home_option
@json_option
def doctor(home: Path | None, as_json: bool) -> None:
    """Check what a node needs on this host; exit code 1 if something fails."""
    findings = importlib.import_module("p2pnode.doctor").examine(find_home(home))
    if as_json:
        print_document(
            {
                "schema": "p2pnode.doctor/1",
                "items": [
                    {"check": f.name, "state": f.state, "text": f.text, "try": f.cure}
                    for f in findings
                ],
            }
        )
    else:
        for number, finding in enumerate(findings, start=1):
            say(f"{number:2} {finding.state:<4} {finding.name:<10} {finding.text}")
            if finding.cure and finding.state in {"fail", "warn"}:
                note(f"   try: {finding.cure}")
    has_failed = any(finding.state == "fail" for finding in findings)
    click.get_current_context().exit(EXIT_FAILED if has_failed else 0)
