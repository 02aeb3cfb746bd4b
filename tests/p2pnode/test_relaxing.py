"""The smallest change that would match, held to what trying everything finds."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import pytest
from msgspec import UNSET, UnsetType

from p2pnode.matching.book import Offer
from p2pnode.matching.relaxing import Change, smallest_changes
from p2pnode.matching.search import Known, Wish, driver_of, misfit, search
from p2pnode.matching.steps import DROP_PPM, KIND_PPM, MINUTE_MS, PPM, ROOM_MS, VALUES
from protocol.advert import TIERS, Host, Surcharge, TierAsk, price_for
from protocol.answers import ISOLATIONS
from protocol.units import Micros, Millis
from tests.p2pnode.test_search import make_offer

HOUR = 3_600_000
START = Millis(1_000)
MODELS = {
    "NVIDIA GeForce RTX 4090": 24_564,
    "NVIDIA H100 80GB HBM3": 81_559,
    "NVIDIA L4": 23_034,
    "Tesla T4": 15_360,
}
ODD_PIECES = (Surcharge(units=1, ppm=500_000), Surcharge(units=4, ppm=0))
"""Where one GPU alone is left that few want."""
LARGE_PIECES = (Surcharge(units=2, ppm=250_000),)
Field = tuple[str, Any, int]
"""A field of the wish, what it becomes, and what that costs."""


def market(dice: random.Random, count: int = 100) -> list[tuple[Offer, Known]]:
    """Offers with few enough different values that all combinations can be tried."""

    def one(number: int) -> Offer:
        model = dice.choice(list(MODELS))
        ask = dice.choice([200_000, 300_000, 500_000])
        silver = TierAsk(tier="silver", micro_per_gpu_hour=Micros(ask))
        bronze = TierAsk(tier="bronze", micro_per_gpu_hour=Micros(ask // 2))
        drivers: list[str | UnsetType] = ["535.104.05", "550.54.14", UNSET]
        host = Host(cpus=dice.choice([4, 16]), driver=dice.choice(drivers))
        return make_offer(
            number,
            model=model,
            vram_mib=MODELS[model],
            region=dice.choice(["DE", "NL", "US", "IN"]),
            isolation=dice.choice(["process", "container", "vm"]),
            units=4,
            free=dice.choice([0, 1, 2, 4]),
            tiers=dice.choice([(silver,), (silver, bronze)]),
            money=dice.choice(["USD", "USD", "USD", "EUR"]),
            host=dice.choice([host, host, UNSET]),
            lease_ms_min=dice.choice([UNSET, HOUR]),
            lease_ms_max=dice.choice([UNSET, 2 * HOUR, 8 * HOUR]),
            surcharges=dice.choice([UNSET, UNSET, ODD_PIECES, LARGE_PIECES]),
            open_until_ms=dice.choice([UNSET, UNSET, UNSET, START + 3 * HOUR + 7]),
        )

    return [
        (one(number), Known(reliability_ppm=dice.choice([900_000, 970_000])))
        for number in range(count)
    ]


def impossible(
    dice: random.Random, offers: list[tuple[Offer, Known]], only: tuple[str, ...] = ()
) -> Wish:
    """A wish that none of them fits, of constraints drawn at random; `only` of these."""
    terms: dict[str, list[Any]] = {
        "gpus": [1, 2, 4, 8],
        "vram_min": [None, 24_000, 81_559, 140_000],
        "models": [(), ("H100",), ("T4", "L4"), ("H300",)],
        "regions": [(), ("DE",), ("FR",), ("IN", "US")],
        "isolation_min": [None, "container", "tee"],
        "driver_min": [None, (550,), (580, 65)],
        "cpus_min": [None, 16, 32],
        "ask_max": [None, 100_000, 210_000],
        "total_max": [None, 150_000, 600_000],
        "end_by_ms": [None, START + HOUR],
        "reliability_ppm_min": [None, 950_000, 990_000],
    }
    while True:
        span = dice.choice([HOUR // 2, HOUR, 4 * HOUR, 12 * HOUR])
        drawn: dict[str, Any] = {name: dice.choice(values) for name, values in terms.items()}
        # Jobs that want less are more like those that people have.
        for name in dice.sample(sorted(terms), 6) if not only else {*terms} - {*only}:
            drawn[name] = terms[name][0]
        wish = Wish(money="USD", during=(START, Millis(START + span)), **drawn)
        if all(misfit(offer, wish, known) for offer, known in offers):
            return wish


def everything(offers: list[tuple[Offer, Known]], wish: Wish) -> dict[str, list[Field]]:
    """Constraint -> each way in which it could give at all, by any offer's values."""
    adverts = [offer.advert for offer, _ in offers]
    assert wish.during is not None
    span = wish.during[1] - wish.during[0]
    found: dict[str, list[Field]] = {
        "gpus": [("gpus", n, (wish.gpus - n) * PPM // wish.gpus) for n in range(1, wish.gpus)],
        "tier": [("or_tiers", ("bronze",), KIND_PPM)],
        "time": [
            ("during", (START, Millis(START + length)), abs(span - length) * PPM // span)
            for length in lengths(adverts, wish)
            if length != span
        ],
    }
    if wish.models:
        found["model"] = [("models", (*wish.models, name), KIND_PPM) for name in MODELS]
    if wish.regions:
        found["region"] = [
            ("regions", (*wish.regions, code), KIND_PPM) for code in ("DE", "NL", "US", "IN")
        ]
    if wish.isolation_min is not None:
        at = ISOLATIONS.index(wish.isolation_min)
        found["isolation"] = [
            ("isolation_min", each, (at - place) * KIND_PPM)
            for place, each in enumerate(ISOLATIONS[:at])
        ]
    for name, values in numbers(adverts, wish).items():
        field = VALUES[name]
        if (asked := getattr(wish, field)) is not None:
            found[name] = [(field, value, apart(name, asked, value)) for value in values]
            found[name].append((field, None, DROP_PPM))
    return found


def lengths(adverts: list[Any], wish: Wish) -> list[int]:
    """Every length at which something changes."""
    found = [HOUR, 2 * HOUR, 8 * HOUR, 3 * HOUR + 7 - ROOM_MS]
    if wish.end_by_ms is not None:
        found.append(wish.end_by_ms - START - ROOM_MS)
    if wish.total_max is not None:
        found += [wish.total_max * HOUR // (ask * n) for ask, n in prices(adverts)]
    return sorted(dict.fromkeys(found))


def prices(adverts: list[Any]) -> set[tuple[int, int]]:
    """(price of each, GPUs), with what owners add for so many."""
    return {
        (price, gpus)
        for advert in adverts
        for tier in TIERS
        for gpus in range(1, 9)
        if (price := price_for(advert, tier, gpus)) is not None
    }


def numbers(adverts: list[Any], wish: Wish) -> dict[str, list[Any]]:
    asks = prices(adverts)
    spans = [*lengths(adverts, wish), wish.during[1] - START if wish.during else 0]
    drivers = [driver_of(advert) for advert in adverts]
    return {
        "vram": sorted(set(MODELS.values())),
        "driver": sorted({each for each in drivers if each is not None}),
        "cpus": [4, 16],
        "price": sorted({ask for ask, _ in asks}),
        "total": sorted({-(-span * n * ask // HOUR) for span in spans for ask, n in asks}),
        "deadline": sorted(
            {-(-(START + span + ROOM_MS) // MINUTE_MS) * MINUTE_MS for span in spans}
        ),
        "reliability": [900_000, 970_000],
    }


def apart(name: str, asked: Any, value: Any) -> int:
    if name == "driver":
        asked, value = ([*each, 0, 0, 0][:4] for each in (asked, value))
        asked, value = (sum(p * 10_000 ** (3 - i) for i, p in enumerate(e)) for e in (asked, value))
    if name == "deadline":
        asked, value = asked - START, value - START
    return int(abs(asked - value) * PPM // asked)


def count(offers: list[tuple[Offer, Known]], wish: Wish) -> int:
    return sum(misfit(offer, wish, known) is None for offer, known in offers)


def tried(
    offers: list[tuple[Offer, Known]], wish: Wish, ways: tuple[list[Field], ...]
) -> Iterator[tuple[int, int]]:
    """(cost, matches) of the cheapest combinations that let something fit."""
    best: int | None = None
    for fields in sorted(product(*ways), key=lambda some: sum(cost for _, _, cost in some)):
        cost = sum(cost for _, _, cost in fields)
        if best is not None and cost > best:
            return
        changes: dict[str, Any] = {field: value for field, value, _ in fields}
        if "during" in changes:
            changes["slack_ms"] = ROOM_MS
        if matches := count(offers, replace(wish, **changes)):
            best = cost
            yield cost, matches


def weakest(offers: list[tuple[Offer, Known]], wish: Wish, ways: tuple[list[Field], ...]) -> bool:
    """Whether anything fits with these constraints as weak as any offer could want them."""
    gone = {"during": None, "or_tiers": ("bronze",), "models": (), "regions": (), "gpus": 1}
    changes: dict[str, Any] = {field: gone.get(field) for (field, _, _), *_ in ways}
    return count(offers, replace(wish, **changes)) > 0


def found_by_rule(offers: list[tuple[Offer, Known]], wish: Wish) -> tuple[Change, ...]:
    known = {offer.head: each for offer, each in offers}
    return smallest_changes([offer for offer, _ in offers], wish, lambda offer: known[offer.head])


@pytest.mark.parametrize("seed", range(40))
def test_the_smallest_change_is_what_trying_everything_finds(seed: int) -> None:
    """Shows 3: 40 random impossible jobs over 100 offers."""
    dice = random.Random(seed)
    offers = market(dice)
    check_by_trying(offers, impossible(dice, offers))


@pytest.mark.parametrize("seed", range(20))
def test_what_a_job_costs_is_told_with_what_owners_add_for_its_size(seed: int) -> None:
    dice = random.Random(f"pieces {seed}")
    offers = market(dice, dice.choice([3, 10, 30]))
    only = ("gpus", "ask_max", "total_max", "end_by_ms", "vram_min")
    check_by_trying(offers, impossible(dice, offers, only))


def check_by_trying(offers: list[tuple[Offer, Known]], wish: Wish) -> None:
    """The changes for this wish are those that trying everything finds."""
    changes = found_by_rule(offers, wish)
    every = {name: ways for name, ways in everything(offers, wish).items() if ways}
    singles = {
        name: min(found, key=lambda pair: (pair[0], -pair[1]))
        for name, ways in every.items()
        if (found := list(tried(offers, wish, (ways,))))
    }
    if singles:
        assert {c.steps[0].name: (c.ppm, c.matches) for c in changes} == singles
        return
    for size in range(2, len(every) + 1):
        sets = list(combinations(every, size))
        open_sets = [
            ways for names in sets if weakest(offers, wish, ways := tuple(every[n] for n in names))
        ]
        best = [min(found) for ways in open_sets if (found := list(tried(offers, wish, ways)))]
        if best:
            (change,) = changes
            assert (len(change.steps), change.ppm) == (size, min(best)[0])
            assert change.matches == count(offers, change.steps[-1].wish) > 0
            return
    assert changes == ()


def test_the_jobs_of_that_test_need_one_change_or_several_or_cannot_be_helped() -> None:
    """So that it is no test of one kind alone."""
    sizes = []
    for seed in range(40):
        dice = random.Random(seed)
        offers = market(dice)
        wish = impossible(dice, offers)
        found = found_by_rule(offers, wish)
        sizes.append(len(found[0].steps) if found else 0)
    assert sizes.count(1) >= 10
    assert sum(size > 1 for size in sizes) >= 5


def names(changes: tuple[Change, ...]) -> list[tuple[str, Any, int]]:
    return [(c.steps[0].name, c.steps[0].value, c.matches) for c in changes]


def test_nothing_is_to_change_where_something_fits_or_nothing_could() -> None:
    assert smallest_changes([make_offer()], Wish()) == ()
    assert smallest_changes([make_offer(free=0)], Wish()) == ()
    assert smallest_changes([], Wish()) == ()
    assert smallest_changes([make_offer(money="EUR")], Wish(money="USD")) == ()


def test_each_single_change_is_told_the_nearest_first_with_how_many_fit_then() -> None:
    offers = [
        make_offer(1, 210_000, vram_mib=81_559),
        make_offer(2, 210_000, vram_mib=81_559),
        make_offer(3, 150_000, vram_mib=49_140),
        make_offer(4, 900_000, vram_mib=49_140),
    ]
    wish = Wish(money="USD", ask_max=Micros(200_000), vram_min=81_559)  # type: ignore[arg-type]
    assert names(smallest_changes(offers, wish)) == [("price", 210_000, 2), ("vram", 49_140, 1)]
    assert not search(offers, wish).fits


def test_fewer_gpus_help_where_what_the_owner_adds_for_more_is_too_dear() -> None:
    """And not where fewer of them cost more each."""
    offers = [make_offer(1, 200_000, units=4, free=4, surcharges=LARGE_PIECES)]
    wish = Wish(money="USD", gpus=2, ask_max=Micros(220_000))
    assert names(smallest_changes(offers, wish)) == [("price", 250_000, 1), ("gpus", 1, 1)]
    odd = [make_offer(1, 200_000, units=4, free=2, surcharges=ODD_PIECES)]
    wish = Wish(money="USD", gpus=4, ask_max=Micros(220_000))
    (change,) = smallest_changes(odd, wish)
    assert [(step.name, step.value) for step in change.steps] == [("gpus", 2), ("price", 300_000)]
    assert not misfit(odd[0], change.steps[-1].wish)


def later(wish: Wish, by: int) -> Wish:
    """The same wish, typed so much later."""
    assert wish.during is not None
    start, end = wish.during
    return replace(wish, during=(Millis(start + by), Millis(end + by)), slack_ms=0)


ABOUT_TIME = ("end_by_ms", "total_max", "gpus")


@pytest.mark.parametrize("seed", range(40))
def test_what_is_told_still_matches_when_it_has_been_typed(seed: int) -> None:
    dice = random.Random(seed)
    offers = market(dice, dice.choice([2, 5, 100]))
    for change in found_by_rule(offers, impossible(dice, offers, ABOUT_TIME)):
        names = {step.name for step in change.steps}
        # A change in time is what the clock takes back; the others hold by themselves.
        if names & {"time", "deadline"}:
            assert count(offers, later(change.steps[-1].wish, ROOM_MS)) > 0
        for step in change.steps:
            if step.name == "deadline":
                assert step.value % MINUTE_MS == 0


def test_the_jobs_of_that_test_are_told_other_times_too() -> None:
    told: list[str] = []
    for seed in range(40):
        dice = random.Random(seed)
        offers = market(dice, dice.choice([2, 5, 100]))
        changes = found_by_rule(offers, impossible(dice, offers, ABOUT_TIME))
        told += [step.name for change in changes for step in change.steps]
    assert told.count("deadline") >= 3
    assert told.count("time") >= 3
