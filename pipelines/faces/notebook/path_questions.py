"""Queries on a path beyond HTA's: tables, slack, alternative paths, scenarios, drawings."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base import database, units
from pipelines.base.errors import WrongValue
from pipelines.base.extras import need
from pipelines.critical_path.answer.path_answer import PathAnswer
from pipelines.faces.notebook.cpgraph import LazyGraph
from pipelines.faces.notebook.frames import SymbolTable
from pipelines.faces.notebook.saved_tables import path_tables
from pipelines.faces.notebook.sources import RankTrace
from pipelines.faces.notebook.trace import Trace

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

    from pipelines.critical_path.whatif.before_after import Comparison
    from pipelines.critical_path.whatif.owners import Owners
    from pipelines.critical_path.whatif.window import Window


class AskedGraph(LazyGraph):
    """A path's graph with queries on it. `t_full`: its trace, or None after a restore without it.

    Answers are for the graph as of the last `critical_path()`.
    """

    t_full: Trace | None

    def __repr__(self) -> str:
        answer = self.answer
        length_text = units.time_us(answer.length_us) if answer.success else "no path"
        return f"<CriticalPath of {self.saved.title}: {length_text}; {answer.nodes:,} nodes, {answer.edges:,} edges>"

    __str__ = __repr__

    @cached_property
    def answer(self) -> PathAnswer:
        """Return the answer that `tracelake critical-path --json` prints: lengths in us, edges by type, the path's steps."""
        return self.saved.answer

    @property
    def caveats(self) -> list[dict[str, Any]]:
        """Return the caveats of the numbers, most severe first: caveat, severity, n, time_us and detail (a sentence)."""
        return self.answer.caveats

    @property
    def success(self) -> bool:
        """Return whether the graph has a path."""
        return self.answer.success

    @property
    def trace_id(self) -> str:
        """Return the id of the path's trace."""
        return self.saved.meta["trace"]["trace_id"]

    @property
    def window_id(self) -> str:
        """Return the name of the window in the tables: `full` for a whole trace."""
        return self.saved.meta["window"]["window_id"]

    @cached_property
    def _backend(self) -> Any:
        need("notebook", "a table in Ibis")
        import ibis

        return ibis.duckdb.from_connection(path_tables(self.saved))

    def table(self, name: str) -> ir.Table:
        """Return `critical_path`, `critical_path_edges`, `critical_path_nodes` or `critical_path_summary` of this window in Ibis.

        Tables have the lake's columns. Edges also have `seq` (their position on the path), nodes the name of their event.
        """
        return self._backend.table(name)

    def arrow(self, name: str) -> pa.Table:
        """Return the same as `table`, as an Arrow table."""
        return self.table(name).to_pyarrow()

    def slack(self) -> pa.Table:
        """Return table `event_slack` of this window with the events' names, greatest drag first.

        slack_ns: how much longer the event may take before the path's length changes. drag_ns: how much shorter the path gets
        if the event takes no time.
        """
        from pipelines.critical_path.longest.slack import event_slacks

        with path_tables(self.saved) as con:
            event_slacks(con)
            rows = (
                "SELECT s.*, e.name, e.cat FROM event_slack AS s LEFT JOIN events AS e USING (event_id) "
                "ORDER BY s.drag_ns DESC NULLS LAST, s.slack_ns, s.event_id"
            )
            return database.arrow_result(con, rows).to_arrow_table()

    def alternatives(self, k: int = 5) -> list[dict[str, Any]]:
        """Return the k longest alternative paths, each through another kernel or operator, as `--alternatives` does."""
        from pipelines.critical_path.longest.alternative_rows import alternative_rows

        with path_tables(self.saved) as con:
            return alternative_rows(con, self.trace_id, self.window_id, k) if self.success else []

    @cached_property
    def trace_df(self) -> Any:
        """Return the graph's events in Ibis, with their class, thread and stream, or their rows of `full_trace_df` in pandas."""
        if self._has_data_frames:
            frame: Any = self.full_trace_df
            return frame.loc[frame.index.intersection(self.saved.events["event_id"].to_pylist())]
        need("notebook", "a table in Ibis")
        import ibis

        return ibis.memtable(self.saved.events)

    @cached_property
    def full_trace_df(self) -> Any:
        """Return all events of the trace, as `t_full.get_trace` does. Raise ValueError if the path has no trace."""
        return self._trace("full_trace_df").get_trace(self.trace_id)

    @property
    def t(self) -> Trace | None:
        """Return `t_full` under HTA's name, because a window's events are not stored separately."""
        return self.t_full

    @property
    def symbol_table(self) -> SymbolTable:
        """Return the symbol table of names and categories in data frames. Raise ValueError if the path has no trace."""
        return self._trace("symbol_table").symbol_table

    @property
    def _has_data_frames(self) -> bool:
        return self.t_full is not None and self.t_full.frames == "pandas"

    def _trace(self, purpose: str) -> Trace:
        if self.t_full is None:
            raise WrongValue(f"{purpose} needs the trace: restore_cpgraph(file, TraceAnalysis(…))")
        return self.t_full

    @cached_property
    def _window(self) -> Window:
        """Return the graph with the lookups that scenarios need, built once."""
        from pipelines.critical_path.whatif.window import of_saved

        return of_saved(self.saved)

    def what_if(
        self, scale: Mapping[str, float] | None = None, *, remove: Iterable[str] = (), perfect_overlap: bool = False
    ) -> Comparison:
        """Return this path and the path under a scenario: `before`, `after`, and the events that `entered` and `left` it.

        Targets are those of `tracelake what-if`: `what_if({"*gemm*": 0.5}, remove=["launch_overhead"])`. The graph is
        built once for any number of scenarios. A restored path needs its trace only for scenarios of operators, modules or
        layers. Raise ScenarioError, NothingMatches (the message lists the possible targets) or NoGraph.
        """
        from pipelines.critical_path.whatif.before_after import what_if
        from pipelines.critical_path.whatif.scenario import of_options
        from pipelines.critical_path.whatif.targets import owner_kinds

        targets = [remove] if isinstance(remove, str) else remove
        scenario = of_options((f"{target}={by}" for target, by in (scale or {}).items()), targets, perfect_overlap)
        window = self._window
        if owner_kinds(scenario):
            window = replace(window, owners=self._owners)
        return next(what_if(window, [scenario]))

    @cached_property
    def _owners(self) -> Owners:
        """Return the operators, modules and layers to which the trace's GPU work belongs."""
        from pipelines.critical_path.whatif.owners import owners_of

        trace = self._trace("a scenario of operators, modules or layers")
        with trace.connect(self.trace_id) as con:
            return owners_of(con, trace.lake.catalog(), self.trace_id)

    def sensitivity(self) -> pa.Table:
        """Return kernels and operators by name, with the change of the path's length (us) if they take 10, 50 or 100 % less."""
        import pyarrow as pa

        from pipelines.critical_path.whatif.sensitivity import rank_families

        families = rank_families(self._window, with_cpu=True)
        rows = [(f.as_json(), {f"change_{cut}_percent_us": us for cut, us in f.change_us.items()}) for f in families]
        for row, _ in rows:
            del row["change_us"]
        return pa.Table.from_pylist([{**row, **changes} for row, changes in rows])

    def redraw(self, comparison: Comparison, output_dir: str | Path) -> str:
        """Write the trace with every event at its time under a scenario of `what_if`, and return the file's path.

        Raise ValueError if the path has no trace, or if nodes were added to the graph, because they are not in the trace.
        """
        from pipelines.faces.drawings.redraw import write_redrawn

        if self.saved.meta.get("edited", {}).get("nodes added"):
            raise WrongValue("nodes were added to the graph that are not in the trace, so it cannot be redrawn")
        with self._trace("redrawing the trace").connect(self.trace_id) as con:
            return str(write_redrawn(con, comparison.after, None, Path(output_dir).expanduser()))

    def warn_of_added_nodes(self) -> None:
        """Warn about the number of the path's edges that a drawing omits because they touch added nodes."""
        n_events = self.saved.meta["trace"]["n_events"]
        ends = zip(*(self.saved.path[name].to_pylist() for name in ("src_event_id", "dst_event_id")), strict=True)
        if n_events and (n := sum(max(pair) >= n_events for pair in ends)):
            warnings.warn(
                f"{n} edges of the path are not drawn, because their nodes were added and are not in the trace",
                stacklevel=3,
            )

    def check_is_of(self, trace: RankTrace) -> None:
        """Raise ValueError unless this is a path of the trace."""
        if trace.trace_id != self.trace_id:
            raise WrongValue(f"{self!r} belongs to trace {self.trace_id}, not to {trace}")
