"""Names and docstrings of the code: bindings are named after their content, and files named in docstrings exist."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.packaging.installed import ROOT

CODE = ("pipelines", "assets", "dagster_project")
_GENERIC = """
found one at told place given known said shown there asked kept whole rest left of own wanted most least has beside gone tell
says meant taken seen whose what others
"""
GENERIC = frozenset(_GENERIC.split())
"""Names that describe where a value came from, or nothing at all, but not what the value is."""
PERCENT = 2
FORBIDDEN = re.compile(r"_*(\w+_)?(found|told|given)|_*one", re.I)
_PERHAPS = re.compile(r"(found|told|given|\b_*one) *([=:,()]|in\b)", re.I)
"""A filter that avoids parsing every file. All code, including the tests, must name values after their content."""


def sources() -> Iterator[Path]:
    for folder in CODE:
        yield from sorted((ROOT / folder).rglob("*.py"))


def bindings(tree: ast.AST) -> Iterator[str]:
    """Yield the names of variables, parameters and exceptions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def definitions(tree: ast.AST) -> Iterator[str]:
    """Yield the names of functions, classes and attributes, except tests."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith(
            "test_"
        ):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


@cache
def parsed() -> tuple[Counter[str], list[tuple[Path, str]]]:
    """Return the names of all bindings and the docstrings of each file. Each file is parsed once."""
    names: Counter[str] = Counter()
    docstrings = []
    for path in sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names.update(bindings(tree))
        docstrings += [
            (path, ast.get_docstring(node) or "")
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        ]
    return names, docstrings


def test_bindings_are_named_after_their_content() -> None:
    names, _ = parsed()
    generic = {name: n for name, n in names.items() if name in GENERIC}
    assert 100 * sum(generic.values()) <= PERCENT * names.total(), Counter(generic).most_common(10)


def test_no_name_is_found_told_given_or_one() -> None:
    named = []
    for folder in (*CODE, "tracelake", "tests", "bench", "docs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if not _PERHAPS.search(text):  # parsing all files takes seconds
                continue
            tree = ast.parse(text)
            names = {*bindings(tree), *definitions(tree)}
            named += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(names) if FORBIDDEN.fullmatch(name)]
    assert named == []


ELSEWHERE = re.compile(
    r"(roles|prices|causes|op_formulas)\.csv"  # written by users in a lake
    r"|torch/.*|fused_moe\.py|Backend\.sql|(.*/)?rocpd_tables\.sql|tests/test_sync_table_resolution\.py"  # of other projects
    r"|train\.py|1234_\w+\.csv|sql/ingest/_my_events\.sql"  # examples
)


@cache
def files() -> frozenset[str]:
    """Return the paths of all files, relative to the root and to every folder below it.

    For example `why.py`, `faces/why.py` and `pipelines/faces/why.py`.
    """
    folders = (*CODE, "sql", "tests", "docs", "bench", "tracelake", "demo")
    paths = [path.relative_to(ROOT).parts for folder in folders for path in (ROOT / folder).rglob("*.*")]
    paths += [(path.name,) for path in ROOT.iterdir()]
    return frozenset("/".join(parts[start:]) for parts in paths for start in range(len(parts)))


def test_files_that_docstrings_name_exist() -> None:
    missing = []
    for path, docstring in parsed()[1]:
        text = re.sub(r"https?://\S+", "", docstring)
        named = re.findall(r"(?<![\w./*<-])((?:[\w-]+/)*[\w-]+\.(?:py|sql|csv|md|toml))\b", text)
        missing += [
            f"{path.relative_to(ROOT)}: {name}" for name in named if not (name in files() or ELSEWHERE.fullmatch(name))
        ]
    assert missing == []
