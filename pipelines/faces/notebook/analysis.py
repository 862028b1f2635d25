"""`TraceAnalysis`: the traces of a folder, of files or of a lake, with a method per analysis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import WrongValue
from pipelines.critical_path.graph.operator_order import MODES, SWITCH
from pipelines.critical_path.graph.switches import switch_overrides
from pipelines.critical_path.graph.windows import PROFILES, WindowNotFound, WindowRequest, parse_instance
from pipelines.faces.drawings.overlay import write_overlay
from pipelines.faces.notebook import tables
from pipelines.faces.notebook.answers import Answer, answer, question
from pipelines.faces.notebook.critical_path import CriticalPath, PathAndSuccess, compute
from pipelines.faces.notebook.plots import Plots
from pipelines.faces.notebook.sources import Files, RankTrace
from pipelines.faces.notebook.trace import Trace
from pipelines.faces.why import Why, of_rows, queries
from pipelines.lake.lake import Lake
from pipelines.readers.execution.neighbor_files import execution_trace_beside

if TYPE_CHECKING:
    import ibis.expr.types as ir

Frame = Any
"""An Ibis table, or a pandas data frame if frames are "pandas"."""


class TraceAnalysis:
    """Traces to analyze. Methods that HTA also has keep HTA's names.

    They return tables as Ibis expressions, or as pandas data frames with `frames="pandas"`. The events of a rank
    (`analysis.t.get_trace(rank)`) and of a path are then HTA's frames (`hta_frame`).

    `TraceAnalysis("rank0.json.gz")`, `TraceAnalysis({0: "a.json.gz", 1: "b.json.gz"})` and `TraceAnalysis(trace_dir="run/")`
    read files into `lake`, which keeps them for the next session. Without `lake` they use a temporary lake, which is removed by
    `close()`, at the end of a `with` block, or when the process ends. `TraceAnalysis(lake="/data/lake")` reads no files. If
    `lake` is the address of a DuckLake, its traces are copied first, and tables are computed in the copy. `job` selects one job
    of the lake, or names the job of the files.

    `include_last_profiler_step` and `profile` apply to critical paths. With None the profile decides about the last step (`hta`
    excludes it, `default` includes it). Profile `hta` produces HTA's numbers (it is the default in
    `pipelines.faces.notebook.hta`).

    Raise ValueError if neither files, a folder nor a lake are passed. Raise FileNotFoundError if a folder or lake does not
    exist, TraceRejected for a file that is not a trace (in a folder: warn).
    """

    def __init__(
        self,
        trace_files: Files | None = None,
        trace_dir: str | Path | None = None,
        include_last_profiler_step: bool | None = None,
        *,
        lake: Lake | str | Path | None = None,
        job: str | None = None,
        profile: str = "default",
        frames: str = "ibis",
    ) -> None:
        self.t = Trace(trace_files, trace_dir, lake=lake, job=job, profile=profile, frames=frames)
        try:
            self.t.load_traces(include_last_profiler_step)
        except BaseException:
            self.close()
            raise

    @classmethod
    def of(cls, t: Trace) -> TraceAnalysis:
        """Return an analysis of traces that are already loaded."""
        analysis = cls.__new__(cls)
        analysis.t = t
        return analysis

    def __enter__(self) -> TraceAnalysis:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the temporary files. A lake passed by the caller is kept."""
        self.t.close()

    @property
    def lake(self) -> Lake:
        """Return the lake that contains the traces."""
        return self.t.lake

    @property
    def traces(self) -> list[RankTrace]:
        """Return the traces, by rank."""
        return self.t.traces

    @property
    def scratch(self) -> Path:
        """Return the folder of temporary files."""
        return self.t.scratch

    def find(self, rank: int | str | None) -> RankTrace:
        """Return the trace with this rank or id prefix, or the only trace if `rank` is None. Raise TraceNotFound."""
        return self.t.find(rank)

    def critical_path_analysis(
        self,
        rank: int | str | None = None,
        annotation: str = "",
        instance_id: int | tuple[int, int] | str | None = None,
        *,
        profile: str | None = None,
        switches: Mapping[str, Any] | None = None,
        dependencies: str = "serial",
        execution_trace: str | Path | None = None,
    ) -> PathAndSuccess:
        """Return the critical path of a rank (or trace id), of the whole trace or under an annotation.

        The result is HTA's pair `cp_graph, success = …`, which also has the graph's methods. `instance_id`: None is the
        first instance, 3 the fourth, (3, 5) or "3:5" the fourth to the sixth. Without an annotation it is ignored, as
        in HTA. `profile` (default: the profile of the analysis): `hta` produces the graph of HTA 0.6.1. `switches`
        overrides single switches (docs/differences-from-hta.md). With `dependencies="data"` operators follow their
        tensors (docs/data-dependencies.md) as recorded in `execution_trace`, by default the file next to the trace.

        Raise TraceNotFound, WindowNotFound (the message lists the annotations), NoExecutionTrace, NothingJoined, TraceRejected
        for a file that is not an execution trace, or ValueError for an invalid instance, profile or switch.
        """
        profile = self.t.profile if profile is None else profile
        for parameter, passed, choices in (("profile", profile, PROFILES), ("dependencies", dependencies, MODES)):
            if passed not in choices:
                raise WrongValue(f"unknown {parameter} {passed!r}; choose one of {', '.join(choices)}")
        if execution_trace and dependencies != "data":
            raise WrongValue('execution_trace needs dependencies="data"')
        if isinstance(instance_id, int):
            instance_id = (instance_id, instance_id)
        text = instance_id if instance_id is None or isinstance(instance_id, str) else ":".join(map(str, instance_id))
        first, last = parse_instance(text)
        merged_switches = {**self.t.switches(), **(switches or {})}
        overrides = switch_overrides(profile, ((name, str(value).lower()) for name, value in merged_switches.items()))
        trace = self.find(rank)
        request = WindowRequest(trace.trace_id, "asked" if annotation else "full", profile, annotation, first, last)
        if dependencies == "serial":
            return PathAndSuccess(compute(self.t, request, overrides))
        overrides[profile, SWITCH] = dependencies
        passed = Path(execution_trace).expanduser() if execution_trace else None
        file = passed or execution_trace_beside(Path(trace.path), trace.rank)
        return PathAndSuccess(compute(self.t, request, overrides, file))

    def overlay_critical_path_analysis(
        self,
        rank: int | str | None,
        critical_path_graph: CriticalPath | PathAndSuccess,
        output_dir: str | Path,
        only_show_critical_events: bool = True,
        show_all_edges: bool = False,
    ) -> str:
        """Write the rank's trace with the path marked, for Perfetto or chrome://tracing, and return the file's path.

        Create the folder if it is missing. As in HTA, `show_all_edges` applies only if all events are shown. For an edited graph,
        draw the new path at the times of the trace. A warning counts the steps of added nodes, which cannot be drawn. Raise
        ValueError if the path is of another trace.
        """
        path: CriticalPath = (
            critical_path_graph[0] if isinstance(critical_path_graph, PathAndSuccess) else critical_path_graph
        )
        trace = self.find(rank)
        path.check_is_of(trace)
        path.warn_of_added_nodes()
        with self.t.connect(trace.trace_id) as con:
            for name in ("critical_path", "critical_path_edges"):
                con.register(name, path.arrow(name))
            written = write_overlay(
                con,
                trace.trace_id,
                None,
                Path(output_dir).expanduser(),
                window_id=path.window_id,
                only_critical=only_show_critical_events,
                all_edges=show_all_edges,
            )
        return str(written)

    def sql(self, query: str) -> Answer:
        """Return the answer to a SELECT, which a notebook shows as a table, and which converts to Arrow and data frames.

        Tables with a trace_id (`tracelake tables` lists all tables) have only the rows of these traces. Tables of captures and
        jobs have all rows. Tables are computed first if necessary. Raise duckdb.Error for an invalid query.
        """
        return answer(self.lake, query, self.traces, caveats=self._caveats)

    def ask(self, name: str, top: int = 0, **limits: str | int | None) -> Answer:
        """Return the answer to a saved question (`tracelake ask` lists them), at most `top` rows (0: all).

        `limits`: job, capture, trace or rank, as in the command. Raise KeyError if the question is unknown, NotAsked for a limit
        that it does not have.
        """
        query, reading = question(name, top, **limits)
        return answer(self.lake, query, self.traces, reading, self._caveats)

    @property
    def _caveats(self) -> list[str]:
        return [incomplete.sentence for incomplete in self.t.incomplete]

    def why(self, rank: int | str | None = None, step: int | None = None) -> Why:
        """Return why a rank (or trace id), or one of its profiler steps, takes as long as it does: a sentence, causes and fixes.

        Its text is the first part of the output of `tracelake why`. `rows` are rows of table `causes`, `fixes` rows of table
        `fixes` (times in ns). `as_json()` returns the answer of `--json`. Raise TraceNotFound, or WindowNotFound if the step or
        its path does not exist, or is not computed in a lake that cannot be written.
        """
        trace = self.find(rank)
        window = "full" if step is None else f"ProfilerStep#{step}"
        # Only for this trace, because missing rows of another trace are not a caveat of the answer.
        answers = {table: answer(self.lake, query, [trace]) for table, query in queries(trace.trace_id, window).items()}
        lacking = [*dict.fromkeys(caveat for rows in answers.values() for caveat in rows.caveats)]
        explanation = of_rows({table: rows.to_dicts() for table, rows in answers.items()}, Path(trace.path).name)
        if explanation is None and lacking:
            raise WindowNotFound(f"why {trace.path} takes as long as it does is unknown: {'; '.join(lacking)}")
        if explanation is None:
            raise WindowNotFound(f"{trace.path} has no critical path of window {window}")
        of_tables = [{"caveat": "incomplete_tables", "severity": "warning", "detail": text} for text in lacking]
        subject, of_lake = self.t.in_commands(trace)
        caveats = [*explanation.caveats, *of_tables]
        return replace(explanation, caveats=caveats, subject=subject, of_lake=of_lake)

    @property
    def plot(self) -> Plots:
        """Return the charts, such as `analysis.plot.breakdown()`. `dir(analysis.plot)` lists them."""
        return Plots(self)

    def tables(self, *names: str) -> list[ir.Table]:
        """Return tables of the lake (`tracelake tables` lists them) with the rows of these traces.

        Tables are computed first if necessary. To join tables, request them in one call. Raise CatalogError if a name is unknown.
        """
        return tables.of_traces(self.lake, names, self.traces)

    def table(self, name: str) -> ir.Table:
        """Return a single table, as `tables` does."""
        return self.tables(name)[0]

    def _ranked(self, name: str, ranks: Iterable[int] | None = None) -> ir.Table:
        traces = self.traces if ranks is None else [self.find(rank) for rank in ranks]
        return tables.with_rank(self.lake, name, traces)

    def get_profiler_steps(self) -> list[int]:
        """Return the numbers of the profiler steps, ascending."""
        return tables.profiler_steps(self._ranked("profiler_steps"))

    def get_temporal_breakdown(self) -> Frame:
        """Return table `temporal_breakdown` with the rank: one row per rank and device, times in ns."""
        return self.t.framed(self._temporal_breakdown())

    def _temporal_breakdown(self) -> ir.Table:
        return self._ranked("temporal_breakdown").order_by("rank", "device")

    def get_comm_comp_overlap(self) -> Frame:
        """Return the percentage of communication time hidden by computation, per rank and device (NULL without communication)."""
        return self.t.framed(tables.overlap(self._temporal_breakdown()))

    def get_gpu_kernel_breakdown(
        self, num_kernels: int | None = 10, include_memory_kernels: bool = True
    ) -> tuple[Frame, Frame]:
        """Return two tables: time by kernel class, and time by kernel name.

        First table: rank, device, class, busy_ns (overlapping kernels of a class count once), n_kernels. Second table: rank,
        class, name, n, sum_ns, max_ns, min_ns, mean_ns, std_ns (NULL for a single kernel). It has the `num_kernels` names with
        the most time per rank and class (None: all).
        """
        intervals, kernels = self._ranked("merged_intervals"), self._ranked("kernels")
        classes = tables.kernel_classes(intervals, include_memory_kernels)
        names = tables.kernel_names(kernels, num_kernels, include_memory_kernels)
        return self.t.framed(classes), self.t.framed(names)

    def get_queue_length_time_series(self, ranks: Iterable[int] | None = None) -> Frame:
        """Return table `queue_length` with the rank: the number of waiting launches per stream, after each change."""
        return self.t.framed(self._ranked("queue_length", ranks))

    def get_queue_length_summary(self, ranks: Iterable[int] | None = None) -> Frame:
        """Return statistics of the queue length over its changes (count, mean, std, min, quartiles, max).

        One row per rank, device and stream.
        """
        return self.t.framed(tables.queue_summary(self._ranked("queue_length", ranks)))

    def get_time_spent_blocked_on_full_queue(
        self, queue_length: Frame | None = None, max_queue_length: int = 1024
    ) -> Frame:
        """Return the time (ns) with at least `max_queue_length` waiting launches, per rank, device and stream.

        Streams that never reach this length have no row. `queue_length`: the result of `get_queue_length_time_series`
        (None: all ranks).
        """
        queue = self._ranked("queue_length") if queue_length is None else tables.as_ibis(queue_length)
        return self.t.framed(tables.full_queue(queue, max_queue_length))

    def get_cuda_kernel_launch_stats(self, ranks: Iterable[int] | None = None) -> Frame:
        """Return table `launches` with the rank: launch calls, the durations of calls and GPU work, and the delays."""
        return self.t.framed(self._ranked("launches", ranks))
