"""`earn` and `spend`: summary, list and export tell one truth, whole and in parts."""

import csv
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
import trio
from click.testing import CliRunner
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from litestar import Litestar

from ledger.entry import Entry
from ledger.ledger import Taken
from p2pnode.api.app import exception_handlers
from p2pnode.api.money_documents import EnergyDocument
from p2pnode.api.money_routes import money_routes
from p2pnode.api.schemas import schema_of
from p2pnode.api.server import serve_api
from p2pnode.cli.books import COLUMNS
from p2pnode.cli.earn import earn
from p2pnode.cli.spend import spend
from p2pnode.credit_line import CreditLine, Terms
from p2pnode.home import find_home
from p2pnode.money_views import MoneyViews
from p2pnode.settling import Settling
from protocol.certificate import Certificate
from protocol.signing import Signer
from protocol.units import Micros, Millis, MillisSpan, PeerId, PublicKey
from tests.json_schema import faults
from tests.make_evidence import changed
from tests.make_ledger import (
    HOUR,
    OWNER,
    RENTER,
    STRANGER,
    T0,
    Feed,
    at,
    genesis,
    ledger,
    statement,
)

MIDNIGHT = 24 * HOUR - T0 % (24 * HOUR)
"""The first one after the ledgers' begin, as an offset for `at`."""
FIRST_DAY = date(2023, 11, 15)
PEERS = (RENTER, STRANGER)
NAMES = ("agreed_micro", "claimed_micro", "paid_micro", "used_ms")


class Noon:
    """See WallClock. The noon of the twentieth day."""

    def now(self) -> Millis:
        return at(MIDNIGHT + 20 * 24 * HOUR + 12 * HOUR)


class Business:
    """Our ledger, OWNER's, with accounts of ours with two peers; in both roles, at a given hour."""

    def __init__(self, *first: Any) -> None:
        """`first` is what our feed says right behind its begin."""
        self.ledger = ledger(OWNER)
        self.ledger.append_all([genesis(OWNER), *first], at(0))
        self.peers = {peer.public: Feed(peer) for peer in PEERS}
        for peer in self.peers.values():
            self._take(peer.open())
        self._sums: Counter[tuple[Any, ...]] = Counter()

    def state(
        self,
        peer: Signer,
        *,
        ours: bool,
        hour: int,
        money: str = "USD",
        used: int = 0,
        amount: int = 0,
        paid: int = 0,
        answered: bool = True,
    ) -> None:
        """A half by which so much more was used, stated and paid; `ours` if the peer owes it."""
        sums, account = self._sums, (peer.public, ours, money)
        for name, grown in (("ctr", 1), ("used", used), ("amount", amount), ("paid", paid)):
            sums[(*account, name)] += grown
        body = changed(
            statement(peer if ours else OWNER, ctr=sums[(*account, "ctr")], money=money),
            used_ms=MillisSpan(sums[(*account, "used")]),
            amount_micro=Micros(sums[(*account, "amount")]),
            paid_micro=Micros(sums[(*account, "paid")]),
        )
        owed = self._write(ours=ours, by=peer, body=body, hour=hour)
        if answered:
            answer = changed(body, peer=(OWNER if ours else peer).public, half=owed.id)
            self._write(ours=not ours, by=peer, body=answer, hour=hour)

    def _write(self, *, ours: bool, by: Signer, body: Any, hour: int) -> Entry:
        now = MIDNIGHT + hour * HOUR
        if ours:
            return self.ledger.append(body, at(now))
        feed = self.peers[by.public]
        feed.ts = now
        return self._take(feed.add(body))

    def _take(self, entry: Entry) -> Entry:
        assert self.ledger.ingest(entry.raw) is Taken.NEW
        return entry

    def views(self, energy: EnergyDocument | None = None) -> MoneyViews:
        """What the API tells of it."""

        async def nobody(*_: object) -> bytes:
            raise AssertionError("no peer is asked")

        def unknown(peer: PeerId) -> Certificate:
            raise AssertionError(peer)

        clock = Noon()
        return MoneyViews(
            settling=Settling(
                ledger=self.ledger,
                signer=OWNER,
                payout="",
                ask_feed=nobody,
                who_is=unknown,
                tell=lambda _feed: None,
                clock=clock,
            ),
            credit_line=CreditLine(
                ledger=self.ledger,
                terms=Terms(billing_ms=MillisSpan(HOUR), newcomer=None),
                credit=lambda _feed, _money: 0,
                metered=lambda _lease: Micros(0),
                is_over=lambda _lease: True,
                clock=clock,
            ),
            feed_of=lambda text: PublicKey(bytes.fromhex(text)),
            energy=lambda: energy,
        )


