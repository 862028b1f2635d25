"""The events that result from each table of an export, with rows written by hand."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.nsys.schema import SOURCES
from tests.harness import connect, memory
from tests.readers.nsys.small import MAIN, PID, START, call, kernel, range_of, record, small, wait, written
from tests.readers.nsys.writer import NONE, Export

Loaded = tuple[duckdb.DuckDBPyConnection, dict[str, tuple[str, int]]]


def loaded(export: Export, folder: Path) -> Loaded:
    """Return a connection with the trace, and its findings."""
    con = memory()
    trace = load_trace(con, written(export, folder))
    assert trace.format == "sqlite/nsys" and trace.status == "ok"
    return con, {finding.check_name: (finding.severity, finding.n) for finding in trace.findings}


def events(con: duckdb.DuckDBPyConnection, columns: str, where: str = "true") -> list[tuple[Any, ...]]:
    return con.execute(f"SELECT {columns} FROM events WHERE {where} ORDER BY event_id").fetchall()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Return the small run, unchanged."""
    return loaded(small(), tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Return the small run and, at other times, the rows that many tests need.

    Loading an export takes as long for few rows as for many.
    """
    export, folder = small(), tmp_path_factory.mktemp("mixed")
    for add in (add_records, add_names, add_ranges, add_equal_starts, add_calls, add_nameless, add_machine):
        add(export)
    kernel(export, "gemm", 280_000, 281_000, 60, 7, contextId=2)
    export.add("ThreadNames", nameId=export.text("pt_main_thread"), priority=0, globalTid=MAIN)
    with closing(sqlite3.connect(written(export, folder))) as con:
        con.execute("CREATE TABLE OSRT_API AS SELECT 1 AS start")
        con.execute("CREATE TABLE SCHED_EVENTS (start)")
    con, _ = connect(folder / "a.sqlite")
    run_models(con, load_catalog(), ["kernels", "threads"])
    findings = con.execute("SELECT check_name, severity, n FROM findings").fetchall()
    return con, {check_name: (severity, n) for check_name, severity, n in findings}


def test_findings_are_of_what_is_unusual(mixed: Loaded) -> None:
    assert mixed[1] == {
        "unmatched_begin": ("warning", 1),
        "nsys_whole_graph": ("warning", 1),
        "lost_kernels": ("error", 1),  # the launch by cuLaunchKernelEx
        "nsys_unknown_string": ("warning", 3),
        "nsys_shared_stream": ("warning", 1),
        "nsys_tables_left_out": ("info", 1),
    }


def test_a_small_run(plain: Loaded) -> None:
    con, findings = plain
    assert events(con, f"ph, cat, name, pid, tid, start_ns - {START}, duration_ns, correlation") == [
        ("X", "cpu_op", "aten::mm", "4000", "4000", 1_000, 89_000, None),
        ("X", "cuda_runtime", "cudaLaunchKernel", "4000", "4000", 2_000, 4_000, 11),
        ("X", "cuda_runtime", "cudaEventRecord", "4000", "4000", 7_000, 2_000, 12),
        ("X", "kernel", "gemm", "0", "7", 8_000, 32_000, 11),
        ("X", "cuda_runtime", "cudaStreamWaitEvent", "4000", "4000", 10_000, 2_000, 13),
        ("X", "cuda_sync", "Stream Wait Event", "0", "20", 11_000, 500, 13),
        ("X", "cuda_runtime", "cudaLaunchKernel", "4000", "4000", 13_000, 3_000, 14),
        ("X", "cuda_runtime", "cudaDeviceSynchronize", "4000", "4000", 20_000, 41_000, 15),
        ("X", "cuda_sync", "Context Sync", "0", "-1", 20_500, 40_400, 15),
        ("X", "kernel", "relu", "0", "20", 41_000, 19_000, 14),
    ]
    waits = events(con, "wait_on_stream, wait_on_cuda_event_record_corr_id, wait_on_cuda_event_id", "cat = 'cuda_sync'")
    assert waits == [(7, 12, 5), (None, None, None)]
    ((args,),) = events(con, "args", "cat = 'cpu_op'")
    assert json.loads(args) == {"Sequence number": 7, "Input Dims": [[2, 3], [3, 4]]}
    assert findings == {}


def test_the_path_of_a_small_run_by_hand(tmp_path: Path) -> None:
    """The launch begins at 2 µs and the first kernel at 8; a launch delay has the kernel's name.

    The second kernel waits for its event, and the sync waits for the second kernel.
    """
    con, _ = connect(written(small(), tmp_path))
    run_models(con, load_catalog(), ["critical_path", "event_waits", "kernels"])
    path = con.execute("SELECT name, duration_ns FROM critical_path WHERE duration_ns > 0 ORDER BY seq").fetchall()
    assert path == [
        ("aten::mm", 1_000), ("gemm", 6_000), ("gemm", 32_000), (None, 1_000), ("relu", 19_000),
        ("cudaDeviceSynchronize", 1_000), ("aten::mm", 29_000),
    ]  # fmt: skip
    query = (
        "SELECT wait_kind, a.name, b.name FROM event_waits JOIN kernels AS a ON a.event_id = source_kernel_id "
        "JOIN kernels AS b ON b.event_id = waiting_kernel_id"
    )
    assert con.execute(query).fetchall() == [("Stream Wait Event", "gemm", "relu")]


RECORDS = {
    "the last record before the call": ((0, 0, 0), 32),
    "by number": ((1, 2, 1), 31),
    "the last record of its number": ((3, 3, 3), 32),
    "an unknown number": ((1, 2, 9), 32),
    "no numbers": ((None, None, None), 32),
}


def add_records(export: Export) -> None:
    """Record an event twice before the wait and once after it; each case has its own event and numbers."""
    for case, (sync_ids, _) in enumerate(RECORDS.values()):
        at, first, event = 300_000 + 20_000 * case, 1_000 * (case + 1), 6 + case
        before, again, waited = (number and 100 * case + number for number in sync_ids)
        for start, correlation, sync in ((2_000, 31, before), (4_000, 32, again), (10_000, 33, 100 * case + 4)):
            call(export, "cudaEventRecord_v3020", at + start, at + start + 500, first + correlation)
            record(export, event, first + correlation, 7, sync=sync)  # type: ignore[arg-type]
        record(export, event, first + 34, 7)  # the export does not contain its call
        # The same event number in another context is another event.
        call(export, "cudaEventRecord_v3020", at + 5_000, at + 5_500, first + 35)
        other = {"contextId": 2, "streamId": 9, "correlationId": first + 35, "globalPid": PID, "eventId": event}
        export.add("CUPTI_ACTIVITY_KIND_CUDA_EVENT", **other)
        call(export, "cudaEventSynchronize_v3020", at + 6_000, at + 9_000, first + 40)
        wait(export, 1, at + 6_500, at + 8_000, first + 40, NONE, event=event, sync=waited)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", RECORDS)
def test_which_record_a_wait_is_for(mixed: Loaded, case: str) -> None:
    first, (_, expected) = 1_000 * ([*RECORDS].index(case) + 1), RECORDS[case]
    columns = f"wait_on_cuda_event_record_corr_id - {first}, stream, name"
    waits = events(mixed[0], columns, f"correlation = {first + 40} AND cat = 'cuda_sync'")
    assert waits == [(expected, -1, "Event Sync")]


def test_waits_without_their_record_are_told(tmp_path: Path) -> None:
    export = small()
    del export.rows["CUPTI_ACTIVITY_KIND_CUDA_EVENT"]
    con, findings = loaded(export, tmp_path)
    assert findings == {"nsys_unknown_record": ("warning", 1)}
    assert events(con, "wait_on_cuda_event_record_corr_id, wait_on_cuda_event_id", "name = 'Stream Wait Event'") == [
        (None, 5)
    ]


RANGES = [
    ("aten::add_", "cpu_op", "aten::add_"),
    ("aten::mm, op_id = 3", "cpu_op", "aten::mm"),
    ("MyFunction, seq = 12, op_id = 3, sizes = [[1], []], input_op_ids = [(1,0)]", "cpu_op", "MyFunction"),
    (
        "autograd::engine::evaluate_function: MmBackward0",
        "cpu_op",
        "autograd::engine::evaluate_function: MmBackward0",
    ),
    ("ProfilerStep#12", "user_annotation", "ProfilerStep#12"),
    ("ProfilerStep#12, op_id = 4", "user_annotation", "ProfilerStep#12"),
    ("", "user_annotation", ""),
    ("forward, part 1", "user_annotation", "forward, part 1"),
    ("ncclAllReduce", "user_annotation", "ncclAllReduce"),
    ("std::sort", "user_annotation", "std::sort"),
    ("a, sizes = none", "cpu_op", "a"),
]


def add_names(export: Export) -> None:
    for number, (text, *_) in enumerate(RANGES):
        range_of(export, text, 95_000 + 100 * number, 95_050 + 100 * number)


def between(first: int, last: int) -> str:
    return f"start_ns BETWEEN {START + first} AND {START + last}"


def test_names_of_ranges(mixed: Loaded) -> None:
    names = events(mixed[0], "cat, name", between(95_000, 99_999))
    assert names == [(cat, name) for _, cat, name in RANGES]


def add_ranges(export: Export) -> None:
    range_of(export, "open", 192_000, None)
    range_of(export, "crossing", 193_000, 194_000, kind=60, endGlobalTid=PID | 4001)
    range_of(export, "same", 195_000, 196_000, kind=60, endGlobalTid=MAIN)
    range_of(export, "mark", 197_000, None, kind=34)
    range_of(export, "a domain", 198_000, None, kind=75)


def test_ranges_that_are_open_cross_threads_or_are_marks(mixed: Loaded) -> None:
    assert events(mixed[0], "name, ph, tid, duration_ns, scope", between(191_000, 199_999)) == [
        ("open", "B", "4000", None, None),
        ("crossing", "X", "4000 range", 1_000, None),
        ("same", "X", "4000", 1_000, None),
        ("mark", "i", "4000", None, "t"),
    ]


def add_equal_starts(export: Export) -> None:
    for name, end in (("a", 510), ("b", 530), ("c", 520)):
        range_of(export, name, 505, end)


def test_of_ranges_that_begin_together_the_longest_comes_first(mixed: Loaded) -> None:
    assert events(mixed[0], "name", f"start_ns = {START} + 505") == [("b",), ("c",), ("a",)]


def add_calls(export: Export) -> None:
    for i, name in enumerate(
        ("cuLaunchKernelEx", "cuMemcpyHtoDAsync_v2", "cudaMemcpyAsync_ptsz_v7000", "cudaGraphLaunch_v10000")
    ):
        call(export, name, 100_000 + 1_000 * i, 100_500 + 1_000 * i, 50 + i)
    gpu = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": PID}
    for i, more in enumerate(
        ({"copyKind": 1, "srcKind": 1, "dstKind": 2}, {"copyKind": 8}, {"copyKind": 99}, {"copyKind": 11})
    ):
        times = {"start": 110_000 + 1_000 * i, "end": 110_500 + 1_000 * i}
        export.add("CUPTI_ACTIVITY_KIND_MEMCPY", **gpu, **times, bytes=64, correlationId=0, **more)
    export.add("CUPTI_ACTIVITY_KIND_MEMSET", **gpu, start=120_000, end=120_500, bytes=8, memKind=2, correlationId=0)
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **gpu, start=121_000, end=125_000, graphId=9, correlationId=53)


def test_names_of_calls_copies_and_graphs(mixed: Loaded) -> None:
    con, _ = mixed
    assert events(con, "cat, name, correlation, bytes, graph_id", between(100_000, 126_000)) == [
        ("cuda_driver", "cuLaunchKernelEx", 50, None, None),
        ("cuda_driver", "cuMemcpyHtoDAsync", 51, None, None),
        ("cuda_runtime", "cudaMemcpyAsync", 52, None, None),
        ("cuda_runtime", "cudaGraphLaunch", 53, None, None),
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", None, 64, None),
        ("gpu_memcpy", "Memcpy DtoD", None, 64, None),
        ("gpu_memcpy", "Memcpy of kind 99", None, 64, None),
        ("gpu_memcpy", "Memcpy HtoD (unified memory)", None, 64, None),
        ("gpu_memset", "Memset (Device)", None, 8, None),
        ("kernel", "CUDA graph 9 as a whole", 53, None, 9),
    ]
    [[detail]] = con.execute("SELECT detail FROM findings WHERE check_name = 'lost_kernels'").fetchall()
    assert "have no GPU work: the profiler lost it, or the file has only a part of the work, so" in detail


def test_a_whole_graph_is_neither_computation_nor_communication(mixed: Loaded) -> None:
    classes = mixed[0].execute("SELECT class FROM kernels WHERE name LIKE 'CUDA graph%'").fetchall()
    assert classes == [("OTHER",)]


@pytest.mark.slow  # 4 s
def test_waits_of_a_process_on_another_gpu_are_for_that_one(tmp_path: Path) -> None:
    """Waits of a context whose work ran on a single GPU are waits for this GPU.

    In real exports of two processes, the second process works on device 1, but its waits name device 0.
    """
    export = small()
    for work in export.rows["CUPTI_ACTIVITY_KIND_KERNEL"]:
        work["deviceId"] = 1
    wait(export, 4, 70_000, 70_100, 16, NONE)
    export.rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"][-1]["contextId"] = 9  # did no work, so the stated device stays
    _, findings = loaded(export, tmp_path)
    assert findings == {"nsys_device_of_wait": ("info", 2)}
    con, _ = connect(tmp_path / "a.sqlite")
    assert events(con, "name, device", "cat = 'cuda_sync'") == [
        ("Stream Wait Event", 1), ("Context Sync", 1), ("Context Sync", 0),
    ]  # fmt: skip
    run_models(con, load_catalog(), ["critical_path"])
    path = con.execute("SELECT name, duration_ns FROM critical_path WHERE duration_ns > 0 ORDER BY seq").fetchall()
    assert ("relu", 19_000) in path and ("gemm", 32_000) in path


@pytest.mark.slow  # rare
def test_a_context_whose_work_names_two_gpus_tells_none(tmp_path: Path) -> None:
    export = small()
    export.rows["CUPTI_ACTIVITY_KIND_KERNEL"][0]["deviceId"] = 1
    for row in export.rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"]:
        row["deviceId"] = 3
    con, _ = loaded(export, tmp_path)
    assert events(con, "device", "cat = 'cuda_sync'") == [(3,), (3,)]


def test_numbers_go_by_their_names_in_the_export(tmp_path: Path) -> None:
    """The export's enums name the kinds of waits and ranges, because another release may renumber them."""
    export = small()
    del export.rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"]
    export.add("ENUM_CUPTI_SYNC_TYPE", id=8, name="CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE", label="")
    export.add("ENUM_NSYS_EVENT_TYPE", id=159, name="NvtxPushPopRange", label="")
    wait(export, 8, 20_500, 60_900, 15, 7)
    wait(export, 2, 20_600, 60_900, 15, 7)  # types that the export does not list are unknown
    range_of(export, "renumbered", 95_000, 96_000, kind=159)
    con, findings = loaded(export, tmp_path)
    assert events(con, "name", "cat = 'cuda_sync'") == [("Stream Sync",), ("Sync of type 2",)]
    assert events(con, "name", f"start_ns = {START + 95_000}") == [("renumbered",)]
    assert findings["nsys_unknown_wait"] == ("warning", 1)


def add_nameless(export: Export) -> None:
    kernel(export, "x", 270_000, 271_000, 70, 7, demangledName=900, shortName=901)
    export.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=272_000, end=273_000, globalTid=MAIN, correlationId=71, nameId=None)
    export.add("NVTX_EVENTS", start=274_000, end=275_000, eventType=59, globalTid=MAIN, textId=902)


