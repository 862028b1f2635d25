"""`CriticalPath`: what HTA calls CPGraph. Computed or restored, it is the saved path (`critical_path/saved.py`), whose
tables it shows and whose graph it asks further."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pipelines.critical_path.answer import PathAnswer, critical_path
from pipelines.critical_path.overlay import HTA_TYPES
from pipelines.critical_path.saved import SavedPath, check_target, restore_path
from pipelines.critical_path.windows import WindowRequest
from pipelines.models.catalog import load_catalog
from pipelines.notebook.restored import path_tables
from pipelines.notebook.sources import Trace

if TYPE_CHECKING:
    import duckdb
    import ibis.expr.types as ir
    import networkx as nx
    import pyarrow as pa

    from pipelines.critical_path.graph import ArrayGraph
    from pipelines.critical_path.whatif.compare import Comparison
    from pipelines.critical_path.whatif.window import Window
    from pipelines.notebook.analysis import TraceAnalysis


@dataclass(frozen=True, eq=False, repr=False)
class CriticalPath:
    """The critical path of one window with its graph. `graph, success = path` gives HTA's pair: itself and whether
    there is a path (there is none where the graph is empty or has a cycle).

    `saved` has the nodes, edges and path as Arrow tables, `file` is where it lies; `analysis` has the trace, for what
    needs more of it than the graph (None after a restore without it), and `execution_trace` what its operators follow
    (None: each other).
    """

    saved: SavedPath
    file: Path
    analysis: TraceAnalysis | None = None
    execution_trace: Path | None = None

    def __iter__(self) -> Iterator[Any]:
        yield self
        yield self.success

    def __repr__(self) -> str:
        answer = self.answer
        found = f"{answer.length_us:,.1f} us" if answer.success else "no path"
        return f"<CriticalPath of {self.saved.title}: {found}; {answer.nodes:,} nodes, {answer.edges:,} edges>"

    @cached_property
    def answer(self) -> PathAnswer:
        """The answer that `tracelake critical-path --json` prints: lengths in us, edges by type, the path's steps."""
        return self.saved.answer

    @property
    def success(self) -> bool:
        """There is a path."""
        return self.answer.success

    @property
    def trace_id(self) -> str:
        """The trace."""
        return self.saved.meta["trace"]["trace_id"]

    @property
    def window_id(self) -> str:
        """Name of the window in the tables: `full` for a whole trace."""
        return self.saved.meta["window"]["window_id"]

    def summary(self) -> dict[str, float | None]:
        """Percent of the path's time by what bounds it, greatest first."""
        return self.answer.summary

    def show_critical_path(self) -> None:
        """Print the path's edges in order: time (us), what bounds it, event and name."""
        for step in self.answer.path:
            print(f"{step['duration_us']:12.3f}  {step['bound_by']:28}  {step['event_id']:>8}  {step['name'] or ''}")

    def get_critical_path_breakdown(self) -> pa.Table:
        """HTA's table, a row an edge of the path, in order: event_idx, duration (us), type (as HTA writes it), s_name
        (the whole name), cat, pid, tid (text), stream (-1 on the CPU), index (event_idx again) and bound_by.

        Edges that are no event's time have bound_by only. Table `critical_path` says more.
        """
        import ibis

        path: Any = self.table("critical_path").order_by("seq")
        own = path.attributed_event_id.notnull()
        columns = {
            "event_idx": path.attributed_event_id,
            "duration": path.duration_ns / 1000,
            "type": path.edge_type.substitute(HTA_TYPES),
            "s_name": own.ifelse(path.name, ibis.null()),
            **{name: own.ifelse(path[name], ibis.null()) for name in ("cat", "pid", "tid")},
            "stream": own.ifelse(path.stream.fill_null(-1), ibis.null()),
            "index": path.attributed_event_id,
            "bound_by": path.bound_by,
        }
        return path.select(**columns).to_pyarrow()

    def save(self, out_dir: str | Path) -> str:
        """Write the path and its graph into `<out_dir>.zip` (Parquet and JSON) and return that name.

        Raises OSError as `saved.check_target`: no such folder, or a file there that is no saved path.
        """
        target = Path(out_dir if str(out_dir).endswith(".zip") else f"{out_dir}.zip")
        check_target(target)
        unfinished = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            shutil.copyfile(self.file, unfinished)
            os.replace(unfinished, target)
        finally:
            unfinished.unlink(missing_ok=True)
        return str(target)

    @cached_property
    def _backend(self) -> Any:
        import ibis

        return ibis.duckdb.from_connection(path_tables(self.saved))

    def table(self, name: str) -> ir.Table:
        """`critical_path`, `critical_path_edges`, `critical_path_nodes` or `critical_path_summary` of this window in
        Ibis, with the lake's columns; edges with `seq` (their place on the path), nodes with their event's name."""
        return self._backend.table(name)

    def arrow(self, name: str) -> pa.Table:
        """The same as an Arrow table."""
        return self.table(name).to_pyarrow()

    @property
    def graph(self) -> ArrayGraph:
        """The graph as arrays, weights in ns, for networkx: `networkx.dag_longest_path(path.graph)` is the path."""
        return self.saved.graph()

    def to_networkx(self) -> nx.DiGraph:
        """A `networkx.DiGraph` to look at and to edit. Nodes are 2·event_id (start) and 2·event_id + 1 (end), with ts_ns
        and name; edges have weight (ns), type (as HTA writes it) and event_id, the event whose time it is."""
        graph = self.graph.to_networkx()
        nodes = (self.saved.nodes[column].to_pylist() for column in ("node_id", "ts_ns", "name"))
        for node, ts_ns, name in zip(*nodes, strict=True):
            if node in graph:
                graph.nodes[node].update(ts_ns=ts_ns, name=name)
        columns = ("src_node_id", "dst_node_id", "edge_type", "attributed_event_id")
        for src, dst, kind, event in zip(*(self.saved.edges[column].to_pylist() for column in columns), strict=True):
            graph.edges[src, dst].update(type=HTA_TYPES.get(kind, kind), event_id=event)
        return graph

    def slack(self) -> pa.Table:
        """Table `event_slack` of this window with the events' names, greatest drag first: how much longer each may get
        before the path's length changes (slack_ns), and how much shorter the path is where it takes no time (drag_ns)."""
        from pipelines.critical_path.slack import event_slacks

        with path_tables(self.saved) as con:
            event_slacks(con)
            return con.execute(
                "SELECT s.*, e.name, e.cat FROM event_slack AS s LEFT JOIN events AS e USING (event_id) "
                "ORDER BY s.drag_ns DESC NULLS LAST, s.slack_ns, s.event_id"
            ).to_arrow_table()

    def alternatives(self, k: int = 5) -> list[dict[str, Any]]:
        """The k longest other paths, each with another kernel or operator, as `--alternatives` gives them."""
        from pipelines.critical_path.alternative_rows import alternative_rows

        with path_tables(self.saved) as con:
            return alternative_rows(con, self.trace_id, self.window_id, k) if self.success else []

    @cached_property
    def _what_if(self) -> tuple[Window, duckdb.DuckDBPyConnection]:
        """The graph with what scenarios ask of it, made once, and the connection it was made in."""
        from pipelines.critical_path.whatif.window import load

        if self.analysis is None:
            raise ValueError("what-if needs the trace: restore_cpgraph(file, TraceAnalysis(…))")
        if self.answer.dependencies["mode"] == "data" and self.execution_trace is None:
            raise ValueError("what-if of a path by data needs the execution trace: compute the path, do not restore it")
        window, profile = self.saved.meta["window"], self.saved.meta["profile"]
        names = ("annotation", "first_instance", "last_instance")
        request = WindowRequest(self.trace_id, self.window_id, profile, *(window[name] for name in names))
        overrides = {(profile, name): value for name, value in self.saved.meta["switches"].items()}
        con = self.analysis.connect(self.trace_id, self.execution_trace)
        return load(con, load_catalog(), request, overrides=overrides), con

    def what_if(
        self, scale: Mapping[str, float] | None = None, *, remove: Iterable[str] = (), perfect_overlap: bool = False
    ) -> Comparison:
        """This path beside the path under a scenario: `before`, `after`, and the events that `entered` and `left` it.

        Targets are those of `tracelake what-if`: `what_if({"ampere_gemm*": 0.5}, remove=["launch_overhead"])`. The graph
        is made once, whatever the number of scenarios. Raises ScenarioError, NothingMatches (the message lists what
        there is), NoGraph, and ValueError for a restored path without its trace.
        """
        from pipelines.critical_path.whatif.compare import what_if
        from pipelines.critical_path.whatif.scenario import of_options

        targets = [remove] if isinstance(remove, str) else remove
        scenario = of_options((f"{target}={by}" for target, by in (scale or {}).items()), targets, perfect_overlap)
        return next(what_if(self._what_if[0], [scenario]))

    def sensitivity(self) -> pa.Table:
        """Kernels and operators by name: the change of the path's length, us, where they take 10, 50 or 100 % less."""
        import pyarrow as pa

        from pipelines.critical_path.whatif.sensitivity import rank_families

        families = rank_families(self._what_if[0], with_cpu=True)
        rows = [(f.as_json(), {f"change_{cut}_percent_us": us for cut, us in f.change_us.items()}) for f in families]
        for row, _ in rows:
            del row["change_us"]
        return pa.Table.from_pylist([{**row, **changes} for row, changes in rows])

    def redraw(self, comparison: Comparison, output_dir: str | Path) -> str:
        """Write the trace with every event at its time under a scenario of `what_if`, and return the file's path."""
        from pipelines.critical_path.whatif.redraw import write_redrawn

        return str(write_redrawn(self._what_if[1], comparison.after, None, Path(output_dir)))

    def check_is_of(self, trace: Trace) -> None:
        """Raise ValueError unless this is a path of the trace."""
        if trace.trace_id != self.trace_id:
            raise ValueError(f"{self!r} is of trace {self.trace_id}, not of {trace}")


def compute(
    analysis: TraceAnalysis,
    request: WindowRequest,
    overrides: dict[tuple[str, str], str],
    execution_trace: Path | None = None,
) -> CriticalPath:
    """The path of a window of a trace of the analysis. Raises WindowNotFound and what `analysis.connect` raises."""
    file = analysis.scratch / f"{uuid4().hex}.zip"
    with analysis.connect(request.trace_id, execution_trace) as con:
        critical_path(con, load_catalog(), request, overrides=overrides, save_to=file)
    return CriticalPath(restore_path(file), file, analysis, execution_trace)


def restore_cpgraph(
    zip_filename: str | Path, t_full: TraceAnalysis | None = None, rank: int | str | None = None
) -> CriticalPath:
    """A path that was saved, by `save` or by `tracelake critical-path --save`; it needs neither trace nor lake.

    `t_full` is the analysis with its trace, for what-if. Raises NotASavedPath, OSError, TraceNotFound where the
    analysis has no such trace, and ValueError where `rank` is another one.
    """
    path = CriticalPath(restore_path(Path(zip_filename)), Path(zip_filename), t_full)
    if t_full is not None:
        path.check_is_of(t_full.find(path.trace_id if rank is None else rank))
    return path
