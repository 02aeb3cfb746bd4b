"""SPEC.md, the code and the vectors name the same rules and bounds."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from protocol.codec import Wire
from protocol.gpu_class import _COUNTRIES, CLASSES, REGION_GROUPS
from protocol.wire import KINDS
from tests.protocol.strategies import shapes
from tests.vectors import FOLDER

ROOT = Path(__file__).parent.parent.parent
SPEC = (ROOT / "protocol" / "SPEC.md").read_text()
RULES = re.findall(r"^\| `([a-z]+\.[a-z]+)` \| \d", SPEC, re.MULTILINE)
CODE = "".join(
    path.read_text()
    for folder in ("protocol", "p2pnode")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
PURE = (
    "advert", "auction", "bid", "certificate", "codec", "hello", "job", "rail", "refusal",
    "request", "rfq", "seal", "tick",
)  # fmt: skip
"""Rules of the protocol itself, for which there are vectors."""


def test_each_rule_stands_once_in_the_table_of_rules() -> None:
    assert len(RULES) == len(set(RULES)) > 30


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_of_the_spec_is_explained_and_in_the_code(rule: str) -> None:
    assert SPEC.count(f"`{rule}`") >= 2
    assert f'"{rule}"' in CODE


def test_each_rule_of_the_protocol_has_a_vector() -> None:
    shown = {
        case["rule"]
        for path in FOLDER.glob("*.json")
        for rows in json.loads(path.read_text()).values()
        if isinstance(rows, list)
        for case in rows
        if isinstance(case, dict) and "rule" in case
    }
    judged = "".join(path.read_text() for path in (ROOT / "protocol").glob("*.py"))
    wanted = [rule for rule in RULES if rule.split(".")[0] in PURE and f'"{rule}"' in judged]
    assert [rule for rule in wanted if rule not in shown] == []


def test_sections_that_docstrings_cite_exist() -> None:
    sections = (ROOT / "ledger" / "SPEC.md").read_text(), SPEC
    for before, spec in zip((r"ledger/", r"(?<!ledger/)"), sections, strict=True):
        cited = set(re.findall(before + r"SPEC\.md (?:section )?(\d+(?:\.\d)?)", CODE))
        here = set(re.findall(r"^##+ (\d+(?:\.\d+)?) ", spec, re.MULTILINE))
        assert cited
        assert cited <= here


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS.values()])
def test_the_sizes_of_kinds_are_those_of_the_code(kind: str) -> None:
    [size_max] = [size for name, size in KINDS.values() if name == kind]
    assert f"| `{kind}` | {size_max:,} |" in SPEC


def test_there_are_vectors_for_every_sealed_kind() -> None:
    assert {kind for kind, _ in KINDS.values()} <= {path.stem for path in FOLDER.glob("*.json")}


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.__name__)
def test_every_field_of_every_message_is_in_the_spec(shape: type[Wire]) -> None:
    for field in msgspec.structs.fields(shape):
        assert f"`{field.encode_name}`" in SPEC, field.name


def test_classes_and_countries_are_those_of_the_code() -> None:
    assert ", ".join(str(of) for of in CLASSES) in SPEC
    assert ", ".join(REGION_GROUPS) in SPEC
    for group, countries in _COUNTRIES.items():
        assert f"| {group} | {countries} |" in SPEC


def test_no_country_is_on_two_continents() -> None:
    named = " ".join(_COUNTRIES.values()).split()
    assert len(named) == len(set(named))
