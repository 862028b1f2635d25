"""The table of thresholds: each is used, names its source, and has a test on both sides of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pipelines.base.datafiles import SQL_DIR, rule_rows, threshold
from pipelines.models import sources
from pipelines.models.catalog import load_catalog
from pipelines.models.errors import CatalogError
from pipelines.models.statements import with_numbers

ROWS = rule_rows("thresholds")
NAMES = [row["name"] for row in ROWS]
TESTS = Path(__file__).parents[1]


def keys_of_boundaries(tree: ast.Module) -> Iterator[str]:
    """Yield the thresholds in BOUNDARIES of a test file.

    BOUNDARIES is a dict with their names as keys (`name/use`), or a tuple of such dicts.
    """
    values = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    parts = values.get("BOUNDARIES")
    for part in parts.elts if isinstance(parts, ast.Tuple) else [parts]:
        table = values[part.id] if isinstance(part, ast.Name) else part
        if isinstance(table, ast.Dict):
            yield from (str(ast.literal_eval(key)).partition("/")[0] for key in table.keys if key)


def test_each_row_has_a_number_a_unit_a_meaning_and_an_origin() -> None:
    assert len(set(NAMES)) == len(NAMES)
    for row in ROWS:
        assert re.fullmatch(r"[0-9]+(\.[0-9]+)?", row["value"]), row
        assert re.fullmatch(r"[a-z0-9_]+", row["name"]) and row["unit"] and row["decides"], row
        assert re.match(r"(chosen|measured|document|_\w+): \w", row["origin"]), row


def test_each_row_is_read_and_whatever_is_read_has_a_row() -> None:
    texts = [path.read_text() for path in SQL_DIR.rglob("*.sql")]
    texts += [path.read_text() for path in sources.PACKAGE.rglob("*.py")]
    read = {name for text in texts for name in re.findall(r"\bthreshold\(['\"](\w+)['\"]\)", text)} - {"name"}
    assert read == set(NAMES)


def test_each_row_is_in_the_table_of_a_test_on_both_sides() -> None:
    texts = [text for path in TESTS.rglob("test_*.py") if "\nBOUNDARIES = " in (text := path.read_text())]
    tested = {name for text in texts for name in keys_of_boundaries(ast.parse(text))}
    assert tested == set(NAMES)


def test_the_catalog_puts_the_numbers_and_refuses_other_names() -> None:
    sql = load_catalog().models["straggler_ranks"].sql
    assert "share_last >= 0.25" in sql and "threshold('" not in sql
    assert threshold("straggler_last") == 0.25 and threshold("slow_launch_ns") == 20_000
    text = "SELECT 1\nWHERE a > threshold('no_such')"
    with pytest.raises(
        CatalogError, match=r"a\.sql:2: unknown threshold 'no_such'; add its row to sql/rules/thresholds"
    ):
        with_numbers(Path("a.sql"), text)


def test_the_catalog_puts_the_codes_of_edge_types_and_refuses_other_names() -> None:
    sql = load_catalog().models["_work_edges"].sql
    code = next(row["edge_code"] for row in rule_rows("edge_types") if row["edge_type"] == "SYNC_DEPENDENCY")
    assert f"\n        {code} AS edge_code" in sql and "edge_code('" not in sql
    with pytest.raises(
        CatalogError, match=r"a\.sql:1: unknown edge type 'NONE'; add its row to sql/rules/path/edge_types"
    ):
        with_numbers(Path("a.sql"), "SELECT edge_code('NONE')")


def test_tables_that_python_makes_with_numbers_have_another_version_when_one_changes() -> None:
    paths = {name: path for path, name in sources.module_names(sources.PACKAGE).items()}
    texts = {name: path.read_text() for name, path in paths.items()}
    users = {name for name, text in texts.items() if re.search(r"\bthreshold\(\"", text)}

    @cache
    def imports(name: str) -> set[str]:
        return set(sources.imported(ast.parse(texts[name]), name, paths[name].name == "__init__.py", set(paths)))

    assert len(users) >= 8
    for table in sources.read_code().tables:
        seen, todo = set[str](), [] if table.is_input else [table.module]
        while todo:
            if (name := todo.pop()) not in seen:
                seen.add(name)
                todo += imports(name)
        assert not seen & users or "thresholds" in table.reads, (table.name, seen & users)
