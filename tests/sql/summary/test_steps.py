"""The activity in profiler steps, compared with brute force over all pairs of event and step.

The models instead cut time into parts, or count from the trace's start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.models.catalog import load_catalog

MERGED = (
    "CREATE TABLE merged_intervals (trace_id VARCHAR, device BIGINT, scope VARCHAR, start_ns BIGINT, end_ns BIGINT)"
)
CLASS_OVERLAP = (
    "CREATE TABLE _class_overlap (trace_id VARCHAR, device BIGINT, start_ns BIGINT, end_ns BIGINT, n_compute BIGINT, "
    "n_communication BIGINT, n_memory BIGINT)"
)


class Stretch(NamedTuple):
    """An interval of a trace's time, in ns."""

    start: int
    end: int

    def runs_in(self, step: Stretch) -> bool:
        return self.start < step.end and self.end > step.start

    def begins_in(self, step: Stretch) -> bool:
        return step.start <= self.start < step.end

    def within(self, step: Stretch) -> int:
        return max(min(self.end, step.end) - max(self.start, step.start), 0)


def stretches(least: int = 0) -> st.SearchStrategy[list[Stretch]]:
    """Return a strategy of intervals in any order, nested or overlapping. Most are short, and some last to the end."""
    lasting = st.one_of(st.integers(least, 3), st.integers(least, 40), st.integers(1000, 4000))
    made = st.builds(lambda start, length: Stretch(start, start + length), st.integers(0, 1500), lasting)
    return st.lists(made, max_size=14)


def in_a_row(gaps: st.SearchStrategy[int]) -> st.SearchStrategy[list[Stretch]]:
    """Return a strategy of intervals that do not overlap, like those of one device and kind."""

    def placed(lengths: list[tuple[int, int]]) -> list[Stretch]:
        spans, at = [], 0
        for gap, length in lengths:
            spans.append(Stretch(at + gap, at + gap + length))
            at = spans[-1].end
        return spans

    return st.lists(st.tuples(gaps, st.integers(1, 200)), max_size=12).map(placed)


def connected(steps: Sequence[Stretch]) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE profiler_steps (trace_id VARCHAR, step BIGINT, start_ns BIGINT, end_ns BIGINT, duration_ns BIGINT)"
    )
    fill(con, "profiler_steps", [("t", n, *step, step.end - step.start) for n, step in enumerate(steps)])
    con.execute("CREATE TABLE step_lengths AS SELECT *, duration_ns AS host_ns FROM profiler_steps")
    run(con, "_steps_in_parts")
    return con


def fill(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[tuple]) -> None:
    for row in rows:
        con.execute(
            f"INSERT INTO {table} VALUES ({', '.join('NULL' if value is None else repr(value) for value in row)})"
        )


def run(con: duckdb.DuckDBPyConnection, model: str) -> list[tuple]:
    con.execute(f"CREATE TABLE {model} AS {load_catalog().models[model].sql}")
    return con.execute(f"FROM {model}").fetchall()


@pytest.mark.slow  # 4 s
@settings(max_examples=15, deadline=None)
@given(stretches(), stretches())
def test_events_and_work_in_steps(steps: list[Stretch], work: list[Stretch]) -> None:
    con = connected(steps)
    con.execute("CREATE TABLE category_sides AS SELECT 'kernel' AS cat, 'gpu' AS side")
    con.execute("CREATE TABLE events (trace_id VARCHAR, event_id BIGINT, cat VARCHAR, start_ns BIGINT)")
    con.execute("CREATE TABLE kernels (trace_id VARCHAR, event_id BIGINT, start_ns BIGINT, end_ns BIGINT)")
    fill(con, "events", [("t", n, "cpu_op", stretch.start) for n, stretch in enumerate(work)])
    fill(con, "events", [("t", 100, "kernel", 5), ("t", 101, "cpu_op", None), ("other", 102, "cpu_op", 5)])
    fill(con, "kernels", [("t", n, *stretch) for n, stretch in enumerate(work)])
    pairs = [("t", n, step, stretch, of) for n, stretch in enumerate(work) for step, of in enumerate(steps)]
    assert sorted(run(con, "_event_steps")) == [pair[:3] for pair in pairs if pair[3].begins_in(pair[4])]
    assert sorted(run(con, "_kernel_steps")) == [pair[:3] for pair in pairs if pair[3].runs_in(pair[4])]


