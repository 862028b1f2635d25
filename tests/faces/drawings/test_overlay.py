"""The overlay: the events that it keeps, the positions of its arrows and of the path's own track, and exact times."""

from __future__ import annotations

import gzip
import json
import re
import tracemalloc
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.faces.drawings import overlay
from pipelines.faces.drawings.chrome_trace import microseconds, step_times, trace_event, with_critical
from pipelines.faces.drawings.counter_tracks import counter_events
from pipelines.faces.drawings.overlay import SHOW_ZERO_LAUNCHES, TRACK, write_overlay
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import connect

BASE = 1_712_195_495_000_000_000
STEP = "OPERATOR_KERNEL"
# event_id, ph, cat, name, pid, tid, start_ns after BASE, duration_ns, args
EVENTS = [
    (0, "M", None, "process_name", "7", "0", 0, None, '{"name": "python"}'),
    (1, "X", "cpu_op", "aten::mm", "7", "8", 1_000, 10_000, None),
    (2, "X", "cuda_runtime", "cudaLaunchKernel", "7", "8", 3_000, 4_123, '{"correlation": 5}'),
    (3, "X", "kernel", 'gemm<"a">', "0", "7", 9_500, 6_001, '{"device": 0, "stream": 7}'),
    (4, "X", "cuda_runtime", "cudaDeviceSynchronize", "7", "8", 12_000, 5_000, "{}"),
    (5, "X", "user_annotation", "ProfilerStep#1", "7", "8", 500, 20_000, "{}"),
    (6, "X", "python_function", "main.py", "7", "8", 0, 30_000, None),
    (7, "X", "cpu_op", "aten::off_path", "7", "9", 2_000, 1_000, '{"x": 1}'),
    (8, None, None, None, None, None, None, None, None),
    (9, "s", "ac2g", "ac2g", "7", "8", 3_000, None, None),
    (10, "f", "ac2g", "ac2g", "0", "7", 9_500, None, None),
]
# seq, src, src_is_start, dst, dst_is_start, edge_type, weight, path_weight, attributed, event, name, cat, bound_by
PATH = [
    (1, 1, True, 2, True, STEP, 2_000, 2_000, 1, 1, "aten::mm", "cpu_op", "cpu_bound"),
    (2, 2, True, 3, True, "KERNEL_LAUNCH_DELAY", 6_500, 6_500, None, 3, 'gemm<"a">', "kernel", "launch_delay"),
    (3, 3, True, 3, False, STEP, 6_001, 6_001, 3, 3, 'gemm<"a">', "kernel", "gpu_compute_bound"),
    (4, 3, False, 4, False, "SYNC_DEPENDENCY", 0, 0, None, 4, None, None, ""),
]
TYPES = {
    "traces": "trace_id VARCHAR, path VARCHAR, metadata VARCHAR",
    "events": "trace_id VARCHAR, event_id BIGINT, ph VARCHAR, cat VARCHAR, name VARCHAR, pid VARCHAR, tid VARCHAR, "
    "start_ns BIGINT, duration_ns BIGINT, args VARCHAR, flow_id VARCHAR, bp VARCHAR, scope VARCHAR, extra VARCHAR",
    "critical_path": "trace_id VARCHAR, window_id VARCHAR, seq BIGINT, src_event_id BIGINT, src_is_start BOOLEAN, "
    "dst_event_id BIGINT, dst_is_start BOOLEAN, edge_type VARCHAR, weight_ns BIGINT, path_weight_ns BIGINT, "
    "attributed_event_id BIGINT, event_id BIGINT, name VARCHAR, cat VARCHAR, bound_by VARCHAR",
    "critical_path_edges": "trace_id VARCHAR, window_id VARCHAR, edge_id BIGINT, src_event_id BIGINT, "
    "src_is_start BOOLEAN, dst_event_id BIGINT, dst_is_start BOOLEAN, edge_type VARCHAR, weight_ns BIGINT, "
    "path_weight_ns BIGINT, attributed_event_id BIGINT",
}


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    for name, columns in TYPES.items():
        con.execute(f"CREATE TABLE {name} ({columns})")
    metadata = f'{{"schemaVersion": 1, "deviceProperties": [{{"id": 0}}], "baseTimeNanoseconds": {BASE}}}'
    con.execute("INSERT INTO traces VALUES ('t', '/data/rank0.json.gz', ?)", [metadata])
    for event_id, *rest, ts, dur, args in EVENTS:
        flow = (
            ["77", "e" if rest[0] == "f" else None, None, None]
            if rest[0] in ("s", "f")
            else [None, None, None, '{"tts": 5}' if event_id == 7 else None]
        )
        row = ["t", event_id, *rest, None if ts is None else ts + BASE, dur, args, *flow]
        con.execute(f"INSERT INTO events VALUES ({', '.join('?' * len(row))})", row)
    for row in PATH:
        con.execute(f"INSERT INTO critical_path VALUES ('t', 'full', {', '.join('?' * len(row))})", list(row))
        edge = [*row[:8], row[8]]
        con.execute("INSERT INTO critical_path_edges VALUES ('t', 'full', ?, ?, ?, ?, ?, ?, ?, ?, ?)", edge)
    con.execute(
        "INSERT INTO critical_path_edges VALUES ('t', 'full', 5, 7, TRUE, 3, TRUE, 'KERNEL_LAUNCH_DELAY', 0, 0, NULL)"
    )
    return con


