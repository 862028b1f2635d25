"""Events of one or more traces as a trace for Perfetto or chrome://tracing.

The rows of a query identify the events by trace_id and event_id. The events are written unchanged, with the arrows between
them. row_slice.py draws rows that do not identify events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import duckdb

from pipelines.base.errors import TracelakeError
from pipelines.faces.cells import as_json
from pipelines.faces.drawings.arrows import anchor_arrows
from pipelines.faces.drawings.chrome_trace import based, flow_of, trace_event, whole_seconds, write_trace
from pipelines.models.sqltext import quoted

_PIDS = 10_000
_BATCH = 20_000
# Phases of entries that belong to other events: names, ends, and arrows, which are drawn if both of their slices are.
_OF_OTHERS = "('M', 'E', 's', 't', 'f')"
SLICE = "slice"
"""Kind of drawing in a file's marker."""
_SHOWN = 20  # steps in a message


class NoSlice(TracelakeError, ValueError):
    """Raised if the rows cannot be drawn. The message names the missing part."""


@dataclass(frozen=True)
class Sliced:
    """Result of writing a slice: the file, and the numbers of events, slices, counter values and marks in it.

    `left_out`: number of rows that were skipped, because they have no time, are duplicates, or match no event.
    """

    path: Path
    n_events: int = 0
    n_slices: int = 0
    n_counters: int = 0
    n_marks: int = 0
    left_out: int = 0


def step_query(step: int, rank: int | None, trace: str) -> str:
    """Return SQL for the events of a profiler step: host events during the step, and the GPU work that it launched.

    `trace`: prefix of a trace's id, or the name of its file, or "" for all traces.
    """
    condition = f"s.step = {step} AND {_asked_traces(rank, trace)}"
    return f"""
        WITH steps AS (SELECT s.* FROM profiler_steps AS s JOIN traces AS t USING (trace_id) WHERE {condition})
        SELECT e.trace_id, e.event_id FROM events AS e JOIN steps AS s USING (trace_id)
        WHERE e.ph <> 'M' AND e.start_ns < s.end_ns
            AND (e.start_ns >= s.start_ns OR e.start_ns + e.duration_ns > s.start_ns)
            AND e.event_id NOT IN (SELECT k.event_id FROM kernels AS k WHERE k.trace_id = e.trace_id)
        UNION
        SELECT k.trace_id, k.event_id
        FROM kernels AS k
        JOIN steps AS s USING (trace_id)
        LEFT JOIN events AS l ON l.trace_id = k.trace_id AND l.event_id = k.launch_event_id
        WHERE coalesce(l.start_ns, k.start_ns) >= s.start_ns AND coalesce(l.start_ns, k.start_ns) < s.end_ns
    """


def _asked_traces(rank: int | None, trace: str) -> str:
    of_rank = f" AND t.rank = {rank}" if rank is not None else ""
    return f"(starts_with(t.trace_id, {quoted(trace)}) OR t.file = {quoted(trace)}){of_rank}"


def step_meant(con: duckdb.DuckDBPyConnection, step: int, rank: int | None, trace: str) -> int:
    """Return the number of the requested step.

    This is `step` if a step has this number, or else the number of the step at position `step`, counted from 1. `con`
    contains `traces` and `profiler_steps`. Raise NoSlice if the trace or the step does not exist. The message lists the
    steps.
    """
    condition = _asked_traces(rank, trace)
    if not con.execute(f"SELECT 1 FROM traces AS t WHERE {condition} LIMIT 1").fetchall():
        raise NoSlice("no such trace: --trace accepts an id prefix or a file name")
    rows = con.execute(
        f"SELECT DISTINCT s.step FROM profiler_steps AS s JOIN traces AS t USING (trace_id) WHERE {condition} ORDER BY 1"
    ).fetchall()
    steps = [number for (number,) in rows]
    if not steps:
        raise NoSlice("the trace has no profiler steps")
    if step in steps or 1 <= step <= len(steps):
        return step if step in steps else steps[step - 1]
    raise NoSlice(f"there is no step {step}: the trace has {listed(steps)}")


def listed(steps: Sequence[int]) -> str:
    """Return the numbers of steps as text, in order."""
    last = f", …, {steps[-1]}" if len(steps) > _SHOWN else ""
    return f"step{'s' if len(steps) > 1 else ''} {', '.join(map(str, steps[:_SHOWN]))}{last}"


