"""The content that the catalog reads from SQL files, and the files that it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from pipelines.models.catalog import LAYERS, load_catalog
from pipelines.models.errors import CatalogError
from pipelines.models.run import run_models

GOOD = "-- One row: a thing.\nSELECT\n    trace_id,  -- The trace.\n    1 AS n  -- A number.\nFROM window_requests\n"


def folder(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = tmp_path / "sql" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "sql"


def reading(table: str) -> str:
    return GOOD.replace("window_requests", table)


def test_a_file_says_it_all(tmp_path: Path) -> None:
    text = "-- One row: a.\n-- How: so.\n-- check: unique(trace_id)\n" + GOOD.split("\n", 1)[1]
    model = load_catalog(folder(tmp_path, {"gpu/a.sql": text, "gpu/_b.sql": reading("a")})).models["a"]
    assert (model.name, model.layer, model.kind, model.private) == ("a", "gpu", "sql", False)
    assert model.doc == "One row: a. How: so."
    assert [(column.name, column.doc) for column in model.columns] == [("trace_id", "The trace."), ("n", "A number.")]
    assert (model.dependencies, model.checks, model.sql) == (("window_requests",), ("unique(trace_id)",), text)


def test_long_documentation_stands_above_its_column(tmp_path: Path) -> None:
    """The comment lines above a column document it, whatever its expression begins with.

    Comments within an expression do not.
    """
    text = """-- One row: a
-- thing.
SELECT
    -- First
    -- of n.
    1.0 * t.n / t.m AS n,
    t.m,  -- Second.
    -- Third.
    CASE
        -- Not a word of it.
        WHEN t.m > 0 THEN 1
    END AS k,
    t.x > 0 AND t.y > 0 AS b,  -- Fourth.
    -- Fifth.
    sum(t.n) FILTER (WHERE t.n > 0) OVER (ORDER BY t.m) AS s
