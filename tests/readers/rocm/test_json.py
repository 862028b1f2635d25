"""rocprofv3's JSON, which has the events of its CSV files.

The tests follow the schema (generateJSON.cpp, cxx/serialization.hpp).
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import Finding, ReadTrace, TraceRejected
from tests.effort import SLOW, first_of
from tests.harness import memory, x
from tests.readers.rocm.small import PID
from tests.readers.rocm.test_csv import events, rows_of_small, whole
from tests.readers.rocm.writer import GPU

KINDS = ("NONE", "HIP_RUNTIME_API", "MARKER_CORE_API", "KERNEL_DISPATCH", "MEMORY_COPY")


def document() -> dict[str, Any]:
    """Return the run of small.py as rocprofv3 writes it with --output-format json."""
    rows = rows_of_small()
    operations: dict[str, list[str]] = {kind: [] for kind in KINDS}
    kernels: dict[int, str] = {}
    messages: dict[int, str] = {}

    def record(kind: str, operation: str, correlation: int, start: int, end: int, **more: Any) -> dict[str, Any]:
        names = operations[kind]
        names += [] if operation in names else [operation]
        return {
            "size": 64, "kind": KINDS.index(kind), "operation": names.index(operation),
            "correlation_id": {"internal": correlation, "external": 0}, "start_timestamp": start, "end_timestamp": end,
            **more,
        }  # fmt: skip

    calls: dict[str, list[dict[str, Any]]] = {"hip_api_trace": [], "marker_api_trace": []}
    for section, records in calls.items():
        for domain, name, _, tid, correlation, start, end in rows[section]:
            if section == "marker_api_trace":
                messages[correlation], name = name, "roctxMarkA" if start == end else "roctxRangePushA"
            records.append(
                record(domain if domain in KINDS else "HIP_RUNTIME_API", name, correlation, start, end, thread_id=tid)
            )
    dispatches = []
    for row in rows["kernel_trace"]:
        _, agent, queue, stream, tid, dispatch, kernel, name, correlation, start, end, lds = row[:12]
        kernels[kernel] = name
        info = {
            "agent_id": {"handle": int(agent.split()[-1])}, "queue_id": {"handle": queue}, "kernel_id": kernel,
            "dispatch_id": dispatch, "group_segment_size": lds, "workgroup_size": dict(zip("xyz", row[16:19], strict=True)),
            "grid_size": dict(zip("xyz", row[19:22], strict=True)),
        }  # fmt: skip
        more = {"thread_id": tid, "dispatch_info": info, "stream_id": {"handle": stream}}
        dispatches.append(record("KERNEL_DISPATCH", "COMPLETE", correlation, start, end, **more))
    copies = [
        record("MEMORY_COPY", direction, correlation, start, end, stream_id={"handle": stream}, bytes=4096,
               src_agent_id={"handle": int(source.split()[-1])}, dst_agent_id={"handle": int(target.split()[-1])})
        for _, direction, stream, source, target, correlation, start, end in rows["memory_copy_trace"]
    ]  # fmt: skip
    process = {
        "metadata": {"pid": PID, "init_time": 1, "fini_time": 9, "command": ["python"]},
        "agents": [
            {"id": {"handle": 0}, "type": 1, "node_id": 0, "logical_node_type_id": 0},
            {"id": {"handle": GPU}, "type": 2, "node_id": GPU, "logical_node_type_id": 0},
        ],
        "counters": [],
        "strings": {
            "callback_records": [],
            "buffer_records": [{"kind": kind, "operations": names} for kind, names in operations.items()],
            "marker_api": [{"key": key, "value": text} for key, text in messages.items()],
        },
        "code_objects": [],
        "kernel_symbols": [
            {"kernel_id": number, "kernel_name": f"{name}.kd", "formatted_kernel_name": name, "arch_vgpr_count": 32}
            for number, name in kernels.items()
        ],
        "callback_records": {"counter_collection": []},
        "buffer_records": {
            "kernel_dispatch": dispatches, "hip_api": calls["hip_api_trace"], "hsa_api": [],
            "marker_api": calls["marker_api_trace"], "memory_copy": copies, "scratch_memory": [{"size": 8}],
        },
    }  # fmt: skip
    return {"rocprofiler-sdk-tool": [process]}


def put(folder: Path, text: str | bytes) -> Path:
    path = folder / "4000_results.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("indent", first_of([4, None], 1))
def test_it_has_the_events_of_the_csv_files(tmp_path: Path, indent: int | None) -> None:
    rows, trace = events(put(tmp_path, json.dumps(document(), indent=indent)))
    assert rows == whole()[0] and len(rows) == 9
    assert (trace.format, trace.status, trace.metadata["rocprofv3"]) == ("json/rocprofv3", "ok", {"process_id": PID})
    checks = {finding.check_name: (finding.n, finding.detail) for finding in trace.findings}
    assert checks["rocm_tables_left_out"] == (1, "not read: scratch_memory (1)")
    assert checks.keys() & {"rocm_wrong_type", "rocm_missing_table", "rocm_no_wall_clock"} == {"rocm_no_wall_clock"}


@pytest.mark.parametrize(
    ("function", "tid"), [("roctxThreadRangeA", "4000"), ("roctxRangeStartA", "4000 range"), ("roctxProcessRangeA", "4000 range")]
)  # fmt: skip
def test_a_range_has_its_message_and_the_row_of_its_function(tmp_path: Path, function: str, tid: str) -> None:
    """The first and the last functions are those of ROCm 7, which replace roctxRangePushA and roctxRangeStartA."""
    rows, _ = events(put(tmp_path, json.dumps(document()).replace("roctxRangePushA", function)))
    (expected,) = [row for row in plain()[0] if row[2] == "aten::mm"]
    assert [row[:4] + row[5:] for row in rows] == [row[:4] + row[5:] for row in plain()[0]]
    assert [row for row in rows if row[2] == "aten::mm"] == [(*expected[:4], tid, *expected[5:])]


def in_kernels(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda process: change(process["buffer_records"]["kernel_dispatch"][0])


BAD = {
    "beyond 64 bits": (
        in_kernels(lambda dispatch: dispatch.update(start_timestamp=1 << 63)),
        "rocm_wrong_type",
        "kernel_dispatch[0].start",
    ),
    "a text": (
        in_kernels(lambda dispatch: dispatch.update(stream_id={"handle": "x"})),
        "rocm_wrong_type",
        "kernel_dispatch[0].stream",
    ),
    "no object": (lambda p: p["buffer_records"]["hip_api"].append(5), "rocm_wrong_type", "buffer_records.hip_api["),
    "no start": (in_kernels(lambda dispatch: dispatch.pop("start_timestamp")), "rocm_without_time", "GPU work"),
    "no end": (lambda p: p["buffer_records"]["hip_api"][1].pop("end_timestamp"), "rocm_without_time", "calls"),
    "no kernels": (lambda p: p["buffer_records"].pop("kernel_dispatch"), "rocm_missing_table", "no kernel_dispatch"),
    "no symbols": (lambda p: p.pop("kernel_symbols"), "rocm_unknown_kernel", ""),
}
TOGETHER = [("beyond 64 bits", "no end", "no symbols"), ("a text", "no start"), ("no object", "no kernels")]
"""Mistakes that one file contains together, because reading a file takes most of the time. Only the first value of a
wrong type has a position, so such mistakes are in separate files.
"""


@cache
def findings_of(names: tuple[str, ...]) -> list[Finding]:
    whole = document()
    for name in names:
        BAD[name][0](whole["rocprofiler-sdk-tool"][0])
    with TemporaryDirectory() as folder:
        return [*load_trace(memory(), put(Path(folder), json.dumps(whole))).findings]


@pytest.mark.parametrize(("name", "names"), [(name, names) for names in TOGETHER for name in names])
def test_what_is_wrong_is_found_and_placed(name: str, names: tuple[str, ...]) -> None:
    _, check, place = BAD[name]
    findings = findings_of(names)
    assert any(finding.check_name == check and place in finding.detail for finding in findings), findings


def test_each_mistake_is_read_once() -> None:
    assert sorted(name for names in TOGETHER for name in names) == sorted(BAD)


def test_what_is_not_strict_json_is_found(tmp_path: Path) -> None:
    text = json.dumps(document()).replace('"size": 64', '"size": NaN, "size": 64', 1)
    trace = load_trace(memory(), put(tmp_path, text))
    counts = {finding.check_name: finding.n for finding in trace.findings}
    assert (counts["repaired_nan"], counts["repaired_duplicate_key"], trace.status) == (1, 1, "repaired")


@pytest.mark.slow  # 4 s
def test_each_process_is_a_trace(tmp_path: Path) -> None:
    """Each process has its own rows, although both number their rows alike.

    If a process has no id, processes are named by their index in the list.
    """
    (first,), (second,) = (document()["rocprofiler-sdk-tool"] for _ in range(2))
    second["metadata"]["pid"] = 4100
    del second["buffer_records"]["kernel_dispatch"][0]
    path = put(tmp_path, json.dumps({"rocprofiler-sdk-tool": [first, second]}))
    with pytest.raises(TraceRejected, match=rf"several processes \({PID}, 4100\), each is a separate trace: name one"):
        load_trace(memory(), path)
    traces = [load_trace(memory(), path, process=name) for name in (str(PID), "4100")]
    assert [trace.n_events for trace in traces] == [9, 8] and len({trace.trace_id for trace in traces}) == 2
    assert [trace.metadata["rocprofv3"]["process_id"] for trace in traces] == [PID, 4100]
    assert all("rocm_processes" in {finding.check_name for finding in trace.findings} for trace in traces)
    lake = Lake(tmp_path / "lake")
    assert [(row.status, row.n_events) for row in ingest([path], lake).rows] == [("ok", 9), ("ok", 8)]
    del first["metadata"]["pid"]
    path = put(tmp_path, json.dumps({"rocprofiler-sdk-tool": [first, second]}))
    assert load_trace(memory(), path, process="1").n_events == 8


def packed(text: str, piece: int = 0) -> bytes:
    """Return the text as gzip, in members of `piece` bytes of the text unless `piece` is 0."""
    data = text.encode()
    parts = [data[at : at + piece] for at in range(0, len(data), piece)] if piece else [data]
    return b"".join(map(gzip.compress, parts))


@cache
def plain() -> tuple[list[tuple], ReadTrace]:
    with TemporaryDirectory() as folder:
        return events(put(Path(folder), json.dumps(document())))


@pytest.mark.parametrize("piece", first_of([7, 0, 1000], 1))
def test_a_packed_file_is_the_same_trace(tmp_path: Path, piece: int) -> None:
    """The trace id is that of the decompressed content, even if gzip members split keys."""
    text = json.dumps(document())
    path = tmp_path / "4000_results.json.gz"
    path.write_bytes(packed(text, piece))
    expected, unpacked = plain()
    rows, trace = events(path)
    assert rows == expected and len(rows) == 9
    assert (trace.trace_id, trace.unpacked_bytes, trace.status) == (unpacked.trace_id, len(text), "ok")
    assert trace.findings == unpacked.findings and trace.metadata == unpacked.metadata


@pytest.mark.parametrize("piece", first_of([7, 0], 1))
def test_each_process_of_a_packed_file_is_a_trace(tmp_path: Path, piece: int) -> None:
    (first,), (second,) = (document()["rocprofiler-sdk-tool"] for _ in range(2))
    second["metadata"]["pid"] = 4100
    path = tmp_path / "a_results.json.gz"
    path.write_bytes(packed(json.dumps({"rocprofiler-sdk-tool": [first, second]}), piece))
    traces = [load_trace(memory(), path, process=name) for name in (str(PID), "4100")]
    assert [trace.n_events for trace in traces] == [9, 9] and len({trace.trace_id for trace in traces}) == 2


def test_a_lake_takes_packed_and_plain_as_one_trace_and_kineto_beside_them(tmp_path: Path) -> None:
    """The content of a file decides which reader reads it, because Kineto files also end in `.json.gz`."""
    text = json.dumps(document())
    kineto = json.dumps({"traceEvents": [x("kernel", "k", 1, 1, 0, 0, device=0, stream=0)]})
    files = {"a_results.json.gz": text, "b_results.json.gz": kineto, "c.json.gz": kineto + " "}
    for name, content in files.items():
        (tmp_path / name).write_bytes(packed(content))
    paths = [put(tmp_path, text), *(tmp_path / name for name in files)]
    rows = ingest(paths, Lake(tmp_path / "lake")).rows
    assert [(row.status, row.n_events) for row in rows] == [("ok", 9), ("known", None), ("ok", 1), ("ok", 1)]


def test_a_packed_file_that_is_cut_is_rejected_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a_results.json.gz"
    whole = packed(json.dumps(document(), indent=1))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceRejected, match="gzip data is truncated") as rejected:
        load_trace(memory(), path)
    assert rejected.value.byte_offset


def test_a_packed_file_that_unpacks_to_too_much_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.readers.kineto.limits.RATIO_FROM", 1 << 10)
    monkeypatch.setenv("TRACELAKE_MAX_RATIO", "50")
    path = tmp_path / "a_results.json.gz"
    path.write_bytes(packed(json.dumps(document()) + " " * 1_000_000))
    with pytest.raises(TraceRejected, match="over 50 to 1"):
        load_trace(memory(), path)


def test_two_files_in_one_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(TraceRejected, match="two files"):
        load_trace(memory(), put(tmp_path, json.dumps(document()) * 2))


@pytest.mark.slow
def test_mutated_copies_are_read_with_a_finding_or_rejected_with_a_place(tmp_path: Path) -> None:
    """A truncated file is rejected with the position, and a changed byte never causes a crash."""
    whole = json.dumps(document()).encode()
    chance = random.Random(4711)
    for number in range(120 if SLOW else 10):
        at = chance.randrange(40, len(whole) - 1)
        cut = number % 2 == 0
        data = whole[:at] if cut else whole[:at] + bytes([chance.randrange(256)]) + whole[at + 1 :]
        try:
            load_trace(memory(), put(tmp_path, data))
        except TraceRejected as rejected:
            assert rejected.reason and "4000_results.json" in str(rejected)
            assert not cut or rejected.byte_offset is not None
        else:
            assert not cut
