"""Counter collections of rocprofv3: the lake contains the files' rows, and findings name unreadable lines."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import analyst
from pipelines.readers.counters.lake import INPUT, counter_files
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs import Rejected
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import TraceRejected
from tests.harness import memory
from tests.readers.inputs.read_tables import loaded

HEADER = (
    '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id","Kernel_Name",'
    '"Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count","Counter_Name",'
    '"Counter_Value","Start_Timestamp","End_Timestamp"'
)
FINDINGS = "SELECT fault, severity, n, detail FROM counter_findings ORDER BY fault"


def line(dispatch: Any, counter: str, value: Any, start: Any = 100, end: Any = 130) -> str:
    fields = [dispatch, dispatch, "Agent 1", 2, 77, 77, 1024, 6, "gemm<float, 4>(int)", 256, 0, 0, 16, 0, 128]
    return ",".join(f'"{field}"' for field in [*fields, counter, value, start, end])


def write(path: Path, *lines: str, end: str = "\n") -> Path:
    path.write_text("\n".join([HEADER, *lines]) + end)
    return path


def rows(con: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return con.execute(query).fetchall()


def test_counts_and_sums_of_real_files_are_those_of_the_files(shared: Path, tmp_path: Path) -> None:
    expected: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0, 0, 0, 0])
    paths = sorted((shared / "traces" / "rocprofv3").glob("*_counter_collection.csv"))
    assert len(paths) == 2
    for path in paths:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                start, end = int(row["Start_Timestamp"]), int(row["End_Timestamp"])
                values = (1, float(row["Counter_Value"]), start, end - start, int(row["Grid_Size"]))
                sums = expected[path.name, row["Counter_Name"]]
                sums[:] = [a + b for a, b in zip(sums, values, strict=True)]
    lake = Lake(tmp_path / "lake")
    assert [(row.status, row.n_events) for row in ingest(paths, lake).rows] == [("ok", 34), ("ok", 340)]
    assert [row.status for row in ingest(paths, lake).rows] == ["known", "known"]
    query = (
        "SELECT file, counter, count(*), sum(value), sum(start_ns), sum(duration_ns), sum(grid_threads) "
        "FROM kernel_counters JOIN counter_files USING (trace_id) GROUP BY ALL"
    )
    with analyst(lake) as con:
        sums_by_counter = {(file, counter): list(sums) for file, counter, *sums in rows(con, query)}
        assert sums_by_counter.keys() == expected.keys()
        assert all(sums_by_counter[which] == pytest.approx(sums, rel=1e-12) for which, sums in expected.items())
        assert rows(con, "SELECT count(DISTINCT (trace_id, dispatch_id)) FROM kernel_counters") == [(68,)]
        assert rows(con, FINDINGS) == []


def test_each_column_is_that_of_the_file_also_packed_and_in_windows_lines(tmp_path: Path) -> None:
    packed = tmp_path / "1_counter_collection.csv.gz"
    packed.write_bytes(gzip.compress("\r\n".join([HEADER, line(9, "FETCH_SIZE", "9.37500000e-01"), ""]).encode()))
    con = loaded(INPUT, [packed])
    assert rows(con, "SELECT * EXCLUDE (trace_id, batch_id) FROM kernel_counters") == [
        (2, 77, 9, "gemm<float, 4>(int)", 1, 2, 1024, 256, None, "FETCH_SIZE", 0.9375, None, 100, 30, "rocprofv3")
    ]
    assert rows(con, FINDINGS) == []


def test_bad_lines_and_values_are_told_with_their_place(tmp_path: Path) -> None:
    path = write(
        tmp_path / "in_counter_collection.csv",
        line(1, "A", 1),
        line(2**63, "A", 1),  # not a dispatch id
        line(2, "A", 2**64),
        line(3, "A", "many"),
        line(4, "A", "1e400"),
        line(5, "A", 5, start=2**63),
        line(6, "A", 6, start=100, end=99),
        '"a stray quote"",1',
        line(1, "A", 7),
        line(1, "B", 8),
        line(1, "B", 9)[:-60],
        end="",
    )
    lake = Lake(tmp_path / "lake")
    (row,) = ingest([path], lake).rows
    assert (row.status, row.n_events) == ("partial", 7)
    assert "9 lines or values could not be read: counter_findings" in str(row.reason)
    with analyst(lake) as con:
        findings = [(fault, severity, n, detail.partition(": ")) for fault, severity, n, detail in rows(con, FINDINGS)]
        assert [(fault, severity, n, place[0]) for fault, severity, n, place in findings] == [
            ("broken_line", "warning", 2, "line 3"),
            ("cut_line", "warning", 1, "line 12"),
            ("ends_before_start", "warning", 1, "line 8"),
            ("repeated", "warning", 1, "line 10"),
            ("wrong_value", "warning", 4, "line 4"),
        ]
        assert findings[0][3][2].startswith(f"Dispatch_Id is '{2**63}', not a whole number below 2^63")
        assert findings[4][3][2] == f"Counter_Value is '{2**64}', more than 64 bits hold: NULL"
        query = "SELECT dispatch_id, counter, value, duration_ns FROM kernel_counters ORDER BY line"
        assert rows(con, query) == [
            *((1, "A", 1, 30), (2, "A", None, 30), (3, "A", None, 30), (4, "A", None, 30), (5, "A", 5, None)),
            *((6, "A", 6, None), (1, "B", 8, 30)),
        ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no line that names its columns"),
        (HEADER.replace("Counter_Value", "Value") + "\n", "line 1 does not name counter_value"),
        (HEADER.replace("Agent_Id", "Queue_Id") + "\n", "names a column twice"),
        (HEADER + "\n", r"without a row that can be read \(1 lines\)"),
        (f"{HEADER}\n1,2\n", r"\(2 lines\): line 2: 2 fields where the first line names 19"),
    ],
)
def test_a_file_without_counters_is_rejected_with_the_place(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "x_counter_collection.csv"
    path.write_text(text)
    with pytest.raises(Rejected, match=why):
        loaded(INPUT, [path])


def test_columns_that_are_absent_are_null_and_other_files_are_not_taken(tmp_path: Path) -> None:
    path, other = tmp_path / "renamed.csv", tmp_path / "1_kernel_trace.csv"
    path.write_text("Dispatch_Id,Kernel_Name,Counter_Name,Counter_Value\n1,k,A,2\n")
    other.write_text("Kind,Dispatch_Id,Kernel_Name\n")
    assert counter_files([path, other]) == {path: [path]}
    con = loaded(INPUT, [path])
    query = "SELECT dispatch_id, kernel_name, counter, value, process_id, start_ns, duration_ns FROM kernel_counters"
    assert rows(con, query) == [(1, "k", "A", 2, None, None, None)]
    names = "process_id, agent_id, queue_id, grid_size, workgroup_size, start_timestamp, end_timestamp"
    assert rows(con, FINDINGS) == [("missing_column", "info", 7, f"the first line has no {names}: NULL")]


def test_a_command_for_traces_says_where_counters_are(tmp_path: Path) -> None:
    path = write(tmp_path / "1_counter_collection.csv", line(1, "A", 1))
    with pytest.raises(TraceRejected, match="ask kernel_counters"):
        load_trace(memory(), path)
