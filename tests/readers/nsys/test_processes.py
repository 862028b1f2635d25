"""Exports of several processes, of which each process with GPU work is a trace.

The trace has its own calls, ranges, waits and devices.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.base import database
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import TraceRejected
from pipelines.readers.kineto.limits import Limits
from pipelines.readers.nsys.read import processes
from tests.harness import memory
from tests.readers.nsys.small import PID, call, kernel, range_of, small, written
from tests.readers.nsys.writer import Export

SECOND = 4100 << 24
THIRD = 4200 << 24  # calls CUDA, and launches nothing


def several() -> Export:
    """Return an export of two ranks and a launcher; the ranks have equal correlation ids, streams and events."""
    export = small()
    small(SECOND, into=export)
    kernel(export, "only in the second", 70_000, 71_000, 30, 7, pid=SECOND)
    call(export, "cudaGetDeviceCount_v3020", 500, 600, 11, thread=THIRD | 4200)
    range_of(export, "launcher", 400, 700, thread=THIRD | 4200)
    return export


def test_each_process_with_gpu_work_is_a_trace(tmp_path: Path) -> None:
    path = written(several(), tmp_path, "rank3.sqlite")
    lake = Lake(tmp_path / "lake")
    rows = ingest([path], lake).rows
    assert [(row.path, row.status, row.rank) for row in rows] == [(str(path), "ok", None)] * 2
    assert len({row.trace_id for row in rows}) == 2
    with database.connect() as con:
        lake.create_views(con, ["events", "traces", "findings"])
        query = "SELECT trace_id, count(*), count(DISTINCT pid), count(*) FILTER (WHERE name LIKE 'only%') FROM events GROUP BY ALL"
        counts = {trace: rest for trace, *rest in con.execute(query).fetchall()}
        assert [counts[row.trace_id] for row in rows] == [[10, 2, 0], [11, 2, 1]]
        query = "SELECT trace_id, metadata ->> '$.nsys.process_id' FROM traces"
        assert dict(con.execute(query).fetchall()) == {rows[0].trace_id: "4000", rows[1].trace_id: "4100"}
        query = "SELECT DISTINCT detail FROM findings WHERE check_name = 'nsys_processes'"
        ((detail,),) = con.execute(query).fetchall()
        assert detail.endswith("each a separate trace: 4000 (python3), 4100 (python3)")
    again = ingest([path], lake).rows
    assert [(row.status, row.trace_id) for row in again] == [("known", row.trace_id) for row in rows]


@pytest.mark.slow
def test_a_process_has_the_answers_that_it_has_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([written(several(), tmp_path)], lake)
    (first, *_) = ingest([written(small(), tmp_path, "alone.sqlite")], lake).rows
    with database.connect() as con:
        lake.create_views(con, ["events"])
        query = "SELECT * EXCLUDE (trace_id, batch_id) FROM events WHERE trace_id {} ? ORDER BY ALL"
        alone = con.execute(query.format("="), [first.trace_id]).fetchall()
        others = con.execute(query.format("<>"), [first.trace_id]).fetchall()
    assert [row for row in others if "4100" not in row and "only in the second" not in row].count(alone[0]) >= 1
    assert all(row in others for row in alone)


@pytest.mark.slow  # the first test covers a process without GPU work
def test_one_process_with_gpu_work_is_the_trace_of_the_file(tmp_path: Path) -> None:
    """The trace contains no calls of other processes, although these have the same correlation ids."""
    export = small()
    call(export, "cudaGetDeviceCount_v3020", 500, 600, 11, thread=THIRD | 4200)
    path = written(export, tmp_path, "rank3.sqlite")
    assert processes(path, Limits()) == []
    ((row,),) = (ingest([path], Lake(tmp_path / "lake")).rows,)
    assert (row.status, row.rank, row.n_events) == ("ok", 3, 10)
    findings = {finding.check_name: (finding.severity, finding.n) for finding in load_trace(memory(), path).findings}
    assert findings == {"nsys_idle_processes": ("info", 1)}


def test_rows_of_no_process_are_counted(tmp_path: Path) -> None:
    export = small()
    kernel(export, "nobody's", 70_000, 71_000, 30, 7, globalPid=None)
    findings = {
        finding.check_name: (finding.severity, finding.n)
        for finding in load_trace(memory(), written(export, tmp_path)).findings
    }
    assert findings == {"nsys_no_process": ("warning", 1)}


def test_a_command_on_the_file_says_which_processes_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        TraceRejected, match=r"2 processes with GPU work: 4000 \(python3\), 4100 \(python3\).*tracelake ingest"
    ):
        load_trace(memory(), written(several(), tmp_path))


def test_work_that_belongs_to_nobody_is_rejected(tmp_path: Path) -> None:
    """Without globalPid, the process that launched the work is unknown, so the export is rejected."""
    export = several()
    schema = {**{table: tuple(rows[0]) for table, rows in export.rows.items()}, "StringIds": ("id", "value")}
    for table, columns in schema.items():
        if table.startswith("CUPTI"):
            schema[table] = tuple(name for name in columns if name != "globalPid")
    path = export.write(tmp_path / "old.sqlite", schema)
    (row,) = ingest([path], Lake(tmp_path / "lake")).rows
    assert row.status == "rejected" and "does not say whose work it is" in (row.reason or "")
    assert "3 processes called CUDA" in (row.reason or "")


def test_an_old_export_of_one_process_needs_no_process_ids(tmp_path: Path) -> None:
    export = small()
    schema = {**{table: tuple(rows[0]) for table, rows in export.rows.items()}, "StringIds": ("id", "value")}
    schema = {t: tuple(c for c in columns if c != "globalPid") for t, columns in schema.items()}
    (row,) = ingest([export.write(tmp_path / "old.sqlite", schema)], Lake(tmp_path / "lake")).rows
    assert (row.status, row.n_events) == ("ok", 10)


@pytest.mark.slow  # tests above cover two processes of one machine
def test_the_same_thread_number_on_another_machine_is_another_process(tmp_path: Path) -> None:
    """Threads with equal numbers on two machines belong to two processes.

    Reports of several nodes can be merged. The upper bits of the ids identify the hardware.
    """
    export = small()
    small(PID | 1 << 48, into=export)
    path = written(export, tmp_path)
    assert processes(path, Limits()) == [str(PID >> 24), str((PID | 1 << 48) >> 24)]
    assert json.dumps([row.n_events for row in ingest([path], Lake(tmp_path / "lake")).rows]) == "[10, 10]"
