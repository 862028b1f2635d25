"""Names in a query are found at every position, because they decide whether the query may run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from pipelines.lake.read.query_tree import named_in
from pipelines.lake.read.sandbox import QueryRefused, connect_parser, refuse_but_reading
from tests.effort import first_of
from tests.harness import DUCKDB_2


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect_parser() as parser:
        yield parser


# Every position of a table in a query; {} is the table.
PLACES = [
    "SELECT * FROM {}",
    "FROM {}",
    "SELECT max(a) FROM b, {}",
    "FROM b JOIN {} ON true",
    "FROM b ASOF JOIN {} USING (z)",
    "FROM b POSITIONAL JOIN {}",
    "FROM b, LATERAL (FROM {})",
    "SELECT (SELECT max(a) FROM {})",
    "SELECT (FROM {}).a",
    "SELECT 1 WHERE 2 IN (FROM {})",
    "FROM b WHERE EXISTS (FROM {})",
    "FROM b WHERE a = ANY (FROM {})",
    "WITH c AS MATERIALIZED (FROM {}) FROM c",
    "WITH RECURSIVE r AS (SELECT 1 UNION ALL FROM {}) FROM r",
    "SELECT * FROM (VALUES (1)) UNION ALL FROM {}",
    "SELECT x ORDER BY (FROM {})",
    "SELECT 1 LIMIT (SELECT count(*) FROM {})",
    "SELECT DISTINCT ON ((FROM {})) 1",
    "SELECT 1 QUALIFY (FROM {})",
    "SELECT 1 GROUP BY GROUPING SETS (((FROM {})))",
    "SELECT sum(1) OVER (ORDER BY (FROM {}))",
    "SELECT sum(1) FILTER (WHERE (FROM {}))",
    "SELECT [z FOR z IN (FROM {})]",
    "SELECT ARRAY(FROM {})",
    "SELECT {{'a': (FROM {})}}",
    "SELECT MAP {{1: (FROM {})}}",
    "SELECT CASE WHEN true THEN (FROM {}) END",
    "SELECT list_transform([1], lambda z: (FROM {}))",
    "SELECT * REPLACE ((FROM {}) AS c) FROM b",
    "FROM b AT (VERSION => (FROM {}))",
    "FROM range((FROM {}))",
    "FROM (DESCRIBE SELECT * FROM {})",
    "FROM (SUMMARIZE FROM {})",
    "DESCRIBE SELECT * FROM {}",
    "FROM (UNPIVOT (FROM {}) ON a)",
]
# Queries for which DuckDB shows no tree.
NO_TREE = ["FROM (PIVOT (FROM {}) ON a)", "PIVOT (FROM {}) ON a", "EXPLAIN SELECT * FROM {}", "EXPLAIN ANALYZE FROM {}"]


@pytest.mark.parametrize(
    "called", first_of(["system.main.read_csv('x')", "read_csv('x')", "Read_CSV('x')", "\"READ_csv\"('x')"], 1)
)
def test_a_table_function_is_refused_wherever_it_stands(con: duckdb.DuckDBPyConnection, called: str) -> None:
    for place in [*PLACES, *NO_TREE]:
        named = named_in(con, place.format(called))
        if place in NO_TREE:
            assert named is None, place
        else:
            assert named is not None and "read_csv" in named.functions, place
        try:
            refuse_but_reading(place.format(called), con)
        except QueryRefused as error:
            assert "read_csv" in str(error) or (DUCKDB_2 and "PIVOT" in str(error)), place
        else:
            pytest.fail(f"{place} was not refused")


def test_a_table_is_found_wherever_it_stands(con: duckdb.DuckDBPyConnection) -> None:
    for place in PLACES:
        named = named_in(con, place.format("Kernels"))
        assert named is not None and "kernels" in named.tables, place


def test_what_is_nested_too_deeply_has_no_tree() -> None:
    with connect_parser() as con:
        assert named_in(con, f"SELECT {'(' * 900}1{')' * 900}, (FROM kernels)") is not None
        assert named_in(con, "SELECT " + "(SELECT " * 400 + "1" + ")" * 400) is None


def test_parsing_reads_no_file(tmp_path: Path) -> None:
    (tmp_path / "schema.sql").write_text("SELECT 1;")
    (tmp_path / "load.sql").write_text("")
    for _ in range(2):  # the second connection reuses the database of the first
        with connect_parser() as parser, pytest.raises(QueryRefused, match=r"reads files|IMPORT"):
            refuse_but_reading(f"IMPORT DATABASE '{tmp_path}'", parser)