FROM (SELECT 1 AS n, 2 AS m, 3 AS x, 4 AS y) AS t
"""
    model = load_catalog(folder(tmp_path, {"gpu/_a.sql": text})).models["_a"]
    assert model.doc == "One row: a thing."
    assert [column.doc for column in model.columns] == ["First of n.", "Second.", "Third.", "Fourth.", "Fifth."]


def test_order_closure_and_public_names(tmp_path: Path) -> None:
    files = {"summary/a.sql": reading("_b"), "gpu/_b.sql": reading("c"), "gpu/c.sql": GOOD, "gpu/d.sql": GOOD}
    catalog = load_catalog(folder(tmp_path, files))
    assert catalog.closure(["a"]) == ["c", "_b", "a"]
    assert sorted(catalog.public) == ["a", "c", "d"]
    with pytest.raises(CatalogError, match="unknown table 'nothing'"):
        catalog.closure(["nothing"])


def test_ctes_and_subqueries_are_no_tables(tmp_path: Path) -> None:
    text = (
        "-- One row: a.\nWITH c AS (SELECT trace_id FROM b), b2 AS (SELECT trace_id FROM c)\n"
        "SELECT\n    trace_id  -- The trace.\nFROM b2\nWHERE trace_id IN (SELECT trace_id FROM d)\n"
    )
    catalog = load_catalog(folder(tmp_path, {"gpu/a.sql": text, "gpu/b.sql": GOOD, "gpu/d.sql": GOOD}))
    assert catalog.models["a"].dependencies == ("b", "d")


BROKEN = {
    "no header": (GOOD.split("\n", 1)[1], r"a\.sql:1: start a with `-- One row: …`"),
    "no meaning": (GOOD.replace("  -- A number.", ""), r"a\.sql:4: column 'n' has no description; write `n,  -- Mean"),
    "no name": (GOOD.replace("1 AS n", "1 + 1"), r"a\.sql:\d: give the column a name"),
    "star": ("-- One row: a.\nSELECT * FROM window_requests", r"a\.sql:\d: the outermost SELECT names its columns"),
    "from first": ("-- One row: a.\nFROM window_requests", r"a\.sql:\d: the outermost SELECT names its columns"),
    "unknown table": (reading("kernles"), r"a\.sql:5: reads 'kernles'; write the name of a model"),
    "two statements": (GOOD + ";\nSELECT 1 AS b  -- B.", r"a\.sql:1: write one SELECT for a"),
    "no select": ("-- One row: a.\nDROP TABLE b", r"a\.sql:1: write one SELECT for a"),
    "broken": ("-- One row: a.\nSELECT trace_id,\n FROM (", r"a\.sql:\d: unreadable SQL"),
    "circle": (reading("a"), r"a\.sql:1: models depend on each other in a cycle: a → a"),
    "later layer": (reading("late"), r"a\.sql:5: layer gpu may not read 'late' of the later layer summary"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_refused_is_told_with_file_line_and_way_out(tmp_path: Path, name: str) -> None:
    text, message = BROKEN[name]
    files = {"gpu/a.sql": text, "gpu/b.sql": GOOD, "summary/late.sql": GOOD}
    with pytest.raises(CatalogError, match=message):
        load_catalog(folder(tmp_path, files))


# Tables that Spark also computes: tables of captures, and views over the lake.
UNPORTABLE = {
    "group by all": (GOOD + "GROUP BY ALL", r"a\.sql:\d: GROUP BY ALL is not portable"),
    "asof": (GOOD + "ASOF JOIN b ON b.n >= n", r"a\.sql:\d: an ASOF or positional join"),
    "lambda": (GOOD.replace("1 AS", "list_transform(x, lambda y: y) AS"), r"a\.sql:4: a lambda"),
    "list": (GOOD.replace("1 AS", "[n, 1] AS"), r"a\.sql:4: a list"),
    "list aggregate": (GOOD.replace("1 AS", "list(x) AS"), r"a\.sql:4: a list"),
    "struct": (GOOD.replace("1 AS", "{'k': m} AS"), r"a\.sql:4: a struct"),
    "quantile": (GOOD.replace("1 AS", "quantile_cont(x, 0.5) AS"), r"a\.sql:4: a continuous quantile"),
    "sample": (GOOD + "USING SAMPLE 3", r"a\.sql:\d: a sample is not portable"),
    "json": (GOOD.replace("1 AS", "x -> '$.a' AS"), r"a\.sql:4: `->` is not portable"),
    "log": (GOOD.replace("1 AS", "log(x) AS"), r"a\.sql:4: log\(\) is to base 10"),
    "first match": (GOOD.replace("1 AS", "regexp_replace(x, 'a', 'b') AS"), r"a\.sql:4: regexp_replace\(\) of the"),
    "star replaced": (
        GOOD.replace("1 AS", "(SELECT max(m) FROM (SELECT * REPLACE (1 AS m) FROM b)) AS"),
        r"\* REPLACE",
    ),
    "union by name": (GOOD + "UNION ALL BY NAME SELECT 1 AS n", r"a\.sql:\d: UNION BY NAME is not portable"),
    "an aggregate named as what it sums": (
        GOOD.replace("1 AS n", "sum(n) AS n") + "GROUP BY profile QUALIFY row_number() OVER (ORDER BY sum(n)) < 3",
        r"a\.sql:\d: n is an aggregate and a column",
    ),
    "recursion": (
        "-- One row: a.\nWITH RECURSIVE r AS (SELECT 1 AS n)\nSELECT\n    n  -- N.\nFROM r",
        r"a\.sql:\d: a recursive CTE",
    ),
    "pivot": (
        "-- One row: a.\nSELECT\n    n  -- N.\nFROM (PIVOT window_requests ON profile USING count(*))",
        r"a\.sql:\d: PIVOT is not portable",
    ),
}


@pytest.mark.parametrize("name", UNPORTABLE)
@pytest.mark.parametrize("path", ["fleet/_a.sql", "schedule/a.sql"])
def test_what_spark_cannot_run_is_refused_where_spark_runs_it(tmp_path: Path, path: str, name: str) -> None:
    text, message = UNPORTABLE[name]
    with pytest.raises(CatalogError, match=message):
        load_catalog(folder(tmp_path, {path: text, "fleet/_b.sql": GOOD}))


def test_tables_of_one_trace_may_use_what_duckdb_has(tmp_path: Path) -> None:
    text = GOOD.replace("1 AS n", "list(x) AS n") + "ASOF JOIN b ON window_requests.n >= b.n\nGROUP BY ALL"
    catalog = load_catalog(folder(tmp_path, {"gpu/a.sql": text, "gpu/b.sql": GOOD}))
    assert catalog.models["a"].dependencies == ("b", "window_requests")
    view = text.replace("\nSELECT", "\n-- scope: lake\nSELECT", 1)
    with pytest.raises(CatalogError, match=r"a\.sql:\d: .* is not portable"):
        load_catalog(folder(tmp_path / "2", {"gpu/a.sql": view, "gpu/b.sql": GOOD}))


def test_names_are_unique_and_layers_known(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"b\.sql:1: the table 'b' is already defined in .*gpu"):
        load_catalog(folder(tmp_path, {"gpu/b.sql": GOOD, "sync/b.sql": GOOD}))
    with pytest.raises(CatalogError, match=r"c\.sql:1: unknown layer 'somewhere'"):
        load_catalog(folder(tmp_path / "2", {"somewhere/c.sql": GOOD}))


def test_rules_are_documented_tables(tmp_path: Path) -> None:
    rules = "# One row: a rule.\n# name: Its name.\nname\nx\n"
    catalog = load_catalog(folder(tmp_path, {"rules/r.csv": rules, "gpu/a.sql": reading("r")}))
    assert (catalog.models["r"].kind, catalog.models["r"].columns[0].doc) == ("rules", "Its name.")
    assert set(catalog.rules) == {"r"}
    with pytest.raises(
        CatalogError, match=r"s\.csv:2: column 'name' has no description; write `# name: meaning` above"
    ):
        load_catalog(folder(tmp_path / "2", {"rules/s.csv": "# One row: a rule.\nname\nx\n"}))
    with pytest.raises(CatalogError, match=r"s\.csv:1: start the file with"):
        load_catalog(folder(tmp_path / "3", {"rules/s.csv": "name\nx\n"}))


RULES = """# One row: a rule.
# place BIGINT: Its place.
# share DOUBLE: Its share.
# holds BOOLEAN: Whether: it holds.
# code: Its code, a text.
# code of them: what follows a colon.
place,share,holds,code
"""


def test_columns_of_rules_have_the_types_that_their_file_declares(tmp_path: Path) -> None:
    """The values do not decide the types: numbers may be text, and a first row may be empty."""
    catalog = load_catalog(folder(tmp_path, {"rules/r.csv": f'{RULES},,,\n7,8,true,007\n,,,""\n'}))
    assert [column.doc for column in catalog.models["r"].columns] == [
        *("Its place.", "Its share.", "Whether: it holds.", "Its code, a text."),
    ]
    con = duckdb.connect()
    run_models(con, catalog, ["r"])
    kinds = [kind for _, kind, *_ in con.execute("DESCRIBE r").fetchall()]
    assert kinds == ["BIGINT", "DOUBLE", "BOOLEAN", "VARCHAR"] == [*catalog.models["r"].types.values()]
    nothing = (None, None, None)
    assert con.execute("FROM r").fetchall() == [(*nothing, None), (7, 8.0, True, "007"), (*nothing, "")]


@pytest.mark.parametrize("line", ["x,1,true,a", "1,1,maybe,a", "1.5e400,1,true,a", "1,2", "1,2,true,a,b"])
def test_a_row_of_rules_that_does_not_fit_is_refused(tmp_path: Path, line: str) -> None:
    catalog = load_catalog(folder(tmp_path, {"rules/r.csv": f"{RULES}1,2,true,a\n{line}\n"}))
    with pytest.raises(CatalogError, match=r"r\.csv"):
        run_models(duckdb.connect(), catalog, ["r"])


def test_a_type_that_no_rule_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"r\.csv: '# place INT' has no type .*: VARCHAR, BIGINT, DOUBLE, BOOLEAN"):
        load_catalog(folder(tmp_path, {"rules/r.csv": RULES.replace("BIGINT", "INT")}))


def test_a_version_follows_what_a_model_reads(tmp_path: Path) -> None:
    rules = "# One row: a rule.\n# name: Its name.\nname\nx\n"
    lake = reading("raw_events")
    files = {"rules/r.csv": rules, "ingest/l.sql": lake, "gpu/_b.sql": reading("r"), "gpu/a.sql": reading("_b")}
    files["gpu/other.sql"] = reading("l")
    before = load_catalog(folder(tmp_path, files))
    cases = {
        "rules/r.csv": (rules + "y\n", {"r", "_b", "a"}),
        "gpu/_b.sql": (files["gpu/_b.sql"] + "-- more", {"_b", "a"}),
        "ingest/l.sql": (lake + "-- more", {"l"}),  # ingested tables stay, so no model is recomputed for this one
    }
    for i, (name, (text, expected)) in enumerate(cases.items()):
        after = load_catalog(folder(tmp_path / str(i), {**files, name: text}))
        assert {n for n in before.models if before.version(n) != after.version(n)} == expected


def test_the_projects_own_catalog_holds() -> None:
    catalog = load_catalog()
    assert [m.name for m in catalog.models.values() if not m.doc.startswith("One row: ")] == []
    assert {model.layer for model in catalog.models.values()} <= set(LAYERS)


FLEET = (
    "-- One row: a thing.\nSELECT\n    capture_id,  -- The capture.\n    1 AS n  -- A number.\nFROM _staged_captures\n"
)


def test_the_folder_and_the_header_tell_what_a_table_is_about(tmp_path: Path) -> None:
    over_all = FLEET.replace("\nSELECT", "\n-- scope: lake\nSELECT", 1)
    catalog = load_catalog(folder(tmp_path, {"fleet/a.sql": FLEET, "fleet/b.sql": over_all, "fleet/_c.sql": FLEET}))
    assert (catalog.of_captures, catalog.models["b"].kind, catalog.models["b"].doc) == (
        ["a"],
        "view",
        "One row: a thing.",
    )
    with pytest.raises(CatalogError, match=r"a\.sql:1: a table of sql/fleet/ is stored by captures and has no column "):
        load_catalog(folder(tmp_path / "1", {"fleet/a.sql": FLEET.replace("capture_id,", "capture_id AS id,")}))
    with pytest.raises(
        CatalogError, match=r"a\.sql:2: unknown scope 'rank'; write `-- scope: ` and one of trace, capture"
    ):
        load_catalog(folder(tmp_path / "2", {"fleet/a.sql": over_all.replace("scope: lake", "scope: rank")}))
    with pytest.raises(CatalogError, match=r"a\.sql:1: tables of scope 'job' are written by ingestion; move it to "):
        load_catalog(folder(tmp_path / "3", {"fleet/a.sql": over_all.replace("scope: lake", "scope: job")}))
    mark = FLEET.replace("\nSELECT", "\n-- key: capture_id\nSELECT", 1)
    with pytest.raises(CatalogError, match="a and b both say `-- key: ` for scope 'capture'; one is the mark"):
        load_catalog(folder(tmp_path / "6", {"fleet/a.sql": mark, "fleet/b.sql": mark}))
    of_runs = GOOD.replace("\nSELECT", "\n-- scope: run\nSELECT", 1)
    for number, (column, missing) in enumerate((("trace_id", "run_id"), ("run_id", "batch_id"))):
        files = {"ingest/a.sql": of_runs.replace("trace_id", column).replace("FROM window_requests", "FROM raw_events")}
        with pytest.raises(
            CatalogError, match=rf"a\.sql:1: a table of sql/ingest/ is stored by runs .* column '{missing}'"
        ):
            load_catalog(folder(tmp_path / f"5{number}", files))
    of_traces = reading("all_ranks").replace("\nSELECT", "\n-- scope: trace\nSELECT", 1)
    with pytest.raises(
        CatalogError, match=r"a\.sql:6: a table of traces may not read 'all_ranks', which is of captures"
    ):
        load_catalog(folder(tmp_path / "4", {"fleet/all_ranks.sql": FLEET, "fleet/a.sql": of_traces}))


def test_sql_that_duckdb_refuses_is_told_with_its_file(tmp_path: Path) -> None:
    catalog = load_catalog(folder(tmp_path, {"gpu/a.sql": GOOD.replace("1 AS n", "nothing AS n")}))
    with (
        duckdb.connect() as con,
        pytest.raises(CatalogError, match=r"gpu/a\.sql:1: DuckDB rejects a: Binder Error: .*nothing"),
    ):
        con.execute("CREATE TABLE window_requests (trace_id VARCHAR)")
        run_models(con, catalog, ["a"])


def test_keys_are_columns_of_their_tables() -> None:
    models = load_catalog().models.values()
    named = {
        (m.name, name) for m in models for check in m.checks for name in re.findall(r"\w+", check.partition("(")[2])
    }
    assert len(named) > 300 and named <= {(model.name, column.name) for model in models for column in model.columns}
