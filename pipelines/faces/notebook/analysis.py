"""`TraceAnalysis`: the traces of a folder, of files or of a lake; every analysis is a method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import WrongValue
from pipelines.critical_path.graph.operator_order import MODES, SWITCH
from pipelines.critical_path.graph.switches import switch_overrides
from pipelines.critical_path.graph.windows import PROFILES, WindowNotFound, WindowRequest, parse_instance
from pipelines.faces.drawings.overlay import write_overlay
from pipelines.faces.notebook import tables
from pipelines.faces.notebook.answers import Answer, answer, question
from pipelines.faces.notebook.critical_path import CriticalPath, Found, compute
from pipelines.faces.notebook.plots import Plots
from pipelines.faces.notebook.sources import Files, RankTrace
from pipelines.faces.notebook.trace import Trace
from pipelines.faces.why import Why, of_rows, queries
from pipelines.lake.lake import Lake
from pipelines.readers.execution.beside import execution_trace_beside

if TYPE_CHECKING:
    import ibis.expr.types as ir


class TraceAnalysis:
    """Traces to analyze. Methods that HTA also has keep HTA's names; tables are returned as Ibis expressions.

    `TraceAnalysis("rank0.json.gz")`, `TraceAnalysis({0: "a.json.gz", 1: "b.json.gz"})`,
    `TraceAnalysis(trace_dir="run/")` read files into `lake`, if given, which keeps them for the next session, else into
    a temporary lake that is removed by `close()`, at the end of a `with` block, or when the process ends.
    `TraceAnalysis(lake="/data/lake")` reads no files; with the address of a DuckLake its traces are copied first, of `job`
    only if it is given, and tables are computed in the copy. `job` selects one job of the lake (with files: names their job).

    `include_last_profiler_step` and `profile` apply to critical paths. With None the profile decides about the last
    step (`hta` leaves it out, `default` includes it). Profile `hta` gives HTA's numbers (it is the default of
    `pipelines.faces.notebook.hta`).

    Raises ValueError if nothing is given, FileNotFoundError for a folder or lake that does not exist, TraceRejected for
    a file that is not a trace (in a folder: a warning).
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
    ) -> None:
        self.t = Trace(trace_files, trace_dir, lake=lake, job=job, profile=profile)
        try:
            self.t.load_traces(include_last_profiler_step)
        except BaseException:
            self.close()
            raise

    @classmethod
    def of(cls, t: Trace) -> TraceAnalysis:
        """Returns an analysis of traces that are already loaded."""
        analysis = cls.__new__(cls)
        analysis.t = t
        return analysis

    def __enter__(self) -> TraceAnalysis:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the temporary files; a lake passed by the caller stays."""
        self.t.close()

    @property
    def lake(self) -> Lake:
        """The lake that holds the traces."""
        return self.t.lake

    @property
    def traces(self) -> list[RankTrace]:
        """The traces, by rank."""
        return self.t.traces

    @property
    def scratch(self) -> Path:
        """The folder of temporary files."""
        return self.t.scratch

    def find(self, rank: int | str | None) -> RankTrace:
        """Returns the trace of a rank, or with this beginning of a trace id; None if there is only one. Raises
        TraceNotFound.
        """
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
    ) -> Found:
        """Returns the critical path of a rank (or trace id), of the whole trace or under an annotation: HTA's pair
        `cp_graph, success = …`, which also has the graph's methods.

        `instance_id`: None is the first instance, 3 the fourth, (3, 5) or "3:5" the fourth to the sixth; without an
        annotation it is ignored, as in HTA. `profile` defaults to the analysis's: `hta` gives HTA 0.6.1's graph;
        `switches` overrides single switches (docs/differences-from-hta.md). With `dependencies="data"` operators follow
        their tensors (docs/data-dependencies.md) as recorded in `execution_trace`, by default the one next to the
        trace.

        Raises TraceNotFound, WindowNotFound (the message lists the annotations), NoExecutionTrace, NothingJoined,
        TraceRejected for a file that is not an execution trace, and ValueError for an invalid instance, profile or
        switch.
        """
        profile = self.t.profile if profile is None else profile
        for what, given, known in (("profile", profile, PROFILES), ("dependencies", dependencies, MODES)):
            if given not in known:
                raise WrongValue(f"unknown {what} {given!r}; known are: {', '.join(known)}")
        if execution_trace and dependencies != "data":
            raise WrongValue('execution_trace needs dependencies="data"')
        if isinstance(instance_id, int):
            instance_id = (instance_id, instance_id)
        text = instance_id if instance_id is None or isinstance(instance_id, str) else ":".join(map(str, instance_id))
        first, last = parse_instance(text)
        asked = {**self.t.switches(), **(switches or {})}
        overrides = switch_overrides(profile, ((name, str(value).lower()) for name, value in asked.items()))
        trace = self.find(rank)
        request = WindowRequest(trace.trace_id, "asked" if annotation else "full", profile, annotation, first, last)
        if dependencies == "serial":
            return Found(compute(self.t, request, overrides))
        overrides[profile, SWITCH] = dependencies
        given = Path(execution_trace).expanduser() if execution_trace else None
        file = given or execution_trace_beside(Path(trace.path), trace.rank)
        return Found(compute(self.t, request, overrides, file))

    def overlay_critical_path_analysis(
        self,
        rank: int | str | None,
        critical_path_graph: CriticalPath | Found,
        output_dir: str | Path,
        only_show_critical_events: bool = True,
        show_all_edges: bool = False,
    ) -> str:
        """Write the rank's trace with the path marked, for Perfetto or chrome://tracing, and return the file's path.

        The folder is created. As in HTA, `show_all_edges` applies only where all events are shown. For an edited graph the
        new path is drawn, at the times of the trace; steps of added nodes have no place there and are counted in a
        warning. Raises ValueError for the path of another trace.
        """
        path: CriticalPath = critical_path_graph[0] if isinstance(critical_path_graph, Found) else critical_path_graph
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
        """Returns the answer to a SELECT: a notebook shows its first rows, and it becomes an Arrow table or a data frame.

        Tables (`tracelake tables` lists them) have only the rows of these traces, where they have a trace_id; tables of
        captures and jobs have all. They are computed first if necessary. Raises duckdb.Error for a wrong query.
        """
        return answer(self.lake, query, self.traces, caveats=self._caveats)

    def ask(self, name: str, top: int = 0, **limits: str | int | None) -> Answer:
        """Returns the answer to a saved question (`tracelake ask` lists them), at most `top` rows (0: all).

        `limits`: job, capture, trace or rank, as of the command. Raises KeyError for an unknown question, NotAsked for
        a limit that it does not have.
        """
        query, reading = question(name, top, **limits)
        return answer(self.lake, query, self.traces, reading, self._caveats)

    @property
    def _caveats(self) -> list[str]:
        return [one.sentence for one in self.t.incomplete]

    def why(self, rank: int | str | None = None, step: int | None = None) -> Why:
        """Returns why a rank (or trace id), or one of its profiler steps, takes as long as it does: a sentence, its causes, and what would help.

        Printed, it is what `tracelake why` says first; `rows` are those of table `causes` and `fixes` those of table `fixes` (times in
        ns), `as_json()` is the answer of `--json`.
        Raises TraceNotFound, and WindowNotFound where there is no such step or no path.
        """
        trace = self.find(rank)
        window = "full" if step is None else f"ProfilerStep#{step}"
        found = {table: self.sql(query).to_dicts() for table, query in queries(trace.trace_id, window).items()}
        answer = of_rows(found, Path(trace.path).name)
        if answer is None:
            raise WindowNotFound(f"{trace.path} has no critical path of window {window}")
        return answer

    @property
    def plot(self) -> Plots:
        """Charts: `analysis.plot.breakdown()`; `dir(analysis.plot)` lists them."""
        return Plots(self)

    def tables(self, *names: str) -> list[ir.Table]:
        """Returns tables of the lake (`tracelake tables` lists them) with the rows of these traces, computing them
        first if necessary.

        Request tables that are to be joined in one call. Raises CatalogError for an unknown name.
        """
        return tables.of_traces(self.lake, names, self.traces)

    def table(self, name: str) -> ir.Table:
        """Returns one of `tables`."""
        return self.tables(name)[0]

    def _ranked(self, name: str, ranks: Iterable[int] | None = None) -> ir.Table:
        traces = self.traces if ranks is None else [self.find(rank) for rank in ranks]
        return tables.with_rank(self.lake, name, traces)

    def get_profiler_steps(self) -> list[int]:
        """Returns the numbers of the profiler steps, ascending."""
        return tables.profiler_steps(self._ranked("events"))

    def get_temporal_breakdown(self) -> ir.Table:
        """Returns table `temporal_breakdown` with the rank: one row per rank and device, times in ns."""
        return self._ranked("temporal_breakdown").order_by("rank", "device")

    def get_comm_comp_overlap(self) -> ir.Table:
        """Returns one row per rank and device: the percentage of communication time hidden by computation; NULL without
        communication.
        """
        return tables.overlap(self.get_temporal_breakdown())

    def get_gpu_kernel_breakdown(
        self, num_kernels: int | None = 10, include_memory_kernels: bool = True
    ) -> tuple[ir.Table, ir.Table]:
        """Returns time by kernel class and by kernel: for each rank and class the `num_kernels` kernels with the most
        time (None: all).

        First table: rank, device, class, busy_ns (overlapping kernels of a class count once), n_kernels. Second table:
        rank, class, name, n, sum_ns, max_ns, min_ns, mean_ns, std_ns (NULL for a single kernel).
        """
        intervals, kernels = self._ranked("merged_intervals"), self._ranked("kernels")
        return tables.kernel_classes(intervals, include_memory_kernels), tables.kernel_names(
            kernels, num_kernels, include_memory_kernels
        )

    def get_queue_length_time_series(self, ranks: Iterable[int] | None = None) -> ir.Table:
        """Returns table `queue_length` with the rank: how many launches are waiting on each stream, after each change."""
        return self._ranked("queue_length", ranks)

    def get_queue_length_summary(self, ranks: Iterable[int] | None = None) -> ir.Table:
        """Returns count, mean, deviation and quartiles of the queue length over its changes, one row per rank, device
        and stream.
        """
        return tables.queue_summary(self._ranked("queue_length", ranks))

    def get_time_spent_blocked_on_full_queue(
        self, queue_length: ir.Table | None = None, max_queue_length: int = 1024
    ) -> ir.Table:
        """Returns the time with at least `max_queue_length` launches waiting, ns, one row per rank, device and stream that
        had any.

        `queue_length` is the result of `get_queue_length_time_series` (None: all ranks).
        """
        return tables.full_queue(
            self.get_queue_length_time_series() if queue_length is None else queue_length, max_queue_length
        )

    def get_cuda_kernel_launch_stats(self, ranks: Iterable[int] | None = None) -> ir.Table:
        """Returns table `launches` with the rank: each call that launched GPU work, its duration, the work's, and the
        delay.
        """
        return self._ranked("launches", ranks)
