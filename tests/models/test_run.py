"""Running models in a connection: their order, the tables that are dropped, and the tables that already exist."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from pipelines.models import run
from pipelines.models.catalog import Catalog, Model, load_catalog
from pipelines.models.errors import CatalogError
from pipelines.models.run import run_models

SEVERAL = "pipelines.fleet.clocks.capture_fits:create_fits"  # creates three tables
A = "-- One row: a.\nSELECT\n    '' AS trace_id,  -- T.\n    n  -- N.\nFROM {}\n"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    files = {
        "rules/r.csv": '# One row: a rule.\n# n BIGINT: Number.\n# text: Text.\nn,text\n1,""\n2,\n',
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
    assert [run.name for run in runs] == ["r", "_private", "middle", "last"]
    assert con.execute("SELECT n FROM last ORDER BY n").fetchall() == [(1,), (2,)]
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


@pytest.fixture
def diamond(tmp_path: Path) -> Catalog:
    """Return a catalog in which `last` reads `one` and `other`, which both read `_private`."""
    files = {
        "rules/r.csv": "# One row: a rule.\n# n BIGINT: Number.\nn\n0\n1\n2\n",
        "gpu/_private.sql": A.format("r"),
        "gpu/one.sql": A.format("_private"),
        "gpu/other.sql": A.format("_private"),
        "summary/last.sql": A.format("one JOIN other USING (n)"),
    }
    for name, text in files.items():
        (tmp_path / "d" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "d" / name).write_text(text)
    return load_catalog(tmp_path / "d")


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_models_that_run_beside_each_other_make_the_same_tables(diamond: Catalog, at_once: int) -> None:
    con, seen = duckdb.connect(), []
    runs = run_models(con, diamond, ["last", "one"], on_model=seen.append, at_once=at_once)
    assert seen[:2] == [run.name for run in runs][:2] == ["r", "_private"] and seen[-1] == runs[-1].name == "last"
    assert sorted(run.name for run in runs[2:-1]) == ["one", "other"]
    assert tables(con) == {"r", "last", "one"}
    assert con.execute("SELECT n FROM last ORDER BY n").fetchall() == [(0,), (1,), (2,)]


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_part_that_only_selects_is_not_copied(tmp_path: Path, at_once: int) -> None:
    """The part, the whole, and the models that only the part reads become views.

    Their sources stay until the whole was read.
    """
    files = {
        "rules/r.csv": "# One row: a rule.\n# n BIGINT: Number.\nn\n0\n1\n2\n",
        "gpu/_source.sql": A.format("(SELECT DISTINCT n FROM r)"),
        "gpu/_for_one.sql": A.format("_source"),
        "gpu/_for_two.sql": A.format("_source"),
        "gpu/_empty.sql": A.format("_for_one"),
        "gpu/_other.sql": A.format("_for_two"),
        "gpu/_selected.sql": A.format("_for_one JOIN _for_two USING (n)").replace(
            "\nSELECT", "\n-- part of: _whole\nSELECT"
        ),
        "gpu/_sorted.sql": A.format("(SELECT max(n) OVER () AS n FROM r)").replace(
            "\nSELECT", "\n-- part of: _whole\nSELECT"
        ),
        "summary/last.sql": A.format(
            "_whole WHERE NOT EXISTS (SELECT 1 FROM _empty) AND EXISTS (SELECT 1 FROM _other)"
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    catalog, seen = load_catalog(tmp_path), {}
    without_rows = frozenset({"_empty"})
    with duckdb.connect() as con:

        def kinds(name: str) -> None:
            if name == "last":
                seen.update(con.execute("SELECT table_name, table_type FROM information_schema.tables").fetchall())

        run_models(con, catalog, ["last"], on_model=kinds, at_once=at_once, without_rows=without_rows)
        views = {name for name, kind in seen.items() if kind == "VIEW"}
        assert views == {"_whole", "_selected", "_for_one"} and {"_source", "_sorted", "_for_two"} < seen.keys()
        assert con.execute("SELECT n FROM last ORDER BY n").fetchall() == [(0,), (1,), (2,), (2,), (2,), (2,)]
        assert tables(con) == {"r", "last"}
        run_models(con, catalog, ["last", "_selected"], at_once=at_once, without_rows=without_rows)
        assert (
            "_selected" in tables(con) and not con.execute("SELECT 1 FROM duckdb_views() WHERE NOT internal").fetchall()
        )


def test_targets_are_handed_over_once_and_none_is_kept(diamond: Catalog) -> None:
    """`last` reads `one`, so `one` is a table until then. No model reads `last`, so `last` never becomes a table."""
    con, written, seen = duckdb.connect(), {}, {}

    def write(name: str, rows: str) -> None:
        assert name not in written
        written[name] = con.execute(f"SELECT n FROM (\n{rows}\n) ORDER BY n").fetchall()
        seen[name] = tables(con)

    runs = run_models(con, diamond, ["last", "one"], write=write)
    assert [run.name for run in runs][-1] == "last" and len(runs) == 5
    assert written == {"one": [(0,), (1,), (2,)], "last": [(0,), (1,), (2,)]}
    assert "one" in seen["one"] and "last" not in seen["last"]
    assert tables(con) == {"r"}
    with pytest.raises(ValueError, match="one after another"):
        run_models(con, diamond, ["last"], write=write, at_once=2)


def test_a_target_that_duckdb_rejects_names_its_file(diamond: Catalog, tmp_path: Path) -> None:
    broken = replace(diamond.models["last"], sql="SELECT nothing FROM one")
    catalog = Catalog({**diamond.models, "last": broken}, diamond.inputs)
    for write in (None, lambda _, rows: con.execute(rows)):
        with duckdb.connect() as con, pytest.raises(CatalogError, match=r"last\.sql:1: DuckDB rejects last: .*nothing"):
            run_models(con, catalog, ["last"], write=write)


def test_models_run_beside_each_other(diamond: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the two models waits until the other has begun.

    If they ran sequentially, the first would wait forever.
    """
    both, create = threading.Barrier(2, timeout=20), run._create

    def waiting(con: duckdb.DuckDBPyConnection, model: Model, called: set[str], how: str) -> None:
        if model.name in ("one", "other"):
            both.wait()
        create(con, model, called, how)

    monkeypatch.setattr(run, "_create", waiting)
    assert len(run_models(duckdb.connect(), diamond, ["last"], at_once=2)) == 5