def read(path: Path) -> dict[str, Any]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(text, parse_float=Decimal)


def own_events(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the trace's events without those that the overlay added."""
    added = {e["pid"] for e in trace["traceEvents"] if e.get("args", {}).get("name") == TRACK}
    return [e for e in trace["traceEvents"] if e.get("cat") != "critical_path" and e["pid"] not in added]


def arrows(trace: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    flows = [e for e in trace["traceEvents"] if e["ph"] in "sf" and e["cat"] == "critical_path"]
    return list(zip(flows[0::2], flows[1::2], strict=True))


def track(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] == "critical_path"]


def test_only_critical_keeps_path_annotations_and_what_is_no_slice(con, tmp_path):
    path = write_overlay(con, "t", None, tmp_path / "new" / "folder")
    trace = read(path)
    assert path.name == "overlaid_critical_path_rank0.json.gz"
    assert [e["name"] for e in own_events(trace)] == [
        "process_name", "aten::mm", "cudaLaunchKernel", 'gemm<"a">', "cudaDeviceSynchronize", "ProfilerStep#1",
        "main.py", "ac2g", "ac2g",
    ]  # fmt: skip
    assert trace["schemaVersion"] == 1 and trace["deviceProperties"] == [{"id": 0}]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_an_arrow_without_a_slice_at_one_end_is_left_out_and_counted(con, tmp_path):
    con.execute("UPDATE events SET tid = '9' WHERE event_id = 10")  # a stream on which nothing runs
    con.execute(
        "INSERT INTO events BY NAME SELECT * REPLACE (11 AS event_id, '78' AS flow_id) FROM events WHERE event_id = 9"
    )
    left_out: list[int] = []
    trace = read(write_overlay(con, "t", None, tmp_path, only_critical=False, on_left_out=left_out.append))
    assert left_out == [3] and not [e for e in own_events(trace) if e["ph"] in "sf"]


def test_counters_are_those_of_the_tables(con, tmp_path):
    con.execute(
        "CREATE TABLE queue_length (trace_id VARCHAR, device BIGINT, stream BIGINT, at_ns BIGINT, change BIGINT)"
    )
    con.execute(f"INSERT INTO queue_length VALUES ('t', 0, 7, {BASE} + 3000, 1), ('t', 0, 7, {BASE} + 9500, -1)")
    con.execute(
        "CREATE TABLE kernels (trace_id VARCHAR, class VARCHAR, device BIGINT, start_ns BIGINT, duration_ns BIGINT, bytes BIGINT)"
    )
    copies = ((0, 10, 100), (5, 10, 50), (40, 0, 9), (50, 10, None))  # start and duration in ns, bytes; two overlap
    con.executemany("INSERT INTO kernels VALUES ('t', 'MEMORY', 0, ?, ?, ?)", [(BASE + a, b, c) for a, b, c in copies])
    trace = read(write_overlay(con, "t", None, tmp_path))
    counters = [(e["name"], e["ts"], e["args"]) for e in trace["traceEvents"] if e["ph"] == "C"]
    assert [(ts, args["launches"]) for name, ts, args in counters if name == "queue length, device 0 stream 7"] == [
        (3, 1), (Decimal("9.5"), 0),
    ]  # fmt: skip
    rates = [(ts, args["GB/s"]) for name, ts, args in counters if name == "bandwidth of copies, device 0"]
    assert rates == [(0, 10), (Decimal("0.005"), 15), (Decimal("0.010"), 5), (Decimal("0.015"), 0)]
    assert len(counters) == 6


def test_all_events_mark_the_critical_ones_with_or_without_args(con, tmp_path):
    trace = read(write_overlay(con, "t", Path("x.json"), tmp_path, only_critical=False))
    events = own_events(trace)
    assert len(events) == sum(ph is not None for _, ph, *_ in EVENTS)
    assert [e["name"] for e in events if e.get("args", {}).get("critical") == 1] == [
        "aten::mm", "cudaLaunchKernel", 'gemm<"a">', "cudaDeviceSynchronize",
    ]  # fmt: skip
    launch, off_path, flow = (
        next(e for e in events if e["name"] == n) for n in ("cudaLaunchKernel", "aten::off_path", "ac2g")
    )
    assert launch["args"] == {"correlation": 5, "critical": 1}
    assert off_path["args"] == {"x": 1} and off_path["tts"] == 5
    assert flow == {"ph": "s", "cat": "ac2g", "name": "ac2g", "pid": 7, "tid": 8, "id": 77, "ts": 3}


def test_times_are_exact_and_relative_to_the_base(con, tmp_path):
    text = write_overlay(con, "t", Path("x.json"), tmp_path, only_critical=False).read_text()
    assert '"ts": 9.500, "dur": 6.001' in text and '"ts": 3, "dur": 4.123' in text


def test_without_a_base_whole_microseconds_stay_and_fractions_get_a_base_that_doubles_can_hold(con, tmp_path):
    con.execute("UPDATE traces SET metadata = '{}'")
    trace = read(write_overlay(con, "t", Path("x.json"), tmp_path))
    kernel = next(e for e in own_events(trace) if e.get("cat") == "kernel")
    assert trace["baseTimeNanoseconds"] == BASE and kernel["ts"] == Decimal("9.5")
    con.execute("UPDATE events SET start_ns = start_ns // 1000 * 1000, duration_ns = duration_ns // 1000 * 1000")
    text = write_overlay(con, "t", Path("x.json"), tmp_path).read_text()
    assert "baseTimeNanoseconds" not in text and f'"ts": {BASE // 1000 + 9}, "dur": 6' in text


def test_arrows_are_those_of_hta_and_touch_slices(con, tmp_path):
    trace = read(write_overlay(con, "t", None, tmp_path))
    pairs = arrows(trace)
    assert [(s["ph"], f["ph"], s["id"], f["id"], f["bp"]) for s, f in pairs] == [
        ("s", "f", n, n, "e") for n in range(2)
    ]
    assert [s["args"] for s, _ in pairs] == [
        {"weight": Decimal("6.5"), "critical": True, "type": "critical_path_kernel_launch_delay"},
        {"weight": Decimal("0.0"), "critical": True, "type": "critical_path_sync_dependency"},
    ]
    slices = [e for e in own_events(trace) if e["ph"] == "X"]
    for end in (event for pair in pairs for event in pair):
        where = [e for e in slices if (e["pid"], e["tid"]) == (end["pid"], end["tid"])]
        assert any(e["ts"] <= end["ts"] < e["ts"] + e["dur"] for e in where), end


def test_all_edges_hide_launches_of_weight_zero_unless_asked(con, tmp_path, monkeypatch):
    def drawn(only_critical: bool) -> list[tuple[str, bool]]:
        path = write_overlay(con, "t", None, tmp_path, only_critical=only_critical, all_edges=True)
        args = (start["args"] for start, _ in arrows(read(path)))
        return [(said["type"].removeprefix("critical_path_"), said["weight"] != 0) for said in args]

    launch, sync = ("kernel_launch_delay", True), ("sync_dependency", False)
    assert drawn(only_critical=False) == [("operator", True), launch, ("operator", True), sync]
    assert drawn(only_critical=True) == [launch, sync]
    monkeypatch.setenv(SHOW_ZERO_LAUNCHES, "1")
    assert drawn(only_critical=False)[4:] == [("kernel_launch_delay", False)]
    last = arrows(read(write_overlay(con, "t", None, tmp_path, only_critical=False, all_edges=True)))[-1][0]
    assert last["args"]["critical"] is False


def test_the_path_has_a_track_of_its_own_as_long_as_the_path(con, tmp_path):
    trace = read(write_overlay(con, "t", None, tmp_path))
    steps = track(trace)
    names = {e["name"]: e["args"] for e in trace["traceEvents"] if e["ph"] == "M" and e["pid"] == steps[0]["pid"]}
    assert names["process_name"] == {"name": TRACK} and names["thread_name"] == {"name": TRACK}
    assert not {e["pid"] for e in own_events(trace)} & {e["pid"] for e in steps}
    assert [(e["name"], e["args"]["bound_by"], e["args"]["event_id"]) for e in steps] == [
        ("aten::mm", "cpu_bound", 1),
        ('launch delay: gemm<"a">', "launch_delay", 3),
        ('gemm<"a">', "gpu_compute_bound", 3),
    ]
    assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(steps))
    assert sum(e["dur"] for e in steps) * 1000 == sum(row[7] for row in PATH)


