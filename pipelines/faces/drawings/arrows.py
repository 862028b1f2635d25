"""Selection of a trace's own arrows that can be drawn. They have a slice at each end.

Viewers attach an arrow's end to the enclosing slice on its thread (`f` without `bp`: to the next slice there). Without a slice
the arrow has no target.
"""

from __future__ import annotations

import duckdb

_SLICES = """
    SELECT e.pid, e.tid, e.start_ns, e.start_ns + greatest(coalesce(e.duration_ns, 0), 1) AS end_ns
    FROM events AS e
    WHERE e.trace_id = $trace_id AND (e.ph = 'X' OR (e.ph = 'B' AND e.duration_ns IS NOT NULL))
        AND e.start_ns IS NOT NULL AND (NOT $only_kept OR e.event_id IN (SELECT k.event_id FROM _kept_slices AS k))
"""
_ANCHORED = f"""
    CREATE OR REPLACE TEMP TABLE _anchored_flows AS
    WITH slices AS ({_SLICES}),
    open_until AS (
        SELECT pid, tid, start_ns, max(end_ns) OVER (
            PARTITION BY pid, tid ORDER BY start_ns RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS until_ns
        FROM slices
    ),
    once AS (SELECT DISTINCT pid, tid, start_ns, until_ns FROM open_until),
    ends AS (
        SELECT e.event_id, e.cat, e.name, e.flow_id, e.ph, e.pid, e.tid, e.start_ns, e.ph = 'f' AND e.bp IS NULL AS to_next
        FROM events AS e
        WHERE e.trace_id = $trace_id AND e.ph IN ('s', 't', 'f')
    ),
    around AS (
        SELECT e.*, coalesce(o.until_ns > e.start_ns, FALSE) AS is_inside
        FROM ends AS e ASOF LEFT JOIN once AS o ON e.pid = o.pid AND e.tid = o.tid AND e.start_ns >= o.start_ns
    ),
    placed AS (
        SELECT a.*, CASE WHEN a.to_next THEN n.start_ns IS NOT NULL ELSE a.is_inside END AS has_slice
        FROM around AS a ASOF LEFT JOIN once AS n ON a.pid = n.pid AND a.tid = n.tid AND a.start_ns <= n.start_ns
    ),
    whole AS (
        SELECT cat, name, flow_id
        FROM placed
        GROUP BY cat, name, flow_id
        HAVING bool_and(has_slice) AND bool_or(ph = 's') AND bool_or(ph = 'f')
    )
    SELECT p.event_id
    FROM placed AS p
    JOIN whole AS w
        ON w.cat IS NOT DISTINCT FROM p.cat AND w.name IS NOT DISTINCT FROM p.name
            AND w.flow_id IS NOT DISTINCT FROM p.flow_id
"""
_COUNT = """
    SELECT count(*) FROM events
    WHERE trace_id = $trace_id AND ph IN ('s', 't', 'f') AND event_id NOT IN (SELECT event_id FROM _anchored_flows)
"""


def anchor_arrows(con: duckdb.DuckDBPyConnection, trace_id: str, *, only_kept: bool) -> int:
    """Create the temporary table `_anchored_flows` (event_id) with the events of arrows that have a slice at each end.

    Return the number of events of all other arrows. `only_kept`: consider only the slices in table `_kept_slices`
    (event_id). The events of an arrow share category, name and id. An arrow without a start or an end is not drawn.
    """
    con.execute(_ANCHORED, {"trace_id": trace_id, "only_kept": only_kept})
    return con.execute(_COUNT, {"trace_id": trace_id}).fetchall()[0][0]
