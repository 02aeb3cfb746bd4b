"""Rules and kinds have words, and nothing that a peer chose moves a cursor."""

import unicodedata
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import bodies
from ledger.judging import Rule
from p2pnode.words import KINDS, OFFENCES, instant_words, kind_words, offence_words, printable
from protocol.limits import INT_MAX


def test_every_offence_of_the_ledger_has_words() -> None:
    assert set(get_args(Rule)) <= set(OFFENCES)
    assert list(OFFENCES) == [*(f"A{n}" for n in range(1, 17)), "apart"]
    assert len(set(OFFENCES.values())) == len(OFFENCES)
    assert "no words" in offence_words("A99")


def test_every_kind_of_the_ledger_has_words() -> None:
    assert set(bodies.KINDS) <= set(KINDS)
    assert set(KINDS) == {0, 1, 2, 10, 11, 12, 20, 30, 31, 32, 40, 41, 50, 51, 52, 60, 61, 70}
    assert kind_words(10) == "GRANT: leases GPUs"
    assert kind_words(77) == "kind 77, unknown here"


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (INT_MAX, f"{INT_MAX} ms after 1970"),
    ],
)
def test_any_instant_has_words(ms: int, words: str) -> None:
    assert instant_words(ms) == words


@given(st.text())
def test_text_is_one_visible_line(text: str) -> None:
    shown = printable(text)
    assert not any(unicodedata.category(char)[0] == "C" for char in shown)
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("RTX 4090 · 0.38 €/h…", "RTX 4090 · 0.38 €/h…"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x9b2J", "\\x9b2J"),
        ("one\ntwo\r\t", "one\\x0atwo\\x0d\\x09"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_could_act_on_a_terminal_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
