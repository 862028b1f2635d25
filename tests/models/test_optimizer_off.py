"""Models on which DuckDB itself fails: each runs again with the optimizer off.

DuckDB fails with INTERNAL, or with FATAL, which makes the database unusable. `model_failures` records the second run.
Traces are excluded only if the second run also fails.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.fleet.trends.fleet_today import fleet_today
from pipelines.lake import Lake
from pipelines.lake.commit.model_failures import caveats
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.models.run import ModelRun, run_models
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize import per_capture, per_trace
from pipelines.runs.materialize.run_order import materialize_all
from tests.lake.world import capture, shown, write_trace

INTERNAL = "INTERNAL Error: Failed to cast expression to type\n\nStack Trace: …"
TABLES = ["kernels", "launches", "temporal_breakdown"]
FAILURES = "SELECT DISTINCT table_name, model, outcome FROM model_failures ORDER BY ALL"


class Failing:
    """A connection on which DuckDB fails to create the table `of`: with the optimizer on, or `always`.

    `fatal`: the failure makes the database unusable, so all later queries fail.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, of: str, always: bool = False, fatal: bool = False) -> None:
        self._con, self._of, self._always, self._fatal = con, of, always, fatal
        self.is_plain, self.is_gone, self.n_failed = False, False, 0
        con.execute("SET python_scan_all_frames = true")  # lets DuckDB see local arrays in frames above `execute`

    def execute(self, query: str, *values: Any) -> Any:
        if self.is_gone:
            raise duckdb.FatalException("FATAL Error: database has been invalidated because of a previous fatal error")
        if "able_optimizer" in query:
            self.is_plain = "disable" in query
        creates = any(
            f"{kind} {self._of} AS " in query for kind in ("TABLE", "VIEW")
        )  # ignores queries that only read the table
        if creates and (self._always or not self.is_plain):
            self.n_failed += 1
            self.is_gone = self._fatal
            raise (duckdb.FatalException if self._fatal else duckdb.InternalException)(
                INTERNAL if self.n_failed == 1 else "again"
            )
        return self._con.execute(query, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._con, name)


def failing(cons: list[Failing], of: str, **how: bool) -> Callable[..., list[ModelRun]]:
    """Return a `run_models` that runs on such connections and appends them to `cons`."""

    def run(con: duckdb.DuckDBPyConnection, *more: Any, **named: Any) -> list[ModelRun]:
        cons.append(Failing(con, of, **how))
        return run_models(cons[-1], *more, **named)  # pyright: ignore[reportArgumentType]

    return run


def analyst_rows(lake: Lake, query: str) -> list[tuple]:
    with lake.connect(["traces"]) as con:
        con.execute("SELECT 1 FROM traces").fetchall()
    with duckdb.connect(str(lake.root / "analyst.duckdb"), read_only=True) as con:
        return con.execute(query).fetchall()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    ingest(capture(tmp_path / "in"), lake)
    return lake


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    for name, text in {
        "rules/r.csv": "# One row: a rule.\n# n BIGINT: Number.\nn\n1\n2\n",
        "gpu/middle.sql": "-- One row: a.\nSELECT\n    '' AS trace_id,  -- T.\n    n  -- N.\nFROM r\n",
        "summary/last.sql": "-- One row: a.\nSELECT\n    '' AS trace_id,  -- T.\n    n  -- N.\nFROM middle\n",
    }.items():
        (tmp_path / "sql" / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "sql" / name).write_text(text)
    return load_catalog(tmp_path / "sql")


