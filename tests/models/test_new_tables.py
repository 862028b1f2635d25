"""New tables: one new file adds a table of any scope, and the commands of a copy of the project show it."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from pipelines.models.header import FILE, SCOPES
from tests.effort import SLOW
from tests.fleet.op_job.make import Shape, write_job
from tests.harness import kernel
from tests.readers.flight_recorder.make import call, made
from tests.readers.test_schedule_runs import write_run
from tests.record.test_lake import recording

ROOT = Path(__file__).parents[2]


def counted(scope: str, table: str, *key: str) -> str:
    columns = "".join(f"    {name},  -- Of whom.\n" for name in key)
    return (
        f"-- One row: rows of {table} together.\n-- scope: {scope}\nSELECT\n{columns}    count(*) AS n  -- How many.\n"
        f"FROM {table}\nGROUP BY {', '.join(key)}\n"
    )


# Tables that ingestion writes also have the batch. new_staged is read from files with its name.
NEW = {
    "sql/summary/new_of_traces.sql": counted("trace", "events", "trace_id"),
    "sql/fleet/new_of_captures.sql": counted("capture", "capture_ranks", "capture_id"),
    "sql/ingest/schedule_new.sql": counted("run", "schedule_task_timings", "run_id", "batch_id"),
    "sql/ingest/new_of_jobs.sql": counted("job", "op_job_steps", "job_id", "batch_id"),
    "sql/ingest/new_of_dumps.sql": counted("dump", "flight_recorder_entries", "set_id", "batch_id"),
    "sql/ingest/new_of_recordings.sql": counted("recording", "host_samples", "recording_id", "batch_id"),
    "sql/summary/new_view.sql": counted("lake", "schedule_runs", "engine"),
    "sql/ingest/new_staged.sql": "-- One row: a note about a run.\n-- scope: run\nSELECT\n"
    "    CAST(run_id AS VARCHAR) AS run_id,  -- The run.\n    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run.\n"
    "    CAST(n AS BIGINT) AS n  -- A number.\nFROM _staged_new_staged\n",
    "pipelines/modelling/new_model.py": "from pipelines.models.python_tables import create_table, python_model\n\n\n"
    '@python_model("new_of_python", layer="modelling", doc="One row: a trace.", reads=("traces",),\n'
    '    columns=(("trace_id", "VARCHAR", "The trace."), ("n", "BIGINT", "A number.")))\n'
    "def new_of_python(con):\n"
    '    create_table(con, "new_of_python")\n'
    '    con.execute("INSERT INTO new_of_python SELECT trace_id, 7 FROM traces")\n',
}
ROWS = {
    "new_of_traces": 2,
    "new_of_captures": 1,
    "schedule_new": 40,
    "new_of_jobs": None,
    "new_of_dumps": 3,
    "new_of_recordings": 5,
    "new_view": 1,
    "new_staged": 9,
    "new_of_python": 7,
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout with the new files, and inputs of every kind."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("pipelines", "sql"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in NEW.items():
        (folder / name).write_text(text)
    inputs = folder / "in"
    run = write_run(inputs / "runs" / "r1", "r1", "sw", 40)
    with duckdb.connect() as con:
        con.execute(f"COPY (SELECT 'r1' AS run_id, 9 AS n) TO '{run / 'new_staged.parquet'}' (FORMAT parquet)")
    (inputs / "job").mkdir()
    write_job(inputs / "job", Shape(2, 2, (3, 5), 4), lambda key: 1 / 64)
    for rank in (0, 1):
        made(inputs / "dumps", rank, call(1), call(2), *([call(3)] if rank else []))
    recording(inputs / "recording")
    (inputs / "traces").mkdir()
    events = [kernel("gemm", 0, 1, 1), kernel("gemm", 2, 1, 2)]
    (inputs / "traces" / "rank0.json").write_text(json.dumps({"traceEvents": events}))
    return folder


def tracelake(copy: Path, *words: str) -> str:
    command = [sys.executable, "-m", "pipelines.faces.cli.app", *words]
    env = {**os.environ, "PYTHONPATH": str(copy), "XDG_CACHE_HOME": str(copy / "cache"), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_scope_has_a_new_table() -> None:
    scopes = {
        line.removeprefix("-- scope: ") for text in NEW.values() for line in text.splitlines() if "scope: " in line
    }
    assert scopes == {*SCOPES} - {FILE}  # only rejects has scope FILE


@pytest.mark.slow  # four commands on a copy of the project; test_catalog.py covers the discovery of each kind of model
def test_a_new_file_is_a_new_table_for_every_command(copy: Path) -> None:
    report = json.loads(tracelake(copy, "ingest", "in", "--json"))
    assert sorted(row["status"] for row in report) == ["ok"] * 5
    computed = ["new_of_traces", "new_of_captures", "new_of_python"]
    asked = [] if SLOW else computed  # computing all tables takes long
    written = {row["table"] for row in json.loads(tracelake(copy, "materialize", *asked, "--json"))}
    assert written >= {*computed}
    listed = tracelake(copy, "tables")
    assert [name for name in ROWS if name not in listed] == []
    query = " UNION ALL ".join(f"SELECT '{name}' AS name, sum(n) AS n FROM {name}" for name in ROWS)
    sums = {
        row["name"]: int(row["n"])
        for row in csv.DictReader(io.StringIO(tracelake(copy, "sql", query, "--format", "csv")))
    }
    assert sums.pop("new_of_jobs") > 0
    assert sums == {name: n for name, n in ROWS.items() if n is not None} | {"new_of_dumps": 5}
