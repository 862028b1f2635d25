"""Which operator, module and layer the GPU work of a window belongs to: read only for scenarios that name one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import duckdb
import numpy as np

from pipelines.critical_path.graph.dependency_graph import Ints
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.models.catalog import Catalog
from pipelines.models.run import run_models
from pipelines.models.sqltext import quoted

KINDS = {"op": "operator", "module": "module", "layer": "layer"}
"""Prefixes of targets that need this, and what they name."""


def unselected(kind: str) -> str:
    """Says of GPU time why no target of a kind selects it."""
    return f"ran in graph replays whose {KINDS[kind]} is not known: no {kind}: target selects it"


@dataclass(frozen=True)
class Owners:
    """`ids`: by kind and name, the GPU work that belongs to it, ascending; a module has that of the modules in it, too.

    `unknown_percent`: by kind, how much of the trace's GPU time no target of the kind can select, because it is in graph
    replays of which the trace does not show the capture.
    """

    ids: dict[str, dict[str, Ints]]
    unknown_percent: dict[str, float]


def owners_of(con: duckdb.DuckDBPyConnection, catalog: Catalog, trace_id: str) -> Owners:
    """Returns the owners of a trace's GPU work, from `events` (with arguments), `traces` and `findings` in `con`.

    Replaces the windows that were requested in `con`. Graph replays are looked up in the other traces that
    `use_capture` names.
    """
    # Launches are known in traces with a window of profile default only; a trace with captures needs them, too.
    traces = con.execute("SELECT trace_id FROM traces ORDER BY trace_id").fetchall()
    request_windows(con, [WindowRequest(one) for (one,) in traces])
    run_models(con, catalog, ["_work_targets", "_unselected_work"])
    of = f"WHERE trace_id = {quoted(trace_id)}"
    found: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    targets = f"SELECT kind, name, event_id FROM _work_targets {of} ORDER BY ALL"
    for kind, name, event_id in con.execute(targets).fetchall():
        found[kind][name].append(event_id)
    ids = {kind: {name: np.array(events, dtype=np.int64) for name, events in found[kind].items()} for kind in KINDS}
    percents = ", ".join(f"coalesce({kind}_percent, 0)" for kind in KINDS)
    rows = con.execute(f"SELECT {percents} FROM _unselected_work {of}").fetchall()  # none in a trace without GPU work
    return Owners(ids, dict(zip(KINDS, rows[0] if rows else (0.0,) * len(KINDS), strict=True)))
