"""Spans and their GPU work on real traces: every number equals the reference, to the nanosecond."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.effort import named
from tests.modelling.real_traces import computed

TRACES = ("a100_nccl_metadata", "v100_ns_absolute", "mi300_rccl_metadata", "h100_qwen")
HOST = {"cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_driver"}
PHASES = ("fwd", "recompute", "bwd", "bwd_direct", "window")


@pytest.fixture(scope="module", params=named(TRACES))
def trace(request: pytest.FixtureRequest, shared: Path) -> tuple[duckdb.DuckDBPyConnection, dict]:
    """Return a connection with the models of a trace, and the reference's numbers."""
    con = computed(shared, request.param, TRACES)
    return con, json.loads((shared / "golden" / "modelling" / f"spans__{request.param}.json").read_text())


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def test_every_name_has_the_reference_s_calls_and_work_in_every_phase(trace: tuple[Any, dict]) -> None:
    con, reference = trace
    by_name: dict[tuple, dict] = defaultdict(dict)
    query = "SELECT kind, name, n_spans, host_ns, phase, n, sum_ns, busy_ns FROM span_names"
    for kind, name, n_spans, host_ns, phase, *work in con.execute(query).fetchall():
        by_name[kind, name] |= {"calls": (n_spans, host_ns), phase: tuple(work)}
    for span in reference["spans"]:
        ours = by_name[span["kind"], span["name"].removeprefix("nn.Module: ")]
        assert ours["calls"] == (span["calls"], ns(span["cpu_dur_us"])), span["name"]
        for phase in PHASES:
            expected = span.get(phase, {"n": 0, "sum_us": 0, "busy_us": 0})
            work = (expected["n"], ns(expected["sum_us"]), ns(expected["busy_us"]))
            assert ours.get(phase, (0, 0, 0)) == work, (span["name"], phase)
    assert len(by_name) == len(reference["spans"])


def test_the_counts_of_the_attribution_are_the_reference_s(trace: tuple[Any, dict]) -> None:
    con, reference = trace
    expected = reference["summary"]
    names = {
        "n_work": "gpu_events",
        "n_no_launch": "gpu_without_launch",
        "n_forward": "gpu_no_bwd",
        "n_in_forward_span": "gpu_fwd_any_span",
        "n_in_forward_module": "gpu_fwd_in_module",
        "n_under_backward": "gpu_under_bwd_op",
        "n_recompute": "gpu_recompute",
        "n_recompute_without_forward": "gpu_recompute_outer_unknown",
        "n_backward_linked": "gpu_bwd_linked",
        "n_in_backward_module": "gpu_bwd_in_module",
        "n_backward_without_forward": "gpu_bwd_unlinked",
    }
    ours = dict(zip(names, con.execute(f"SELECT {', '.join(names)} FROM span_attribution").fetchall()[0], strict=True))
    assert ours == {name: expected[theirs] for name, theirs in names.items()}
    how = con.execute("SELECT sum_ns, n_by_flow, n_by_sequence FROM span_attribution").fetchall()[0]
    link_how = expected["link_how"]
    assert how == (ns(expected["gpu_sum_us"]), link_how.get("flow", 0), link_how.get("seq", 0))
    assert con.execute("SELECT count(*) FROM spans").fetchall() == [(expected["spans"],)]
    no_launch = con.execute("SELECT sum_ns FROM unattributed_gpu_work WHERE reason = 'no_launch'").fetchall()
    assert no_launch == ([(ns(expected["gpu_without_launch_us"]),)] if expected["gpu_without_launch"] else [])


def test_every_arrow_of_the_profiler_is_a_link(trace: tuple[Any, dict]) -> None:
    con, reference = trace
    links = con.execute("SELECT count(*) FROM backward_links WHERE how = 'flow'").fetchall()
    assert links == [(reference["summary"]["fwdbwd_f"],)]


def test_the_windows_of_steps_share_all_launched_work_out(trace: tuple[Any, dict]) -> None:
    con, _ = trace
    rows = con.execute(
        "SELECT w.event_id FROM span_gpu_work AS w JOIN spans AS s USING (trace_id, span_id) "
        "WHERE w.phase = 'window' AND s.kind = 'step'"
    ).fetchall()
    launched = con.execute("SELECT event_id FROM kernels WHERE launch_event_id IS NOT NULL").fetchall()
    assert sorted(rows) == sorted(launched)


def crossing_pairs(path: Path, in_ns: Callable[[str], int]) -> int:
    """Count the host events that start inside the event on top of the stack and end after it."""
    with gzip.open(path) as file:
        events = json.load(file, parse_float=str)["traceEvents"]
    rows = []
    for i, e in enumerate(events):
        if e.get("ph") == "X" and e.get("cat") in HOST:
            start = in_ns(str(e["ts"]))
            rows.append((str(e["pid"]), str(e["tid"]), start, -start - in_ns(str(e["dur"])), i))
    n, stacks = 0, defaultdict(list)
    for pid, tid, start, minus_end, _ in sorted(rows):
        stack = stacks[pid, tid]
        while stack and (stack[-1][1] < start or (stack[-1][1] == start and stack[-1][0] < start)):
            stack.pop()
        n += bool(stack) and -minus_end > stack[-1][1]
        stack.append((start, -minus_end))
    return n


@pytest.mark.slow
def test_crossing_pairs_are_counted_in_exact_time(
    shared: Path, trace: tuple[Any, dict], request: pytest.FixtureRequest
) -> None:
    """Crossing pairs of events are counted in exact time.

    The reference read times as floats. In absolute microseconds, 778 of its pairs are rounding errors.
    """
    con, reference = trace
    path = shared / "traces" / "single" / f"{request.node.callspec.params['trace']}.json.gz"
    exact = crossing_pairs(path, lambda text: round(Decimal(text) * 1000))
    assert con.execute("SELECT n_crossing_pairs FROM span_attribution").fetchall() == [(exact,)]
    assert crossing_pairs(path, lambda text: round(float(text) * 1000)) == reference["summary"]["crossing_host_pairs"]
