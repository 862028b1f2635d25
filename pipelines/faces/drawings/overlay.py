"""Overlay of the critical path as a trace for Perfetto or chrome://tracing: marked events, arrows, and a separate track.

The file is written as a stream. Events are read from table `events` in batches, so memory does not grow with the trace.
Unlike HTA's overlay, it has a track for the path, because a search for `critical` finds nothing in Perfetto.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.groups import in_groups
from pipelines.base.paths import path_text
from pipelines.critical_path.graph.edge_types import EDGE_TYPES, HTA_TYPES
from pipelines.faces.drawings.arrows import anchor_arrows
from pipelines.faces.drawings.chrome_trace import (
    DRAWN,
    drawn_traces,
    step_times,
    trace_event,
    whole_seconds,
    with_critical,
    write_trace,
)
from pipelines.faces.drawings.counter_tracks import counter_events
from pipelines.models.sqltext import parquet_rows, row
from pipelines.readers.kineto import base_of

PREFIX = "overlaid_critical_path_"
"""Prefix of the file's name, as in HTA."""
TRACK = "critical path"
"""Name of the path's process and thread."""
SHOW_ZERO_LAUNCHES = "CRITICAL_PATH_SHOW_ZERO_WEIGHT_LAUNCH_EDGE"
"""Environment variable of HTA: `1` keeps launch edges of weight 0 if all edges are drawn."""

Sized = tuple[str, str, int]
"""A trace: its id, the path of its file, and its number of events."""

_ARROWS_OF = "critical_path"  # category and name of the path's arrows
_BATCH = 20_000
# From here on (101 days), doubles of microseconds are more than a nanosecond apart.
_DOUBLES_FROM_NS = 2**43 * 1000
_ON_PATH = row(name for name, kind in EDGE_TYPES.items() if kind.arrow_on_path)
_AT_ZERO = row(name for name, kind in EDGE_TYPES.items() if kind.arrow_at_zero)
_LABELS = {name: kind.track_label for name, kind in EDGE_TYPES.items()}

_EVENTS = """
    WITH on_path AS (
        SELECT src_event_id AS event_id FROM critical_path WHERE trace_id = $trace_id AND window_id = $window_id
        UNION
        SELECT dst_event_id FROM critical_path WHERE trace_id = $trace_id AND window_id = $window_id
    )
    SELECT e.ph, e.cat, e.name, e.pid, e.tid, e.start_ns, e.duration_ns, e.flow_id, e.bp, e.scope, e.args, e.extra,
        p.event_id IS NOT NULL
    FROM events AS e LEFT JOIN on_path AS p ON p.event_id = e.event_id
    WHERE e.trace_id = $trace_id AND e.event_id >= $first AND e.event_id < $past AND e.ph IS NOT NULL
        AND (NOT $only_critical OR e.ph NOT IN ('X', 'B', 'E') OR e.event_id IN (SELECT k.event_id FROM _kept_slices AS k))
        AND (e.ph NOT IN ('s', 't', 'f') OR e.event_id IN (SELECT a.event_id FROM _anchored_flows AS a))
    ORDER BY e.event_id
"""
_KEPT_SLICES = """
    CREATE OR REPLACE TEMP TABLE _kept_slices AS
    SELECT src_event_id AS event_id FROM critical_path WHERE trace_id = $trace_id AND window_id = $window_id
    UNION
    SELECT dst_event_id FROM critical_path WHERE trace_id = $trace_id AND window_id = $window_id
    UNION
    SELECT event_id FROM events
    WHERE trace_id = $trace_id AND (cat IN ('user_annotation', 'python_function') OR ph IN ('B', 'E'))
"""
_ENDS = """
    s.pid, s.tid, s.start_ns, coalesce(s.duration_ns, 0), e.src_is_start,
    d.pid, d.tid, d.start_ns, coalesce(d.duration_ns, 0), e.dst_is_start
"""
_JOIN_ENDS = """
    JOIN events AS s ON s.trace_id = e.trace_id AND s.event_id = e.src_event_id
    JOIN events AS d ON d.trace_id = e.trace_id AND d.event_id = e.dst_event_id
    WHERE e.trace_id = $trace_id AND e.window_id = $window_id
"""
_PATH_ARROWS = f"""
    SELECT {_ENDS}, e.edge_type, e.weight_ns, TRUE FROM critical_path AS e {_JOIN_ENDS}
        AND e.edge_type IN {_ON_PATH}
    ORDER BY e.seq
"""
_ALL_ARROWS = f"""
    SELECT {_ENDS}, e.edge_type, e.weight_ns, p.seq IS NOT NULL
    FROM critical_path_edges AS e
    LEFT JOIN critical_path AS p
        ON p.trace_id = e.trace_id AND p.window_id = e.window_id
        AND p.src_event_id = e.src_event_id AND p.src_is_start = e.src_is_start
        AND p.dst_event_id = e.dst_event_id AND p.dst_is_start = e.dst_is_start
    {_JOIN_ENDS} AND ($zero_launches OR e.edge_type IN {_AT_ZERO} OR e.weight_ns <> 0)
    ORDER BY e.edge_id
"""
_STEPS = """
    SELECT CASE WHEN e.src_is_start THEN s.start_ns ELSE s.start_ns + coalesce(s.duration_ns, 0) END, e.path_weight_ns,
        e.edge_type, e.event_id, e.name, e.bound_by
    FROM critical_path AS e JOIN events AS s ON s.trace_id = e.trace_id AND s.event_id = e.src_event_id
    WHERE e.trace_id = $trace_id AND e.window_id = $window_id AND e.path_weight_ns > 0
    ORDER BY e.seq
"""


