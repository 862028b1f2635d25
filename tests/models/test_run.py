"""Running models in a connection: order, what is dropped, what is there already."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from pipelines.models.catalog import Catalog, load_catalog
from pipelines.models.run import run_models

A = "-- One row: a.\nSELECT\n    '' AS trace_id,  -- T.\n    n  -- N.\nFROM {}\n"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    files = {
        "rules/r.csv": '# One row: a rule.\n# n: Number.\n# text: Text.\nn,text\n1,""\n2,\n',
        "gpu/_private.sql": A.format("r"),
        "gpu/middle.sql": A.format("_private"),
        "summary/last.sql": A.format("middle"),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return load_catalog(tmp_path)


def tables(con: duckdb.DuckDBPyConnection) -> set[str]:
    return {row[0] for row in con.execute("SHOW TABLES").fetchall()}


def test_the_closure_runs_in_order_and_intermediate_tables_go(catalog: Catalog) -> None:
    con, seen = duckdb.connect(), []
    runs = run_models(con, catalog, ["last"], on_model=seen.append)
    assert [(run.name, run.n_rows) for run in runs] == [("r", 2), ("_private", 2), ("middle", 2), ("last", 2)]
    assert seen == [run.name for run in runs]
    assert tables(con) == {"r", "last"}


def test_targets_stay(catalog: Catalog) -> None:
    con = duckdb.connect()
    run_models(con, catalog, ["last", "_private"])
    assert tables(con) == {"r", "last", "_private"}


def test_what_is_there_is_not_run_again(catalog: Catalog) -> None:
    con = duckdb.connect()
    con.execute("CREATE VIEW middle AS SELECT 7 AS n")
    runs = run_models(con, catalog, ["last"], have=frozenset({"middle"}))
    assert [run.name for run in runs] == ["last"]
    assert con.execute("SELECT n FROM last").fetchall() == [(7,)]
    assert tables(con) == {"middle", "last"}


def test_an_empty_field_of_a_rule_is_null_and_quotes_are_an_empty_text(catalog: Catalog) -> None:
    con = duckdb.connect()
    run_models(con, catalog, ["r"])
    assert con.execute("SELECT text FROM r ORDER BY n").fetchall() == [("",), (None,)]
