"""`CriticalPath` (HTA's CPGraph): a computed, restored or edited path with its tables, its graph and queries on it.

It wraps a saved path (`answer/saved_path.py`).
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import networkx as nx

from pipelines.base.errors import WrongValue
from pipelines.base.extras import need
from pipelines.base.foreign_text import visible
from pipelines.critical_path.answer.answer import critical_path
from pipelines.critical_path.answer.edited_graph import give_back
from pipelines.critical_path.answer.save_path import write_saved
from pipelines.critical_path.answer.saved_path import SavedPath, restore_path
from pipelines.critical_path.graph.edge_types import HTA_TYPES
from pipelines.critical_path.graph.operator_order import SWITCH
from pipelines.critical_path.graph.stored_window import GRAPH_TABLES, PATH_TABLES
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.faces.limiting_findings import findings_of_saved
from pipelines.faces.notebook.path_questions import AskedGraph
from pipelines.faces.notebook.sources import RankTrace
from pipelines.faces.notebook.summary import HEADER, Summary, series
from pipelines.faces.notebook.trace import Trace, trace_of
from pipelines.models.catalog import load_catalog
from pipelines.readers.execution.neighbor_files import execution_trace_beside

if TYPE_CHECKING:
    import pandas as pd


class PathAndSuccess(tuple):
    """HTA's return value, `cp_graph, success = …`. It also has the graph's methods, as in `….summary()`."""

    __slots__ = ()

    def __new__(cls, path: CriticalPath) -> PathAndSuccess:
        return super().__new__(cls, (path, path.success))

    def __getnewargs__(self) -> tuple[CriticalPath]:
        return (self[0],)

    def __deepcopy__(self, memo: dict[int, Any]) -> PathAndSuccess:
        # Otherwise `__getattr__` would return the path's method, which copies only the path.
        return PathAndSuccess(self[0].__deepcopy__(memo))

    def __getattr__(self, name: str) -> Any:
        # `graph` means the arrays, as before the path became a networkx graph itself.
        return getattr(self[0], "arrays" if name == "graph" else name)

    def __repr__(self) -> str:
        return repr(self[0])


class CriticalPath(AskedGraph):
    """The critical path of one window: a `networkx.DiGraph` (`cpgraph.py`) with its longest path.

    `saved` has nodes, edges and path as Arrow tables. `t_full` is the trace, for data that the graph does not contain (None
    after a restore without it). After editing the graph, call `critical_path()`, which updates path, summary, tables and
    pictures. As in HTA, `CriticalPath(t, t_full, rank)` is the path of a whole trace. With `G` (an edited graph made from a
    path's graph) it is the path of that graph. Raise the errors of `with_graph` and `critical_path_analysis`.
    """

    def __new__(cls, t: Any = None, t_full: Any = None, rank: Any = None, G: Any = None, **attributes: Any) -> Any:
        if t_full is None:  # networkx makes copies and subgraphs this way; they are ordinary graphs
            return nx.DiGraph(t, **attributes)
        return object.__new__(cls)

    def __init__(self, t: Any, t_full: Any, rank: int | str | None = None, G: nx.DiGraph | None = None) -> None:
        trace = trace_of(t_full)
        rank_trace = trace.find(rank)
        if G is None:
            overrides = {(trace.profile, name): str(value).lower() for name, value in trace.switches().items()}
            path = compute(trace, WindowRequest(rank_trace.trace_id, profile=trace.profile), overrides)
        else:
            path = _path_of_edited(trace, rank_trace, G)
        self._start(path.saved, trace)

    @classmethod
    def of(cls, saved: SavedPath, t_full: Trace | None = None) -> CriticalPath:
        """Return a saved path as a CriticalPath."""
        path = object.__new__(cls)
        path._start(saved, t_full)
        return path

    def _start(self, saved: SavedPath, t_full: Trace | None) -> None:
        self.t_full, self._made_of = t_full, saved
        self.hold(saved)

    def __deepcopy__(self, memo: dict[int, Any]) -> CriticalPath:
        """Return a copy of the path, including edits, that can be edited independently."""
        twin = CriticalPath.of(self._made_of, self.t_full)
        twin.hold(self.saved)
        if self.is_filled:
            twin._take(self.copy())
        return twin

    def __copy__(self) -> CriticalPath:
        """Return a deep copy, because a shallow copy would share networkx's dictionaries."""
        return self.__deepcopy__({})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path, including edits, without its trace, as `save` and `restore_cpgraph` do without `t_full`."""
        self.critical_path()
        return CriticalPath.of, (self.saved,)

    def critical_path(self) -> bool:
        """Recompute the longest path of the graph after edits, and return whether the graph has a path.

        `cp_graph.edges[u, v]["weight"] = 0` (us), `add_edge`, `remove_edge`, `add_node` and `remove_node` edit the
        graph. For the attributes of added edges see `edited_graph.give_back`. A graph with a cycle has no path. A
        warning names the cycle. Raise ValueError if an edge or node is invalid. The message names it, and the path is
        unchanged.
        """
        # The graph cannot have been edited before networkx's dictionaries are built.
        if self.is_filled and (self.saved.events is not None or self.is_edited):
            self.hold(give_back(self._made_of, self, self.unit))
            if cycle := self.saved.meta["cycle"]:
                warnings.warn(f"no critical path: {cycle}", stacklevel=2)
        return self.success

    def with_graph(self, graph: nx.DiGraph) -> CriticalPath:
        """Return the path of an edited graph that was made from this path's graph (`to_networkx()`, a copy).

        This path is unchanged. Raise ValueError as `critical_path` does.
        """
        base = self._made_of if graph is self else self.saved
        unit = graph.unit if isinstance(graph, CriticalPath) else None
        path = CriticalPath.of(give_back(base, graph, unit), self.t_full)
        if cycle := path.saved.meta["cycle"]:
            warnings.warn(f"no critical path: {cycle}", stacklevel=2)
        return path

    def summary(self) -> pd.Series | Summary:
        """Print HTA's header and return the percentage of the path's time by bound (`bound_by`).

        As in HTA, return a pandas Series, or a dict with the same text form if pandas is not installed. `answer.summary` is the
        plain dict, largest first. Print caveats of severity warning or error to stderr. `caveats` has all of them.
        """
        for caveat in self.caveats:
            if caveat["severity"] != "info":
                print(
                    f"{caveat['severity']}: {caveat['detail']}", file=sys.stderr
                )  # keeps stdout identical to HTA's output
        print(HEADER)
        return series(self.answer.summary)

    def show_critical_path(self) -> None:
        """Print the path's edges in order: time (us), bound, event and name."""
        for step in self.answer.path:
            print(
                f"{step['duration_us']:12.3f}  {step['bound_by']:28}  {step['event_id']:>8}  {visible(step['name'] or '')}"
            )

    def get_critical_path_breakdown(self) -> Any:
        """Return HTA's table with one row per edge of the path, in order, in Arrow, or as a data frame if frames are "pandas".

        Columns: event_idx, duration (us), type (HTA's text), s_name (the full name), cat, pid, tid (text), stream (-1 on the
        CPU), index (event_idx again) and bound_by. Edges whose time is not attributed to an event have only duration, type and
        bound_by. Table `critical_path` has more columns.
        """
        need("notebook", "a table in Ibis")
        import ibis

        path: Any = self.table("critical_path").order_by("seq")
        is_attributed = path.attributed_event_id.notnull()
        columns = {
            "event_idx": path.attributed_event_id,
            "duration": path.duration_ns / 1000,
            "type": path.edge_type.substitute(HTA_TYPES),
            "s_name": is_attributed.ifelse(path.name, ibis.null()),
            **{name: is_attributed.ifelse(path[name], ibis.null()) for name in ("cat", "pid", "tid")},
            "stream": is_attributed.ifelse(path.stream.fill_null(-1), ibis.null()),
            "index": path.attributed_event_id,
            "bound_by": path.bound_by,
        }
        rows = path.select(**columns).to_pyarrow()
        return rows.to_pandas() if self._has_data_frames else rows

    def save(self, out_dir: str | Path) -> str:
        """Write the path and its graph, including edits, into one file, and return its name.

        The name is `out_dir` if that ends in .zip or .parquet, or else `<out_dir>.zip`, as in HTA. The file is Parquet in both
        cases. Create missing folders. Raise OSError as `check_target` does, for an existing file that is not a saved path.
        """
        self.critical_path()
        target = Path(out_dir).expanduser()
        if target.suffix not in (".zip", ".parquet"):
            target = target.with_name(f"{target.name}.zip")
        target.parent.mkdir(parents=True, exist_ok=True)
        write_saved(self.saved, target)
        return str(target)


def compute(
    trace: Trace,
    request: WindowRequest,
    overrides: dict[tuple[str, str], str],
    execution_trace: Path | None = None,
) -> CriticalPath:
    """Return the path of a window of a trace. Raise WindowNotFound and the errors of `trace.connect`."""
    file = trace.scratch / f"{uuid4().hex}.zip"
    try:
        with trace.connect(request.trace_id, (*PATH_TABLES, *GRAPH_TABLES), execution_trace) as con:
            critical_path(con, load_catalog(), request, overrides=overrides, save_to=file)
        return CriticalPath.of(restore_path(file), trace)
    finally:
        file.unlink(missing_ok=True)


def _path_of_edited(trace: Trace, rank_trace: RankTrace, graph: nx.DiGraph) -> CriticalPath:
    """Return the path of an edited graph. Compute the path that it was made from, unless the graph is a CriticalPath."""
    if isinstance(graph, CriticalPath):
        graph.check_is_of(rank_trace)
        return graph.with_graph(graph)
    origin = graph.graph.get("path_of")
    if origin is None:
        raise WrongValue("the graph does not record its origin: edit cp_graph, a copy of it or its to_networkx()")
    if origin["trace_id"] != rank_trace.trace_id:
        raise WrongValue(f"the graph belongs to trace {origin['trace_id']}, not to {rank_trace}")
    names = ("window_id", "profile", "annotation", "first_instance", "last_instance")
    overrides = {(origin["profile"], name): value for name, value in origin["switches"].items()}
    by_data = origin["switches"].get(SWITCH) == "data"
    execution_trace = execution_trace_beside(Path(rank_trace.path), rank_trace.rank) if by_data else None
    return compute(
        trace, WindowRequest(rank_trace.trace_id, *(origin[name] for name in names)), overrides, execution_trace
    ).with_graph(graph)


def restore_cpgraph(zip_filename: str | Path, t_full: Any = None, rank: int | str | None = None) -> CriticalPath:
    """Return a path saved by `save` or by `tracelake critical-path --save`, without its trace or a lake.

    `t_full` is its trace (`analyzer.t`, or the analysis), for overlays and drawings. Raise NotASavedPath for a file
    that is not a saved path, OSError if the file cannot be read, TraceNotFound if `t_full` does not contain the trace,
    or ValueError if the path is of another trace than `rank`.
    """
    trace = None if t_full is None else trace_of(t_full)
    path = CriticalPath.of(restore_path(Path(zip_filename).expanduser()), trace)
    for incomplete in findings_of_saved(path.saved.meta):
        warnings.warn(visible(incomplete.sentence), stacklevel=2)
    if trace is not None:
        path.check_is_of(trace.find(path.trace_id if rank is None else rank))
    return path