def test_steps_that_go_back_in_time_are_clipped():
    steps = [(0, 10, "a"), (8, 4, "b"), (9, 2, "gone"), (20, 5, "c")]
    assert list(step_times(steps)) == [(0, 10, 10, "a"), (10, 2, 4, "b"), (20, 5, 5, "c")]


@pytest.mark.parametrize("name", ["a.pt.trace.json", "a.json.gz"])
def test_an_overlay_of_another_trace_stays(con, tmp_path, name):
    """An overlay of another trace is not replaced, because two ranks may be in one file.

    An overlay of the same trace is replaced, and so is a file that is not an overlay.
    """
    con.execute("INSERT INTO traces VALUES ('u', '/data/rank0.json.gz', '{}')")
    plain, stem = tmp_path / f"overlaid_critical_path_{name}", "overlaid_critical_path_a"
    for before in (b"", b"not packed", b'{"tracelake": 5}', b'{"tracelake": {"of": [', gzip.compress(b"{" * 9)[:-9]):
        plain.write_bytes(before)
        assert write_overlay(con, "t", Path(name), tmp_path) == plain
    first = plain.read_bytes()
    other = tmp_path / f"{stem}_u{name.removeprefix('a')}"
    for _ in range(2):
        assert write_overlay(con, "u", Path(name), tmp_path) == other
        assert write_overlay(con, "t", Path(name), tmp_path) == plain
    assert plain.read_bytes() == first and read(other)["tracelake"]["of"] == ["u"]


