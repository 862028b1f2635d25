"""Invariants of the critical path in the default profile, for every window of every trace.

They are checked against the trace file itself, for example that the path covers the window.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_left
from collections import defaultdict
from decimal import Decimal
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import duckdb

from pipelines.critical_path.graph.windows import request_windows, usual_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import connect_all, create_step, only

GPU = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
LAUNCH_NS = 40_000
"""Upper limit of the launch latency in any trace, in ns."""
TABLES = (
    "critical_path",
    "critical_path_nodes",
    "critical_path_edges",
    "critical_path_events",
    "critical_path_summary",
    "critical_path_caveats",
    "critical_path_windows",
    "event_waits",
)
CLOCK_NS = 10_000
"""Tolerance in ns: an inferred wait's call may return this much before the awaited work ends, and a recorded wait may
end this much before its source.
"""


class File:
    """The GPU work of a trace as read from its file, with times in ns from the trace's base."""

    def __init__(self, trace: Path | dict[str, Any]) -> None:
        if isinstance(trace, Path):
            raw = gzip.decompress(trace.read_bytes()) if trace.suffix == ".gz" else trace.read_bytes()
            trace = json.loads(raw, parse_float=Decimal, strict=False)
        self.events = trace if isinstance(trace, list) else trace["traceEvents"]
        self.base = 0 if isinstance(trace, list) else int(trace.get("baseTimeNanoseconds", 0))

    def span(self, event: int) -> tuple[int, int]:
        """Return start and end of an event."""
        e = self.events[event]
        start = self.base + int(Decimal(e["ts"]) * 1000)
        return start, start + int(Decimal(e["dur"]) * 1000)

    @cached_property
    def streams(self) -> dict[tuple[Any, Any], list[tuple[int, int, int]]]:
        """Return (start, end, event) of all work of each stream (device, stream), in order of start."""
        work_by_stream = defaultdict(list)
        for i, e in enumerate(self.events):
            if isinstance(e, dict) and e.get("ph") == "X" and e.get("cat") in GPU and "dur" in e:
                work_by_stream[self.stream(i)].append((*self.span(i), i))
        return {stream: sorted(work) for stream, work in work_by_stream.items()}

    @cached_property
    def latest_ends(self) -> dict[tuple[Any, Any], list[int]]:
        """Return the running maximum of the end times in `streams`, by stream."""
        return {stream: [*accumulate((end for _, end, _ in work), max)] for stream, work in self.streams.items()}

    def stream(self, event: int) -> tuple[Any, Any]:
        """Return device and stream of a GPU activity."""
        args = self.events[event].get("args", {})
        return args.get("device", self.events[event].get("pid")), args.get("stream")

    def idle_ns(self, event: int, since: int) -> int:
        """Return how long the stream was idle just before the activity. Idle time before `since` does not count."""
        start = self.span(event)[0]
        work = self.streams[self.stream(event)]
        n_before = bisect_left(work, (start, start, event))
        latest = self.latest_ends[self.stream(event)][n_before - 1] if n_before else since
        return start - min(max(since, latest), start)


def check(*traces: Path | dict[str, Any]) -> int:
    """Check all invariants in every usual window (whole trace, profiler steps) of the traces.

    Return the number of edges that wait for work from before their window.
    """
    con, trace_ids = connect_all(traces)
    request_windows(con, usual_windows(con, trace_ids))
    create_step(con, "_gpu_claims", "device_floors", *TABLES)
    for trace, trace_id in zip(traces, trace_ids, strict=True):
        only(con, trace_id, TABLES)
        check_in(con, trace)
    query = "SELECT count(*) FROM memory.main.critical_path_edges WHERE waits_for_earlier_work"
    return con.execute(query).fetchall()[0][0]


def check_in(con: duckdb.DuckDBPyConnection, trace: Path | dict[str, Any]) -> None:
    """Check all invariants of the trace whose windows `con` shows in TABLES and device_floors."""
    file = File(trace)
    check_rule_in(con)
    _launch_delays_are_idle_time(con, file)
    _no_stretch_is_charged_twice(con, file)
    _shares_sum(con)
    _inferred_waits_are_possible(con, file)
    _caveats_speak(con)