def write_overlay(
    con: duckdb.DuckDBPyConnection,
    trace_id: str,
    source: Path | None,
    out_dir: Path,
    *,
    window_id: str = "full",
    only_critical: bool = True,
    all_edges: bool = False,
    on_left_out: Callable[[int], object] | None = None,
    drawing: str = "overlay",
) -> Path:
    """Write `overlaid_critical_path_<name of source>` into `out_dir` (created if missing) and return its path.

    If that file is an overlay of another trace (for example, of another rank in the same file), add the trace's id to
    the name.

    `con` contains `events`, `traces` and `critical_path`, and `critical_path_edges` for `all_edges`. `source` determines only
    the name (None: the path in `traces`). A file whose name ends in .gz is compressed. `drawing`: the kind of drawing in the
    file's marker. Raise ValueError if the trace is unknown.

    `only_critical` keeps the events of the path, annotations, Python frames and everything that is not a slice. It draws only
    the path's edges (as in HTA, it overrides `all_edges`). Otherwise every event is kept. In both cases the path's events have
    `args.critical = 1`. Entries of traceEvents without a phase are skipped, because no viewer shows them. The trace's own
    arrows without a slice at one of their ends are also skipped, and `on_left_out` gets the number of their events.
    Tables of `counter_tracks.TABLES` in `con` become counter tracks.
    """
    stored = con.execute("SELECT path, metadata FROM traces WHERE trace_id = ?", [trace_id]).fetchone()
    if stored is None:
        raise ValueError(f"there is no trace {trace_id}")
    name = path_text(source.name) if source else Path(stored[0]).name if stored[0] else f"{trace_id}.json.gz"
    metadata, base_ns = _with_base(con, trace_id, (stored[1] or "{}").strip())
    window = {"trace_id": trace_id, "window_id": window_id}
    con.execute(_KEPT_SLICES, window)
    left_out = anchor_arrows(con, trace_id, only_kept=only_critical)
    if on_left_out is not None:
        on_left_out(left_out)
    path_pid, counter_pid = _free_pids(con, trace_id)
    target = out_dir / (PREFIX + name)
    if drawn_traces(target) not in ([], [trace_id]):
        stem, dot, suffixes = target.name.partition(".")
        target = target.with_name(f"{stem}_{trace_id}{dot}{suffixes}")
    lines = chain(
        _events(con, window, base_ns, only_critical),
        _arrows(con, window, base_ns, all_edges and not only_critical),
        _track(con, window, base_ns, path_pid),
        counter_events(con, trace_id, counter_pid, base_ns),
    )
    write_trace(target, drawing, [trace_id], metadata, lines)
    return target


