"""The tables of a path that was computed outside the models, by a what-if scenario or after edits.

`critical_path.sql` and `critical_path_summary.sql` read a path's edges from `_path_bounds` and its window from
`critical_path_windows`. This module fills these tables, so only SQL defines how a path is displayed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import duckdb
import numpy as np

from pipelines.critical_path.answer.path_names import is_made
from pipelines.critical_path.graph.edge_types import edge_codes
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
    from pipelines.critical_path.whatif.window import Window

_WINDOW = """
    CREATE OR REPLACE TABLE critical_path_windows AS
    SELECT 1 AS window_no, {trace_id} AS trace_id, {window_id} AS window_id, {profile} AS profile, {annotation} AS annotation,
        CAST({start_ns} AS BIGINT) AS start_ns, CAST({end_ns} AS BIGINT) AS end_ns,
        CAST({start_ns} AS BIGINT) AS path_start_ns, CAST({end_ns} AS BIGINT) AS path_end_ns
"""
_EDGES = """
    CREATE OR REPLACE TABLE _path_bounds AS
    SELECT 1 AS window_no,
        * EXCLUDE (bound) REPLACE (nullif(attributed_event_id, -1) AS attributed_event_id), {bounds}[bound + 1] AS bound_by
    FROM rows
"""


def show_path(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    on: Ints,
    weights: tuple[Ints, Ints, Ints],
    tables: Iterable[str] = ("critical_path",),
    *,
    profile: str = "default",
    annotation: str = "",
    span_ns: tuple[int, int] = (0, 0),
) -> None:
    """Create `tables` for a path of `window`, in the current schema of `con`.

    `con` has the table `events`, and may have `threads`. `on` are the path's edges in order, as indices into the
    graph's edge arrays. `weights` are three arrays in ns: the measured weights, the weights on the path, and the
    weights for the summary. `profile`, `annotation` (empty if the window is the whole trace) and `span_ns` (start and
    end, ns) describe the window. Raises ValueError for an edge type that edge_types.csv does not contain.
    """
    present, code_index = np.unique(window.edge_type[on], return_inverse=True)
    codes = edge_codes(window.kinds[i] for i in present)
    # Use arrays, because DuckDB imports pandas to read an Arrow table.
    rows = {
        "seq": np.arange(1, len(on) + 1),
        "edge_id": window.edge_id[on],
        "src_node_id": window.graph.node_ids[window.graph.src[on]],
        "dst_node_id": window.graph.node_ids[window.graph.dst[on]],
        "edge_code": np.array(codes, dtype=np.int64)[code_index],
        **dict(zip(("weight_ns", "path_weight_ns", "duration_ns"), weights, strict=True)),
        "attributed_event_id": window.attributed[on],
        "waits_for_earlier_work": window.earlier[on],
        "is_inferred": window.inferred[on],
        "bound": window.bound[on],
    }
    labels = {"trace_id": window.trace_id, "window_id": window.window_id, "profile": profile, "annotation": annotation}
    start_ns, end_ns = span_ns
    con.execute(_WINDOW.format(**{k: quoted(v) for k, v in labels.items()}, start_ns=start_ns, end_ns=end_ns))
    con.execute(_EDGES.format(bounds=f"[{', '.join(map(quoted, window.bounds))}]"))
    del rows
    _own_gaps(con, window, on)
    has_several = len({device for device, _ in window.events.streams}) > 1
    con.execute(
        f"CREATE OR REPLACE TABLE _several_devices AS SELECT CAST(1 AS BIGINT) AS window_no WHERE {has_several}"
    )
    have = {"critical_path_windows", "_path_bounds", "_gap_owners", "_several_devices"} | (
        {"threads"} if is_made(con, "threads") else set()
    )
    run_models(con, load_catalog(), tables, have=frozenset(have))


def _own_gaps(con: duckdb.DuckDBPyConnection, window: Window, on: Ints) -> None:
    """Create `_gap_owners` with the annotations and functions that own time on the path."""
    events = window.events
    owning = np.unique(window.owner[on])
    owning = owning[(owning >= 0) & (events.shown[owning] >= 0)]
    # DuckDB finds these arrays by the variable's name.
    owners = {"event": events.event_id[owning], "owner": events.event_id[events.shown[owning]]}
    con.execute(
        "CREATE OR REPLACE TABLE _gap_owners AS SELECT CAST(1 AS BIGINT) AS window_no, event AS event_id, "
        "CAST(NULL AS BIGINT) AS around_event_id, owner AS owner_event_id FROM owners"
    )
    del owners