def check_rule(*traces: dict[str, Any]) -> None:
    """Check in every usual window only that its nodes are bound and that the path covers it.

    These two rules also apply to traces that break what a profiler promises.
    """
    con, trace_ids = connect_all(traces)
    request_windows(con, usual_windows(con, trace_ids))
    run_models(con, load_catalog(), TABLES)
    assert con.execute("SELECT count(*) FROM critical_path").fetchall()[0][0]
    for trace_id in trace_ids:
        only(con, trace_id, TABLES)
        check_rule_in(con)


def check_rule_in(con: duckdb.DuckDBPyConnection) -> None:
    """Check both rules for the windows whose path, nodes, edges and events `con` shows."""
    _every_node_is_bound(con)
    _events_are_those_of_the_nodes(con)
    _the_path_covers_the_window(con)


def _every_node_is_bound(con: duckdb.DuckDBPyConnection) -> None:
    """Assert that no edge claims more time than passed between its nodes.

    Every node of a window except its start has an edge that claims all of that time.
    """
    con.execute("CREATE OR REPLACE TEMP TABLE node AS SELECT window_id, node_id, at_ns FROM critical_path_nodes")
    con.execute(
        "CREATE OR REPLACE TEMP TABLE claim AS SELECT e.window_id, e.src_node_id, e.dst_node_id, e.path_weight_ns AS claim_ns, "
        "b.at_ns - a.at_ns AS passed_ns FROM critical_path_edges AS e "
        "LEFT JOIN node AS a ON a.window_id = e.window_id AND a.node_id = e.src_node_id "
        "LEFT JOIN node AS b ON b.window_id = e.window_id AND b.node_id = e.dst_node_id"
    )
    too_much = "SELECT * FROM claim WHERE passed_ns IS NULL OR claim_ns < 0 OR claim_ns > passed_ns"
    assert con.execute(too_much).fetchall() == []
    parallel = "SELECT 1 FROM claim GROUP BY window_id, src_node_id, dst_node_id HAVING count(*) > 1"
    assert con.execute(parallel).fetchall() == []
    unbound = con.execute(
        "SELECT n.window_id, count(*) FROM node AS n LEFT JOIN (SELECT DISTINCT window_id, dst_node_id FROM claim "
        "WHERE claim_ns = passed_ns) AS c ON c.window_id = n.window_id AND c.dst_node_id = n.node_id "
        "WHERE c.window_id IS NULL GROUP BY n.window_id"
    ).fetchall()
    windows = {window for (window,) in con.execute("SELECT DISTINCT window_id FROM node").fetchall()}
    assert dict(unbound) == dict.fromkeys(windows, 1)


def _events_are_those_of_the_nodes(con: duckdb.DuckDBPyConnection) -> None:
    """Assert that operators, calls and GPU work have both of their ends in the graph.

    The table of events must also contain the events around host time and the owners of edges.
    """
    events = "SELECT window_id, event_id FROM critical_path_events WHERE class <> 'HOST'"
    nodes = "SELECT DISTINCT window_id, event_id FROM critical_path_nodes WHERE side <> 'frame'"
    assert con.execute(f"({events} EXCEPT {nodes}) UNION ALL ({nodes} EXCEPT {events})").fetchall() == []
    named = (
        "SELECT window_id, around_event_id FROM critical_path_events WHERE around_event_id IS NOT NULL "
        "UNION SELECT window_id, owner_event_id FROM critical_path_edges WHERE owner_event_id IS NOT NULL"
    )
    assert con.execute(f"{named} EXCEPT SELECT window_id, event_id FROM critical_path_events").fetchall() == []


def _the_path_covers_the_window(con: duckdb.DuckDBPyConnection) -> None:
    """Assert that the path is exactly as long as the window, and that its edges have labels and owners."""
    rows = con.execute(
        "SELECT w.path_end_ns - w.path_start_ns, sum(p.path_weight_ns), sum(p.duration_ns), count(p.bound_by), count(p.owner), "
        "count(p.seq) FROM critical_path_windows AS w JOIN critical_path AS p USING (window_id) GROUP BY w.window_id, 1"
    ).fetchall()
    for span, length, shown, n_bound, n_owned, n in rows:
        assert span == length == shown and n == n_bound == n_owned