def test_a_failing_model_ends_what_runs_beside_it(diamond: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a model fails, a concurrent model, which would take an hour, is interrupted."""
    begun, create = threading.Event(), run._create

    def failing(con: duckdb.DuckDBPyConnection, model: Model, called: set[str], how: str) -> None:
        if model.name == "other":
            begun.set()
            con.execute("SELECT max(a.range * b.range) FROM range(1000000000) AS a, range(1000000) AS b")
        if model.name == "one":
            assert begun.wait(20)
            raise ValueError("broken")
        create(con, model, called, how)

    monkeypatch.setattr(run, "_create", failing)
    con = duckdb.connect()
    with pytest.raises(ValueError, match="broken"):
        run_models(con, diamond, ["last"], at_once=2)
    assert "last" not in tables(con)


def test_a_function_with_several_tables_runs_once_whatever_runs_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def made(con: duckdb.DuckDBPyConnection, model: Model, called: set[str], how: str) -> None:
        if model.function not in called:
            time.sleep(0.05)
            calls.append(model.function)
            called.add(model.function)

    monkeypatch.setattr(run, "_create", made)
    catalog = load_catalog()
    several = [name for name, model in catalog.models.items() if model.function and model.function == SEVERAL]
    assert len(several) > 1
    read = {name for model in catalog.models.values() for name in model.dependencies} - set(several)
    run_models(duckdb.connect(), catalog, several, have=frozenset(read), at_once=4)
    assert calls == [SEVERAL]
