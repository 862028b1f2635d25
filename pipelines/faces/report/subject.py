"""The subject of a page: a capture or one trace, its traces, and the trace whose layers are shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.errors import TracelakeError
from pipelines.critical_path.graph.windows import request_windows, usual_windows
from pipelines.faces.capture_why import CaptureWhy, capture_why
from pipelines.fleet.path.answer import NoCapture, find_capture
from pipelines.lake.names import REDUCED
from pipelines.models.catalog import load_catalog
from pipelines.models.dry_run import types_of_tables
from pipelines.models.questions import rows_of_question
from pipelines.models.run import run_models
from pipelines.models.sqltext import quoted

Row = dict[str, Any]
ONLY_DIGEST = "only a digest is kept"
"""Reason for a missing part of a page."""

# Tables of a page, computed if they are missing in the lake.
TABLES = (
    *("traces", "quality", "trace_devices", "temporal_breakdown", "critical_path_summary", "critical_path_by_name"),
    *("critical_path_by_owner", "causes", "window_gpu_time", "profiler_cost", "causes_without_profiler", "fixes"),
    *(
        "critical_path_caveats",
        "kernels",
        "graph_kernels",
        "critical_path_by_operator",
        "launches",
        "queue_length",
        "profiler_steps",
        "step_times",
    ),
    *("spans", "span_names", "span_attribution", "unattributed_gpu_work", "span_utilization", "span_name_utilization"),
    *("family_utilization", "op_shape_utilization", "op_work_coverage", "step_pipeline"),
    *("memory_peaks", "memory_timeline", "collective_bandwidth_by_size", "collective_calls", "serving_steps"),
    *("memory_blocks", "threads"),  # read by the views of memory snapshots
)
# Tables of other kinds of files and of captures. A page reads them even if its trace is read from a file.
_OF_OTHERS = (
    *("captures", "capture_costs", "flight_recorder_matches", "flight_recorder_dumps", "counter_files"),
    *("snapshot_trace_matches", "memory_snapshots", "snapshot_peaks"),
)
CAPTURE_TABLES = (
    *("captures", "capture_ranks", "capture_quality", "capture_paths", "capture_critical_path", "gpu_time_by_cause"),
    *("clock_offsets", "straggler_ranks", "straggler_groups", "rank_steps", "step_exposure"),
    *("findings", "capture_causes", "capture_fixes"),
)

_TRACES = """
    SELECT t.trace_id, t.rank, t.path, t.job, t.world_size, t.host, t.device_name, t.n_events, t.status,
        t.trace_end_ns - t.trace_start_ns AS span_ns
    FROM traces AS t
"""


class NothingFound(TracelakeError, LookupError):
    """Raised if no capture or trace matches, or several match. The message lists candidates."""

    hint = "Give one trace, the files of one capture, or an id."


@dataclass(frozen=True)
class Subject:
    """A capture's traces by rank, or a single trace (`capture_id` None), in the database `con`.

    `shown`: the trace of the sections about one rank. `why_shown`: the reason for that choice, empty if there is only one
    trace. `lake`: the address of the lake that has the traces, empty if they were read from files. `process`: the process of
    the shown trace, if its file has several processes.
    """

    con: duckdb.DuckDBPyConnection
    capture_id: str | None
    traces: list[Row]
    shown: Row
    why_shown: str
    lake: str = ""
    process: str | None = None

    @property
    def named(self) -> str:
        """Return the name of the shown trace in commands: its id in the lake, or its file."""
        return self.shown["trace_id"] if self.lake else self.shown["path"]

    @property
    def options(self) -> list[str]:
        """Return the options with which commands find the shown trace."""
        if self.lake:
            return ["--lake", self.lake]
        return ["--process", self.process] if self.process else []

    @cached_property
    def is_digest(self) -> bool:
        """Return whether only a digest of the shown trace is kept."""
        query = f"SELECT 1 FROM findings WHERE check_name = '{REDUCED}' AND trace_id = {quoted(self.shown['trace_id'])}"
        return bool(self.con.execute(query).fetchall())

    @cached_property
    def capture_answer(self) -> CaptureWhy | None:
        """Return why the capture takes as long as it does, or None for a single trace, or without a path through the ranks."""
        return capture_why(self.con, self.capture_id) if self.capture_id and len(self.traces) > 1 else None

    def rows(self, question: str) -> list[Row]:
        """Return the rows that answer a question about the shown trace."""
        return rows_of_question(self.con, question, trace=self.shown["trace_id"])

    def rows_of_all(self, question: str) -> list[Row]:
        """Return the rows that answer a question about all traces."""
        return rows_of_question(self.con, question, trace=[trace["trace_id"] for trace in self.traces])

    def rows_of_capture(self, question: str) -> list[Row]:
        """Return the rows that answer a question about the capture, or [] for a single trace."""
        return rows_of_question(self.con, question, capture=self.capture_id) if self.capture_id else []

    @property
    def label(self) -> str:
        """Return the name of the shown trace on the page: `rank 3`, or the name of its file."""
        return label(self.shown)


def compute_tables(con: duckdb.DuckDBPyConnection, trace_id: str, at_once: int = 1) -> None:
    """Create the tables of a page about one trace in `con`, which contains the trace's events. `at_once`: see run_models."""
    catalog = load_catalog()
    request_windows(con, usual_windows(con, [trace_id]))
    run_models(con, catalog, set(TABLES) - {"traces"}, at_once=at_once)
    types = types_of_tables(catalog)
    for table in _OF_OTHERS:
        con.execute(f"CREATE TABLE {table} ({', '.join(f'{column} {kind}' for column, kind in types[table])})")


