"""The trace as it would look under a scenario: every event at its new time, and the new path as a track (HTA-72)."""

from __future__ import annotations

from pathlib import Path as FilePath

import duckdb
import numpy as np
import numpy.typing as npt

from pipelines.base.paths import path_text
from pipelines.critical_path.answer.found_path import show_path
from pipelines.critical_path.graph.dependency_graph import Ints
from pipelines.critical_path.whatif.before_after import Path
from pipelines.critical_path.whatif.times import Clock, new_times
from pipelines.faces.drawings.overlay import write_overlay
from pipelines.models.sqltext import quoted

PREFIX = "what_if_"
"""What the source's name is preceded by; the overlay's own prefix comes before it."""
_SCHEMA = "what_if"

# The overlay reads `events` and `critical_path`: here they are in a schema that is searched first.
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

    `con` holds `events` and `traces` of the path's trace. Every event is kept, at the time that `times.py` gives it;
    those on the new path have `args.critical = 1`. Raises GraphHasCycle.
    """
    of = path.window
    stored = con.execute("SELECT path FROM traces WHERE trace_id = ?", [of.trace_id]).fetchall()
    name = path_text(source.name) if source else FilePath(stored[0][0] or f"{of.trace_id}.json.gz").name
    database, schema = con.execute("SELECT current_database(), current_schema()").fetchall()[0]
    rows = moved_events(con, path)
    weight = path.weights.path[path.edges]
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}")
    try:
        con.execute(f"SET search_path = '{_SCHEMA},{schema}'")
        con.execute("CREATE OR REPLACE TABLE moved AS SELECT event_id, start_ns, duration_ns FROM rows")
        del rows
        show_path(con, of, path.edges, (weight, weight, weight))
        con.execute(_MOVED_EVENTS.format(events=f'"{database}"."{schema}".events', trace_id=quoted(of.trace_id)))
        return write_overlay(
            con,
            of.trace_id,
            FilePath(PREFIX + name),
            out_dir,
            window_id=of.window_id,
            only_critical=False,
            drawing="what-if",
        )
    finally:
        con.execute(f"SET search_path = '{schema}'")
        con.execute(f"DROP SCHEMA {_SCHEMA} CASCADE")


def moved_events(con: duckdb.DuckDBPyConnection, path: Path) -> dict[str, Ints]:
    """New `start_ns` and `duration_ns` of every event that has a time, by `event_id`, in order of it."""
    window, trace = path.window, quoted(path.window.trace_id)
    rows = con.execute(
        "SELECT event_id, start_ns, coalesce(duration_ns, 0) AS duration_ns, ph IN ('E', 'e') AS is_end, "
        f"dense_rank() OVER (ORDER BY pid, tid) AS track FROM events WHERE trace_id = {trace} AND ph <> 'M' "
        "AND start_ns IS NOT NULL ORDER BY event_id"
    ).fetchnumpy()
    ids, ts, dur, track = (
        np.asarray(rows[k]).astype(np.int64) for k in ("event_id", "start_ns", "duration_ns", "track")
    )
    known, start, end = new_times(window, path.weights.path)
    place = np.searchsorted(ids, window.events.event_id[known])
    new_ts, new_end = _others(place, start, end, ts, dur, track, np.asarray(rows["is_end"]))
    new_ts[place], new_end[place] = start, end
    return {"event_id": ids, "start_ns": new_ts, "duration_ns": np.maximum(new_end - new_ts, 0)}


def _others(
    place: Ints, start: Ints, end: Ints, ts: Ints, dur: Ints, track: Ints, is_end: npt.NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """New starts and ends of all events by the clocks of their tracks.

    The events at `place` are those of the graph, whose new times `start` and `end` are known.
    """
    old = np.append(ts[place], ts[place] + dur[place])
    new = np.append(start, end)
    ends = np.repeat([False, True], len(start))
    of_node = np.tile(track[place], 2)
    latest = Clock(old, new, ends)
    new_ts, new_end = ts.copy(), ts + dur
    by_track, nodes = np.argsort(track, kind="stable"), np.argsort(of_node, kind="stable")
    bounds = np.searchsorted(track[by_track], np.arange(1, track.max() + 2))
    node_bounds = np.searchsorted(of_node[nodes], np.arange(1, track.max() + 2))
    for i in range(len(bounds) - 1):
        on, known = by_track[bounds[i] : bounds[i + 1]], nodes[node_bounds[i] : node_bounds[i + 1]]
        clock = Clock(old[known], new[known], ends[known]) if len(known) else latest
        new_ts[on] = np.where(is_end[on], clock.move(ts[on], ends=True), clock.move(ts[on], ends=False))
        new_end[on] = clock.move(ts[on] + dur[on], ends=True)
    return new_ts, new_end