class Desk:
    """The command line of one side, over the socket of a node with this business."""

    def __init__(self, home: Path, side: str) -> None:
        self._home = home
        self._group: click.Group = {"owner": earn, "renter": spend}[side]
        self._files = 0

    async def say(self, *arguments: str) -> str:
        done = await trio.to_thread.run_sync(
            lambda: CliRunner().invoke(
                self._group, [*arguments, "--home", str(self._home)], catch_exceptions=False
            )
        )
        assert done.exit_code == 0, done.output
        return done.stdout

    async def document(self, *arguments: str) -> Any:
        return checked(json.loads(await self.say(*arguments, "--json")))

    async def lines(self, *arguments: str, as_json: bool) -> list[dict[str, Any]]:
        """Those of an export, with what a CSV file has of them, as numbers and texts."""
        self._files += 1
        path = self._home / f"{self._group.name}-{self._files}"
        await self.say("export", str(path), *arguments, *(["--json"] if as_json else []))
        if as_json:
            document = checked(json.loads(path.read_text()))
            assert document["schema"] == "p2pnode.account.statement/1"
            return document["items"]  # type: ignore[no-any-return]
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert all(tuple(row) == COLUMNS for row in rows)
        numbers = ("amount_micro", "paid_micro", "used_ms")
        return [{**row, **{name: int(row[name]) for name in numbers}} for row in rows]


def checked(document: Any) -> Any:
    """The document, which follows its schema."""
    assert faults(document, schema_of(document["schema"])) == []
    return document


@asynccontextmanager
async def served(
    home: Path, business: Business, energy: EnergyDocument | None = None
) -> AsyncIterator[tuple[Desk, Desk]]:
    """What is earned and what is spent, at a node."""
    find_home(home).socket.parent.mkdir(parents=True, exist_ok=True)
    app = Litestar(
        route_handlers=money_routes(business.views(energy)),
        exception_handlers=exception_handlers(),
        logging_config=None,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_api, app, find_home(home).socket)
        yield Desk(home, "owner"), Desk(home, "renter")
        nursery.cancel_scope.cancel()


def added_up(lines: Sequence[dict[str, Any]], *by: str) -> dict[tuple[str, ...], Counter[str]]:
    """What lines make of each account or money, under the names of `list` and `summary`."""
    sums: dict[tuple[str, ...], Counter[str]] = {}
    for line in lines:
        total = sums.setdefault(tuple(line[name] for name in by), Counter())
        is_proved = line["claim"] == "proved"
        total["agreed_micro" if is_proved else "claimed_micro"] += line["amount_micro"]
        total["used_ms"] += line["used_ms"] if is_proved else 0
        total["paid_micro"] += line["paid_micro"]
    return without_nothing(sums)


def told(items: Sequence[dict[str, Any]], *by: str) -> dict[tuple[str, ...], Counter[str]]:
    """What `list` or `summary` say of each account or money, if it is anything."""
    sums: dict[tuple[str, ...], Counter[str]] = {}
    for item in items:
        total = sums.setdefault(tuple(item[name] for name in by), Counter())
        total.update({name: item[name] for name in NAMES})
    return without_nothing(sums)


def without_nothing(
    sums: dict[tuple[str, ...], Counter[str]],
) -> dict[tuple[str, ...], Counter[str]]:
    return {key: total for key, total in sums.items() if any(total.values())}


async def check_one_truth(desk: Desk, cuts: Sequence[str], *, as_json: bool) -> None:
    """All screens of this side agree, and so do the parts of its export."""
    accounts = (await desk.document("list"))["items"]
    totals = (await desk.document("summary"))["items"]
    whole = await desk.lines(as_json=as_json)
    assert told(totals, "money") == told(accounts, "money") == added_up(whole, "money")
    assert told(accounts, "peer_feed", "money") == added_up(whole, "peer_feed", "money")
    assert len(totals) == len({item["money"] for item in accounts})
    due: Counter[str] = Counter()
    for item in accounts:
        due[item["money"]] += item["due_micro"]
    assert {item["money"]: item["due_micro"] for item in totals} == dict(due)
    edges = [None, *cuts, None]
    parts: list[dict[str, Any]] = []
    for peer in PEERS:
        of_peer: list[dict[str, Any]] = []
        for since, until in pairwise(edges):
            period = [
                *(["--since", since] if since else []),
                *(["--until", until] if until else []),
            ]
            part = await desk.lines("--peer", peer.public.hex(), *period, as_json=as_json)
            assert {line["peer_feed"] for line in part} <= {peer.public.hex()}
            of_peer += part
        assert of_peer == await desk.lines("--peer", peer.public.hex(), as_json=as_json)
        parts += of_peer
    assert added_up(parts, "peer_feed", "money") == told(accounts, "peer_feed", "money")
    assert in_order(parts) == in_order(whole)