def test_the_model_alone_runs_without_the_optimizer(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    con = Failing(duckdb.connect(), "middle")
    runs = run_models(con, catalog, ["last"])  # pyright: ignore[reportArgumentType]
    assert [run.name for run in runs if run.plain_for] == ["middle"] and con.n_failed == 1
    assert not con.is_plain
    assert con.execute("SELECT n FROM last ORDER BY n").fetchall() == [(1,), (2,)]
    (said,) = caplog.messages
    assert said == f"middle: {runs[1].plain_for}" and "INTERNAL Error: Failed to cast" in said and "Stack" not in said


def test_the_optimizer_is_off_for_duckdb(catalog: Catalog) -> None:
    """DuckDB understands the statements that switch the optimizer off and on."""
    plans = []

    class Seen(Failing):
        def execute(self, query: str, *values: Any) -> Any:
            if " middle AS " in query:
                plans.append(super().execute("EXPLAIN SELECT n FROM r WHERE 1 = 2").fetchall()[0][1])
            return super().execute(query, *values)

    con = Seen(duckdb.connect(), "middle")
    run_models(con, catalog, ["last"])  # pyright: ignore[reportArgumentType]
    plans.append(con.execute("EXPLAIN SELECT n FROM r WHERE 1 = 2").fetchall()[0][1])
    assert ["EMPTY RESULT" in plan.upper().replace("_", " ") for plan in plans] == [True, False, True]


def test_one_that_fails_without_the_optimizer_too_raises_the_first_error(catalog: Catalog) -> None:
    con = Failing(duckdb.connect(), "middle", always=True)
    with pytest.raises(duckdb.InternalException, match="Failed to cast"):
        run_models(con, catalog, ["last"])  # pyright: ignore[reportArgumentType]
    assert con.n_failed == 2 and not con.is_plain


@pytest.mark.slow  # 3 s; tests above run a single model
@pytest.mark.parametrize(
    "fatal", [pytest.param(True, id="fatal"), pytest.param(False, marks=pytest.mark.slow, id="internal")]
)
def test_tables_are_whole_and_a_finding_says_so(lake: Lake, monkeypatch: pytest.MonkeyPatch, fatal: bool) -> None:
    per_trace.materialize(lake, TABLES)
    whole, cons = shown(lake, TABLES), []
    monkeypatch.setattr(per_trace, "run_models", failing(cons, "kernels", fatal=fatal))
    per_trace.materialize(lake, [*TABLES, "trace_devices"], force=True)  # the last table does not need kernels
    assert shown(lake, TABLES) == whole
    assert [con.n_failed for con in cons] == ([1, 0] if fatal else [1])
    assert analyst_rows(lake, FAILURES) == [(table, "kernels", "optimizer_off") for table in TABLES]
    assert len(analyst_rows(lake, "FROM model_failures WHERE table_name = 'kernels'")) == len(lake.known_traces())
    assert all("INTERNAL Error" in reason for (reason,) in analyst_rows(lake, "SELECT reason FROM model_failures"))
    with duckdb.connect(str(lake.root / "analyst.duckdb"), read_only=True) as con:
        assert caveats(con, TABLES) == [] and fleet_today(con).n_failures == 0
    said = CliRunner().invoke(app, ["status", "--lake", str(lake.root), "--json"]).output
    assert '"failed_models": []' in said
    monkeypatch.undo()
    per_trace.materialize(lake, TABLES, force=True)
    assert analyst_rows(lake, FAILURES) == []


@pytest.mark.slow  # 2 s; test_run.py also excludes a model that fails
def test_what_fails_always_is_left_out(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, traces = ["temporal_breakdown", "launches"], len(lake.known_traces())
    monkeypatch.setattr(per_trace, "run_models", failing([], "merged_intervals", always=True, fatal=True))
    per_trace.materialize(lake, tables)
    assert analyst_rows(lake, FAILURES) == [("temporal_breakdown", "merged_intervals", "left_out")]
    assert analyst_rows(lake, "SELECT count(*), count(DISTINCT trace_id) FROM model_failures") == [(traces, traces)]
    assert analyst_rows(lake, "SELECT count(*) FROM temporal_breakdown") == [(0,)]
    assert analyst_rows(lake, "SELECT count(DISTINCT trace_id) FROM launches") == [(traces,)]
    with duckdb.connect(str(lake.root / "analyst.duckdb"), read_only=True) as con:
        assert [said.split(",")[0] for said in caveats(con, tables)] == [f"temporal_breakdown lacks {traces} traces"]


@pytest.mark.slow  # tests above compute tables of traces with the same runner
def test_tables_of_captures_are_whole_too(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = ["captures", "capture_ranks", "collectives"]
    per_capture.materialize_captures(lake, tables)
    whole, cons = shown(lake, tables), []
    monkeypatch.setattr(per_capture, "run_models", failing(cons, "capture_ranks", fatal=True))
    materialize_all(lake, tables, force=True)
    assert shown(lake, tables) == whole
    assert [con.n_failed for con in cons] == [1, 0]
    query = "SELECT count(*), count(DISTINCT batch_id) FROM model_failures WHERE table_name = 'capture_ranks' AND outcome = 'optimizer_off'"
    assert analyst_rows(lake, f"{query} AND trace_id IS NULL") == [(1, 1)]
    ingest([write_trace(tmp_path / "more.json", 9)], lake)  # a separate capture, so the published tables are extended
    per_capture.materialize_captures(lake, tables)
    assert analyst_rows(lake, query) == [(2, 2)]
