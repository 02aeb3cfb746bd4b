"""House rules that no linter knows, checked over our own source."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 400


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def nodes(path: Path) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(ast.parse(path.read_text())):
        yield node, f"{name(path)}:{getattr(node, 'lineno', 0)}"


ALL = sources("protocol", "ledger", "p2pnode", "testnet", "tests")
PURE = sources("protocol", "ledger")
NODE = sources("p2pnode", "testnet")


@pytest.mark.parametrize("path", ALL, ids=name)
def test_files_and_functions_can_be_held_in_the_head(path: Path) -> None:
    assert path.read_text().count("\n") <= FILE_LINES_MAX
    for node, where in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX, where


@pytest.mark.parametrize("path", PURE, ids=name)
def test_where_all_nodes_must_agree_there_is_no_float_and_no_set(path: Path) -> None:
    for node, where in nodes(path):
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float)), where
        assert not (isinstance(node, ast.Name) and node.id in {"float", "set", "frozenset"}), where
        assert not isinstance(node, ast.Div | ast.Set | ast.SetComp), where


@pytest.mark.parametrize("path", PURE, ids=name)
def test_values_of_the_pure_part_are_frozen(path: Path) -> None:
    for node, where in nodes(path):
        if not isinstance(node, ast.ClassDef):
            continue
        for decorator in map(ast.unparse, node.decorator_list):
            if "dataclass" in decorator:
                assert "frozen=True" in decorator, where
                assert "slots=True" in decorator, where
        if "Wire" in map(ast.unparse, node.bases):
            options = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert options.get("frozen") == "True", where


@pytest.mark.parametrize("path", NODE, ids=name)
def test_every_channel_has_a_bound(path: Path) -> None:
    for node, where in nodes(path):
        if isinstance(node, ast.Call) and "open_memory_channel" in ast.unparse(node.func):
            assert ast.unparse(node.args[0]) not in {"math.inf", "inf"}, where


@pytest.mark.parametrize("path", ALL, ids=name)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    if path.name.startswith("test_") or (path.name == "__init__.py" and "tests" in path.parts):
        return
    assert ast.get_docstring(ast.parse(path.read_text())), name(path)


def rules_in(path: Path) -> Iterator[tuple[str, str]]:
    for node, where in nodes(path):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "PeerFault":
            rule = node.args[0]
            if isinstance(rule, ast.Constant) and isinstance(rule.value, str):
                yield rule.value, where


@pytest.mark.parametrize("folder", ["protocol", "ledger"])
def test_every_rule_that_code_names_is_in_the_spec(folder: str) -> None:
    spec = (ROOT / folder / "SPEC.md").read_text()
    wanted = sources(folder, *(["p2pnode"] if folder == "protocol" else []))
    for path in wanted:
        for rule, where in rules_in(path):
            assert f"`{rule}`" in spec, where


def test_no_address_of_a_registry_is_in_the_lock() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert not re.search(r"https?://|file:|--index|--find-links", lock)
