"""From what a user types to what the market is asked, and back to what a user could type."""

import random
import shlex
from dataclasses import replace
from typing import Any

import click
import pytest
from msgspec import UNSET

from p2pnode.api.wanted_documents import Constraints, JobOrder, OfferQuery, offer_query
from p2pnode.cli.offer import offer_options, query_of
from p2pnode.cli.wanted import constraints_of
from p2pnode.config import Renting
from p2pnode.matching.options import option_of, option_of_step
from p2pnode.matching.order import START_MS
from p2pnode.matching.search import Wish, filters_of, misfit
from p2pnode.quantities import Exchange, Money
from p2pnode.wanted import choice_of, need_of, wish_in
from protocol.errors import LocalFault
from protocol.units import Micros, Millis, MillisSpan
from tests.p2pnode.test_relaxing import START, found_by_rule, impossible, market

NO_STAGE = MillisSpan(0)


@click.command()
@offer_options
def typed(**wanted: Any) -> dict[str, Any]:
    """Only the options of a search."""
    return wanted


def parsed(*words: str) -> dict[str, Any]:
    given: dict[str, Any] = typed.main(list(words), standalone_mode=False)
    return given


def wish_typed(*words: str, now: Millis = Millis(START - START_MS)) -> Wish:
    """The wish that a node makes of these words."""
    query = {
        name: value if isinstance(value, list) else [str(value)]
        for name, value in query_of(parsed(*words)).items()
        if value is not None
    }
    return wish_in(offer_query(query), Renting(), now)


def test_words_become_terms() -> None:
    need = need_of(
        Constraints(regions=("EU",), cuda_min="12.4", compute_min="8.9", isolation_min="vm")
    )
    assert (len(need.regions), need.driver_min) == (27, (550, 54, 14))  # type: ignore[arg-type]
    assert (need.compute_min, need.isolation_min, need.cpus_min) == ((8, 9), "vm", UNSET)
    newer = need_of(Constraints(cuda_min="12.4", driver_min="580.65.06"))
    assert newer.driver_min == (580, 65, 6)


def test_a_job_needs_what_its_limits_allow_it() -> None:
    order = JobOrder(argv=("true",), money="TEST", cpus_milli=1_001, memory_mib=512, disk_mib=64)
    need = need_of(order, order)
    assert (need.cpus_min, need.memory_mib_min, need.disk_mib_min) == (2, 512, 64)
    more = JobOrder(argv=("true",), money="TEST", cpus_min=8)
    assert need_of(more, more).cpus_min == 8


@pytest.mark.parametrize(
    "wrong",
    [
        {"regions": ("Atlantis",)},
        {"cuda_min": "99.0"},
        {"driver_min": "new"},
        {"compute_min": "8"},
        {"isolation_min": "strong"},
        {"gpus": 9},
        {"models": ("\x00",)},
    ],
)
def test_what_no_node_can_be_asked_for_is_refused_with_a_cure(wrong: dict[str, Any]) -> None:
    with pytest.raises(LocalFault):
        need_of(Constraints(**wrong))


@pytest.mark.parametrize("wrong", ["colour=red", "region", "region=Atlantis", "vram=24"])
def test_a_preference_that_cannot_be_read_is_refused(wrong: str) -> None:
    with pytest.raises(LocalFault):
        choice_of(Constraints(prefer=(wrong,)), Renting(), "TEST")


def test_rates_into_the_money_of_the_order_are_taken_and_no_others() -> None:
    rates = (
        Exchange("EUR", Money(Micros(1_080_000), "USD")),
        Exchange("USD", Money(Micros(900_000), "EUR")),
    )
    choice = choice_of(Constraints(), Renting(rates=rates), "USD")
    assert choice.rates == (("EUR", 1_080_000),)


@pytest.mark.parametrize(
    ("words", "tiers"),
    [
        ((), ["silver"]),
        (("--tier", "any"), ["silver", "bronze"]),
        (("--tier", "any", "--no-preempt"), ["silver"]),
        (("--tier", "bronze,silver"), ["bronze", "silver"]),
    ],
)
def test_tiers_are_one_some_or_any(words: tuple[str, ...], tiers: list[str]) -> None:
    given = constraints_of(parsed(*words))
    assert [given["tier"], *given.get("or_tiers", [])] == tiers


@pytest.mark.parametrize(
    "words",
    [
        ("--tier", "iron"),
        ("--tier", "bronze", "--no-preempt"),
        ("--reliability", "1.5"),
        ("--deadline", "2026-12-24T20:00"),
        ("--deadline", "soon"),
        ("--max-price", "1 USD/gpu-h", "--max-total", "1 EUR"),
    ],
)
def test_what_contradicts_itself_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(LocalFault):
        query_of(parsed(*words))


def test_a_deadline_is_an_instant_or_so_long_from_now() -> None:
    given = constraints_of(parsed("--deadline", "2026-12-24T20:00Z"))
    assert given["end_by_ms"] == 1_798_142_400_000
    soon, later = (constraints_of(parsed("--deadline", text))["end_by_ms"] for text in ("1h", "2h"))
    assert 3_600_000 <= later - soon < 3_660_000
    assert constraints_of(parsed("--reliability", "97.5%"))["reliability_ppm_min"] == 975_000


def test_a_query_that_names_what_there_is_not_is_refused() -> None:
    with pytest.raises(LocalFault, match="colour"):
        offer_query({"colour": ["red"]})
    assert offer_query({"limit": ["99999"], "model": ["H100", "A100"]}) == OfferQuery(
        limit=16_384, models=("H100", "A100")
    )


@pytest.mark.parametrize("seed", range(40))
def test_what_is_suggested_can_be_pasted_and_then_fits_as_many_as_were_said(seed: int) -> None:
    dice = random.Random(seed)
    offers = market(dice)
    wish = impossible(dice, offers)
    base = {
        each.name: option_of(each.name, wish, stage_ms=NO_STAGE)
        for each in filters_of(wish)
        if each.name not in {"money", "closed"}
    }
    if wish.ask_max is None and wish.total_max is None:
        # Without a limit nobody is asked for one money alone.
        offers = [one for one in offers if one[0].advert.money == wish.money]
    again = replace(wish_typed(*shlex.split(" ".join(base.values()))), money=wish.money)
    assert {name: base[name] for name in base} == {
        each.name: option_of(each.name, again, stage_ms=NO_STAGE)
        for each in filters_of(again)
        if each.name in base
    }
    for change in found_by_rule(offers, wish):
        options = [option_of_step(step, stage_ms=NO_STAGE) for step in change.steps]
        dropped = {
            step.name
            for step, text in zip(change.steps, options, strict=True)
            if text.startswith("without")
        }
        words = [text for name, text in base.items() if name not in dropped]
        words += [text for text in options if not text.startswith("without")]
        pasted = replace(
            wish_typed(*shlex.split(" ".join(words))),
            money=wish.money,
            slack_ms=change.steps[-1].wish.slack_ms,  # those are told that fit then as well
        )
        fits = sum(misfit(offer, pasted, known) is None for offer, known in offers)
        assert fits == change.matches
