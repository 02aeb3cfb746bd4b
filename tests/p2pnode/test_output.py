"""Whatever a peer wrote, a terminal that shows it does not act on it."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p2pnode.cli.output import note, print_document, print_table, report, say

NASTY = "\x1b]0;title\x07\x9b31m\r\nproved: \u202e\x7f\ud800"


def is_calm(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def test_lines_tables_and_notes_are_calm(capsys: pytest.CaptureFixture[str]) -> None:
    say(NASTY, NASTY)
    print_table(("A", "B"), [(NASTY, "x"), ("y", NASTY)])
    note(NASTY)
    report(NASTY, NASTY)
    out, err = capsys.readouterr()
    assert is_calm(out)
    assert is_calm(err)
    assert out.count("\n") == 5
    assert out.splitlines()[-1].startswith("y ")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text())
def test_a_document_is_ascii_and_still_says_the_same(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    print_document({"text": text})
    out = capsys.readouterr().out
    assert out.isascii()
    assert is_calm(out)
    assert json.loads(out) == {"text": text}