def in_order(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(lines, key=lambda line: [str(line.get(name)) for name in COLUMNS])


DEALS = st.lists(
    st.fixed_dictionaries(
        {
            "peer": st.sampled_from(PEERS),
            "ours": st.booleans(),
            "wait": st.sampled_from([0, 0, 12, 24]),
            "money": st.sampled_from(["USD", "EUR", "TEST"]),
            "used": st.integers(0, 3 * HOUR),
            "amount": st.integers(0, 10**6),
            "paid": st.integers(0, 10**6),
            "answered": st.booleans(),
        }
    ),
    max_size=10,
)


# Not shrunk: through a server that would take minutes.
@pytest.mark.slow
@pytest.mark.parametrize("as_json", [False, True])
@settings(max_examples=20, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    deals=DEALS,
    days=st.lists(st.integers(0, 6), min_size=2, max_size=2),
    fork=st.one_of(st.none(), st.tuples(st.sampled_from(PEERS), st.integers(1, 4))),
)
def test_an_export_by_peer_and_period_adds_up_to_list_and_summary(
    tmp_path_factory: pytest.TempPathFactory,
    as_json: bool,
    deals: list[dict[str, Any]],
    days: list[int],
    fork: tuple[Signer, int] | None,
) -> None:
    business, hour = Business(), 0
    for deal in deals:
        hour += deal.pop("wait")
        business.state(**deal, hour=hour)
    if fork is not None:
        business.ledger.state.fork(fork[0].public, fork[1])
    cuts = [str(FIRST_DAY + timedelta(days=day)) for day in sorted(days)]

    async def check() -> None:
        async with served(tmp_path_factory.mktemp("home"), business) as desks:
            for desk in desks:
                await check_one_truth(desk, cuts, as_json=as_json)

    trio.run(check)


def small() -> Business:
    """Two renters and an owner, in two moneys and over three days."""
    made = Business()
    made.state(RENTER, ours=True, hour=0, used=HOUR, amount=1_500_000)
    made.state(STRANGER, ours=True, hour=23, used=2 * HOUR, amount=2_000_000)
    made.state(RENTER, ours=True, hour=24, used=HOUR, amount=700_000, money="EUR")
    made.state(RENTER, ours=True, hour=25, paid=600_000)
    made.state(STRANGER, ours=True, hour=48, amount=250_000, used=HOUR, answered=False)
    made.state(RENTER, ours=False, hour=49, amount=90_000, used=HOUR)
    return made


async def test_summary_list_and_export_tell_one_truth_and_moneys_are_never_added_up(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, small()) as (earned, spent):
        assert (await earned.say("summary")).splitlines() == [
            "agreed 0.70 EUR  paid 0.00 EUR  due 0.70 EUR  claimed 0.00 EUR  1.00 GPU-h",
            "agreed 3.50 USD  paid 0.60 USD  due 2.90 USD  claimed 0.25 USD  3.00 GPU-h",
        ]
        assert (await spent.say("summary")).splitlines() == [
            "agreed 0.09 USD  paid 0.00 USD  due 0.09 USD  claimed 0.00 USD  1.00 GPU-h",
        ]
        for desk in (earned, spent):
            for as_json in (False, True):
                await check_one_truth(desk, ["2023-11-16", "2023-11-17"], as_json=as_json)
        rows = (await earned.say("list")).splitlines()[1:]
        assert [row.split()[0] for row in rows] == [
            account["peer_feed"][:16] for account in (await earned.document("list"))["items"]
        ]


async def test_what_energy_costs_is_told_in_its_own_money_alone(tmp_path: Path) -> None:
    costs = EnergyDocument(money="USD", micro_per_kwh=300_000, watts=400)
    async with served(tmp_path, small(), costs) as (earned, spent):
        assert (await earned.say("summary")).splitlines()[1:] == [
            "agreed 3.50 USD  paid 0.60 USD  due 2.90 USD  claimed 0.25 USD  3.00 GPU-h",
            "energy 0.36 USD  net 3.14 USD",
        ]
        euros, dollars = (await earned.document("summary"))["items"]
        assert (euros["energy_micro"], euros["net_micro"]) == (None, None)
        assert (dollars["energy_micro"], dollars["net_micro"]) == (360_000, 3_140_000)
        assert "energy" not in await spent.say("summary")


async def test_a_day_begins_with_its_midnight_and_ends_before_the_next(tmp_path: Path) -> None:
    async with served(tmp_path, small()) as (earned, _):
        day = await earned.lines("--since", "2023-11-15", "--until", "2023-11-16", as_json=False)
        assert [line["amount_micro"] for line in day] == [1_500_000, 2_000_000]
        day = await earned.lines("--since", "2023-11-16", "--until", "2023-11-17", as_json=False)
        assert [(line["money"], line["paid_micro"]) for line in day] == [
            ("EUR", 0), ("USD", 600_000),
        ]  # fmt: skip
        one = await earned.lines("--peer", STRANGER.public.hex(), as_json=True)
        assert [(line["amount_micro"], line["claim"]) for line in one] == [
            (2_000_000, "proved"), (250_000, "claimed"),
        ]  # fmt: skip


async def test_what_is_confirmed_follows_its_schema_and_all_screens_say_it(tmp_path: Path) -> None:
    async with served(tmp_path, small()) as (earned, _):
        renter = RENTER.public.hex()
        said = await earned.document("confirm", renter, "0.90 USD")
        assert said["schema"] == "p2pnode.payment.confirmed/1"
        assert (said["account"]["paid_micro"], said["account"]["due_micro"]) == (1_500_000, 0)
        last = (await earned.lines("--peer", renter, as_json=True))[-1]
        assert (last["half"], last["paid_micro"], last["amount_micro"]) == (
            said["half"],
            900_000,
            0,
        )
        await check_one_truth(earned, ["2023-11-16"], as_json=False)