def test_names_that_are_missing_are_shown_with_their_number(mixed: Loaded) -> None:
    assert events(mixed[0], "name", between(270_000, 276_000)) == [
        ("kernel 900 (not in StringIds)",), ("call (no name)",), ("text 902 (not in StringIds)",),
    ]  # fmt: skip
    assert mixed[1]["nsys_unknown_string"] == ("warning", 3)


def test_streams_of_several_contexts_are_told(mixed: Loaded) -> None:
    assert mixed[1]["nsys_shared_stream"] == ("warning", 1)


def test_tables_that_are_missing_are_told(tmp_path: Path) -> None:
    export = Export()
    kernel(export, "gemm", 0, 10, 1, 7)
    con, findings = loaded(export, tmp_path)
    assert findings == {"nsys_missing_table": ("warning", 1), "nsys_no_session_start": ("info", 1)}
    query = "SELECT split_part(detail, ':', 1) FROM findings WHERE check_name = 'nsys_missing_table' ORDER BY ALL"
    tables = [table for (table,) in con.execute(query).fetchall()]
    assert tables == ["CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "NVTX_EVENTS"]
    assert events(con, "start_ns, duration_ns") == [(0, 10)]


def test_tables_that_are_not_read_are_named(mixed: Loaded) -> None:
    query = "SELECT detail FROM findings WHERE detail LIKE 'tables%'"
    assert mixed[0].execute(query).fetchall() == [("tables that are not read: OSRT_API",)]


def test_tables_with_a_version_in_their_name_are_read(plain: Loaded, tmp_path: Path) -> None:
    path = written(small(), tmp_path, "b.sqlite")
    with closing(sqlite3.connect(path)) as export:
        there = {name for (name,) in export.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for number, name in enumerate(sorted(there & {source.name for source in SOURCES})):
            export.execute(f"ALTER TABLE {name} RENAME TO {name}_V{2 + number % 2}")
    con = memory()
    assert load_trace(con, path).findings == ()
    columns = "* EXCLUDE (trace_id, batch_id)"
    assert events(con, columns) == events(plain[0], columns)


@pytest.mark.slow  # a test above covers tables with a version
def test_of_several_versions_of_a_table_one_counts(tmp_path: Path) -> None:
    path = written(small(), tmp_path)
    with closing(sqlite3.connect(path)) as con:
        for version in ("V2", "V10"):
            table = f"CUPTI_ACTIVITY_KIND_KERNEL_{version}"
            con.execute(f"CREATE TABLE {table} AS SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL")
        con.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL_V10 WHERE streamId = 7")
        con.commit()
    kernels = []
    for _ in range(2):
        con = memory()
        findings = load_trace(con, path).findings
        kernels.append(events(con, "name", "cat = 'kernel'"))
        assert [finding.check_name for finding in findings if finding.check_name != "lost_kernels"] == [
            "nsys_tables_left_out"
        ]
        with closing(sqlite3.connect(path)) as changed:
            changed.execute("DROP TABLE IF EXISTS CUPTI_ACTIVITY_KIND_KERNEL")
    assert kernels == [[("gemm",), ("relu",)], [("relu",)]]


def add_machine(export: Export) -> None:
    export.add("TARGET_INFO_SYSTEM_ENV", devStateName="", name="Hostname", nameEnum=0, value="node7")
    for gpu, name in ((100, "H100"), (101, "H200")):
        export.add("TARGET_INFO_GPU", vmId=0, id=gpu, name=name, totalMemory=80 << 30, smCount=132, computeMajor=9)
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=101, cudaId=0, pid=4000)  # CUDA_VISIBLE_DEVICES=1
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=100, cudaId=0, pid=4001)


def test_what_the_export_says_of_the_machine(mixed: Loaded) -> None:
    con, _ = mixed
    assert con.execute(
        "SELECT host, device_name, device_count, rank, CAST(started_at AS DATE) || '' FROM traces"
    ).fetchall() == [("node7", "H200", 1, None, "2023-11-14")]
    ((metadata,),) = con.execute("SELECT metadata FROM traces").fetchall()
    assert json.loads(metadata) == {
        "deviceProperties": [{"id": 0, "name": "H200", "totalGlobalMem": 80 << 30, "numSms": 132, "computeMajor": 9}],
        "host_name": "node7",
        "nsys": {"schema_version": "3.28.1", "process_id": 4000},
    }


def test_threads_have_their_names(mixed: Loaded) -> None:
    query = "SELECT tid, thread_name FROM threads WHERE thread_name IS NOT NULL"
    assert mixed[0].execute(query).fetchall() == [("4000", "pt_main_thread")]