def write_events(con: duckdb.DuckDBPyConnection, asked: str, target: Path) -> Sliced:
    """Write the events that the table `asked` of `con` identifies by trace_id and event_id, with its other columns as arguments.

    Events of several traces keep their own clocks and get separate processes per trace, named after the rank. Raise NoSlice if
    no row identifies an event.
    """
    other_columns = [
        name for name, *_ in con.execute(f"DESCRIBE {asked}").fetchall() if name not in ("trace_id", "event_id")
    ]
    extra = (
        f"CAST(to_json({{{', '.join(f'{_key(name)}: {_name(name)}' for name in other_columns)}}}) AS VARCHAR)"
        if other_columns
        else "NULL"
    )
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE _sliced AS SELECT trace_id, event_id, any_value({extra}) AS extra FROM {asked} "
        "WHERE trace_id IS NOT NULL AND event_id IS NOT NULL GROUP BY ALL"
    )
    ((n_rows, n_named),) = con.execute(
        f"SELECT (SELECT count(*) FROM {asked}), "
        "(SELECT count(*) FROM _sliced JOIN events AS e USING (trace_id, event_id) WHERE e.start_ns IS NOT NULL)"
    ).fetchall()
    traces = con.execute(
        "SELECT s.trace_id, any_value(t.rank), min(e.start_ns) FROM _sliced AS s JOIN traces AS t USING (trace_id) "
        f"JOIN events AS e USING (trace_id, event_id) WHERE e.ph NOT IN {_OF_OTHERS} AND e.start_ns IS NOT NULL "
        "GROUP BY s.trace_id ORDER BY 2 NULLS LAST, 1"
    ).fetchall()
    if not traces:
        raise NoSlice("nothing to draw: no row names an event of the traces that has a time")
    base_ns = whole_seconds(min((first for *_, first in traces if first is not None), default=0))
    counted = [0]
    many = len(traces) > 1
    parts = (
        _of_trace(con, trace, base_ns, index if many else None, rank, counted)
        for index, (trace, rank, _) in enumerate(traces)
    )
    write_trace(target, SLICE, (trace for trace, *_ in traces), based(base_ns), chain.from_iterable(parts))
    return Sliced(target, n_events=counted[0], left_out=max(0, n_rows - n_named))


def _of_trace(
    con: duckdb.DuckDBPyConnection,
    trace_id: str,
    base_ns: int,
    trace_index: int | None,
    rank: int | None,
    counted: list[int],
) -> Iterator[str]:
    parameters = {"trace_id": trace_id}
    con.execute(
        "CREATE OR REPLACE TEMP TABLE _kept_slices AS SELECT event_id FROM _sliced WHERE trace_id = $trace_id",
        parameters,
    )
    anchor_arrows(con, trace_id, only_kept=True)
    pids = [
        pid
        for (pid,) in con.execute(
            "SELECT DISTINCT pid FROM events WHERE trace_id = $trace_id ORDER BY pid", parameters
        ).fetchall()
    ]
    moved = {pid: pid if trace_index is None else str((trace_index + 1) * _PIDS + n) for n, pid in enumerate(pids)}
    prefix = "" if trace_index is None else f"rank {rank}: " if rank is not None else f"{trace_id}: "
    cursor = con.execute(
        """
        SELECT e.ph, e.cat, e.name, e.pid, e.tid, e.start_ns, e.duration_ns, e.flow_id, e.bp, e.scope, e.args, e.extra, s.extra
        FROM events AS e
        LEFT JOIN _sliced AS s ON s.trace_id = e.trace_id AND s.event_id = e.event_id
        WHERE e.trace_id = $trace_id AND e.ph <> 'E' AND (
            e.ph = 'M'
            OR (e.ph NOT IN ('s', 't', 'f') AND s.event_id IS NOT NULL AND e.start_ns IS NOT NULL)
            OR e.event_id IN (SELECT a.event_id FROM _anchored_flows AS a)
        )
        ORDER BY e.event_id
        """,
        parameters,
    )
    while batch := cursor.fetchmany(_BATCH):
        for ph, cat, name, pid, tid, start_ns, duration_ns, flow_id, bp, scope, args, extra, query_values in batch:
            is_complete = (
                ph == "B" and duration_ns is not None
            )  # drawn as X, because the rows may not contain its E event
            if ph == "M" and name == "process_name" and prefix:
                named = json.loads(args or "{}")
                args = json.dumps({"name": prefix + str(named.get("name", pid) if isinstance(named, dict) else pid)})
            counted[0] += ph not in ("M", "s", "t", "f")
            yield trace_event(
                "X" if is_complete else ph,
                cat,
                name,
                moved[pid],
                tid,
                None if start_ns is None else 0 if ph == "M" else start_ns - base_ns,
                duration_ns if is_complete or ph != "B" else None,
                flow_id=flow_id if flow_id is None or trace_index is None else flow_of(trace_index, flow_id),
                bp=bp,
                scope=scope,
                args=args if query_values is None else _with(args, query_values),
                extra=extra,
            )


def _with(args: str | None, query_values: str) -> str:
    trace_args = json.loads(args or "{}")
    return as_json(
        {**(trace_args if isinstance(trace_args, dict) else {"args": trace_args}), "query": json.loads(query_values)}
    )


def _key(name: str) -> str:
    return quoted(name)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
