"""Drawing of a trace under a what-if scenario: every event at its new time, and the new path as a track."""

from __future__ import annotations

from pathlib import Path as FilePath

import duckdb
import numpy as np
import numpy.typing as npt

from pipelines.base.paths import path_text
from pipelines.critical_path.answer.path_as_tables import show_path
from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.whatif.before_after import Path
from pipelines.critical_path.whatif.times import Clock, new_times
from pipelines.faces.drawings.overlay import write_overlay
from pipelines.models.sqltext import quoted

PREFIX = "what_if_"
"""Prefix of the source's name in the file's name, after the overlay's own prefix."""
_SCHEMA = "what_if"

# The overlay reads `events` and `critical_path`. This schema precedes the main schema in the search path.
_MOVED_EVENTS = f"""
    CREATE OR REPLACE VIEW {_SCHEMA}.events AS
    SELECT
        e.* REPLACE (
            coalesce(m.start_ns, e.start_ns) AS start_ns,
            CASE WHEN e.duration_ns IS NOT NULL THEN coalesce(m.duration_ns, e.duration_ns) END AS duration_ns
        )
    FROM {{events}} AS e LEFT JOIN {_SCHEMA}.moved AS m ON m.event_id = e.event_id
    WHERE e.trace_id = {{trace_id}}
"""


def write_redrawn(con: duckdb.DuckDBPyConnection, path: Path, source: FilePath | None, out_dir: FilePath) -> FilePath:
    """Write `overlaid_critical_path_what_if_<name of source>` into `out_dir` for Perfetto and return its path.

    `con` contains `events` and `traces` of the path's trace. Every event is kept, at its new time from `times.py`. Events on the
    new path have `args.critical = 1`. Raise GraphHasCycle.
    """
    window = path.window
    stored = con.execute("SELECT path FROM traces WHERE trace_id = ?", [window.trace_id]).fetchall()
    name = path_text(source.name) if source else FilePath(stored[0][0] or f"{window.trace_id}.json.gz").name
    database, schema = con.execute("SELECT current_database(), current_schema()").fetchall()[0]
    rows = moved_events(con, path)
    weight = path.weights.path[path.edges]
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}")
    try:
        con.execute(f"SET search_path = '{_SCHEMA},{schema}'")
        con.execute("CREATE OR REPLACE TABLE moved AS SELECT event_id, start_ns, duration_ns FROM rows")
        del rows
        show_path(con, window, path.edges, (weight, weight, weight))
        con.execute(_MOVED_EVENTS.format(events=f'"{database}"."{schema}".events', trace_id=quoted(window.trace_id)))
        return write_overlay(
            con,
            window.trace_id,
            FilePath(PREFIX + name),
            out_dir,
            window_id=window.window_id,
            only_critical=False,
            drawing="what-if",
        )
    finally:
        con.execute(f"SET search_path = '{schema}'")
        con.execute(f"DROP SCHEMA {_SCHEMA} CASCADE")


def moved_events(con: duckdb.DuckDBPyConnection, path: Path) -> dict[str, Ints]:
    """Return the new times of all events that have a time, as arrays `event_id` (ascending), `start_ns` and `duration_ns`."""
    window, trace = path.window, quoted(path.window.trace_id)
    rows = con.execute(
        "SELECT event_id, start_ns, coalesce(duration_ns, 0) AS duration_ns, ph IN ('E', 'e') AS is_end, "
        f"dense_rank() OVER (ORDER BY pid, tid) AS track FROM events WHERE trace_id = {trace} AND ph <> 'M' "
        "AND start_ns IS NOT NULL ORDER BY event_id"
    ).fetchnumpy()
    ids, ts, dur, track = (
        np.asarray(rows[k]).astype(np.int64) for k in ("event_id", "start_ns", "duration_ns", "track")
    )
    in_graph, start, end = new_times(window, path.weights.path)
    index = np.searchsorted(ids, window.events.event_id[in_graph])
    new_ts, new_end = _others(index, start, end, ts, dur, track, np.asarray(rows["is_end"]))
    new_ts[index], new_end[index] = start, end
    return {"event_id": ids, "start_ns": new_ts, "duration_ns": np.maximum(new_end - new_ts, 0)}


def _others(
    index: Ints, start: Ints, end: Ints, ts: Ints, dur: Ints, track: Ints, is_end: npt.NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """Compute new starts and ends (ns) of all events by the clocks of their tracks.

    `index` are the indices of the graph's events, whose new times are `start` and `end`. `ts`, `dur`: old times of all events.
    """
    old = np.append(ts[index], ts[index] + dur[index])
    new = np.append(start, end)
    ends = np.repeat([False, True], len(start))
    of_node = np.tile(track[index], 2)
    latest = Clock(old, new, ends)
    new_ts, new_end = ts.copy(), ts + dur
    by_track, nodes = np.argsort(track, kind="stable"), np.argsort(of_node, kind="stable")
    bounds = np.searchsorted(track[by_track], np.arange(1, track.max() + 2))
    node_bounds = np.searchsorted(of_node[nodes], np.arange(1, track.max() + 2))
    for i in range(len(bounds) - 1):
        on, nodes_on = by_track[bounds[i] : bounds[i + 1]], nodes[node_bounds[i] : node_bounds[i + 1]]
        clock = Clock(old[nodes_on], new[nodes_on], ends[nodes_on]) if len(nodes_on) else latest
        new_ts[on] = np.where(is_end[on], clock.move(ts[on], ends=True), clock.move(ts[on], ends=False))
        new_end[on] = clock.move(ts[on] + dur[on], ends=True)
    return new_ts, new_end
