"""`tables --of`: the models behind a table, their files and lines, and their costs on a trace."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.base.datafiles import SQL_DIR
from pipelines.critical_path.graph.windows import request_windows, usual_windows
from pipelines.faces.cli.app import app
from pipelines.faces.cli.lake.lineage import measured
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import call, connect, kernel, op
from tests.lake.world import write_trace
from tests.packaging.installed import ROOT

TABLES = ("critical_path", "step_pipeline", "kernels")


def asked(*words: object) -> list[dict[str, Any]]:
    said = CliRunner().invoke(app, ["tables", *map(str, words), "--json"])
    assert said.exit_code == 0, said.stderr
    return json.loads(said.stdout)


@pytest.mark.parametrize("table", TABLES)
def test_each_model_stands_behind_those_that_it_reads(table: str) -> None:
    models, seen = load_catalog().models, set()
    for row in asked("--of", table):
        model = models[row["model"]]
        assert {name for name in model.dependencies if name in models} <= seen
        seen.add(model.name)
        assert (row["kind"], row["access"]) == (model.kind, "private" if model.private else "public")
    assert seen == {*load_catalog().closure([table])}


@pytest.mark.parametrize("table", TABLES)
def test_its_file_and_line_are_named(table: str) -> None:
    """The line is where the statement begins.

    If a file has several models, it follows the line that names the model. A table that is made of parts has the line
    of its first part.
    """
    several, models = set(), load_catalog().models
    for row in asked("--of", table):
        file, _, line = row["file"].partition(":")
        path = SQL_DIR.parent / file if file.startswith("sql/") else ROOT / file
        lines = path.read_text(encoding="utf-8").splitlines()
        if row["kind"] == "python":
            assert f'"{row["model"]}"' in path.read_text(encoding="utf-8")
        else:
            assert lines[int(line or 1) - 1].lstrip("-# ").startswith("One row: ")
        if line:
            several.add(row["model"])
            named = lines[int(line) - 2].removeprefix("-- model: ")
            assert row["model"] in (named, models[named].part_of)
    assert several or table != "step_pipeline"


@pytest.mark.slow  # 4 s
def test_rows_and_seconds_are_those_of_running_the_models() -> None:
    events = [op("a", 0, 100), call("cudaLaunchKernel", 10, 5, 1), kernel("gemm", 20, 50, 1)]
    con, trace_id = connect(events)
    request_windows(con, usual_windows(con, [trace_id]))
    catalog, began = load_catalog(), time.perf_counter()
    costs = measured(con, catalog, "critical_path")
    assert [*costs] == catalog.closure(["critical_path"])
    assert 0 < sum(cost.seconds or 0 for cost in costs.values()) < time.perf_counter() - began
    functions = {name: catalog.models[name].function for name in costs if catalog.models[name].function}
    first = {function: name for name, function in reversed(functions.items())}
    unknown = {name for name, cost in costs.items() if cost.seconds is None}
    assert unknown == {"events", *functions} - {*first.values()} > {"events"}
    con, trace_id = connect(events)
    request_windows(con, usual_windows(con, [trace_id]))
    public = [name for name in costs if name in catalog.public and name != "events"]
    run_models(con, catalog, public)
    counted = {name: con.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0] for name in public}
    assert {name: costs[name].rows for name in public} == counted and counted["critical_path"]


def test_of_a_trace_file_the_rows_of_its_events_are_known(tmp_path: Path) -> None:
    rows = {row["model"]: row for row in asked("--of", "kernels", write_trace(tmp_path / "a.json", 1))}
    assert rows["events"]["rows"] > 0 and rows["events"]["seconds"] is None
    assert rows["kernels"]["seconds"] > 0


def test_the_process_of_a_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tables --of` passes --process to the reader, which recommends this option for a file with several processes."""
    processes: list[str | None] = []

    @contextmanager
    def opened(*_: object, process: str | None) -> Iterator[tuple[Any, str]]:
        processes.append(process)
        yield connect([])

    monkeypatch.setattr("pipelines.faces.cli.trace.opened_trace.opened", opened)
    for words, process in (((), None), (("--process", "TP00"), "TP00")):
        asked("--of", "events", "merged.json", *words)
        assert processes.pop() == process


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--of", "kernel"), "no table 'kernel'"),
        (("--of", "captures", "a.json"), "captures is not a table of one trace: its scope is capture"),
        (("--of", "kernels", "--search", "x"), "--of and --search are two questions"),
        (("--process", "1"), "--process is for --of with a trace file"),
        (("--of", "kernels", "--process", "1"), "--process is for --of with a trace file"),
    ],
)
def test_what_cannot_be_asked_is_refused(words: tuple[str, ...], message: str) -> None:
    said = CliRunner().invoke(app, ["tables", *words])
    assert said.exit_code == 1 and message in said.stderr
