"""Traces missing in a table: `materialize` and `ingest --materialize` name them and exit with 1.

The commands also print how to compute the tables of these traces.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.engines.capture_units import changed_captures
from pipelines.faces.cli.app import app
from pipelines.fleet.captures.input_tables import lake_captures
from pipelines.lake import Lake
from pipelines.lake.commit import model_failures
from pipelines.lake.commit.batch_rows import LEFT_OUT, Failure
from pipelines.lake.commit.manifest import entries
from pipelines.lake.commit.model_failures import LeftOut, failures_of, sentences, ways_out
from pipelines.lake.names import ANALYST
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.status import status
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.models.run import ModelRun, run_models
from pipelines.readers.ingest import ingest
from pipelines.runs.forget import forget
from pipelines.runs.left_out import left_out_at
from pipelines.runs.materialize import per_trace
from pipelines.runs.store import open_store
from tests.lake.world import kept, write_trace
from tests.runs.store.conftest import need_extensions

TABLES = ["kernels", "temporal_breakdown"]
MEMORY = "Out of Memory Error: could not allocate block of size 256.0 KiB"


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("left")
    ingest([write_trace(folder / "in" / f"rank{seed}.json", seed) for seed in range(3)], Lake(folder / "lake"))
    return folder


@pytest.fixture
def lake(ingested: Path) -> Iterator[Lake]:
    with kept(ingested) as lake:
        yield lake


@pytest.fixture
def poison(lake: Lake) -> str:
    """Return the trace on which models fail."""
    return sorted(lake.known_traces())[1]


Fail = Callable[..., None]


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Return `fail(trace_id, model)`, which makes the model fail on the trace.

    If `trace_id` is None, the model fails on every trace.
    """

    def start(trace_id: str | None, model: str, error: Exception | None = None) -> None:
        def failing(
            con: duckdb.DuckDBPyConnection, catalog: Catalog, tables: Any, *, on_model: Any, **named: Any
        ) -> list[ModelRun]:
            def starts(name: str) -> None:
                on_model(name)
                traces = {row[0] for row in con.execute("SELECT trace_id FROM traces").fetchall()}
                if name == model and (trace_id is None or trace_id in traces):
                    raise error or ValueError("this trace is odd")

            return run_models(con, catalog, tables, on_model=starts, **named)

        monkeypatch.setattr(per_trace, "run_models", failing)

    return start


