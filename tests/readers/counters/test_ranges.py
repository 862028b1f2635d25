"""Kineto's range profiler: counters of kernels and of ranges become kernel_counters.

A trace without values has a finding.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.lake import Lake
from pipelines.lake.commit.staged_rows import derive
from pipelines.lake.names import Batch
from pipelines.lake.publish.analyst_file import analyst
from pipelines.models.catalog import load_catalog
from pipelines.readers.counters.ranges import counters_of
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs.reading import Reading
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import ReadRequest, ReadTrace
from pipelines.readers.kineto.events_file import load_events
from pipelines.runs.forget import forget
from pipelines.runs.store import open_store
from tests.harness import memory, x

GEMM, NVJET = "void ns::gemm<float, 4>(int, float*)", "nvjet_sm90_tst_256x128"
READ, WARPS = "dram__bytes_read.sum", "sm__warps_active.avg.pct_of_peak_sustained_active"
RECENT = {"cupti_version": 130001}
ROWS = (
    "SELECT line, dispatch_id, kernel_name, section, device, counter, value, unit, start_ns, duration_ns, source "
    "FROM kernel_counters ORDER BY line, counter"
)


def counted(name: str, start_us: Any = 0, gpu: Any = 0, **args: Any) -> dict[str, Any]:
    """Return a range as Kineto writes it: the process is the GPU, and the arguments are the counters."""
    event = {"ph": "X", "cat": "cuda_profiler_range", "name": name, "pid": gpu, "tid": 0, "ts": start_us, "dur": 5}
    return {**event, "args": args}


def write(path: Path, events: list[dict[str, Any]], **metadata: Any) -> Path:
    path.write_text(json.dumps({**metadata, "traceEvents": events}))
    return path


def tables(folder: Path, events: list[dict[str, Any]], **metadata: Any) -> tuple[ReadTrace, Any]:
    """Return the trace, and a connection with the tables of its counters."""
    (folder / "read").mkdir(exist_ok=True)
    trace = load_events(ReadRequest(write(folder / "a.json", events, **metadata), folder / "read"))
    assert isinstance(trace, ReadTrace)
    con, catalog = memory(), load_catalog()
    part = folder / "read" / f"{trace.trace_id}.parquet"
    kind, reading = counters_of({part: trace}), Reading(con, catalog, "counters", {}, None)
    reading.begin()
    result = kind.read(reading, part, [part])
    assert result is not None
    reading.keep(result.key, Batch.new())
    derive(con, catalog, catalog.ingested("counters"))
    return trace, con


def checks(trace: ReadTrace) -> dict[str, tuple[int, str]]:
    about = ("counter_ranges", "empty_counter_ranges", "no_counters")
    return {
        finding.check_name: (finding.n, finding.severity) for finding in trace.findings if finding.check_name in about
    }


def test_each_kernel_of_a_counted_run_has_its_counters(tmp_path: Path) -> None:
    """With CUPTI_PROFILER_ENABLE_PER_KERNEL, each range is a kernel.

    The name of a range is a number once Kineto runs out of known names.
    """
    ops = [x("cpu_op", "aten::mm", 1, 5, 9, 9), x("cuda_runtime", "cudaLaunchKernel", 2, 1, 9, 9, correlation=1)]
    ranges = [
        counted(GEMM, 0, **{READ: 1234.0, WARPS: 50.5}),
        counted(NVJET, 5, 1, **{READ: 10, WARPS: 0.0}),
        counted("7", 10, **{READ: 3, WARPS: 1e-3}),
        counted("__missing__", 15, **{READ: 4, WARPS: 2, "External id": 77, "device": 0, "is__on": True}),
    ]
    trace, con = tables(tmp_path, [*ops, *ranges], **RECENT)
    shared = (None, None, None, "Kineto")
    assert con.execute(ROWS).fetchall() == [
        (2, 0, GEMM, None, 0, READ, 1234, *shared), (2, 0, GEMM, None, 0, WARPS, 50.5, *shared),
        (3, 1, NVJET, None, 1, READ, 10, *shared), (3, 1, NVJET, None, 1, WARPS, 0, *shared),
        (4, 2, None, "7", 0, READ, 3, *shared), (4, 2, None, "7", 0, WARPS, 1e-3, *shared),
        (5, 3, None, "__missing__", 0, READ, 4, *shared), (5, 3, None, "__missing__", 0, "is__on", None, *shared),
        (5, 3, None, "__missing__", 0, WARPS, 2, *shared),
    ]  # fmt: skip
    assert checks(trace) == {"counter_ranges": (4, "warning")}
    assert con.execute("SELECT trace_id, n_lines, n_counters FROM counter_files").fetchall() == [(trace.trace_id, 6, 9)]


def test_a_range_of_the_program_is_no_kernel(tmp_path: Path) -> None:
    trace, con = tables(tmp_path, [counted("__profile__", 0, gpu, **{READ: 5 + gpu}) for gpu in range(2)])
    query = "SELECT kernel_name, section, device, value FROM kernel_counters ORDER BY line"
    assert con.execute(query).fetchall() == [(None, "__profile__", 0, 5), (None, "__profile__", 1, 6)]
    assert checks(trace) == {"counter_ranges": (2, "warning")}


def test_what_is_not_a_number_is_null_and_said(tmp_path: Path) -> None:
    """Values that are not numbers become NULL and have a finding. Kineto prints nan and inf, which are not JSON."""
    ranges = [counted(GEMM, n, **{READ: float("nan") if n % 10 == 3 else n, WARPS: 2}) for n in range(20)]
    trace, con = tables(tmp_path, [*ranges, counted(GEMM, 20), counted(GEMM, 21, **{READ: "x"})])
    assert con.execute("SELECT count(*), count(value) FROM kernel_counters").fetchall() == [(41, 38)]
    findings = con.execute("SELECT fault, severity, n, detail FROM counter_findings").fetchall()
    assert findings == [("not_measured", "info", 3, "event 3: a counter without a number: NULL")]
    assert checks(trace) == {"counter_ranges": (20, "warning"), "empty_counter_ranges": (2, "warning")}


KERNEL = x("kernel", NVJET, 5, 1, 0, 7, device=0, stream=7, correlation=1)
OP = x("cpu_op", "aten::mm", 1, 5, 9, 9)


@pytest.mark.parametrize(
    ("events", "metadata", "is_said"),
    [
        ([KERNEL], RECENT, True),
        ([KERNEL] * 16, RECENT, True),
        ([KERNEL, OP], RECENT, False),
        ([KERNEL], RECENT | {"trace_id": "338A"}, False),  # PyTorch writes this if no counters are requested
        ([KERNEL], {}, False),
        ([OP], RECENT, False),
        ([KERNEL, counted(GEMM, **{READ: 1})], RECENT, False),
    ],
)
def test_counters_that_could_not_be_collected_are_said(
    tmp_path: Path, events: list[dict[str, Any]], metadata: dict[str, Any], is_said: bool
) -> None:
    (tmp_path / "read").mkdir()
    trace = load_events(ReadRequest(write(tmp_path / "a.json", events, **metadata), tmp_path / "read"))
    assert isinstance(trace, ReadTrace)
    assert ("no_counters" in checks(trace)) == is_said


def test_one_file_of_a_command_says_what_it_has(tmp_path: Path) -> None:
    """A file read with `lean`, without arguments that its command does not need, also has the finding."""
    with memory() as con:
        trace = load_trace(
            con, write(tmp_path / "a.json", [KERNEL, counted(GEMM, **{READ: 1})]), folder=tmp_path, lean=True
        )
    assert checks(trace) == {"counter_ranges": (1, "warning")}


def test_the_lake_has_the_counters_with_the_trace(tmp_path: Path) -> None:
    """If a run stored the counters but not the trace, the next run completes both without duplicates."""
    path = write(tmp_path / "a.json", [KERNEL, counted(GEMM, **{READ: 7})])
    other = write(tmp_path / "b.json", [KERNEL, OP])
    lake = Lake(tmp_path / "lake")
    report = ingest([path, other], lake)
    assert [(row.status, bool(row.reason)) for row in report.rows] == [("ok", True), ("ok", False)]
    again = ingest([path], lake)
    assert [row.status for row in again.rows] == ["known"]
    with analyst(lake, ["kernel_counters", "counter_files", "traces"]) as con:
        rows = con.execute(
            "SELECT t.file, f.file, c.counter, c.value FROM kernel_counters AS c "
            "JOIN counter_files AS f USING (trace_id) JOIN traces AS t USING (trace_id)"
        ).fetchall()
    assert rows == [("a.json", "a.json", READ, 7)]


@pytest.mark.slow  # three ingests, two forgets and a commit: tests/runs/test_forget.py
def test_counters_go_and_come_back_with_their_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.runs.forget.publish", lambda _: None)
    files = [write(tmp_path / f"{name}.json", [KERNEL, counted(GEMM, **{READ: 7})], name=name) for name in "ab"]
    lake, unit = Lake(tmp_path / "lake"), Lake(tmp_path / "unit")
    ingest(files[:1], unit)
    ingest(files, lake)
    (first,) = unit.known_traces()

    def left() -> list[int]:
        with lake.connect(["counter_files", "kernel_counters"]) as con:
            return [len(con.execute(f"FROM {table}").fetchall()) for table in ("counter_files", "kernel_counters")]

    assert left() == [2, 2]
    forget(lake, first)
    assert left() == [1, 1]
    assert [row.status for row in ingest(files, lake).rows] == ["ok", "known"]
    assert left() == [2, 2]
    forget(lake, first, for_good=True)
    open_store(lake).commit(unit)
    assert left() == [1, 1]


def test_the_real_file_without_values_says_so(shared: Path) -> None:
    folder = shared / "traces" / "h100_files"
    if not folder.is_dir():
        pytest.skip(f"not there: {folder}")
    with memory() as con:
        checks_by_file = {
            file: checks(load_trace(con, folder / file)) for file in ("range_profiler.json.gz", "counted.json.gz")
        }
    assert checks_by_file == {"range_profiler.json.gz": {"no_counters": (1, "warning")}, "counted.json.gz": {}}
