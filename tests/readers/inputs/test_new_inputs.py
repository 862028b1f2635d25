"""A new input is one folder and its SQL: a copy of the project gets two invented inputs, and the commands use them.

`toy` reads traces of another profiler, a SQLite database of calls and kernels, which become `events`. `notes` has its
own table. Each is named only in its own folder and in sql/ingest/.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
NEW = {
    "pipelines/toy/__init__.py": '"""Profiles of a made-up tool."""\n',
    "pipelines/toy/read.py": """
import sqlite3
from contextlib import closing

from pipelines.readers.events_by_sql import Contents, events_by_sql
from pipelines.readers.inputs import EventInput
from pipelines.models.python_tables import create_table, input_table, insert_columns
from pipelines.readers.kineto import Finding

COLUMNS = (
    ("name", "VARCHAR", "Name."), ("tid", "BIGINT", "Thread."), ("stream", "BIGINT", "Stream."),
    ("start_ns", "BIGINT", "Start, ns."), ("end_ns", "BIGINT", "End, ns."), ("correlation", "BIGINT", "Correlation."),
)


@input_table("_toy_rows", layer="ingest", doc="One row: a call or a kernel.", columns=COLUMNS)
def stage(con, request):
    create_table(con, "_toy_rows")
    names = [name for name, *_ in COLUMNS]
    with closing(sqlite3.connect(request.path)) as db:
        rows = db.execute(f"SELECT {', '.join(names)} FROM toy ORDER BY rowid").fetchall()
        ((rank,),) = db.execute("SELECT rank FROM about").fetchall()
    insert_columns(con, "_toy_rows", dict(zip(names, zip(*rows))))
    return Contents("sqlite/toy", {"distributedInfo": {"rank": rank}}, findings=(Finding("toy_clock", "info", 1, "ticks"),))


def recognise(path):
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


INPUT = EventInput(suffixes=(".toy",), recognise=recognise, read=events_by_sql("_toy_events", stage))
""",
    "sql/ingest/_toy_events.sql": """-- One row: a call or a kernel of a profile of the made-up tool.
SELECT
    row_number() OVER (ORDER BY t.start_ns, t.stream NULLS FIRST) - 1 AS event_id,  -- Number, by time.
    'X' AS ph,  -- Complete.
    CASE
        WHEN t.stream IS NOT NULL THEN 'kernel' WHEN starts_with(t.name, 'cuda') THEN 'cuda_runtime' ELSE 'cpu_op'
    END AS cat,  -- Category.
    t.name,  -- Name.
    CASE WHEN t.stream IS NULL THEN '1' ELSE '0' END AS pid,  -- Process, or device.
    CAST(coalesce(t.stream, t.tid) AS VARCHAR) AS tid,  -- Thread, or stream.
    t.start_ns AS start_ns,  -- Start, ns.
    t.end_ns - t.start_ns AS duration_ns,  -- Duration, ns.
    CASE WHEN t.stream IS NOT NULL THEN 0 END AS device,  -- The only GPU.
    t.stream,  -- Stream.
    t.correlation  -- Correlation.
FROM _toy_rows AS t
""",
    "pipelines/notes/__init__.py": '''
"""Notes about a job: JSON files of a table of their own."""

import json

from pipelines.readers.inputs import Read, Rejected, SetInput


def recognise(files):
    return {path: [path] for path in files}


def read(reading, path, files):
    said = json.loads(path.read_text())
    if "id" not in said:
        raise Rejected("the note has no id; give it one")
    if said["id"] in reading.known:
        return Read(said["id"], status="known")
    reading.add_rows("notes", [{"line": line} for line in said["lines"]])
    return Read(said["id"], len(said["lines"]))


INPUT = SetInput(scope="note", suffixes=(".note",), recognise=recognise, read=read)
''',
    "sql/ingest/notes.sql": """-- One row: a line of a note.
-- scope: note
-- key: note_id
SELECT
    CAST(note_id AS VARCHAR) AS note_id,  -- The note.
    CAST(batch_id AS VARCHAR) AS batch_id,  -- Ingest run that wrote it.
    CAST(line AS VARCHAR) AS line  -- What it says.
FROM _staged_notes
""",
    "sql/ingest/note_lengths.sql": """-- One row: a note, with its length.
-- scope: note
SELECT
    note_id,  -- The note.
    batch_id,  -- Ingest run that wrote it.
    CAST(sum(length(line)) AS BIGINT) AS n  -- Characters.
