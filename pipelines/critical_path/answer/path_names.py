"""The names with the most time on a path, from the models that a lake's tables come from."""

from __future__ import annotations

from typing import Any

import duckdb

from pipelines.models.catalog import Catalog

_LARGEST = """
    WITH _path_by_event AS ({by_event}), named AS ({by_name})
    SELECT name, cat, n_events, duration_ns, count(*) OVER () AS n_names, sum(duration_ns) OVER () AS all_ns
    FROM named WHERE duration_ns > 0
    QUALIFY duration_ns >= 5e-5 * all_ns  -- 0.01 % where people read it
    ORDER BY duration_ns DESC, name, cat LIMIT {top}
"""

# The rows of `_path_by_event` where only the path itself is known.
_OF_A_PATH = """
    SELECT trace_id, window_id, attributed_event_id, name, cat, sum(duration_ns) AS duration_ns
    FROM critical_path WHERE attributed_event_id IS NOT NULL GROUP BY ALL
"""


def largest_names(con: duckdb.DuckDBPyConnection, catalog: Catalog, top: int) -> list[dict[str, Any]]:
    """Returns the first `top` rows of `critical_path_by_name` by time, of the one path in `con`, but none below 0.005 %.

    Each has name, cat, n_events and duration_ns; of all names, also n_names and all_ns. `con` has the table
    `critical_path_by_name`, or `critical_path`, or what that model reads.
    """
    if top < 1:
        return []
    by_event = _OF_A_PATH if _is_made(con, "critical_path") else catalog.models["_path_by_event"].sql
    by_name = catalog.models["critical_path_by_name"].sql
    if _is_made(con, "critical_path_by_name"):
        by_name = "SELECT * FROM critical_path_by_name"
    query = _LARGEST.format(by_event=f"\n{by_event}\n", by_name=f"\n{by_name}\n", top=top)
    names = ("name", "cat", "n_events", "duration_ns", "n_names", "all_ns")
    return [dict(zip(names, row, strict=True)) for row in con.execute(query).fetchall()]


def _is_made(con: duckdb.DuckDBPyConnection, name: str) -> bool:
    made = "SELECT table_name FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views()"
    return bool(con.execute(f"SELECT 1 FROM ({made}) WHERE table_name = '{name}'").fetchall())
