"""The events that result from a rocpd database, row by row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import TraceRejected
from pipelines.readers.kineto.limits import Limits
from tests.harness import connect_all, memory
from tests.readers.rocm.small import PID, small
from tests.readers.rocm.writer import CPU, GPU, GUID, Database

OTHER = "11111111-2222-3333-4444-555555555555"


def test_a_small_run(tmp_path: Path) -> None:
    con = memory()
    trace = load_trace(con, small().write(tmp_path / "a.db"))
    query = "SELECT ph, cat, name, pid, tid, start_ns, duration_ns, device, stream, correlation, bytes FROM events ORDER BY event_id"
    assert con.execute(query).fetchall() == [
        ("M", None, "thread_name", "4000", "4000", 0, None, None, None, None, None),
        ("X", "cpu_op", "aten::mm", "4000", "4000", 1_000, 89_000, None, None, None, None),
        ("i", "user_annotation", "a mark", "4000", "4000", 1_500, None, None, None, None, None),
        ("X", "cuda_runtime", "hipMemcpyAsync", "4000", "4000", 2_000, 1_000, None, None, 10, None),
        ("X", "gpu_memcpy", "Memcpy HtoD (Host -> Device)", "0", "0", 4_000, 3_000, 0, 0, 10, 4096),
        ("X", "cuda_runtime", "hipLaunchKernel", "4000", "4000", 5_000, 1_000, None, None, 11, None),
        ("X", "kernel", "gemm", "0", "0", 8_000, 32_000, 0, 0, 11, None),
        ("X", "cuda_runtime", "hipLaunchKernel", "4000", "4000", 13_000, 3_000, None, None, 14, None),
        ("X", "cuda_runtime", "hipDeviceSynchronize", "4000", "4000", 20_000, 41_000, None, None, 15, None),
        ("X", "kernel", "relu", "0", "0", 41_000, 19_000, 0, 0, 14, None),
    ]
    ((args,),) = con.execute("SELECT args FROM events WHERE name = 'gemm'").fetchall()
    said = json.loads(args)
    assert (said["grid"], said["block"], said["registers per thread"]) == ([7, 2, 1], [64, 2, 1], 32)
    ((args,),) = con.execute("SELECT args FROM events WHERE name = 'aten::mm'").fetchall()
    assert json.loads(args) == {"Sequence number": 7, "Input Dims": [[2, 3], [3, 4]]}
    assert trace.format == "sqlite/rocpd" and trace.status == "ok"
    assert trace.metadata == {
        "deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X", "numSms": 304, "warpSize": 64}],
        "host_name": "node7",
        "rocpd": {"schema_version": "3", "process_id": 4000},
    }
    assert {finding.check_name for finding in trace.findings} == {"rocm_no_wall_clock"}


def findings_of(database: Database, folder: Path) -> dict[str, tuple[str, int]]:
    trace = load_trace(memory(), database.write(folder / "a.db"))
    return {
        finding.check_name: (finding.severity, finding.n)
        for finding in trace.findings
        if finding.check_name != "rocm_no_wall_clock"
    }


def test_devices_are_numbers_of_gpus(tmp_path: Path) -> None:
    """Agent 5 is the second GPU of a machine whose CPUs are agents 0 to 3, and a copy belongs to the GPU."""
    database = small()
    database.agent(5, "GPU", 1, "AMD Instinct MI300X", {})
    database.dispatch("second", 70_000, 71_000, 20, 3, PID, agent=5)
    database.copy("DEVICE_TO_HOST", 72_000, 73_000, 21, 3, PID, 8, (5, CPU))
    database.copy("DEVICE_TO_DEVICE", 74_000, 75_000, 22, 3, PID, 8, (5, GPU))
    database.dispatch("unknown agent", 76_000, 77_000, 23, 3, PID, agent=9)
    load_trace(con := memory(), database.write(tmp_path / "a.db"))
    query = "SELECT device, list(name ORDER BY name) FROM events WHERE stream = 3 GROUP BY device ORDER BY device"
    assert con.execute(query).fetchall() == [
        (1, ["Memcpy DtoD (Device -> Device)", "Memcpy DtoH (Device -> Host)", "second"]),
        (9, ["unknown agent"]),
    ]


def test_calls_of_hsa_and_of_the_profiler(tmp_path: Path) -> None:
    database = small()
    database.call("hsa_signal_wait_scacquire", 20_100, 20_200, 30, PID, "HSA_CORE_API")
    database.call("ncclAllReduce", 4_000, 4_500, 31, PID, "RCCL_API")
    database.call("roctxProfilerPause", 4_600, 4_700, 32, PID, "MARKER_CONTROL_API")
    database.marker("of the process", 500, 95_000, 33, PID, "roctxProcessRangeA")
    load_trace(con := memory(), database.write(tmp_path / "a.db"))
    query = "SELECT name, cat, tid FROM events WHERE correlation = 30 OR name IN ('ncclAllReduce', 'of the process') \
        OR name LIKE 'roctx%' ORDER BY name"
    assert con.execute(query).fetchall() == [
        ("hsa_signal_wait_scacquire", "cuda_driver", "4000"),
        ("ncclAllReduce", "user_annotation", "4000"),
        ("of the process", "user_annotation", "4000 range"),
    ]


def test_what_limits_the_answers_is_told(tmp_path: Path) -> None:
    database = small()
    database.dispatch("on another queue", 10_000, 50_000, 40, 0, PID, queue=2)
    database.call("hipStreamWaitEvent", 17_000, 18_000, 41, PID)
    database.call("", 18_500, 18_500, 42, PID)
    database.rows["rocpd_kernel_dispatch"][-1]["kernel_id"] = 77
    database.add("rocpd_memory_allocate", pid=PID, size=1)
    assert findings_of(database, tmp_path) == {
        "rocm_one_stream": ("warning", 1), "rocm_no_waits": ("warning", 1), "rocm_nameless": ("warning", 1),
        "rocm_unknown_kernel": ("warning", 1), "rocm_tables_left_out": ("info", 1), "overlapping_work": ("warning", 2),
    }  # fmt: skip


def test_without_streams_the_queue_counts(tmp_path: Path) -> None:
    database = small()
    for row in database.rows["rocpd_kernel_dispatch"]:
        row["stream_id"] = None
    trace = load_trace(con := memory(), database.write(tmp_path / "a.db"))
    assert con.execute("SELECT DISTINCT stream FROM events WHERE cat = 'kernel'").fetchall() == [(1,)]
    findings = [(finding.severity, finding.n) for finding in trace.findings if finding.check_name == "rocm_no_stream"]
    assert findings == [("warning", 2)]


@pytest.mark.slow  # a test above covers work without streams
def test_copies_on_neither_stream_nor_queue_are_not_on_the_path_as_a_finding_says(tmp_path: Path) -> None:
    database = small()
    database.rows["rocpd_memory_copy"][0] |= {"stream_id": None, "queue_id": None}
    con, _ = connect_all([database.write(tmp_path / "a.db")])
    run_models(con, load_catalog(), ["critical_path", "kernels"])
    assert con.execute("SELECT count(*) FROM critical_path WHERE starts_with(name, 'Memcpy')").fetchall() == [(0,)]
    assert con.execute("SELECT count(*) FROM kernels WHERE starts_with(name, 'Memcpy')").fetchall() == [(1,)]
    ((detail,),) = con.execute("SELECT detail FROM findings WHERE check_name = 'rocm_no_stream'").fetchall()
    assert "not on the critical path" in detail


def test_other_databases_of_amd_are_named(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "a.db") as con:
        con.execute("CREATE TABLE rocpd_api (id INTEGER)")
    with pytest.raises(TraceRejected, match=r"rocmProfileData.*rocprofv3 --sys-trace --output-format rocpd"):
        load_trace(memory(), tmp_path / "a.db")
    with sqlite3.connect(tmp_path / "b.db") as con:
        con.execute("CREATE TABLE rocpd_string (id INTEGER)")
    with pytest.raises(TraceRejected, match=r"without rocpd_kernel_dispatch.*it has rocpd_string"):
        load_trace(memory(), tmp_path / "b.db")


def test_a_process_without_gpu_work_has_its_number(tmp_path: Path) -> None:
    """Without the process number, its calls would belong to no thread and appear in no model."""
    database = small()
    database.rows["rocpd_kernel_dispatch"].clear()
    database.rows["rocpd_memory_copy"].clear()
    trace = load_trace(con := memory(), database.write(tmp_path / "a.db"))
    assert con.execute("SELECT DISTINCT pid FROM events").fetchall() == [("4000",)]
    assert trace.metadata["rocpd"]["process_id"] == 4000


@pytest.mark.slow  # a test above covers a process without GPU work
def test_rows_of_sets_without_gpu_work_are_told(tmp_path: Path) -> None:
    """A finding counts the rows of a process without GPU work.

    The other process of the file has GPU work in the first case, and none in the second.
    """
    idle = [small(4100, OTHER), small()]
    for database in idle:
        database.rows["rocpd_kernel_dispatch"].clear()
        database.rows["rocpd_memory_copy"].clear()
    for number, first in enumerate((small(), idle[1])):
        trace = load_trace(memory(), first.write(tmp_path / f"{number}.db", (idle[0],)))
        assert [(f.check_name, f.n) for f in trace.findings if "idle" in f.check_name] == [("rocm_idle_processes", 5)]


def test_each_process_with_gpu_work_is_a_trace(tmp_path: Path) -> None:
    from pipelines.lake import Lake
    from pipelines.readers.ingest import ingest

    path = small().write(tmp_path / "both.db", (small(4100, OTHER),))
    lake = Lake(tmp_path / "lake")
    rows = ingest([path], lake).rows
    assert [(row.status, row.rank, row.n_events) for row in rows] == [("ok", None, 10)] * 2
    with lake.connect(["events", "traces"]) as con:
        query = "SELECT metadata ->> '$.rocpd.process_id' FROM traces ORDER BY ALL"
        assert con.execute(query).fetchall() == [("4000",), ("4100",)]
        query = "SELECT count(*) FROM events WHERE (pid = '4100') = (tid = '4100') AND name = 'aten::mm'"
        assert con.execute(query).fetchall() == [(2,)]
    assert [row.status for row in ingest([path], lake).rows] == ["known"] * 2
    with pytest.raises(TraceRejected, match="2 processes with GPU work: 4000, 4100"):
        load_trace(memory(), path)


def test_two_processes_of_one_number_are_two_traces(tmp_path: Path) -> None:
    """Processes with equal numbers, for example of two machines, have different GUIDs, and each is a trace."""
    from pipelines.readers.rocm.read import processes

    path = small().write(tmp_path / "both.db", (small(4000, OTHER),))
    ends = [guid.replace("-", "_") for guid in sorted((GUID, OTHER))]
    assert processes(path, Limits()) == [f"4000_{end}.4000" for end in ends]


def ranks_of_both(
    folder: Path, numbers: tuple[int, int], ranks: tuple[str, str] | None = None, host: str = "m7"
) -> list:
    """Return (rank, world size, source of the rank, one clock) of two processes on GPUs with these numbers."""
    databases = [small(), small(4100, OTHER)]
    for place, (database, number) in enumerate(zip(databases, numbers, strict=True)):
        database.rows["rocpd_info_agent"][-1]["type_index"] = number
        said = {"RANK": ranks[place], "WORLD_SIZE": "16"} if ranks else {"HOME": "/root"}
        database.rows["rocpd_info_process"][0]["environment"] = json.dumps(said)
    databases[1].rows["rocpd_info_node"][0]["machine_id"] = host
    path, rows = databases[0].write(folder / "both.db", (databases[1],)), []
    for process in ("4000", "4100"):
        con = memory()
        load_trace(con, path, process=process)
        query = "SELECT rank, world_size, rank_source, metadata ->> '$.distributedInfo.one_clock' FROM traces"
        rows += con.execute(query).fetchall()
    return rows


def test_the_rank_of_one_process_is_what_its_environment_says(tmp_path: Path) -> None:
    database = small()
    database.rows["rocpd_info_process"][0]["environment"] = json.dumps({"RANK": "3", "WORLD_SIZE": "16"})
    trace = load_trace(con := memory(), database.write(tmp_path / "a.db"))
    assert con.execute("SELECT rank, world_size, rank_source FROM traces").fetchall() == [(3, 16, "environment")]
    assert "rocm_rank_by_environment" in {finding.check_name for finding in trace.findings}


UNKNOWN = [(None, None, None, None)] * 2


@pytest.mark.slow
def test_ranks_of_processes(tmp_path: Path) -> None:
    """A rank comes from the environment, otherwise it is the number of the process's only GPU.

    Ranks are unknown if two processes would have the same rank.
    """
    assert ranks_of_both(tmp_path, (0, 3)) == [(rank, None, "device", "true") for rank in (0, 3)]
    assert ranks_of_both(tmp_path, (0, 0)) == UNKNOWN
    assert ranks_of_both(tmp_path, (0, 0), ("9", "8")) == [(rank, 16, "environment", "true") for rank in (9, 8)]


@pytest.mark.slow  # a test above covers the sources of ranks
def test_ranks_of_processes_on_two_machines_and_that_cannot_be(tmp_path: Path) -> None:
    """A GPU's number is a rank only on a single machine.

    Two processes cannot have the same rank, and no rank exceeds the world's size.
    """
    assert ranks_of_both(tmp_path, (0, 3), host="m8") == UNKNOWN
    assert ranks_of_both(tmp_path, (0, 0), ("9", "8"), "m8")[0] == (9, 16, "environment", "false")
    assert ranks_of_both(tmp_path, (0, 0), ("9", "9")) == ranks_of_both(tmp_path, (0, 0), ("16", "8")) == UNKNOWN
