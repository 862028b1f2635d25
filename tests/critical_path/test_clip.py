"""Assignment of events to windows, compared with a check of each event against each window."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.critical_path.graph.windows import PROFILES, WindowRequest, request_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.effort import examples
from tests.harness import call, connect, kernel, op, x

# Many events begin or end exactly at a window's bounds, lengths vary widely, and some events are far from all others.
TIMES = st.one_of(st.integers(0, 40), st.integers(0, 3000), st.integers(10**6, 10**6 + 20))
LENGTHS = st.one_of(st.integers(0, 20), st.sampled_from([16, 32, 64, 1000, 1024, 10**6]))
SPANS = st.lists(st.tuples(TIMES, LENGTHS, st.integers(1, 2)), min_size=1, max_size=7)


def events_of(windows: list, frames: list, operators: list, launches: list) -> list[dict[str, Any]]:
    events = [x("user_annotation", "w", at, dur, tid=tid) for at, dur, tid in windows]
    events += [x("python_function", "f.py(1): f", at, dur, tid=tid) for at, dur, tid in frames]
    events += [op("a", at, dur, tid=tid) for at, dur, tid in operators]
    for i, (at, dur, tid) in enumerate(launches, 1):
        events.append(kernel("k", at + 3, dur, i))
        if i % 3:  # for the others, the trace does not contain the launch
            events.append(call("cudaLaunchKernel", at, dur % 5 - 1, i, tid=tid))
    return events


def dicts(con: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    result = con.execute(query)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def is_in(e: dict[str, Any], w: dict[str, Any], works: dict[tuple[int, int], bool]) -> bool:
    """Return whether an event is in a window by the rules of HTA 2.8.2, and of design.md section 6 for host time."""
    starts, end = w["start_ns"] <= e["start_ns"] <= w["end_ns"], e["start_ns"] + e["duration_ns"]
    if e["side"] != "cpu":
        if e["launch_ns"] is None:
            kept = starts and not w["one_kernel_per_launch"] and e["side"] == "gpu"
        else:
            kept = w["start_ns"] <= e["launch_ns"] <= w["end_ns"]
            lasts = e["call_ns"] > 0 or (w["keep_zero_duration"] and e["call_ns"] == 0)
            kept = kept and (lasts or (w["covers_window"] and e["side"] == "gpu"))
        return kept and (e["duration_ns"] >= 0 or not w["covers_window"])
    lasts = e["duration_ns"] > 0 or (w["keep_zero_duration"] and e["duration_ns"] == 0)
    named = not w["covers_window"] and (e["is_forward"] or e["is_backward"])
    if starts and lasts and (e["is_operator"] or named or w["exit_pops_top"]):
        return True
    if not w["covers_window"] or e["is_operator"]:
        return False
    opens = w["annotation"] != "" and not e["is_frame"] and (e["start_ns"] == w["start_ns"] or end == w["end_ns"])
    owns = works.get((e["trace_profile_id"], e["thread_id"])) or opens
    least = 10_000 if e["is_frame"] else 1
    return bool(owns) and e["duration_ns"] >= least and e["start_ns"] <= w["end_ns"] and end >= w["start_ns"]


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(SPANS, SPANS, SPANS, SPANS)
def test_every_event_with_every_window(windows: list, frames: list, operators: list, launches: list) -> None:
    con, trace_id = connect(events_of(windows, frames, operators, launches))
    n = len(windows)
    ranges = [(0, n - 1), *((i, i) for i in range(n)), *((i, i + 1) for i in range(n - 1))]
    asked = [
        WindowRequest(trace_id, f"{profile}{first}:{last}", profile, "w", first, last)
        for profile in PROFILES
        for first, last in ranges
    ]
    request_windows(con, [*asked, *(WindowRequest(trace_id, f"all {profile}", profile) for profile in PROFILES)])
    run_models(
        con, load_catalog(), ["_clip", "_asked_windows", "_profiles", "_loaded_events", "_links", "_thread_roles"]
    )
    roles = con.execute("SELECT trace_profile_id, thread_id, is_working FROM _thread_roles").fetchall()
    works = {(profile, thread): is_working for profile, thread, is_working in roles}
    spans = dicts(con, "SELECT * FROM _asked_windows AS w JOIN _profiles AS p USING (trace_profile_id)")
    events = dicts(
        con,
        "SELECT e.*, c.start_ns AS launch_ns, c.duration_ns AS call_ns FROM _loaded_events AS e LEFT JOIN _links AS l "
        "ON l.trace_profile_id = e.trace_profile_id AND l.gpu_event_id = e.event_id AND l.is_known LEFT JOIN _loaded_events AS c "
        "ON c.trace_profile_id = l.trace_profile_id AND c.event_id = l.launch_event_id AND c.side = 'cpu'",
    )
    expected = [
        (w["window_no"], e["event_id"])
        for w in spans
        for e in events
        if e["trace_profile_id"] == w["trace_profile_id"] and is_in(e, w, works)
    ]
    assert con.execute("SELECT window_no, event_id FROM _clip ORDER BY ALL").fetchall() == sorted(expected)
    assert len(spans) > 2