FROM notes
GROUP BY note_id, batch_id
""",
}
# name, thread, stream, start, end, correlation of an operator that launches two kernels and waits for them
ROWS = (
    ("aten::mm", 7, None, 1_000, 90_000, None),
    ("cudaLaunchKernel", 7, None, 2_000, 6_000, 1),
    ("gemm", None, 20, 8_000, 40_000, 1),
    ("cudaLaunchKernel", 7, None, 10_000, 14_000, 2),
    ("cudaDeviceSynchronize", 7, None, 20_000, 61_000, 3),
    ("relu", None, 20, 41_000, 60_000, 2),
)


def write_toy(path: Path, rank: int) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE toy (name, tid, stream, start_ns, end_ns, correlation)")
        db.execute(f"CREATE TABLE about AS SELECT {rank} AS rank")
        db.executemany("INSERT INTO toy VALUES (?, ?, ?, ?, ?, ?)", ROWS)
        db.commit()


def write_kineto(path: Path, rank: int) -> None:
    """Write the same events as a Kineto trace."""
    events = []
    for name, tid, stream, start, end, correlation in ROWS:
        cat = "kernel" if stream else "cuda_runtime" if name.startswith("cuda") else "cpu_op"
        args = {"correlation": correlation} if correlation else {}
        where = {"pid": 0, "tid": stream} if stream else {"pid": 1, "tid": tid}
        args |= {"stream": stream, "device": 0} if stream else {}
        at = {"ts": start / 1000, "dur": (end - start) / 1000}
        events.append({"ph": "X", "cat": cat, "name": name, **where, **at, "args": args})
    path.write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": events}))


SAME = ("events", "kernels", "launches", "temporal_breakdown", "critical_path_edges", "critical_path")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    for name in ("pipelines", "sql"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in NEW.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "in").mkdir()
    write_toy(folder / "in" / "a.toy", rank=0)
    shutil.copy(folder / "in" / "a.toy", folder / "in" / "again.toy")
    write_kineto(folder / "in" / "b.json", rank=1)
    (folder / "in" / "none.toy").write_bytes(b"SQLite format 3\0 and nothing else")
    (folder / "in" / "x.note").write_text(json.dumps({"id": "n1", "lines": ["slow", "since Monday"]}))
    shutil.copy(folder / "in" / "x.note", folder / "in" / "x2.note")
    (folder / "in" / "y.note").write_text(json.dumps({"lines": []}))
    (folder / "in" / "z.note").write_text("[")
    return folder


def run(copy: Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(copy), "XDG_CACHE_HOME": str(copy / "cache"), "COLUMNS": "200"}
    return subprocess.run([sys.executable, *command], cwd=copy, env=env, capture_output=True, text=True, check=False)


def tracelake(copy: Path, *words: str, code: int = 0) -> str:
    done = run(copy, "-m", "pipelines.faces.cli.app", *words)
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


def asked(copy: Path, query: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(tracelake(copy, "sql", query, "--format", "csv"))))


@pytest.mark.slow  # uses a copy of the project, as tests/models/test_new_tables.py does
def test_new_inputs_go_through_all_commands(copy: Path) -> None:
    report = {Path(row["path"]).name: row for row in json.loads(tracelake(copy, "ingest", "in", "--json", code=1))}
    said = {name: (row["status"], row["rank"], row["n_events"]) for name, row in report.items()}
    assert said == {
        "a.toy": ("ok", 0, 6),
        "again.toy": ("known", None, None),
        "b.json": ("ok", 1, 6),
        "none.toy": ("rejected", None, None),
        "x.note": ("ok", None, 2),
        "x2.note": ("known", None, None),
        "y.note": ("rejected", None, None),
        "z.note": ("rejected", None, None),
    }
    assert report["y.note"]["reason"] == "the note has no id; give it one"
    assert "JSONDecodeError" in report["z.note"]["reason"] and "DatabaseError" in report["none.toy"]["reason"]
    tracelake(copy, "materialize", *SAME[1:], "note_lengths")
    checks = {
        "notes": "SELECT string_agg(note_id || ' ' || n) || ' ' || (SELECT count(*) FROM notes) FROM note_lengths",
        "rejects": "SELECT count(*) FROM rejects",
        "findings": "SELECT string_agg(format || ' ' || check_name || ' ' || n) FROM traces JOIN findings USING (trace_id)",
    }
    # Both files have the same events, so every table of traces has the same rows, except columns that name the file.
    for table in SAME:
        left_out = "trace_id, batch_id" + (", args, extra" if table == "events" else "")
        rows = f"SELECT count(*) AS n FROM (SELECT * EXCLUDE ({left_out}) FROM {table}) AS t GROUP BY t"
        checks[table] = f"SELECT bool_and(n % 2 = 0) FROM ({rows})"
    query = " UNION ALL ".join(
        f"SELECT '{name}' AS name, CAST(({check}) AS VARCHAR) AS found" for name, check in checks.items()
    )
    expected = {"notes": "n1 16 2", "rejects": "3", "findings": "sqlite/toy toy_clock 1", **dict.fromkeys(SAME, "true")}
    assert {row["name"]: row["found"] for row in asked(copy, query)} == expected


def path_of(text: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads(text).items() if key not in ("trace_id", "trace")}


@pytest.mark.slow  # tests/faces/cli/test_start.py checks the imports of commands
def test_a_path_of_a_file_imports_no_other_input(copy: Path) -> None:
    code = (
        "import sys; from pipelines.faces.cli.app import app; from pipelines.models.sources import read_code\n"
        "app(['critical-path', 'in/b.json', '--json'], standalone_mode=False)\n"
        "places = {declared.module.removesuffix('.lake').removesuffix('.read') for declared in read_code().inputs}\n"
        "loaded = {declared.module for declared in read_code().inputs} & set(sys.modules)\n"
        "print(*sorted(places), 'loaded', *sorted(loaded))"
    )
    done = run(copy, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    path, _, last = done.stdout.rstrip().rpartition("\n")
    places, _, loaded = last.partition(" loaded ")
    others = {
        "pipelines.fleet.op_job",
        "pipelines.readers.flight_recorder",
        "pipelines.readers.schedule_runs",
        "pipelines.readers.recordings",
    }
    assert set(places.split()) >= {*others, "pipelines.toy", "pipelines.notes"}
    assert loaded == "pipelines.readers.kineto.events_file"
    # The path of the other tool's file, which is not in a lake, is the same.
    assert path_of(path)["success"]
    assert path_of(tracelake(copy, "critical-path", "in/a.toy", "--json")) == path_of(path)
