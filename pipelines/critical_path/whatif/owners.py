"""Owners of a trace's GPU work (operator, module, layer), read only for scenarios that name an owner."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import duckdb
import numpy as np

from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.models.catalog import Catalog
from pipelines.models.run import run_models
from pipelines.models.sqltext import quoted

KINDS = {"op": "operator", "module": "module", "layer": "layer"}
"""The prefixes of targets that need the owners, and the kind of name after each prefix."""


def unselected(kind: str) -> str:
    """Return why no target of a kind selects some GPU time, as a predicate for a message."""
    return f"ran in graph replays whose {KINDS[kind]} is unknown: no {kind}: target selects it"


@dataclass(frozen=True)
class Owners:
    """The GPU work of each operator, module and layer.

    `ids` are the event ids of GPU work by kind and name, ascending. A module includes the work of the modules in it.
    `unknown_percent` is, by kind, the share of the trace's GPU time that no target of the kind can select, because it
    ran in graph replays whose capture is unknown.
    """

    ids: dict[str, dict[str, Ints]]
    unknown_percent: dict[str, float]


def owners_of(con: duckdb.DuckDBPyConnection, catalog: Catalog, trace_id: str) -> Owners:
    """Return the owners of a trace's GPU work, from `events` (with arguments), `traces` and `findings` in `con`.

    Replaces the windows that were requested in `con`. Graph replays are looked up in the other traces that
    `use_capture` names.
    """
    # The models compute launches only for traces with a window of profile default. Traces with captures need them, too.
    traces = con.execute("SELECT trace_id FROM traces ORDER BY trace_id").fetchall()
    request_windows(con, [WindowRequest(other_id) for (other_id,) in traces])
    run_models(con, catalog, ["_work_targets", "_unselected_work"])
    where = f"WHERE trace_id = {quoted(trace_id)}"
    event_ids: defaultdict[str, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    targets = f"SELECT kind, name, event_id FROM _work_targets {where} ORDER BY ALL"
    for kind, name, event_id in con.execute(targets).fetchall():
        event_ids[kind][name].append(event_id)
    ids = {kind: {name: np.array(events, dtype=np.int64) for name, events in event_ids[kind].items()} for kind in KINDS}
    percents = ", ".join(f"coalesce({kind}_percent, 0)" for kind in KINDS)
    rows = con.execute(
        f"SELECT {percents} FROM _unselected_work {where}"
    ).fetchall()  # no row in a trace without GPU work
    return Owners(ids, dict(zip(KINDS, rows[0] if rows else (0.0,) * len(KINDS), strict=True)))
