"""Recordings in the lake: ingested once, complete, with rates. The recorders need no other package of this project."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from pipelines.lake import Lake
from pipelines.lake.names import batch_of
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.table_files import table_files
from pipelines.readers.ingest import ingest
from pipelines.readers.recordings import INPUT
from pipelines.record.folder import SCHEMAS, Recording
from tests.readers.inputs.read_tables import loaded

S = 10**9


def asked(lake: Lake, query: str) -> list[tuple]:
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        return con.execute(query).fetchall()


def recording(folder: Path) -> Path:
    """Write a recording with samples a second apart, in which the process restarts before the fourth."""
    open_recording = Recording(folder, "counters", "run1", 42, 3)
    samples = ((0, 7, 0, 0), (1, 7, S // 2, 100), (3, 7, 2 * S, 400), (4, 8, 0, 0), (5, 8, S, 50))
    for at, start, user, faults in samples:
        row = {"source": "proc", "pid": 42, "t_unix_ns": 100 * S + at * S, "t_mono_ns": at * S, "start_ticks": start}
        open_recording.add(
            "host_samples", [{**row, "utime_ns": user, "stime_ns": 0, "minflt": faults, "rss_bytes": 64}]
        )
        open_recording.add("gpu_samples", [{"t_unix_ns": row["t_unix_ns"]}])
    return open_recording.close(source="none: made", interval_ns=S, n_late=1, cost_ns=5, start_ns=1, end_ns=2)


def test_rates_are_differences_and_stop_where_the_process_began_anew(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    recording(tmp_path / "in")
    (row,) = ingest([tmp_path / "in"], lake).rows
    assert (row.status, row.n_events) == ("ok", 10)
    columns = "run_id, rank, (t_unix_ns - 100000000000) / 1e9, user_cores, minor_faults_per_s, read_bytes_per_s"
    assert asked(lake, f"SELECT {columns} FROM host_rates ORDER BY t_unix_ns") == [
        ("run1", 3, 1, 0.5, 100, None),
        ("run1", 3, 3, 0.75, 150, None),
        ("run1", 3, 5, 1, 50, None),
    ]
    assert asked(lake, "SELECT source, n_late, cost_ns, n_rows FROM recordings") == [("none: made", 1, 5, 10)]
    assert asked(lake, "SELECT count(*), count(gpu_index), count(sm_util) FROM gpu_samples") == [(5, 0, 0)]


@pytest.mark.slow  # 3 s; test_kills.py has a recording that is ingested several times
def test_a_recording_comes_in_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    folder = recording(tmp_path / "in")
    ingest([folder / "recordings.parquet"], lake)  # one of its files names the whole recording
    before = sorted(lake.root.rglob("*.parquet"))
    assert [row.status for row in ingest([tmp_path / "in"], lake).rows] == ["known"]
    assert sorted(lake.root.rglob("*.parquet")) == before
    assert asked(lake, "SELECT count(*) FROM host_samples") == [(5,)]
    for mark in table_files(lake.root, "recordings"):
        lake.take_away(batch_of(mark), ["recordings"])
    assert asked(lake, "SELECT count(*) FROM host_samples") == [(0,)]


def test_a_recording_without_its_mark_is_rejected(tmp_path: Path) -> None:
    """A recording without its commit marker is rejected.

    The recorder writes the marker first, so a missing marker was not copied.
    """
    folder = recording(tmp_path / "in")
    (folder / "recordings.parquet").unlink()
    (row,) = ingest([tmp_path / "in"], Lake(tmp_path / "lake")).rows
    assert row.status == "rejected" and "recordings.parquet is missing; copy the whole folder" in str(row.reason)


@pytest.mark.slow  # 1 s; the test above has a recording without its marker
def test_a_recording_of_another_version_is_rejected(tmp_path: Path) -> None:
    mark = recording(tmp_path / "in") / "recordings.parquet"
    rows = pq.read_table(mark)
    pq.write_table(rows.rename_columns(["begun" if name == "start_ns" else name for name in rows.column_names]), mark)
    (row,) = ingest([tmp_path / "in"], Lake(tmp_path / "lake")).rows
    assert (row.status, row.reason) == ("rejected", "another version of tracelake wrote it: record it again")


def test_a_folder_named_as_a_column_does_not_replace_it(tmp_path: Path) -> None:
    folder = recording(tmp_path / "source=prod" / "rank=0" / "run_id=2024-01-02")
    con = loaded(INPUT, folder.iterdir())
    assert con.execute("SELECT run_id, rank, source FROM recordings").fetchall() == [("run1", 3, "none: made")]
    assert con.execute("SELECT DISTINCT source FROM host_samples").fetchall() == [("proc",)]


@pytest.mark.slow  # 1 s
def test_parts_are_written_as_they_fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.record.folder.PART_ROWS", 10)
    open_recording = Recording(tmp_path, "counters", None, 1, None, flush_seconds=60)
    for at in range(25):
        open_recording.add("gpu_samples", [{"t_unix_ns": at}])
    end = time.monotonic() + 10
    while not list(tmp_path.rglob("gpu_samples-*.parquet")):
        assert time.monotonic() < end
        time.sleep(0.01)
    folder = open_recording.close()
    (ingested,) = ingest([tmp_path], Lake(tmp_path / "lake")).rows
    assert ingested.n_events == 25
    assert pq.read_schema(folder / "recordings.parquet").names == SCHEMAS["recordings"].names


@pytest.mark.slow  # tests/test_rooms.py checks the imports of each file
def test_the_recorders_import_nothing_else_of_ours() -> None:
    modules = "counters, sampler, host, gpu, net, stacks, folder, spans, step, span, sampling, clocks, peaks, bench"
    code = f"""
import sys
try:
    from pipelines.record import {modules}
    from pipelines.record.modules import graph, hooks, operators
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    from pipelines.record import counters, sampler, host, gpu, net, stacks, folder
ours = ("pipelines", "assets", "dagster_project", "tests")
print([n for n in sys.modules if n.split(".")[0] in ours and not (n + ".").startswith("pipelines.record.") and n != "pipelines"])
print([n for n in ("duckdb", "pandas", "networkx", "dagster", "ibis") if n in sys.modules])
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["[]", "[]"]