def test_a_trace_without_a_path_and_an_unknown_trace(con, tmp_path):
    trace = read(write_overlay(con, "t", None, tmp_path, window_id="other"))
    assert not arrows(trace) and not track(trace) and len(own_events(trace)) == 3
    with pytest.raises(ValueError, match="no trace u"):
        write_overlay(con, "u", None, tmp_path)


def test_traces_of_a_batch_come_a_few_at_a_time_large_ones_alone_and_each_file_is_the_same(con, tmp_path, monkeypatch):
    tables = {name: tmp_path / f"{name}.parquet" for name in ("traces", "events", "critical_path")}
    for name, path in tables.items():
        ids = {"a": 1, "b": 1, "large": 100, "c": 1} | ({"without_path": 1} if name != "critical_path" else {})
        copies = " UNION ALL ".join(
            f"SELECT * REPLACE ('{trace_id}' AS trace_id), {size} AS n_events FROM {name}"
            for trace_id, size in ids.items()
        )
        con.execute(f"COPY ({copies}) TO '{path}'")
    monkeypatch.setattr(overlay, "_BATCH", 50)
    traces = overlay.traces_with_path(tables)
    assert [trace[0] for trace in traces] == ["a", "b", "c", "large"]
    grouped, texts = [], set()
    for own, group in overlay.few_at_a_time(tables, traces):
        grouped.append([trace[0] for trace in group])
        assert own.execute("SELECT count(DISTINCT trace_id) FROM events").fetchall() == [(len(group),)]
        for trace in group:
            text = gzip.decompress(write_overlay(own, trace[0], None, tmp_path / trace[0]).read_bytes())
            texts.add(text.replace(f'"of": ["{trace[0]}"]'.encode(), b'"of": []'))
    assert grouped == [["a", "b", "c"], ["large"]]
    assert len(texts) == 1


