"""What an owner may choose in config.toml, and what is said to wrong choices."""

import pytest

from p2pnode.config import Availability, Config, Pricing
from p2pnode.config_text import default_config_text
from p2pnode.quantities import Money
from protocol.units import Micros
from tests.p2pnode.test_config import fault_of, read


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[[availability]]\n", "config.toml:1: a window has either hours or a file."),
        (
            '[[availability]]\nhours = "daily"\n[[availability]]\nhours = "daily"\nfile = "/a"',
            "config.toml:3: a window has either hours or a file.",
        ),
        (
            '[[availability]]\nhours = "dayly"',
            'config.toml:2: availability.hours: "dayly" are no opening hours.',
        ),
        (
            '[[availability]]\ntz = "Berlin"',
            'config.toml:2: availability.tz: "Berlin" is no time zone of this host.',
        ),
        (
            '[[availability]]\nexcept = ["now"]',
            "config.toml:2: availability.except: 'now' is no date.",
        ),
    ],
)
def test_a_wrong_window_is_refused_with_its_place(text: str, what: str) -> None:
    assert fault_of(text).what == what


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('strategy = "market-p40"', "2: market-p40 needs a floor."),
        ('strategy = "cost-plus"', "2: cost-plus needs the cost."),
        ('strategy = "cheap"', '2: pricing.strategy is "cheap", not fixed, cost-plus, or market'),
        ('step = "0%"', '2: pricing.step is "0%", not from 0.01% to 100%.'),
        ('step = "5"', '2: pricing.step: "5" is no percentage.'),
        ('energy = "0.30 EUR"', '2: pricing.energy: "0.30 EUR" does not say for how much energy.'),
        (
            'ask = "1 USD/gpu-h"\nbronze_ask = "1 EUR/gpu-h"',
            "3: pricing.bronze_ask is in EUR, and pricing.ask in USD.",
        ),
        (
            'ask = "1 USD/gpu-h"\n[[availability]]\nhours = "daily"\nfloor = "1 EUR/gpu-h"',
            "5: availability[0].floor is in EUR, and pricing.ask in USD.",
        ),
    ],
)
def test_prices_that_do_not_go_together_are_refused_with_their_place(text: str, what: str) -> None:
    assert fault_of(f"[pricing]\n{text}").what.startswith(f"config.toml:{what}")


def test_prices_are_integers() -> None:
    pricing = read(
        """
[pricing]
ask = "250 INR/gpu-h"
floor = "200 INR/gpu-h"
bronze_ask = "60 INR/gpu-h"
strategy = "market-p40"
step = "2.5%"
energy = "8.20 INR/kWh"
watts = 450
margin = "20%"
"""
    ).pricing
    assert pricing.bronze_ask == (60_000_000, "INR")
    assert (pricing.step, pricing.margin, pricing.watts) == (25_000, 200_000, 450)
    assert pricing.energy == (8_200_000, "INR")


def test_an_owners_choices_are_written_out_and_read_back() -> None:
    usd = Money(Micros(300_000), "USD")
    config = Config(
        pricing=Pricing(
            ask=usd,
            floor=usd,
            gold_ask=usd,
            gold_floor=usd,
            gold_remedy=250_000,
            bronze_ask=usd,
            bronze_floor=usd,
            strategy="cost-plus",
            step=12_500,
            by_use=True,
            energy=usd,
            watts=350,
            margin=1,
        ),
        availability=(
            Availability(hours="22:00-06:00 daily", tz="Asia/Kolkata", excepted=("2026-12-24",)),
            Availability(file="/a/b.ics", closed=True),
            Availability(hours="sat", floor=usd),
        ),
    )
    assert read(default_config_text(config)) == config
