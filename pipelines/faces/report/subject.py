"""The subject of a page: a capture or one trace, its traces, and the trace whose layers are shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.errors import TracelakeError
from pipelines.critical_path.graph.windows import request_windows, usual_windows
from pipelines.fleet.path.answer import NoCapture, find_capture
from pipelines.models.catalog import load_catalog
from pipelines.models.dry_run import types_of_tables
from pipelines.models.run import run_models
from pipelines.models.sqltext import quoted

Row = dict[str, Any]

# Computed for a page if the lake does not have it yet.
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
    *("memory_blocks", "threads"),  # which the views of memory snapshots read
)
# Of what other kinds of files tell, and of captures: a page of a trace that is read from its file asks for them, too.
_OF_OTHERS = (
    *("captures", "capture_costs", "flight_recorder_matches", "flight_recorder_dumps", "counter_files"),
    *("snapshot_trace_matches", "memory_snapshots", "snapshot_peaks"),
)
CAPTURE_TABLES = (
    *("captures", "capture_ranks", "capture_quality", "capture_paths", "capture_critical_path", "gpu_time_by_cause"),
    *("clock_offsets", "straggler_ranks", "straggler_groups", "rank_steps", "step_exposure"),
)

_TRACES = """
    SELECT t.trace_id, t.rank, t.path, t.job, t.world_size, t.host, t.device_name, t.n_events, t.status,
        t.trace_end_ns - t.trace_start_ns AS span_ns
    FROM traces AS t
"""


class NothingFound(TracelakeError, LookupError):
    """No capture or trace matches, or several do; the message lists what there is."""

    hint = "Give one trace, the files of one capture, or an id."


@dataclass(frozen=True)
class Subject:
    """A capture's traces by rank, or one trace (`capture_id` None). `shown`: the trace whose spans and path are broken
    down.
    """

    capture_id: str | None
    traces: list[Row]
    shown: Row
    why_shown: str

    @property
    def trace_ids(self) -> str:
        """Returns the ids of the traces as a SQL list."""
        return f"({', '.join(quoted(trace['trace_id']) for trace in self.traces)})"

    @property
    def ids(self) -> list[str]:
        """Returns the ids of the traces, to limit a question by."""
        return [trace["trace_id"] for trace in self.traces]

    @property
    def shown_id(self) -> str:
        """Returns the id of the shown trace as SQL text."""
        return quoted(self.shown["trace_id"])


def compute_tables(con: duckdb.DuckDBPyConnection, trace_id: str, at_once: int = 1) -> None:
    """Make the tables of a page of one trace in `con`, which has its events; `at_once`: see run_models."""
    catalog = load_catalog()
    request_windows(con, usual_windows(con, [trace_id]))
    run_models(con, catalog, set(TABLES) - {"traces"}, at_once=at_once)
    types = types_of_tables(catalog)
    for table in _OF_OTHERS:
        con.execute(f"CREATE TABLE {table} ({', '.join(f'{column} {kind}' for column, kind in types[table])})")


def label(trace: Row) -> str:
    """Returns `rank 3`, or the file's name if the rank is unknown."""
    return Path(trace["path"]).name if trace["rank"] is None else f"rank {trace['rank']}"


def of_shown(subject: Subject) -> str:
    """Returns which trace a single-trace section is about, and why that one; nothing if there is no other."""
    return f"Of {label(subject.shown)}, {subject.why_shown}. " if subject.why_shown else ""


def find_subject(con: duckdb.DuckDBPyConnection, beginning: str, rank: int | None = None) -> Subject:
    """Returns the capture or trace whose id has this beginning; if it is empty, the only one there is.

    `rank`: the rank to show; else the straggler, else the first. Raises NothingFound.
    """
    traces = rows_of(con, f"{_TRACES} WHERE starts_with(t.trace_id, {quoted(beginning)}) ORDER BY t.trace_id")
    captures = con.execute(
        f"SELECT capture_id FROM captures WHERE NOT is_gone AND starts_with(capture_id, {quoted(beginning)})"
    ).fetchall()
    if len(traces) == 1 and (not captures or not beginning):
        return Subject(None, traces, _of_rank(traces, rank), "")
    if captures and traces and beginning:
        raise NothingFound(f"{beginning!r} is a prefix of capture ids and of trace ids: give more of it")
    if len(traces) > 1 and beginning:
        raise NothingFound(f"{beginning!r} is a prefix of several: {', '.join(t['trace_id'] for t in traces[:10])}")
    try:
        capture = find_capture(con, beginning)
    except NoCapture as error:
        raise NothingFound(f"no trace id starts with {beginning!r}, and {error}" if beginning else str(error)) from None
    return _capture(con, capture, rank)


def _capture(con: duckdb.DuckDBPyConnection, capture: str, rank: int | None) -> Subject:
    members = f"JOIN capture_ranks AS r USING (trace_id) WHERE r.capture_id = {quoted(capture)}"
    order = "ORDER BY t.rank NULLS LAST, t.path"
    # Traces without ranks take no part in a capture, but each of them can still be shown.
    traces = rows_of(con, f"{_TRACES} {members} AND r.left_out_reason IS NULL {order}") or rows_of(
        con, f"{_TRACES} {members} {order}"
    )
    straggler = con.execute(
        f"SELECT rank FROM straggler_ranks WHERE capture_id = {quoted(capture)} AND is_straggler "
        "ORDER BY greatest(caused_wait_ns, root_wait_ns) DESC LIMIT 1"
    ).fetchone()
    chosen = straggler[0] if rank is None and straggler else rank
    why = "the straggler" if rank is None and straggler else "the one asked for" if rank is not None else "the first"
    return Subject(capture, traces, _of_rank(traces, chosen), why if len(traces) > 1 else "")


def _of_rank(traces: list[Row], rank: int | None) -> Row:
    if rank is None:
        return traces[0]
    for trace in traces:
        if trace["rank"] == rank:
            return trace
    raise NothingFound(f"there is no rank {rank}; the ranks are: {', '.join(label(trace) for trace in traces[:20])}")
