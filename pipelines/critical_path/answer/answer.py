"""The computation of the answer about the critical path of one window."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from pipelines.critical_path.answer.path_answer import PathAnswer
from pipelines.critical_path.graph.operator_order import describe_dependencies
from pipelines.critical_path.graph.skippable_models import unneeded
from pipelines.critical_path.graph.stored_window import use_stored
from pipelines.critical_path.graph.windows import WindowRequest, explain_missing, request_windows
from pipelines.models.catalog import Catalog
from pipelines.models.run import run_models
from pipelines.models.sqltext import quoted

_EDGE_FILE = """
    COPY (
        SELECT
            e.src_event_id, e.src_is_start, e.dst_event_id, e.dst_is_start, e.weight_ns / 1000.0 AS weight_us, e.edge_type,
            e.attributed_event_id, p.edge_id IS NOT NULL AS on_critical_path
        FROM critical_path_edges AS e LEFT JOIN longest_path AS p USING (trace_id, window_id, edge_id)
        ORDER BY e.edge_id
    ) TO {path} (FORMAT parquet, COMPRESSION zstd)
"""


def critical_path(
    con: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    request: WindowRequest,
    *,
    overrides: dict[tuple[str, str], str] | None = None,
    edges_file: Path | None = None,
    with_path: bool = True,
    with_edges: bool = False,
    with_graph: bool = True,
    save_to: Path | None = None,
    alternatives: int = 0,
    on_model: Any = None,
    at_once: int = 1,
) -> PathAnswer:
    """Return the answer about the path of one window.

    Tables that the lake stores for the window are read (`show_trace`). The rest is computed from the tables `events`,
    `traces` and `findings` in `con`. Without `with_path` the answer's `path` is empty, and path_json.py can read the
    path row by row. `edges_file` receives one row per edge (Parquet). `con` keeps the tables `_path_bounds` and
    `critical_path_windows`, and `critical_path_edges` if `with_edges`, `_edges` if `with_graph`.

    `save_to` receives the path with its graph (`save_path.py`, whose errors it raises). `alternatives` is the number of
    other paths to find. `at_once` is the number of models that run concurrently (`run_models`).

    Raises WindowNotFound if the trace has no such window. Raises NothingJoined if data dependencies are requested
    (switch `dependencies`) and no execution trace was joined (`load_execution`).
    """
    request_windows(con, [request], overrides)
    dependencies = describe_dependencies(con, request, overrides or {})
    stored = use_stored(con, catalog, request, overrides)
    targets = ["critical_path_summary", *(["critical_path"] if with_path else [])]
    if edges_file or with_edges:
        targets.append("critical_path_edges")
    if edges_file:
        targets.append("longest_path")
    if with_graph or alternatives:
        targets.append("_edges")
    if save_to:
        from pipelines.critical_path.answer.save_path import SOURCES, check_target, save_path

        check_target(save_to)
        targets += SOURCES
    if "critical_path" not in stored:  # path_json.py reads the path later
        targets += catalog.models["critical_path"].dependencies
    run_models(
        con,
        catalog,
        [
            *targets,
            "critical_path_caveats",
            "critical_path_windows",
            "_path_bounds",
            "_edge_counts",
            "_node_counts",
            "edge_types",
        ],
        have=stored,
        on_model=on_model,
        at_once=at_once,
        without_rows=frozenset() if "_edges" in stored else unneeded(con, request, overrides or {}),
    )
    windows = con.execute("SELECT path_end_ns - path_start_ns FROM critical_path_windows").fetchall()
    if not windows:
        raise explain_missing(con, request)
    if edges_file:
        con.execute(_EDGE_FILE.format(path=quoted(edges_file)))
    answer = replace(_answer(con, windows[0][0] / 1000, with_path), dependencies=dependencies)
    if alternatives and answer.success:
        from pipelines.critical_path.longest.alternative_rows import alternative_rows

        rows = alternative_rows(con, request.trace_id, request.window_id, alternatives)
        answer = replace(answer, alternatives=rows)
    if save_to:
        save_path(con, request.trace_id, answer, save_to, window_id=request.window_id, overrides=overrides)
    return answer


def _answer(con: duckdb.DuckDBPyConnection, window_us: float, with_path: bool) -> PathAnswer:
    by_type = con.execute(
        "SELECT edge_type, n_edges, weight_ns / 1000.0 FROM _edge_counts JOIN edge_types USING (edge_code) ORDER BY edge_type"
    ).fetchall()
    length, steps = con.execute(
        "SELECT coalesce(sum(path_weight_ns), 0) / 1000.0, count(*) FROM _path_bounds"
    ).fetchall()[0]
    nodes = con.execute("SELECT coalesce(sum(n_nodes), 0) FROM _node_counts").fetchall()[0][0]
    summary = con.execute("SELECT bound_by, percent FROM critical_path_summary ORDER BY duration_ns DESC, bound_by")
    return PathAnswer(
        success=steps > 0,
        nodes=nodes,
        edges=sum(n for _, n, _ in by_type),
        edges_by_type={kind: {"count": n, "weight_us": weight} for kind, n, weight in by_type},
        length_us=length,
        summary=dict(summary.fetchall()),
        window_us=window_us,
        path=_path(con) if with_path else [],
        inferred=[
            seq - 1 for (seq,) in con.execute("SELECT seq FROM _path_bounds WHERE is_inferred ORDER BY seq").fetchall()
        ],
        caveats=_caveats(con),
        reason=None if steps else _reason(con),
    )


def _caveats(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    rows = con.execute(
        "SELECT caveat, severity, n, time_ns / 1000.0, detail FROM critical_path_caveats "
        "ORDER BY list_position(['error', 'warning', 'info'], severity), time_ns DESC NULLS LAST, caveat, detail"
    ).fetchall()
    return [dict(zip(("caveat", "severity", "n", "time_us", "detail"), row, strict=True)) for row in rows]


def _reason(con: duckdb.DuckDBPyConnection) -> str:
    rows = con.execute("SELECT detail FROM critical_path_caveats WHERE caveat = 'no_critical_path'").fetchall()
    return rows[0][0]


def _path(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    names = ("event_id", "name", "edge_type", "duration_us", "bound_by", "owner")
    rows = con.execute(
        "SELECT event_id, name, edge_type, duration_ns / 1000.0, bound_by, owner FROM critical_path ORDER BY seq"
    ).fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]
