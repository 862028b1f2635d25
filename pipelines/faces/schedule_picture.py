"""Gantt chart of the task timings of a run in the lake."""

from __future__ import annotations

import duckdb

from pipelines.base.errors import TracelakeError
from pipelines.models.sqltext import quoted
from pipelines.schedule.pictures.gantt import gantt
from pipelines.schedule.pictures.timeline import Span, Stall, Timeline
from pipelines.schedule.plan.plan import DEFAULT_STREAM

SHOWN_ITERATIONS = 8  # from the middle, because the first iterations fill the pipeline


class NoPicture(TracelakeError, LookupError):
    """Raised if a run is not in the lake, or has no task timings to draw."""


def picture_of_run(con: duckdb.DuckDBPyConnection, run_id: str, iterations: int = SHOWN_ITERATIONS) -> str:
    """Return SVG of the middle iterations of a run.

    `con` has the lake's tables. Raise NoPicture if the run is unknown or has no timings of tasks in these iterations.
    """
    run = con.execute(
        "SELECT engine, device, device_name, iterations, (SELECT min(plan) FROM schedule_plans AS p "
        f"WHERE p.plan_hash = r.plan_hash) FROM schedule_runs AS r WHERE run_id = {quoted(run_id)}"
    ).fetchall()
    if not run:
        raise NoPicture(f"no run {run_id!r} in the lake; `SELECT run_id FROM schedule_runs` lists them")
    engine, device, device_name, n, plan = run[0]
    first = max((n or 0) // 2 - iterations // 2, 0)
    last = first + iterations - 1
    rows = con.execute(
        "SELECT t.task, t.iteration, "
        "CASE WHEN r.engine <> 'serial' THEN p.stream END, "  # a serial run has one stream
        "coalesce(t.submit_ns, 0), "
        "coalesce(t.device_start_ns, t.start_ns), coalesce(t.device_end_ns, t.end_ns), t.stall_ns, t.stall_cause "
        "FROM schedule_task_timings AS t JOIN schedule_runs AS r USING (run_id) "
        # Older lakes have a plan's tasks several times.
        "LEFT JOIN (SELECT DISTINCT plan_hash, task, stream, position FROM schedule_plans) AS p "
        "ON p.plan_hash = r.plan_hash AND p.task = t.task "
        f"WHERE t.run_id = {quoted(run_id)} AND t.iteration BETWEEN {first} AND {last} "
        "ORDER BY t.iteration, p.position"  # gives a task the same color under every engine
    ).fetchall()
    spans = [
        Span(task, i, stream or DEFAULT_STREAM, submit, start, end, (_stall(ns, cause),) if ns else ())
        for task, i, stream, submit, start, end, ns, cause in rows
        if start is not None and end is not None
    ]
    if not spans:
        problem = f"run {run_id!r} has no task timings of iterations {first} to {last}"
        raise NoPicture(problem, "Add --iterations N, which draws N iterations of the middle.")
    begin = min(span.start_ns for span in spans)
    return gantt(Timeline(engine, spans), title=f"{plan}: {engine} on {device_name or device}", start_ns=begin)


def _stall(ns: int, cause: str | None) -> Stall:
    """Parse a stall from its text `kind: task iN`. `ns`: its duration."""
    kind, _, on = (cause or "event").partition(": ")
    task, _, iteration = on.rpartition(" i")
    return Stall(kind, ns, task or on, int(iteration) if iteration.isdigit() else None)
