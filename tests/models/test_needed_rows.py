"""What a query has no rows without, and that models which are not run for want of them have the tables that running gives."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import parse_one

from pipelines.models.catalog import load_catalog
from pipelines.models.needed_rows import ALWAYS, Needs, may_have_rows, needs_of
from pipelines.models.run import run_models
from tests.benchmarks.axes import steps
from tests.harness import connect

QUERIES: dict[str, Needs] = {
    "SELECT a FROM t": (("t",),),
    "SELECT t.a FROM t, u JOIN v USING (a) LEFT JOIN w ON w.a = v.a CROSS JOIN x": (("t", "u", "v", "x"),),
    "SELECT a FROM t SEMI JOIN u USING (a) ANTI JOIN v USING (a)": (("t", "u"),),
    "SELECT a FROM t RIGHT JOIN u USING (a)": ALWAYS,
    "SELECT a FROM t FULL JOIN u USING (a)": ALWAYS,
    "SELECT a FROM t UNION ALL SELECT a FROM u JOIN v USING (a) UNION SELECT t.a FROM t, v": (("t",), ("u", "v")),
    "SELECT a FROM t EXCEPT SELECT a FROM u": (("t",),),
    "SELECT 1 AS a UNION ALL SELECT a FROM t": ALWAYS,
    "SELECT a FROM (VALUES (1)) AS v (a) JOIN t USING (a)": (("t",),),
    "SELECT a FROM range(3) AS r (a)": ALWAYS,
    "SELECT a FROM (SELECT a FROM t UNION ALL SELECT a FROM u) JOIN v USING (a)": (("t", "v"), ("u", "v")),
    "SELECT t.a FROM t CROSS JOIN (u JOIN v USING (a))": (("t", "u", "v"),),
    "WITH c AS (SELECT a FROM t), d AS (SELECT a FROM c JOIN u USING (a)) SELECT a FROM d": (("t", "u"),),
    "WITH t AS (SELECT a FROM t) SELECT a FROM t": (("t",),),
    "SELECT count(*) AS n FROM t": ALWAYS,
    "SELECT coalesce(sum(a), 0) + 1 AS n FROM t": ALWAYS,
    "SELECT nobody_knows(a) AS n FROM t": ALWAYS,
    "SELECT 1 AS a FROM t HAVING count(*) = 0": ALWAYS,
    "SELECT a, count(*) AS n FROM t GROUP BY a": (("t",),),
    "SELECT a, count(*) AS n FROM t GROUP BY ROLLUP (a)": ALWAYS,
    "SELECT a, count(*) AS n FROM t GROUP BY GROUPING SETS ((a), ())": ALWAYS,
    "SELECT sum(a) FILTER (WHERE a > 0) OVER (ORDER BY a) AS n FROM t": (("t",),),
    "SELECT sum(count(*)) OVER () AS n FROM t": ALWAYS,
    "SELECT (SELECT max(a) FROM u) AS n FROM t": (("t",),),
    "SELECT first_collective_kinds(a) AS n FROM t": (("t",),),
}


@pytest.mark.parametrize("query", QUERIES)
def test_needs(query: str) -> None:
    assert needs_of(parse_one(query, dialect="duckdb")) == QUERIES[query]


@pytest.mark.parametrize("query", [query for query in QUERIES if "nobody" not in query and "first_" not in query])
def test_a_query_without_what_it_needs_has_no_rows(query: str) -> None:
    """Of all ways to fill the tables: DuckDB agrees wherever it is said that there are none."""
    names = ("t", "u", "v", "w", "x")
    with duckdb.connect() as con:
        for filled in range(2 ** len(names)):
            empty = {name for place, name in enumerate(names) if not filled >> place & 1}
            if may_have_rows(QUERIES[query], empty):
                continue
            for name in names:
                con.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT 1 AS a WHERE {name not in empty}")
            assert con.execute(query).fetchall() == []


@pytest.mark.slow
def test_tables_are_those_of_running_every_model() -> None:
    """All stored tables of a few events, of which many models have no rows: rows, columns and types."""
    con, _ = connect(list(steps(24)))
    catalog, found = load_catalog(), []
    for types in (None, {}):
        runs = run_models(con, catalog, catalog.materialized, types=types)
        found.append(
            {
                name: (con.sql(f"DESCRIBE {name}").fetchall(), con.sql(f"FROM {name} ORDER BY ALL").fetchall())
                for name in catalog.materialized
            }
        )
        kept = {*catalog.materialized, *catalog.rules, *catalog.given, *catalog.ingested("trace")}
        assert {name for (name,) in con.sql("SHOW TABLES").fetchall()} <= kept
    assert found[0] == found[1]
    assert sum(run.is_empty for run in runs) > 30