@pytest.mark.slow
def test_memory_does_not_grow_with_the_trace(con, tmp_path, monkeypatch):
    monkeypatch.setattr("pipelines.faces.drawings.overlay._BATCH", 1_000)
    copy = "SELECT * EXCLUDE n REPLACE (n AS event_id) FROM events, range(?, ?) AS r(n) WHERE event_id = 7"

    def peak(first: int, past: int) -> int:
        con.execute(f"INSERT INTO events BY NAME {copy}", [first, past])
        tracemalloc.start()
        write_overlay(con, "t", None, tmp_path, only_critical=False)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    small, large = peak(1_000, 4_000), peak(4_000, 40_000)
    assert large < 1.2 * small


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0"), (1, "0.001"), (-1, "-0.001"), (-1_500, "-1.500"), (1_712_195_495_505_583_123, "1712195495505583.123")],
)
def test_microseconds_never_pass_through_a_double(ns: int, text: str):
    assert microseconds(ns) == text


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (None, {"critical": 1}),
        ("null", {"critical": 1}),
        ("{ }", {"critical": 1}),
        ('{"critical": 0, "big": 123456789012345678901}', {"critical": 1, "big": 123456789012345678901}),
        ("[1]", {"args": [1], "critical": 1}),
    ],
)
def test_with_critical(args: str | None, expected: dict[str, Any]):
    text = with_critical(args)
    assert json.loads(text) == expected and len(re.findall('"critical"', text)) == 1


def test_ids_that_are_no_plain_numbers_stay_text():
    event = trace_event("b", "c", "\u00e9\n\ud800", "Spans", "007", 1, None, flow_id="0x1f", scope="p", extra="{}")
    assert json.loads(event) == {
        "ph": "b", "cat": "c", "name": "\u00e9\n\ud800", "pid": "Spans", "tid": "007", "id": "0x1f",
        "ts": 0.001, "s": "p",
    }  # fmt: skip


def test_arrows_of_an_overlay_of_an_overlay_are_not_tied_to_the_earlier_ones(con, tmp_path):
    for event_id, ph, event in ((20, "s", 1), (21, "f", 3)):
        con.execute(
            "INSERT INTO events SELECT trace_id, ?, ?, 'critical_path', 'critical_path', pid, tid, start_ns, NULL, NULL, '0', "
            "'e', NULL, NULL FROM events WHERE event_id = ?",
            [event_id, ph, event],
        )
    drawn = read(write_overlay(con, "t", None, tmp_path))["traceEvents"]
    ends = [(e["ph"], e["id"]) for e in drawn if e["ph"] in ("s", "f") and e["cat"] == "critical_path"]
    assert len(ends) > 2 and len(set(ends)) == len(ends) and ("s", 0) in ends


def test_memory_events_without_their_arguments_are_no_counter() -> None:
    """Memory events without arguments are not drawn as a counter.

    They come from traces whose arguments were removed.
    """
    arguments: list[tuple[int, dict[str, int]]] = [(10, {}), (20, {"Bytes": 8})]
    con, trace_id = connect(
        [{"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts, "args": args} for ts, args in arguments]
    )
    run_models(con, load_catalog(), ["memory_timeline"])
    _, drawn = map(json.loads, counter_events(con, trace_id, "9", 0))  # the name of the process, and one value
    assert drawn["args"] == {"bytes": 8}