def traces_with_path(tables: Mapping[str, Path]) -> list[Sized]:
    """Return the traces with a path in a batch, from its Parquet files of `traces` and `critical_path`."""
    with database.scratch() as con:
        return con.execute(
            f"SELECT trace_id, path, n_events FROM {parquet_rows(tables['traces'])} "
            f"WHERE trace_id IN (SELECT trace_id FROM {parquet_rows(tables['critical_path'])}) ORDER BY trace_id"
        ).fetchall()


def few_at_a_time(
    tables: Mapping[str, Path], traces: Iterable[Sized]
) -> Iterator[tuple[duckdb.DuckDBPyConnection, list[Sized]]]:
    """Yield connections for `write_overlay`, each with a group of the traces. `tables`: Parquet files of a batch, by table.

    Small traces are copied into memory in groups, because each of the ten queries of an overlay would otherwise re-read
    the files of all traces. A large trace gets its own group and is read from the files.
    """
    traces = list(traces)
    if not traces:
        return
    with database.connect() as con:
        for group in in_groups(((trace, trace[2]) for trace in traces), _BATCH):
            kind = "TABLE" if len(group) > 1 else "VIEW"
            only = row(trace[0] for trace in group)
            for table, path in tables.items():
                con.execute(f"CREATE {kind} {table} AS FROM {parquet_rows(path)} WHERE trace_id IN {only}")
            yield con, group
            for table in tables:
                con.execute(f"DROP {kind} {table}")


def _with_base(con: duckdb.DuckDBPyConnection, trace_id: str, metadata: str) -> tuple[str, int]:
    """Return the metadata and its `baseTimeNanoseconds`, the ns to which all times of the file are relative.

    If the metadata has no base and times have fractions of a microsecond, add a base. Viewers store microseconds as doubles,
    whose grid since 1970 is 0.25 us. Without a base adjacent slices would overlap, and Perfetto drops overlapping slices.
    """
    fields = json.loads(metadata)
    if DRAWN in fields:  # a drawing, such as a slice; the overlay gets its own marker
        metadata = json.dumps({key: value for key, value in fields.items() if key != DRAWN})
    declared_base = fields.get("baseTimeNanoseconds")
    if declared_base is not None:
        return metadata, base_of({"baseTimeNanoseconds": declared_base})
    first, fractions = con.execute(
        "SELECT min(start_ns), bool_or(start_ns % 1000 <> 0 OR duration_ns % 1000 <> 0) FROM events "
        "WHERE trace_id = ? AND ph = 'X'",
        [trace_id],
    ).fetchall()[0]
    if not fractions or first < _DOUBLES_FROM_NS:
        return metadata, 0
    base_ns = whole_seconds(first)
    inside = metadata[1:-1].strip()
    return f'{{{inside}{", " if inside else ""}"baseTimeNanoseconds": {base_ns}}}', base_ns


def _rows(con: duckdb.DuckDBPyConnection, query: str, values: dict[str, Any]) -> Iterator[tuple]:
    cursor = con.execute(query, values)
    while rows := cursor.fetchmany(_BATCH):
        yield from rows


def _events(con: duckdb.DuckDBPyConnection, window: dict[str, str], base_ns: int, only_critical: bool) -> Iterator[str]:
    """Yield the trace's own events, one range of event_id at a time, so that no query sorts or loads all of them."""
    past = con.execute("SELECT coalesce(max(event_id) + 1, 0) FROM events WHERE trace_id = ?", [window["trace_id"]])
    for first in range(0, past.fetchall()[0][0], _BATCH):
        values = {**window, "first": first, "past": first + _BATCH, "only_critical": only_critical}
        for ph, cat, name, pid, tid, ts, dur, flow_id, bp, scope, args, extra, critical in _rows(con, _EVENTS, values):
            yield trace_event(
                ph,
                cat,
                name,
                pid,
                tid,
                # In some traces, process names have time 0 although other events are relative to a base.
                None if ts is None else max(ts - base_ns, 0) if ph == "M" else ts - base_ns,
                None if ph == "B" else dur,  # the duration of a B event is in its E event
                flow_id=flow_id,
                bp=bp,
                scope=scope,
                args=with_critical(args) if critical else args,
                extra=extra,
            )


