"""A saved path's tables in a separate connection, under the names that path queries read."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from pipelines.base import database
from pipelines.critical_path.answer.saved_path import SavedPath
from pipelines.models.sqltext import row

_SUMMARY = pa.schema(
    {
        "bound_by": pa.string(),
        "n_edges": pa.int64(),
        "duration_ns": pa.int64(),
        "percent": pa.float64(),
        "percent_of_window": pa.float64(),
    }
)


def path_tables(saved: SavedPath) -> duckdb.DuckDBPyConnection:
    """Return a connection with views `critical_path`, `…_nodes`, `…_edges` and `…_summary`.

    For slack and alternatives it also has `events` (trace_id, event_id, name and cat of the graph's events), `_edges`,
    `critical_path_windows` and `_refused_windows` of the window. The Arrow tables are not copied.
    """
    con = database.connect()
    window = (saved.meta["trace"]["trace_id"], saved.meta["window"]["window_id"], saved.meta["profile"], 1)
    columns = "trace_id VARCHAR, window_id VARCHAR, profile VARCHAR, window_no BIGINT"
    con.execute(f"CREATE TABLE critical_path_windows ({columns})")
    con.execute(f"INSERT INTO critical_path_windows VALUES {row(window)}")
    summary = pa.Table.from_pylist(saved.meta["summary"], schema=_SUMMARY)
    parts = {"": saved.path, "_nodes": saved.nodes, "_edges": saved.edges, "_summary": summary}
    for part, table in parts.items():
        con.register(f"_saved{part}", table)
        con.execute(
            f"CREATE VIEW critical_path{part} AS SELECT w.trace_id, w.window_id, s.* "
            f"FROM _saved{part} AS s CROSS JOIN critical_path_windows AS w"
        )
    con.execute("CREATE VIEW events AS SELECT DISTINCT trace_id, event_id, name, cat FROM critical_path_nodes")
    con.execute("CREATE VIEW _edges AS SELECT 1 AS window_no, * FROM critical_path_edges")
    con.execute(f"CREATE TABLE _refused_windows AS SELECT 1 AS window_no WHERE NOT {saved.meta['answer']['success']}")
    return con
