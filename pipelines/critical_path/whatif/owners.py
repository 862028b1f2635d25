"""Which operator, module and layer the GPU work of a window belongs to: read only for scenarios that name one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import duckdb
import numpy as np

from pipelines.critical_path.graph import Ints
from pipelines.critical_path.windows import WindowRequest, request_windows
from pipelines.models.catalog import Catalog
from pipelines.models.run import run_models
from pipelines.sqltext import quoted

KINDS = ("op", "module", "layer")
"""Prefixes of targets that need this."""


@dataclass(frozen=True)
class Owners:
    """`ids`: by kind and name, the GPU work that belongs to it, ascending; a module has that of the modules in it, too.

    `gpu_ns`: duration of all GPU work of the trace; `unknown_ns`: by kind, of that in graph replays that no target of the
    kind can select, because the trace does not show the capture.
    """

    ids: dict[str, dict[str, Ints]]
    gpu_ns: int
    unknown_ns: dict[str, int]


_ROWS = """
    SELECT 'op' AS kind, op AS name, event_id FROM kernel_owners WHERE trace_id = {of} AND op IS NOT NULL
    UNION ALL
    SELECT 'layer', CAST(layer AS VARCHAR), event_id FROM kernel_owners WHERE trace_id = {of} AND layer IS NOT NULL
    UNION
    SELECT 'module', module, event_id FROM kernel_owners WHERE trace_id = {of} AND module IS NOT NULL
    UNION
    SELECT 'module', name, event_id FROM _work_modules WHERE trace_id = {of}
    ORDER BY ALL
"""
_SUMS = """
    SELECT CAST(coalesce(sum(duration_ns), 0) AS BIGINT),
        CAST(coalesce(sum(duration_ns) FILTER (WHERE is_replay AND op IS NULL), 0) AS BIGINT),
        CAST(coalesce(sum(duration_ns) FILTER (WHERE is_replay AND module IS NULL), 0) AS BIGINT),
        CAST(coalesce(sum(duration_ns) FILTER (WHERE is_replay AND layer IS NULL), 0) AS BIGINT)
    FROM kernel_owners WHERE trace_id = {of}
"""


def owners_of(con: duckdb.DuckDBPyConnection, catalog: Catalog, trace_id: str) -> Owners:
    """Returns the owners of a trace's GPU work, from `events` (with arguments), `traces` and `findings` in `con`.

    Replaces the windows that were requested in `con`. Graph replays are looked up in the other traces that
    `use_capture` names.
    """
    # Launches are known in traces with a window of profile default only; a trace with captures needs them, too.
    traces = con.execute("SELECT trace_id FROM traces ORDER BY trace_id").fetchall()
    request_windows(con, [WindowRequest(one) for (one,) in traces])
    run_models(con, catalog, ["kernel_owners", "_work_modules"])
    found: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for kind, name, event_id in con.execute(_ROWS.format(of=quoted(trace_id))).fetchall():
        found[kind][name].append(event_id)
    ids = {kind: {name: np.array(of, dtype=np.int64) for name, of in found[kind].items()} for kind in KINDS}
    ((gpu_ns, *unknown),) = con.execute(_SUMS.format(of=quoted(trace_id))).fetchall()
    return Owners(ids, gpu_ns, dict(zip(KINDS, unknown, strict=True)))
