"""Counter tracks of a trace over time: waiting launches, memory in use, bandwidth of collectives and copies."""

from __future__ import annotations

import json
from collections.abc import Iterator

import duckdb

from pipelines.faces.drawings.chrome_trace import trace_event

COUNTERS = "counters"
"""Name of the process with the counter tracks."""
TABLES = ("queue_length", "memory_timeline", "collective_bandwidth", "kernels")
"""Tables that the counters read. A missing table yields no counters."""
_BATCH = 20_000

_RATES = """
    SELECT '{what}, device ' || coalesce(CAST(device AS VARCHAR), '?') AS track, 'GB/s' AS unit, at_ns,
        greatest(round(sum(sum(change)) OVER (PARTITION BY device ORDER BY at_ns), 6), 0) AS value
    FROM (
        SELECT device, at_ns, rate AS change FROM ({rates}) UNION ALL SELECT device, at_ns + duration_ns, -rate FROM ({rates})
    )
    GROUP BY device, at_ns
"""
_COLLECTIVES = """
    SELECT device, start_ns AS at_ns, duration_ns, algbw_gigabytes_per_s AS rate FROM collective_bandwidth
    WHERE trace_id = $trace_id AND algbw_gigabytes_per_s IS NOT NULL AND duration_ns > 0
"""
_COPIES = """
    SELECT device, start_ns AS at_ns, duration_ns, CAST(bytes AS DOUBLE) / duration_ns AS rate FROM kernels
    WHERE trace_id = $trace_id AND class = 'MEMORY' AND bytes IS NOT NULL AND duration_ns > 0
"""
_QUERIES = {
    "queue_length": """
        SELECT 'queue length, device ' || coalesce(CAST(device AS VARCHAR), '?') || ' stream '
            || coalesce(CAST(stream AS VARCHAR), '?') AS track,
            'launches' AS unit, at_ns, sum(sum(change)) OVER (PARTITION BY device, stream ORDER BY at_ns) AS value
        FROM queue_length WHERE trace_id = $trace_id GROUP BY device, stream, at_ns
    """,
    "memory_timeline": """
        SELECT CASE WHEN device_type = 0 THEN 'memory, CPU' ELSE 'memory, device ' || coalesce(CAST(device AS VARCHAR), '?') END
            || CASE WHEN allocated_bytes IS NULL THEN ' (above start)' ELSE '' END AS track,
            'bytes' AS unit, at_ns, arg_max(coalesce(allocated_bytes, net_bytes), seq) AS value
        FROM memory_timeline
        WHERE trace_id = $trace_id AND coalesce(allocated_bytes, net_bytes) IS NOT NULL
        GROUP BY ALL
    """,
    "collective_bandwidth": _RATES.format(what="bandwidth of collectives", rates=_COLLECTIVES),
    "kernels": _RATES.format(what="bandwidth of copies", rates=_COPIES),
}


def counter_events(con: duckdb.DuckDBPyConnection, trace_id: str, pid: str, base_ns: int) -> Iterator[str]:
    """Yield the counters of a trace as events of a separate process `pid`. Yield nothing if the trace has no counters.

    If a track has several values at one time, the last value is drawn. Bandwidth is the sum over concurrent work.
    """
    existing = {
        name
        for (name,) in con.execute(
            "SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views()"
        ).fetchall()
    }
    named = False
    for table, query in _QUERIES.items():
        if table not in existing:
            continue
        cursor = con.execute(
            f"SELECT track, unit, at_ns, value FROM ({query}) ORDER BY track, at_ns", {"trace_id": trace_id}
        )
        while rows := cursor.fetchmany(_BATCH):
            if not named:
                yield trace_event("M", None, "process_name", pid, "0", 0, None, args=json.dumps({"name": COUNTERS}))
                named = True
            for track, unit, at_ns, value in rows:
                number = float(value) if unit == "GB/s" else int(value)
                yield trace_event("C", None, track, pid, "0", at_ns - base_ns, None, args=json.dumps({unit: number}))