def _arrows(con: duckdb.DuckDBPyConnection, window: dict[str, str], base_ns: int, all_edges: bool) -> Iterator[str]:
    """Yield flow events, one pair per edge.

    As in HTA, these are the path's dependencies, launches and synchronizations, or all edges.
    """
    query, values = (_ALL_ARROWS, {**window, "zero_launches": os.environ.get(SHOW_ZERO_LAUNCHES) == "1"})
    if not all_edges:
        query, values = _PATH_ARROWS, window
    for flow_id, edge in enumerate(_rows(con, query, values), _free_flow(con, window["trace_id"])):
        edge_type, weight_ns, critical = edge[10:]
        args = json.dumps(
            {"weight": weight_ns / 1000, "critical": critical, "type": HTA_TYPES.get(edge_type, edge_type)}
        )
        for ph, bp, (pid, tid, start_ns, duration_ns, is_start) in (("s", None, edge[:5]), ("f", "e", edge[5:10])):
            # A slice excludes its own end, so end the arrow 1 us earlier, where a viewer finds the slice (as HTA does
            # on the GPU).
            time_ns = start_ns if is_start else start_ns + duration_ns - min(1000, duration_ns)
            yield trace_event(
                ph,
                _ARROWS_OF,
                _ARROWS_OF,
                pid,
                tid,
                time_ns - base_ns,
                None,
                flow_id=str(flow_id),
                bp=bp,
                args=args,
            )


def _free_pids(con: duckdb.DuckDBPyConnection, trace_id: str) -> list[str]:
    """Return two unused process ids: for the path and for the counters."""
    pids = {pid for (pid,) in con.execute("SELECT DISTINCT pid FROM events WHERE trace_id = ?", [trace_id]).fetchall()}
    return list(islice((str(n) for n in range(900_000_000, 901_000_000) if str(n) not in pids), 2))


def _free_flow(con: duckdb.DuckDBPyConnection, trace_id: str) -> int:
    """Return the first unused id of a path's arrow. The trace may already contain such arrows if it is an overlay itself."""
    query = "SELECT coalesce(max(TRY_CAST(flow_id AS INTEGER)), -1) FROM events WHERE trace_id = ? AND cat = ?"
    return con.execute(query, [trace_id, _ARROWS_OF]).fetchall()[0][0] + 1


def _track(con: duckdb.DuckDBPyConnection, window: dict[str, str], base_ns: int, pid: str) -> Iterator[str]:
    """Yield the events of the path's own process: its steps with a duration, in order."""
    for kind, args in (
        ("process_name", {"name": TRACK}),
        ("thread_name", {"name": TRACK}),
        ("process_sort_index", {"sort_index": -1}),
    ):
        yield trace_event("M", None, kind, pid, "0", 0, None, args=json.dumps(args))
    steps = ((row[0], row[1], row[2:]) for row in _rows(con, _STEPS, window))
    for start_ns, duration_ns, weight_ns, (edge_type, event_id, name, bound_by) in step_times(steps):
        args: dict[str, Any] = {
            "bound_by": bound_by,
            "event_id": event_id,
            "type": HTA_TYPES.get(edge_type, edge_type),
        }
        if duration_ns != weight_ns:
            args["weight"] = weight_ns / 1000
        label = _LABELS.get(edge_type, "") + (name or edge_type)
        yield trace_event("X", "critical_path", label, pid, "0", start_ns - base_ns, duration_ns, args=json.dumps(args))
