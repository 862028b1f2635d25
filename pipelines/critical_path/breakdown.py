"""The temporal breakdown of a trace as rows, by tracelake's rules or by HTA's rules."""

from __future__ import annotations

from typing import Any

import duckdb

from pipelines.base import database
from pipelines.critical_path.graph.stored_window import use_stored
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models

ROWS = (
    "SELECT t.rank, t.path, b.* FROM temporal_breakdown AS b JOIN traces AS t USING (trace_id) "
    "ORDER BY t.path, t.trace_id, b.device"
)
"""Table `temporal_breakdown` with the rank and the file of each trace."""

_TIMES = {"compute_time_us": "compute_ns", "non_compute_time_us": "non_compute_ns", "idle_time_us": "idle_ns"}
_PERCENTS = ("compute_percent", "non_compute_percent", "idle_percent")


def trace_breakdown(
    con: duckdb.DuckDBPyConnection,
    trace_id: str,
    profile: str,
    overrides: dict[tuple[str, str], str] | None,
) -> list[dict[str, Any]]:
    """Return the breakdown of one trace, one row per device.

    The breakdown is read from its stored table, or computed from `events`, `traces` and `findings` in `con`. No other
    caller may use `con`, because its table `kernels` is replaced. `overrides` are switches of the profile, as
    `request_windows` accepts them.

    Profile `hta` counts the same events as HTA 0.6.1, by HTA's classes, in exact ns. HTA counts waits and all events
    with a stream, but no event of the last profiler step. In this profile, there is a single row for all devices.
    """
    request = WindowRequest(trace_id, profile=profile)
    request_windows(con, [request], overrides)
    catalog = load_catalog()
    have = use_stored(con, catalog, request, overrides)
    if profile == "hta":
        run_models(con, catalog, ["_hta_kernels"])
        con.execute("CREATE OR REPLACE TABLE kernels AS FROM _hta_kernels")
        have = frozenset({"kernels"})
    run_models(con, catalog, ["temporal_breakdown"], have=have)
    return rows_of(con)


def rows_of(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Return the breakdown's rows as objects."""
    return database.rows_of(con, ROWS)


def as_document(row: dict[str, Any]) -> dict[str, float]:
    """Return a row with the field names of the temporal-breakdown document.

    The document has three times in us and three percentages, which are zero without GPU work.
    """
    return {
        **{key: (row[ns] or 0) / 1000 for key, ns in _TIMES.items()},
        **{name: row[name] or 0 for name in _PERCENTS},
    }
