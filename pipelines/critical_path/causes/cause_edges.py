"""The edges of a window by cause, for scenarios that name one: `what-if --remove cause:optimizer` gives what `why` says that it saves."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np

from pipelines.base.kernel_names import glob_pattern
from pipelines.critical_path.causes.cause_names import cause_rules
from pipelines.critical_path.causes.edge_causes import CAUSES, NAME, STREAM, THREAD, Edges, Flags, Found, edge_causes
from pipelines.critical_path.causes.window_causes import events_of, names_of, rows_by_window
from pipelines.critical_path.graph.dependency_graph import Ints
from pipelines.critical_path.graph.edge_types import EDGE_TYPES
from pipelines.critical_path.whatif.change import Selection
from pipelines.models.catalog import Catalog
from pipelines.models.run import run_models

if TYPE_CHECKING:
    from pipelines.critical_path.whatif.window import Window


@dataclass(frozen=True)
class CauseEdges:
    """What each edge of a window is a cause of, and `name`: what a cause of a kind (NAME, …) and number is called."""

    edges: Found
    name: Callable[[int, int], str]

    def selected(self, what: str) -> Selection:
        """Returns what `CAUSE` or `CAUSE:NAME` selects; nothing if no edge is of that cause."""
        cause, colon, glob = what.partition(":")
        of = self.edges
        if cause not in CAUSES:
            return Selection()
        chosen = of.cause == CAUSES.index(cause)
        pattern = glob_pattern(glob) if colon else None
        if cause == "synchronization":
            waits, spent = (self._with_name(number, pattern) for number in (of.cut, of.spent))
            return Selection(spent.astype(float), waits=waits)
        if pattern:
            chosen &= self._named(pattern, np.flatnonzero(chosen))
        waits = np.zeros(len(chosen), dtype=bool)
        waits[of.freed[chosen[of.freed_with]]] = True
        return Selection(chosen.astype(float), waits=waits)

    def _named(self, pattern: re.Pattern[str], among: Ints) -> Flags:
        named = np.zeros(len(self.edges.cause), dtype=bool)
        pairs = np.stack((self.edges.named_after[among], self.edges.number[among]))
        distinct, of = np.unique(pairs, axis=1, return_inverse=True)
        fits = [bool(pattern.fullmatch(self.name(kind, number))) for kind, number in distinct.T.tolist()]
        named[among] = np.array(fits, dtype=bool)[of]
        return named

    def _with_name(self, number: Ints, pattern: re.Pattern[str] | None) -> Flags:
        there = number >= 0
        if pattern:
            fits = {of: bool(pattern.fullmatch(self.name(NAME, of))) for of in np.unique(number[there]).tolist()}
            there[there] = [fits[of] for of in number[there].tolist()]
        return there


def causes_of(con: duckdb.DuckDBPyConnection, catalog: Catalog, window: Window) -> CauseEdges | None:
    """Returns the causes of a window that was loaded from `con`; None if its path does not cover it."""
    run_models(con, catalog, ["_cause_events", "_event_names", "_cause_names", "threads"])
    rows = rows_by_window(con, "_cause_events", "event_id")
    if not rows:
        return None
    (columns,) = rows.values()
    events, names, graph = events_of(columns), names_of(con), window.graph
    code = np.array([EDGE_TYPES[kind].edge_code if kind in EDGE_TYPES else 0 for kind in window.kinds])
    edges = Edges(
        graph.node_ids[graph.src],
        graph.node_ids[graph.dst],
        graph.weight,
        code[window.edge_type],
        window.attributed,
        window.earlier,
    )
    texts = [text for (text,) in con.execute("SELECT name FROM _event_names ORDER BY name_no").fetchall()]
    threads = dict(con.execute("SELECT thread_id, tid FROM threads").fetchall())

    def name(kind: int, number: int) -> str:
        if kind == THREAD:
            return f"outside operators, thread {threads[number]}"
        if kind == STREAM:
            return f"stream {number}"
        return texts[number] if kind == NAME else ""

    return CauseEdges(edge_causes(edges, events, names, cause_rules(con)), name)
