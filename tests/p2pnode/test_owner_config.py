"""What an owner may choose in config.toml, and what is said to wrong choices."""

import pytest

from tests.p2pnode.test_config import fault_of


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