@pytest.mark.slow  # 5 s
@settings(max_examples=15, deadline=None)
@given(stretches(), in_a_row(st.integers(1, 100)), in_a_row(st.integers(1, 100)))
def test_time_of_scopes_in_steps(steps: list[Stretch], all_work: list[Stretch], computing: list[Stretch]) -> None:
    con = connected(steps)
    con.execute(MERGED)
    con.execute(
        "CREATE TABLE kernels (trace_id VARCHAR, event_id BIGINT, device BIGINT, start_ns BIGINT, end_ns BIGINT, launch_event_id BIGINT)"
    )
    con.execute("CREATE TABLE _step_work (trace_id VARCHAR, event_id BIGINT, step BIGINT, is_own BOOLEAN)")
    con.execute(CLASS_OVERLAP)
    for scope, work in (("all", all_work), ("COMPUTATION", computing)):
        fill(con, "merged_intervals", [("t", 3, scope, *stretch) for stretch in work])
    run(con, "_scopes_in_steps")
    rows_by_step = {row[1]: row for row in run(con, "step_times")}
    for number, step in enumerate(steps):
        _, _, device, _, _, _, busy, _, compute, communication = rows_by_step[number]
        assert device == (3 if all_work or computing else None)
        if all_work or computing:
            sums = [sum(stretch.within(step) for stretch in scope) for scope in (all_work, computing)]
            assert [busy, compute, communication] == [*sums, 0]


@pytest.mark.slow  # 5 s
@settings(max_examples=15, deadline=None)
@given(
    in_a_row(st.integers(0, 90)), in_a_row(st.integers(0, 60)), st.lists(st.integers(0, 7), min_size=12, max_size=12)
)
def test_lost_time_of_steps(steps: list[Stretch], idle: list[Stretch], classes: list[int]) -> None:
    con = connected(steps)
    con.execute(MERGED)
    con.execute(CLASS_OVERLAP)
    con.execute(
        "CREATE TABLE idle_causes (trace_id VARCHAR, device BIGINT, start_ns BIGINT, end_ns BIGINT, cause VARCHAR, name VARCHAR)"
    )
    con.execute(
        "CREATE TABLE step_times AS SELECT trace_id, step, 3 AS device, start_ns, duration_ns, 0 AS busy_ns, 0 AS compute_ns FROM profiler_steps"
    )
    fill(
        con,
        "_class_overlap",
        [("t", 3, *gap, kind & 1, kind >> 1 & 1, kind >> 2) for gap, kind in zip(idle, classes, strict=False)],
    )
    fill(con, "_class_overlap", [("t", 3, 9999, None, 0, 0, 0)])
    run(con, "_scopes_in_steps")
    named = [(gap, "ab"[kind % 2], "xyz"[kind % 3]) for gap, kind in zip(idle, classes, strict=False)]
    fill(con, "idle_causes", [("t", 3, *gap, cause, name) for gap, cause, name in named])
    for _, number, _, _, _, _, communication, memory, _, _, cause, cause_ns, name in run(con, "step_losses"):
        step = steps[number]
        exposed = [
            sum(gap.within(step) for gap, kind in zip(idle, classes, strict=False) if kind in kinds)
            for kinds in ((2, 6), (4,))
        ]
        assert [communication, memory] == exposed
        causes = {
            of: sum(gap.within(step) for gap, c, _ in named if c == of and gap.runs_in(step))
            for of in "ab"
            if any(c == of and gap.runs_in(step) for gap, c, _ in named)
        }
        assert (
            (cause, cause_ns) == (min(causes, key=lambda of: (-causes[of], of)), max(causes.values()))
            if causes
            else cause is None
        )
        names = {
            of: sum(gap.within(step) for gap, c, n in named if (c, n) == (cause, of))
            for of in "xyz"
            if any((c, n) == (cause, of) and gap.runs_in(step) for gap, c, n in named)
        }
        assert name == (min(names, key=lambda of: (-names[of], of)) if names else None)


@pytest.mark.slow  # 4 s
@settings(max_examples=15, deadline=None)
@given(stretches(), in_a_row(st.integers(1, 100)), stretches(least=1))
def test_host_and_gpu_in_steps(steps: list[Stretch], gpu: list[Stretch], calls: list[Stretch]) -> None:
    con = connected(steps)
    con.execute(
        "CREATE TABLE _host_calls (trace_id VARCHAR, thread_id BIGINT, kind VARCHAR, start_ns BIGINT, end_ns BIGINT)"
    )
    con.execute("CREATE TABLE merged_intervals (trace_id VARCHAR, scope VARCHAR, start_ns BIGINT, end_ns BIGINT)")
    con.execute("CREATE TABLE traces AS SELECT 't' AS trace_id, 0 AS trace_start_ns, 6000 AS trace_end_ns")
    fill(con, "_host_calls", [("t", n % 2, "call", *stretch) for n, stretch in enumerate(calls)])
    fill(con, "merged_intervals", [("t", "all", *stretch) for stretch in gpu])
    host_at = {at for stretch in calls for at in range(*stretch)}
    gpu_at = {at for stretch in gpu for at in range(*stretch)}
    rows = run(con, "host_gpu_overlap")
    assert len(rows) == (len(steps) + 1 if gpu and calls else 0)
    for _, number, start, length, both, host, gpu_only, neither in rows:
        times = set(range(start, start + length))
        expected = [len(times & host_at & gpu_at), len(times & host_at - gpu_at), len(times & gpu_at - host_at)]
        assert [both, host, gpu_only] == expected and neither == length - sum(expected)
        assert number is None or (start, start + length) == steps[number]