def _launch_delays_are_idle_time(con: duckdb.DuckDBPyConnection, file: File) -> None:
    """Assert that a launch delay is at most the time for which the stream was idle, in any window.

    The allowance is the shortest launch plus the spread of launch times. Work that ended within this time held nothing
    up.
    """
    query = (
        "SELECT max(launch_ns + least(4 * launch_spread_ns, 20000)) FROM device_floors "
        "WHERE trace_profile_id IN (SELECT trace_profile_id FROM critical_path_windows)"
    )
    on_its_way = min(con.execute(query).fetchall()[0][0] or 0, LAUNCH_NS)
    for launch, work, ns in con.execute(
        "SELECT src_event_id, dst_event_id, path_weight_ns FROM critical_path_edges "
        "WHERE edge_type = 'KERNEL_LAUNCH_DELAY' AND path_weight_ns > 0"
    ).fetchall():
        assert ns <= file.idle_ns(work, file.span(launch)[0]) + on_its_way, f"launch {launch} of {work}: {ns} ns"


def _no_stretch_is_charged_twice(con: duckdb.DuckDBPyConnection, file: File) -> None:
    """Assert that an edge weighs at most the time between its ends.

    Each edge of the path begins where the previous one ended.
    """
    rows = con.execute(
        "SELECT window_id, src_event_id, src_is_start, dst_event_id, dst_is_start, path_weight_ns, weight_ns FROM critical_path "
        "ORDER BY window_id, seq"
    ).fetchall()
    last: dict[str, tuple[int, bool]] = {}
    for window, source, source_starts, event, starts, used, measured in rows:
        assert last.get(window, (source, source_starts)) == (source, source_starts)
        last[window] = event, starts
        between = file.span(event)[not starts] - file.span(source)[not source_starts]
        assert 0 <= used <= max(between, 0), f"{window}: {source} to {event}: {used} ns of {between}"
        assert used <= max(measured, 0)


def _shares_sum(con: duckdb.DuckDBPyConnection) -> None:
    wrong = con.execute(
        "SELECT window_id, sum(percent), sum(duration_ns), (SELECT sum(path_weight_ns) FROM critical_path AS p "
        "WHERE p.window_id = s.window_id) AS length FROM critical_path_summary AS s GROUP BY window_id "
        "HAVING sum(duration_ns) <> length OR abs(sum(percent) - 100) > 1e-6"
    ).fetchall()
    assert wrong == []


def _inferred_waits_are_possible(con: duckdb.DuckDBPyConnection, file: File) -> None:
    """Assert that awaited work ended by the time the inferred wait was over.

    In a trace with cuda_sync rows, a GPU activity has inferred waits only if the trace does not state the events of its
    waits.
    """
    rows = con.execute(
        "SELECT DISTINCT src_event_id, dst_event_id, dst_is_start, window_id FROM critical_path_edges WHERE is_inferred "
        "AND edge_type NOT IN ('HOST_GAP', 'THREAD_HAND_OFF') "  # these edges connect threads of the host
        "AND NOT waits_for_earlier_work"  # the awaited work is not a node of the window
    ).fetchall()
    query = "SELECT src_event_id, dst_event_id FROM critical_path WHERE path_weight_ns > 0"
    on_path = {*con.execute(query).fetchall()}
    if any(isinstance(e, dict) and e.get("cat") == "cuda_sync" for e in file.events):
        unstated = con.execute("SELECT waiting_kernel_id FROM event_waits WHERE is_inferred").fetchall()
        assert {(event,) for _, event, is_work, _ in rows if is_work} <= {*unstated}
    for source, event, is_work, _ in rows:
        assert file.events[source]["cat"] in GPU
        start, end = file.span(event)
        assert file.span(source)[1] <= (start + 2000 if is_work else end + CLOCK_NS)
        if is_work:
            assert file.events[event]["cat"] in GPU and file.stream(source) != file.stream(event)
        elif (source, event) in on_path:
            assert file.span(source)[1] > start


def _caveats_speak(con: duckdb.DuckDBPyConnection) -> None:
    """Assert that a window without a path has a caveat, and that every caveat has a text."""
    silent = con.execute(
        "SELECT window_id FROM critical_path_windows WHERE window_id NOT IN (SELECT window_id FROM critical_path) "
        "AND window_id NOT IN (SELECT window_id FROM critical_path_caveats WHERE caveat = 'no_critical_path')"
    ).fetchall()
    assert silent == []
    assert con.execute("SELECT count(*) FROM critical_path_caveats WHERE detail IS NULL OR n IS NULL").fetchall() == [
        (0,)
    ]
