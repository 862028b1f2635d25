"""XSpace files of JAX: a real file, compared with a plain decoder, and small files written by the schema."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import TraceRejected
from tests.effort import SLOW
from tests.harness import each, memory
from tests.readers.xplane.writer import Plane, part, space

BEGAN = 1_700_000_000_000_000_000
TASK = Plane("Task Environment", about={"profile_start_time": BEGAN})
DETAILS = " grid:16,2,1 block:512,1,1 private_mem:0 group_mem:0 occ_pct:50"


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message, decoded by a plain decoder."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
        else:
            size = number() if tag & 7 == 2 else {1: 8, 5: 4}[tag & 7]
            yield tag >> 3, data[at : at + size]
            at += size


def test_a_real_file_has_all_its_events(shared: Path) -> None:
    """Counts and sums by device, and the first start, are computed from the file's bytes."""
    real = shared / "traces/xplane/jax_conv_mi300_08.xplane.pb"
    expected: Counter[tuple[str, int]] = Counter()
    lasting: Counter[str] = Counter()
    first: dict[str, int] = {}
    for _, plane in (field for field in fields(real.read_bytes()) if field[0] == 1):
        plane_fields = list(fields(plane))
        name = next(value.decode() for number, value in plane_fields if number == 2)
        where = name.removeprefix("/device:GPU:") if "GPU" in name else "host"
        for line in (value for number, value in plane_fields if number == 3):
            parts = list(fields(line))
            at = next((value for number, value in parts if number == 3), 0)
            for event in (dict(fields(value)) for number, value in parts if number == 4):
                begin = at * 1000 + event.get(2, 0)
                expected[where, 3 in event] += 1
                lasting[where] += (begin + event.get(3, 0) + 500) // 1000 - (begin + 500) // 1000
                first[where] = min(first.get(where, begin), begin)
    con = memory()
    trace = load_trace(con, real)
    events = "FROM events WHERE ph <> 'M'"
    counts = con.execute(f"SELECT pid, ph = 'X', count(*) {events} GROUP BY ALL").fetchall()
    assert {(pid, whole): n for pid, whole, n in counts} == expected and expected["host", True] > 2000
    times = con.execute(f"SELECT pid, sum(duration_ns), min(start_ns) {events} GROUP BY pid").fetchall()
    assert {pid: total for pid, total, _ in times} == lasting
    began = 1771595639214724894
    assert {pid: start for pid, _, start in times} == {pid: began + (ps + 500) // 1000 for pid, ps in first.items()}
    assert (trace.findings, trace.metadata["host_name"]) == ((), "tw003")
    cats = dict(con.execute(f"SELECT cat, count(*) {events} GROUP BY cat").fetchall())
    assert cats == {"kernel": 235, "cuda_runtime": 234, "python_function": 1353, "cpu_op": 1828}
    (launched,) = con.execute(
        "SELECT count(*) FROM events AS k JOIN events AS c ON c.correlation = k.correlation AND c.cat = 'cuda_runtime' "
        "WHERE k.cat = 'kernel' AND c.start_ns <= k.start_ns"
    ).fetchall()[0]  # fmt: skip
    assert launched == 235


def put(folder: Path, data: bytes) -> Path:
    path = folder / "host.xplane.pb"
    path.write_bytes(data)
    return path


def gpu(**changed: Any) -> Plane:
    launch = {"correlation_id": 7, "kernel_details": DETAILS, "hlo_op": "fusion.1", "hlo_category": "fusion"}
    copy = {"correlation_id": 8, "memcpy_details": "kind_src:pageable kind_dst:device size:4096 dest:0 async:1"}
    events = [("fusion_1.kd", 5_000_400, 2_000_400, launch | changed), ("MemcpyH2D", 9_000_000, 1_000_000, copy)]
    return Plane("/device:GPU:1", [(3, "Stream #17(Kernel)", 1000, events)], {"core_count": 304, "memory_size": 9})


def host() -> Plane:
    calls = [
        ("hipModuleLaunchKernel", 1_000_000, 500_000, {"correlation_id": 7}),
        ("cuMemcpyHtoDAsync", 2_000_000, 500_000, {"correlation_id": 8}),
    ]
    steps = [("train", 0, 6_000_000, {"step_num": 4}), ("train", 6_000_000, 5_000_000, {"step_num": 5})]
    own = [
        *steps,
        ("$a.py:7 f", 100_000, 5_000_000, {}),
        ("Execute", 500_000, 3_000_000, {}),
        ("mark", 600_000, None, {}),
    ]
    return Plane("/host:CPU", [(1 << 63, "python", 1000, own), (5, "Host Threads/5", 1000, calls)])


def test_what_becomes_what(tmp_path: Path) -> None:
    con = memory()
    trace = load_trace(con, put(tmp_path, space(gpu(), host(), TASK)))
    rows = con.execute(
        "SELECT cat, ph, name, pid, tid, start_ns, duration_ns, bytes FROM events ORDER BY event_id"
    ).fetchall()
    at = BEGAN + 1000
    python = str(1 << 63)
    assert rows == [
        (None, "M", "thread_name", "host", "5", 0, None, None),
        (None, "M", "thread_name", "host", python, 0, None, None),
        ("user_annotation", "X", "ProfilerStep#4", "host", python, at, 6000, None),
        ("python_function", "X", "a.py(7): f", "host", python, at + 100, 5000, None),
        ("cpu_op", "X", "Execute", "host", python, at + 500, 3000, None),
        ("cpu_op", "i", "mark", "host", python, at + 600, None, None),
        ("cuda_runtime", "X", "hipModuleLaunchKernel", "host", "5", at + 1000, 500, None),
        ("cuda_driver", "X", "cuMemcpyHtoDAsync", "host", "5", at + 2000, 500, None),
        ("kernel", "X", "fusion_1", "1", "17", at + 5000, 2001, None),  # rounded from 5000.4 to 7000.8 ns
        ("user_annotation", "X", "ProfilerStep#5", "host", python, at + 6000, 5000, None),
        ("gpu_memcpy", "X", "Memcpy HtoD", "1", "17", at + 9000, 1000, 4096),
    ]
    ((args,),) = con.execute("SELECT args FROM events WHERE cat = 'kernel'").fetchall()
    result = con.execute("SELECT json_extract_string(?, ['hlo_op', 'hlo_category', 'grid', 'block', 'stream'])", [args])
    assert result.fetchall()[0][0] == ["fusion.1", "fusion", "[16,2,1]", "[512,1,1]", "17"]
    assert trace.metadata["deviceProperties"] == [{"id": 1, "totalGlobalMem": 9, "numSms": 304}]
    assert {finding.check_name for finding in trace.findings} == set()


def test_the_models_work_on_it(tmp_path: Path) -> None:
    path = put(tmp_path, space(gpu(), host(), TASK))
    (con,) = each([path], "profiler_steps", "kernels", "critical_path_by_name")
    assert con.execute("SELECT step, duration_ns FROM profiler_steps ORDER BY step").fetchall() == [
        (4, 6000),
        (5, 5000),
    ]
    launched = con.execute(
        "SELECT k.name, k.duration_ns, e.name FROM kernels AS k LEFT JOIN events AS e "
        "ON e.trace_id = k.trace_id AND e.event_id = k.launch_event_id ORDER BY 1"
    ).fetchall()
    assert launched == [("Memcpy HtoD", 1000, "cuMemcpyHtoDAsync"), ("fusion_1", 2001, "hipModuleLaunchKernel")]
    names = {name for (name,) in con.execute("SELECT DISTINCT name FROM critical_path_by_name").fetchall()}
    assert "Execute" in names  # no event waits for the device


def test_ops_of_a_tpu_have_flops_and_bytes_and_no_launch(tmp_path: Path) -> None:
    stats = {"flops": 2_000_000, "bytes_accessed": 512, "hlo_category": "convolution"}
    lines = [
        (1, "Steps", 0, [("0", 0, 9_000_000, {})]),
        (2, "XLA Modules", 0, [("jit_f(1)", 0, 9_000_000, {})]),
        (3, "XLA Ops", 0, [("%fusion.1 = f32[8] fusion()", 1000, 4_000_000, {"efficiency": 0.5})]),
    ]
    plane = Plane("/device:TPU:0", lines, {"device_type_string": "TPU v5e"}, {"%fusion.1 = f32[8] fusion()": stats})
    con = memory()
    trace = load_trace(con, put(tmp_path, space(plane)))
    assert con.execute("SELECT cat, stream, start_ns FROM events ORDER BY event_id").fetchall() == [
        ("gpu_user_annotation", 1, 0), ("gpu_user_annotation", 2, 0), ("kernel", 3, 1),
    ]  # fmt: skip
    ((args,),) = con.execute(
        "SELECT json_extract(args, ['flops', 'bytes_accessed', 'efficiency']) FROM events WHERE cat = 'kernel'"
    ).fetchall()
    assert args == ["2000000", "512", "0.5"]
    assert trace.metadata["deviceProperties"][0]["name"] == "TPU v5e"
    assert {finding.check_name for finding in trace.findings} == {"xplane_no_launch", "xplane_no_wall_clock"}


def test_sparse_cores_are_streams_of_their_tpu(tmp_path: Path) -> None:
    """Each core of a TPU is a stream, although ids of lines are equal in all cores.

    Ids of lines count within a plane, and each core has its own plane.
    """
    planes = [
        Plane(f"/device:TPU:{tpu}{core}", [(3, "Ops", 0, [("op", 0, 9_000_000, {})])], {"core_count": n})
        for tpu in (0, 1)
        for core, n in ((" SparseCore 0", 4), ("", 1), (" SparseCore 1", 4))
    ]
    con = memory()
    trace = load_trace(con, put(tmp_path, space(*planes)))
    work = con.execute("SELECT device, stream FROM events WHERE cat = 'kernel' ORDER BY ALL").fetchall()
    assert work == [(tpu, core << 32 | 3) for tpu in (0, 1) for core in (0, 1, 2)]
    assert trace.metadata["deviceProperties"] == [{"id": 0, "numSms": 1}, {"id": 1, "numSms": 1}]


def test_lines_beside_the_ops_are_no_work(tmp_path: Path) -> None:
    """Lines that enclose the ops, synchronize, or sample counters are not GPU work.

    As work they would count twice, or take no time.
    """
    names = [f"Sparse Core {kind}" for kind in ("Steps", "Modules", "Ops", "Syncs")] + ["Tensor Core Sync Flag"]
    lines = [(number, name, 0, [(name, 0, 9_000_000, {})]) for number, name in enumerate(names, 65)]
    sampled = Plane("/device:GPU:0", [(1, "_counters_", 0, [("dram__bytes_read.sum", 0, 0, {})])])
    con = memory()
    load_trace(con, put(tmp_path, space(Plane("/device:TPU:0 SparseCore 0", lines), sampled)))
    categories = dict(con.execute("SELECT name, cat FROM events").fetchall())
    assert categories == {
        **dict.fromkeys(names, "gpu_user_annotation"), "Sparse Core Ops": "kernel", "dram__bytes_read.sum": "gpu_metrics"
    }  # fmt: skip


def findings_of(folder: Path, data: bytes) -> dict[str, str]:
    return {finding.check_name: finding.detail for finding in load_trace(memory(), put(folder, data)).findings}


def test_what_is_wrong_is_found_and_placed(tmp_path: Path) -> None:
    plain = space(gpu(), TASK)
    assert findings_of(tmp_path, plain) == {}
    beyond = findings_of(tmp_path, space(gpu(correlation_id=(1 << 64) - 1), TASK))
    assert "correlation_id" in beyond["xplane_wrong_type"] and "byte " in beyond["xplane_wrong_type"]
    entry = part(4, part(1, 1) + part(2, part(1, 1) + part(2, "again")))
    twice = gpu()
    twice.extra = entry
    assert "plane /device:GPU:1, id 1" in findings_of(tmp_path, space(twice, TASK))["xplane_id_twice"]
    nameless = gpu()
    nameless.lines[0][3].append(("x", 0, 1, {}))
    cut = nameless.data().replace(part(2, "x"), part(2, "y"))  # gives the third event another name
    assert findings_of(tmp_path, part(1, cut)).keys() == {
        "xplane_no_launch",
        "xplane_no_wall_clock",
        "zero_length_work",
    }
    unknown = gpu()
    unknown.extra = part(3, part(1, 9) + part(4, part(1, 99) + part(2, 5)) + part(4, part(1, 1) + part(5, 3)))
    findings = findings_of(tmp_path, space(unknown, Plane("/other", host().lines), TASK) + part(3, "lost 5 events"))
    assert {"xplane_unknown_name", "xplane_without_time", "xplane_warning", "xplane_planes_left_out"} <= findings.keys()
    assert "lost 5 events" in findings["xplane_warning"] and "/other" in findings["xplane_planes_left_out"]


def test_fields_of_a_newer_version_are_passed_over(tmp_path: Path) -> None:
    newer = part(77, "new") + part(78, 1.5) + part(79, 1 << 63)
    plane = gpu()
    plane.extra = newer
    assert findings_of(tmp_path, space(plane, TASK) + newer) == {}


@pytest.mark.slow
def test_mutated_copies_are_read_or_rejected_with_their_place(tmp_path: Path) -> None:
    whole = space(gpu(), host(), TASK)
    chance = random.Random(4711)
    for number in range(120 if SLOW else 20):
        at = chance.randrange(1, len(whole))
        cut = number % 2 == 0
        data = whole[:at] if cut else whole[:at] + bytes([chance.randrange(256)]) + whole[at + 1 :]
        try:
            trace = load_trace(memory(), put(tmp_path, data))
        except TraceRejected as rejected:
            assert rejected.byte_offset is not None or "planes" in rejected.reason or "events" in rejected.reason
        else:
            assert not cut or at >= len(whole) - len(part(4, "tw003")) or trace.findings, at


@pytest.mark.slow
def test_a_large_file_is_not_held(tmp_path: Path) -> None:
    """Reading a file does not keep its content in memory. The file has 100 MB of a stat that is not read."""
    plane = gpu()
    plane.extra = part(
        4, part(1, 9) + part(2, part(1, 9) + part(2, "hlo") + part(5, part(1, 1) + part(6, bytes(100 << 20))))
    )
    path = put(tmp_path, space(plane, TASK))
    del plane
    tracemalloc.start()
    load_trace(memory(), path)
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