def label(trace: Row) -> str:
    """Return the name of a trace on the page: `rank 3`, or the trace's file if its rank is unknown."""
    return Path(trace["path"]).name if trace["rank"] is None else f"rank {trace['rank']}"


def of_shown(subject: Subject) -> str:
    """Return a note for sections about one rank: the rank and why it is shown, or "" if there is only one trace."""
    return f"Of {subject.label}, {subject.why_shown}. " if subject.why_shown else ""


def find_subject(con: duckdb.DuckDBPyConnection, beginning: str, rank: int | None = None, lake: str = "") -> Subject:
    """Return the capture or trace with this id prefix, or the only capture or trace if the prefix is empty.

    `rank`: the rank to show (default: the straggler, or else the first rank). `lake`: as in Subject. Raise NothingFound
    if none or several match, or if the rank does not exist.
    """
    traces = rows_of(con, f"{_TRACES} WHERE starts_with(t.trace_id, {quoted(beginning)}) ORDER BY t.trace_id")
    captures = con.execute(
        f"SELECT capture_id FROM captures WHERE NOT is_gone AND starts_with(capture_id, {quoted(beginning)})"
    ).fetchall()
    if len(traces) == 1 and (not captures or not beginning):
        return Subject(con, None, traces, _of_rank(traces, rank), "", lake)
    if captures and traces and beginning:
        raise NothingFound(f"{beginning!r} is a prefix of capture ids and of trace ids: give more of it")
    if len(traces) > 1 and beginning:
        raise NothingFound(f"{beginning!r} is a prefix of several: {', '.join(t['trace_id'] for t in traces[:10])}")
    try:
        capture = find_capture(con, beginning)
    except NoCapture as error:
        raise NothingFound(f"no trace id starts with {beginning!r}, and {error}" if beginning else str(error)) from None
    return _capture(con, capture, rank, lake)


def _capture(con: duckdb.DuckDBPyConnection, capture: str, rank: int | None, lake: str) -> Subject:
    members = f"JOIN capture_ranks AS r USING (trace_id) WHERE r.capture_id = {quoted(capture)}"
    order = "ORDER BY t.rank NULLS LAST, t.path"
    # Traces without ranks are excluded from a capture. If it has no other traces, the page shows them.
    traces = rows_of(con, f"{_TRACES} {members} AND r.left_out_reason IS NULL {order}") or rows_of(
        con, f"{_TRACES} {members} {order}"
    )
    straggler = con.execute(
        f"SELECT rank FROM straggler_ranks WHERE capture_id = {quoted(capture)} AND is_straggler "
        "ORDER BY greatest(caused_wait_ns, root_wait_ns) DESC, rank LIMIT 1"
    ).fetchone()
    chosen = straggler[0] if rank is None and straggler else rank
    why = "the straggler" if rank is None and straggler else "the one asked for" if rank is not None else "the first"
    return Subject(con, capture, traces, _of_rank(traces, chosen), why if len(traces) > 1 else "", lake)


def _of_rank(traces: list[Row], rank: int | None) -> Row:
    if rank is None:
        return traces[0]
    for trace in traces:
        if trace["rank"] == rank:
            return trace
    raise NothingFound(f"there is no rank {rank}; the ranks are: {', '.join(label(trace) for trace in traces[:20])}")