def call(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def lines(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if line.startswith("left out: ")]


ENGINE = ("--engine", "in-process")


def test_a_batch_that_another_process_commits_meanwhile_is_no_error(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = model_failures.shown

    def then_another(root: Path) -> Any:
        entries = shown(root)
        ingest([write_trace(tmp_path / "rank9.json", 9)], lake)
        return entries

    monkeypatch.setattr(model_failures, "shown", then_another)
    assert left_out_at(str(lake.root)) == []


@pytest.mark.slow  # 6 s
def test_materialize_names_what_it_left_out_until_it_is_there(
    lake: Lake, poison: str, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("materialize", *TABLES, "--lake", lake.root, "--json")
    fail(poison, "merged_intervals")
    first = call(*words)
    assert first.exit_code == 1, first.output
    (line,) = lines(first.stderr)
    assert f"temporal_breakdown lacks trace {poison} (" in line and "/in/rank" in line
    assert "the model merged_intervals failed on it (ValueError: this trace is odd)" in line
    assert {row["table"] for row in json.loads(first.stdout)} == {*TABLES}
    with lake.connect(TABLES) as con:  # all other tables are stored
        counts = "SELECT (SELECT count(DISTINCT trace_id) FROM kernels), (SELECT count(DISTINCT trace_id) FROM temporal_breakdown)"
        assert con.execute(counts).fetchall() == [(3, 2)]

    monkeypatch.setattr(per_trace, "run_models", run_models)
    again = call(*words)  # the tables are up to date, but still without the trace
    assert again.exit_code == 1 and lines(again.stderr) == [line]
    assert call("materialize", "kernels", "--lake", lake.root).exit_code == 0  # kernels has all traces

    (way,) = re.findall("To compute them again: tracelake (.*)", again.stderr)
    mended = call(*way.split())
    assert mended.exit_code == 0 and not lines(mended.stderr), mended.stderr
    assert call(*words).exit_code == 0
    with lake.connect(TABLES) as con:
        assert con.execute(counts).fetchall() == [(3, 3)]


def test_tables_of_captures_lack_what_their_sources_lack(lake: Lake, poison: str, fail: Fail) -> None:
    fail(poison, "kernels")
    done = call("materialize", "collectives", "--lake", lake.root)
    assert done.exit_code == 1, done.output
    assert all(f"trace {poison} (" in line for line in lines(done.stderr)) and lines(done.stderr)


@pytest.mark.parametrize("is_known", [True, False])
def test_captures_lack_the_same_tables_in_a_store_of_units(
    lake: Lake, poison: str, fail: Fail, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A capture in a store of units lacks the same tables as in a folder.

    A folder records failures in its log, a DuckLake in a table. Both keep failures of tables that are no longer
    computed.
    """
    fail(poison, "merged_intervals")
    per_trace.materialize(lake, TABLES, and_publish=False)
    if not is_known:
        monkeypatch.setitem(vars(load_catalog()), "materialized", ["kernels"])

    def look(_: Any) -> duckdb.DuckDBPyConnection:
        con = lake.connect(["traces"])
        model_failures._add_all_failures(con, lake)
        return con

    store: Any = SimpleNamespace(lake=None, look=look, roles=lambda: [], capture_contents=lambda _: {})
    (group,) = changed_captures(store)
    (capture,) = lake_captures(lake).values()
    assert group.items == (capture,) and capture.lacking == (f"temporal_breakdown lacks {poison}",)


@pytest.mark.slow  # 4 s
def test_a_trace_that_is_forgotten_is_missed_no_more(lake: Lake, poison: str, fail: Fail) -> None:
    fail(poison, "kernels")
    done = call("materialize", *TABLES, "--lake", lake.root)
    (way,) = re.findall("To remove such a trace from the lake: tracelake (.*)", done.stderr)
    assert done.exit_code == 1 and way.split()[:2] == ["forget", poison]
    forget(lake, poison)
    assert left_out_at(str(lake.root)) == []
    assert call("materialize", *TABLES, "--lake", lake.root).exit_code == 0


def test_no_table_lacks_a_forgotten_trace(lake: Lake, poison: str, fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.runs.forget.publish", lambda _: None)
    fail(poison, "kernels")
    per_trace.materialize(lake, ["kernels"], and_publish=False)
    assert len(failures_of(lake, "kernels")) == 1
    forget(lake, poison)
    assert failures_of(lake, "kernels") == []
    assert not any(entry.failures for entry in entries(lake.root).values())


def superseded(folder: Path, fail: Fail) -> tuple[Lake, Path]:
    """Return a lake with a truncated trace on which the model of `kernels` failed, and its complete file."""
    lake, path = Lake(folder / "lake"), write_trace(folder / "in" / "rank0.json", 0, distributedInfo={"rank": 0})
    whole = path.read_text()
    path.write_text(whole[: int(0.7 * len(whole))])
    assert [row.status for row in ingest([path], lake).rows] == ["partial"]
    fail(None, "kernels")
    per_trace.materialize(lake, ["kernels"], and_publish=False)
    fail("no trace", "kernels")
    path.write_text(whole)
    return lake, path


def test_no_table_lacks_a_superseded_trace(tmp_path: Path, fail: Fail) -> None:
    lake, path = superseded(tmp_path, fail)
    assert len(failures_of(lake, "kernels")) == 1
    assert [row.status for row in ingest([path], lake).rows] == ["ok"]
    assert failures_of(lake, "kernels") == []


@pytest.mark.slow  # 5 s
def test_the_analysts_file_shows_failures_of_the_traces_that_it_shows(tmp_path: Path, fail: Fail) -> None:
    lake, path = superseded(tmp_path, fail)

    def failed() -> list[list[str]]:
        models = []
        for _ in range(2):
            publish(lake)
            models.append(status(lake, None).failed_models)
            (lake.root / ANALYST).unlink()  # forces a new build instead of an update
        publish(lake)
        return models

    assert failed() == [["kernels (1 trace)"]] * 2
    (done,) = ingest([path], lake).rows
    assert done.status == "ok" and failed() == [[]] * 2
    forget(lake, str(done.trace_id))
    assert failed() == [["kernels (1 trace)"]] * 2


@pytest.mark.slow  # tests/runs/store/test_changed_models.py retries with more memory, too
def test_more_memory_is_tried_without_force(
    lake: Lake, poison: str, fail: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(poison, "kernels", duckdb.OutOfMemoryException(MEMORY))
    done = call("materialize", *TABLES, "--lake", lake.root)
    assert done.exit_code == 1 and "set TRACELAKE_MEMORY to more than 1907 (MiB) first" in done.stderr
    monkeypatch.setattr(per_trace, "run_models", run_models)
    assert call("materialize", *TABLES, "--lake", lake.root).exit_code == 1  # the same memory as before
    monkeypatch.setenv("TRACELAKE_MEMORY", "3000")
    assert call("materialize", *TABLES, "--lake", lake.root).exit_code == 0
    assert left_out_at(str(lake.root)) == []


def test_what_ran_in_another_way_is_not_left_out(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:

    whole = lambda catalog, tables, runs, traces: {"kernels": [Failure(traces[0], "kernels", "x", "optimizer_off")]}  # noqa: E731
    monkeypatch.setattr(per_trace, "plain_runs", whole)
    assert call("materialize", "kernels", "--lake", lake.root).exit_code == 0


def of(n: int, **changed: Any) -> list[LeftOut]:
    rows = {"file": "a.json", "batch_id": "b", "model": "m", "reason": "r", "tables": ("t",), **changed}
    return [LeftOut(trace_id=f"trace{k}", **rows) for k in range(n)]


@pytest.mark.parametrize(("n", "shown", "more"), [(1, 1, None), (10, 10, None), (11, 10, 1), (1010, 10, 1000)])
def test_ten_are_named_and_the_rest_counted(n: int, shown: int, more: int | None) -> None:
    said = sentences(of(n))
    rest = said[shown:]
    assert [line.split()[3] for line in said[:shown]] == [f"trace{k}" for k in range(shown)]
    assert rest == ([] if more is None else [f"and {more:,} more: SELECT * FROM model_failures"])


def test_of_many_tables_five_are_named_and_all_are_in_the_command() -> None:
    tables = tuple(f"t{k}" for k in range(7))
    (said,) = sentences(of(1, tables=tables))
    assert said.startswith("t0, t1, t2, t3, t4 and 2 more tables lack trace trace0 (a.json): the model m failed on it")
    assert ways_out(of(1, tables=tables), "/a lake")[0].endswith(
        f"materialize {' '.join(tables)} --force --lake '/a lake'"
    )
    assert ways_out([], "/a lake") == [] and LEFT_OUT == "left_out"


INGEST = ("ingest", "--materialize")


@pytest.mark.slow  # 25 s
def test_ingest_can_compute_all_tables_of_what_it_took_in(tmp_path: Path, fail: Fail) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / "old" / "rank0.json", 7)], lake)
    (old,) = lake.batches()
    files = [write_trace(tmp_path / "in" / f"rank{seed}.json", seed) for seed in range(2)]
    done = call(*INGEST, *files, "--lake", lake.root, "--json")
    assert done.exit_code == 0, done.output
    assert [row["status"] for row in json.loads(done.stdout)] == ["ok", "ok"]
    with lake.connect(["kernels", "captures"]) as con:
        assert con.execute("SELECT count(DISTINCT trace_id) FROM kernels").fetchall() == [(2,)]
        assert con.execute("SELECT count(*) FROM captures").fetchall() == [(1,)]
    assert not lake.versions_of(old, ["kernels"])  # `materialize` computes the older batches

    fail(None, "kernels")
    late = write_trace(tmp_path / "late" / "rank0.json", 9)
    done = call(*INGEST, late, "--lake", lake.root)
    assert done.exit_code == 1 and len(lines(done.stderr)) == 1, done.output
    done = call(*INGEST, *files, "--lake", lake.root)  # these files have all tables
    assert done.exit_code == 0 and not lines(done.stderr), done.output
    assert call(*INGEST, late, "--lake", lake.root).exit_code == 1  # known, and tables are still missing


@pytest.mark.slow  # 7 s
def test_on_an_engine_ingest_says_so_too(tmp_path: Path, fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(None, "kernels")
    file, lake = write_trace(tmp_path / "in" / "rank0.json", 1), tmp_path / "lake"
    for words in (("ingest",), INGEST):
        done = call(*words, file, "--lake", lake, *ENGINE)
        assert done.exit_code == 1 and len(lines(done.stderr)) == 1, done.output


@pytest.mark.ducklake("sqlite")
def test_a_ducklake_says_so_too(tmp_path: Path, fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    need_extensions()
    address = f"ducklake:sqlite:{tmp_path}/c.sqlite?data={tmp_path}/data"
    monkeypatch.setenv("TRACELAKE_LAKE", address)
    materialize = per_trace.materialize
    monkeypatch.setattr(
        per_trace, "materialize", partial(materialize, tables=TABLES)
    )  # what the ingestion of a unit calls
    fail(None, "merged_intervals")
    done = call("ingest", write_trace(tmp_path / "in" / "rank0.json", 1))
    assert done.exit_code == 1 and "left out: temporal_breakdown lacks trace" in done.stderr, done.output
    (capture,) = changed_captures(open_store(address))[0].items
    assert [text.partition(" lacks ")[0] for text in capture.lacking] == ["temporal_breakdown"]
    monkeypatch.setattr(per_trace, "materialize", materialize)
    monkeypatch.setattr(per_trace, "run_models", run_models)
    again = call("materialize", *TABLES)
    assert again.exit_code == 1 and lines(again.stderr) == lines(done.stderr), again.output
    assert call("materialize", "kernels").exit_code == 0
    (way,) = re.findall("To compute them again: tracelake (.*)", again.stderr)
    mended = call(*shlex.split(way))
    assert mended.exit_code == 0 and not lines(mended.stderr), mended.output
    assert call("materialize", *TABLES).exit_code == 0
    (complete,) = changed_captures(open_store(address))[0].items
    assert complete.lacking == () and complete.content != capture.content  # so its tables are recomputed
