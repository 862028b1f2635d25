"""A run exported by Nsight Systems gives the same answers as the run's Kineto trace.

The exceptions are data that Nsight Systems does not record.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import first_of
from tests.harness import ANSWERED, connect_all, only
from tests.readers.nsys.writer import NEW, OLD, SCHEMAS, document_of, export_of
from tests.synthetic.random_capture import random_capture

TABLES = (
    "kernels", "launches", "event_waits", "temporal_breakdown", "merged_intervals", "queue_length", "min_launch_latency",
    "streams", "idle_gaps", "host_gpu_overlap", "critical_path_edges", "critical_path_summary", "critical_path",
)  # fmt: skip
# Columns that Nsight Systems does not record: Kineto's ids that join operators with execution traces and Python frames,
# and arguments.
NOT_SEEN = {"external_id", "python_id", "python_parent_id", "flow_id", "bp", "extra", "args", "cuda_sync_kind", "scope"}
NUMBERS = {
    "trace_id",
    "batch_id",
    "event_id",
    "thread_id",
    "trace_profile_id",
    "window_no",
    "edge_id",
    "src_node_id",
    "dst_node_id",
}


def rows(
    con: duckdb.DuckDBPyConnection, table: str, leave_out: frozenset[str] | set[str] = frozenset()
) -> Counter[tuple]:
    """Return the rows of a table, with numbers of events replaced with the events."""
    events = con.execute("SELECT event_id, cat, name, pid, tid, start_ns, duration_ns FROM events").fetchall()
    known = {number: rest for number, *rest in events}
    # The profiler's own span, which only Kineto's traces contain, is longer than the events.
    result = con.execute(f"SELECT * FROM {table}{' WHERE step IS NOT NULL' if table == 'host_gpu_overlap' else ''}")
    names = [column[0] for column in result.description or ()]

    def value(name: str, of: Any) -> Any:
        if name.endswith(("event_id", "_kernel_id")) and of is not None:
            return tuple(known[of])
        return round(of, 6) if isinstance(of, float) else of

    kept = [
        (i, name)
        for i, name in enumerate(names)
        if name not in leave_out and (name not in NUMBERS or name == "event_id")
    ]
    return Counter(tuple(str(value(name, row[i])) for i, name in kept) for row in result.fetchall())


def compare(traces: list[Path], tables: tuple[str, ...] = TABLES, with_events: bool = True) -> None:
    """Compare traces in pairs: a Kineto trace, then the same run as an export.

    Real traces have events that no answer uses and that the writer omits, so their `events` differ.
    """
    con, trace_ids = connect_all(traces)
    run_models(con, load_catalog(), {*tables, *ANSWERED})
    shown = {*tables, "events", *ANSWERED} - {"edge_types"}
    answers = []
    for trace_id in trace_ids:
        only(con, trace_id, sorted(shown))
        of = {table: rows(con, table, {"args", "extra"}) for table in tables}
        query = f"SELECT * EXCLUDE ({', '.join(sorted(NOT_SEEN | {'trace_id', 'batch_id', 'event_id'}))}) FROM events " \
            "WHERE ph = 'X' AND cat NOT IN ('gpu_user_annotation', 'Trace', 'python_function')"  # fmt: skip
        of["events"] = Counter(con.execute(query).fetchall())
        answers.append(of)
    for kineto, export in zip(answers[::2], answers[1::2], strict=True):
        for table in (*(("events",) if with_events else ()), *tables):
            assert kineto[table] == export[table], table
        assert kineto["kernels"] and kineto["critical_path_edges"]


SPECS = {
    "training": CaptureSpec(ranks=1, steps=2, layers=2, gz=False),
    "side streams": CaptureSpec(ranks=1, steps=1, compute_streams=3, layers=3, seed=5, gz=False),
    "two ranks": CaptureSpec(ranks=2, steps=1, layers=2, straggler=1, clock_offset_ns=(0, 5_000), gz=False),
    "graphs": CaptureSpec(ranks=1, steps=2, shape="inference_graph", tokens=3, gz=False),
    "whole us": CaptureSpec(ranks=1, steps=1, layers=2, fractional_ts=False, seed=3, gz=False),
}


def pairs_of(folder: Path, specs: dict[str, CaptureSpec], schema: dict[str, tuple[str, ...]]) -> list[Path]:
    pairs = []
    for name, spec in specs.items():
        for rank in write_capture(spec, folder / name).ranks:
            pairs += [rank.path, export_of(document_of(rank.path)).write(rank.path.with_suffix(".sqlite"), schema)]
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS)
def test_synthetic_captures(tmp_path: Path, schema: str) -> None:
    compare(pairs_of(tmp_path, SPECS, SCHEMAS[schema]))


@pytest.mark.slow
def test_the_path_has_the_length_that_the_simulation_knows(tmp_path: Path) -> None:
    capture = write_capture(SPECS["two ranks"], tmp_path)
    con, trace_ids = connect_all(
        export_of(document_of(rank.path)).write(rank.path.with_suffix(".sqlite")) for rank in capture.ranks
    )
    run_models(con, load_catalog(), ["critical_path_summary"])
    query = "SELECT sum(duration_ns) FROM critical_path_summary WHERE trace_id = ? AND window_id = 'full'"
    lengths = [con.execute(query, [trace_id]).fetchall()[0][0] for trace_id in trace_ids]
    assert lengths == [rank.truth.full.length_ns for rank in capture.ranks]


# The path may be another one of the same length. If two operators have equal times, the order of the file determines
# which encloses the other, and idle_gaps depends on this.
OF_RANDOM = tuple(table for table in TABLES if table not in ("critical_path", "critical_path_summary", "idle_gaps"))


def random_pairs(folder: Path, seeds: int, schema: dict[str, tuple[str, ...]]) -> list[Path]:
    pairs = []
    for seed in range(seeds):
        (kineto := folder / f"{seed}.json").write_text(json.dumps(in_order(random_capture(seed))))
        pairs += [kineto, export_of(document_of(kineto)).write(folder / f"{seed}.sqlite", schema)]
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize(("schema", "n"), [(NEW, 20), (OLD, 10)], ids=["new", "old"])
def test_random_captures(tmp_path: Path, schema: dict[str, tuple[str, ...]], n: int) -> None:
    compare(random_pairs(tmp_path, n, schema), OF_RANDOM)


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of(["alexnet", "cuda_event_sync", "simple_add"], 1))
def test_real_traces(shared: Path, tmp_path: Path, name: str) -> None:
    """Traces of real runs with waits are written as exports, and their graph is the same, edge for edge."""
    kineto = shared / "traces" / "critical_path" / f"{name}.json.gz"
    export = export_of(document_of(kineto)).write(tmp_path / "a.sqlite")
    # The rows of simple_add specify only the stream, and an export has no column for that.
    waits = ("event_waits",) if name != "simple_add" else ()
    compare([kineto, export], ("kernels", "launches", *waits, "temporal_breakdown", "critical_path_edges"), False)


PLACES = {"cpu_op": 1, "user_annotation": 1, "cuda_runtime": 2, "cuda_driver": 2, "cuda_sync": 3}


def in_order(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document in the order of an export's events.

    If calls of two threads begin in the same µs, the order in the file decides, but an export has no such order. It
    does not record either which of two equal ranges encloses the other.
    """

    def place(event: dict[str, Any]) -> tuple[float, ...]:
        if event["ph"] != "X":
            return (0,)
        where = PLACES.get(event["cat"], 4)
        correlation = event.get("args", {}).get("correlation", -1) if where > 1 else -1
        return (1, event["ts"], where, correlation, -event["dur"], event["pid"], event["tid"], event["name"])

    return {**document, "traceEvents": sorted(document["traceEvents"], key=place)}
