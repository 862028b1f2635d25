"""A window's tables as a lake stores them, used instead of the models that would recompute them.

A lake stores the windows of `usual_windows`, with the switches of profile `default`. The window gets the number 1,
which the models assign to the only window of a computation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import duckdb

from pipelines.base.datafiles import rule_rows
from pipelines.critical_path.graph.windows import USUAL_PROFILE, WindowRequest
from pipelines.lake.read.one_trace import STORED, stored_tables
from pipelines.models.catalog import Catalog
from pipelines.models.run import run_models
from pipelines.models.sqltext import quoted

WINDOWS = "critical_path_windows"
PATH_TABLES = (
    WINDOWS,
    "critical_path_edges",
    "critical_path",
    "critical_path_summary",
    "critical_path_caveats",
    "critical_path_by_owner",
)
"""The tables that contain the path of a stored window."""
GRAPH_TABLES = ("critical_path_nodes", "critical_path_events")
"""The additional tables that are needed to save the graph of a stored window."""

_NODE = "{end}_event_id * 2 + CASE WHEN {end}_is_start THEN 0 ELSE 1 END AS {end}_node_id"
_ENDS = f"{_NODE.format(end='src')}, {_NODE.format(end='dst')}"
_EDGES = f"""
    CREATE VIEW _edges AS
    SELECT 1 AS window_no, e.edge_id, {_ENDS}, CAST(t.edge_code AS INTEGER) AS edge_code, e.weight_ns, e.path_weight_ns,
        e.attributed_event_id, e.waits_for_earlier_work, e.is_inferred
    FROM critical_path_edges AS e JOIN edge_types AS t ON t.edge_type = e.edge_type
"""
_STATED = """
    CREATE VIEW _stated_windows AS
    SELECT 1 AS window_no
    WHERE NOT EXISTS (FROM critical_path_caveats WHERE caveat IN ('no_sync_events', 'unstated_waits'))
"""
_BOUNDS = """
    CREATE TABLE _path_bounds AS
    SELECT 1 AS window_no, p.seq, p.edge_id, e.src_node_id, e.dst_node_id, e.edge_code, p.weight_ns, p.path_weight_ns,
        p.duration_ns, p.attributed_event_id, e.waits_for_earlier_work, p.is_inferred, p.bound_by
    FROM critical_path AS p JOIN _edges AS e ON e.edge_id = p.edge_id
"""


def use_stored(
    con: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    request: WindowRequest,
    overrides: Mapping[tuple[str, str], str] | None = None,
) -> frozenset[str]:
    """Create views of the stored tables that equal the models' tables for this request, and return their names.

    `show_trace` attaches the stored tables. Pass the names to `run_models(have=…)`. The views of window tables show
    only this window, under its name in the request. If `critical_path_edges` is stored, also creates `_edges`, and with
    the path `_path_bounds`. The result is empty if a switch is set or no table is stored. Call it for one request per
    connection.
    """
    stored = stored_tables(con)
    if not stored or request.profile != USUAL_PROFILE or overrides:
        return frozenset()
    of_window = {name for name in stored if "window_id" in (column.name for column in catalog.models[name].columns)}
    for name in stored - of_window:
        con.execute(f"CREATE VIEW {name} AS FROM {STORED}.{name}")
    stored_id = _window(con, request, has_windows=WINDOWS in stored)
    if stored_id is None:
        return stored - of_window
    renamed = f"{quoted(request.window_id)} AS window_id"
    for name in of_window:
        numbered = f"{renamed}, 1 AS window_no, 1 AS trace_profile_id" if name == WINDOWS else renamed
        con.execute(
            f"CREATE VIEW {name} AS SELECT * REPLACE ({numbered}) FROM {STORED}.{name} WHERE window_id = {quoted(stored_id)}"
        )
    available = set(stored)
    if "critical_path_caveats" in stored:
        con.execute(_STATED)
        available.add("_stated_windows")
    if "critical_path_edges" in stored:
        run_models(con, catalog, ["edge_types"])
        con.execute(_EDGES)
        available |= {"edge_types", "_edges"}
        if _refuses_nothing():
            con.execute("CREATE TABLE _refused_windows (window_no BIGINT, reason VARCHAR)")
            available.add("_refused_windows")
        if "critical_path" in stored:
            con.execute(_BOUNDS)
            available.add("_path_bounds")
    return frozenset(available)


def used(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Return the stored tables that `use_stored` used.

    Models that run after the path's models, with the same switches, can read them.
    """
    return stored_tables(con) & stored_tables(con, "main")


def _refuses_nothing() -> bool:
    """Return whether the profile of the stored windows never refuses a window, so that `_refused_windows` is empty."""
    return (USUAL_PROFILE, "one_wait_per_kernel", "false") in {
        (row["profile"], row["switch"], row["value"]) for row in rule_rows("switches")
    }


def _window(con: duckdb.DuckDBPyConnection, request: WindowRequest, has_windows: bool) -> str | None:
    """Return the lake's id for the window of a request, or None if the lake does not store it.

    If the lake stores only the window tables that a capture's path reads, only the whole trace can be found, by its
    name.
    """
    if not has_windows:
        full = WindowRequest(request.trace_id)
        return full.window_id if replace(request, window_id=full.window_id) == full else None
    rows = con.execute(
        f"SELECT window_id FROM {STORED}.{WINDOWS} WHERE profile = {quoted(request.profile)} "
        f"AND annotation = {quoted(request.annotation)} AND first_instance = {request.first} "
        f"AND last_instance = {request.last}"
    ).fetchall()
    return rows[0][0] if len(rows) == 1 else None
