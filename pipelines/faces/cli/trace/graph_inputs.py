"""Traces with graph replays, opened with the inputs that identify the captured work: another trace, or annotations."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.faces.cli.console import fail
from pipelines.faces.cli.options import path_option
from pipelines.faces.cli.trace.opened_trace import opened

if TYPE_CHECKING:
    from pipelines.lake import Lake

CaptureOption = Annotated[
    str | None,
    typer.Option(
        "--capture-trace",
        help="Another trace of the same program that shows how its graphs were captured, or the same work before: a "
        "file, or an id or unique prefix of one. Default for a trace in a lake: the nearest trace of the same job and rank "
        "that captured graphs. `none`: use only TRACE itself.",
        metavar="TRACE",
    ),
]
AnnotationsOption = Annotated[
    Path | None,
    path_option(
        "File with the program's names of its graph nodes, from torch.cuda.graph_annotations. Default: "
        "kernel_annotations_rank0_*.pkl (or .json) next to the trace or one folder up, for its rank.",
        "FILE",
        "--annotations",
    ),
]
_TRIED = 16
NONE = "none"
"""Value of --capture-trace: use only the trace itself."""


@dataclass(frozen=True)
class GraphInputs:
    """Inputs that were read in addition to a trace: the id of the trace with the captures, and the file of annotations.

    Each is None without such an input. `is_nearest`: whether the trace was found in the lake instead of named by the
    user.
    """

    capture_trace_id: str | None = None
    is_nearest: bool = False
    annotations: Path | None = None


@contextmanager
def opened_with_graphs(
    trace: str,
    lake: Path | str,
    capture: str | None,
    annotations: Path | None,
    process: str | None,
    tables: Iterable[str] = (),
) -> Iterator[tuple[Any, str, GraphInputs]]:
    """Yield a private connection with `events`, `traces` and `findings`, the trace's id, and the additional inputs.

    `tables`: see `subject`. They contain the rows of the trace alone. Exit if a file does not exist or is of the wrong
    kind.
    """
    from pipelines.modelling.graph_captures import use_capture
    from pipelines.runs.store import open_store

    with (
        tempfile.TemporaryDirectory() as folder,
        opened(trace, lake, tables, with_arguments=True, process=process) as (con, trace_id),
    ):
        searched = None if capture or Path(trace).exists() else open_store(lake).lake  # no traces of a DuckLake
        nearest_id = _nearest_capture(con, trace_id, searched) if searched else None
        other = None if capture == NONE else capture or nearest_id
        capture_id = _add_capture(con, trace_id, other, lake, Path(folder)) if other else None
        if capture_id:
            use_capture(con, trace_id, capture_id)
        annotations_path = _use_annotations(con, trace_id, annotations)
        yield con, trace_id, GraphInputs(capture_id, bool(nearest_id), annotations_path)


def _use_annotations(con: Any, trace_id: str, annotations: Path | None) -> Path | None:
    """Name the nodes of the trace's graphs with the requested file of annotations, or with the file next to the trace.

    Return the file, or None without a file. Exit if it cannot be read.
    """
    from pipelines.base.paths import text_path
    from pipelines.modelling.graph_captures import use_names
    from pipelines.models.sqltext import quoted
    from pipelines.readers.graph_annotations import annotations_beside, read_annotations

    path = annotations
    if path is None:
        about = f"SELECT path, rank FROM traces WHERE trace_id = {quoted(trace_id)}"
        ((text, rank),) = con.execute(about).fetchall()
        path = annotations_beside(text_path(text), rank)
    if path is None:
        return None
    try:
        use_names(con, trace_id, read_annotations(path))
    except OSError as error:
        raise fail(f"{path}: {error.strerror or error}", "Give a file of torch.cuda.graph_annotations.") from None
    return path


def _nearest_capture(con: Any, trace_id: str, lake: Lake) -> str | None:
    """Return the id of the lake's trace that captured graphs and began last before this trace, or else first after it.

    Only traces of the same job or folder and of the same rank count, of which _TRIED are tried. Return None if none of
    these captured graphs, or if the stored tables show that this trace has no replays.
    """
    from pipelines.base.datafiles import rule_rows
    from pipelines.lake.read.one_trace import STORED, stored_tables
    from pipelines.models.sqltext import quoted, row

    replays = f"SELECT 1 FROM {STORED}.graph_kernels LIMIT 1"
    if "graph_kernels" in stored_tables(con) and not con.execute(replays).fetchall():
        return None
    begin_calls = row([call["name"] for call in rule_rows("capture_calls") if call["role"] == "begin"])
    with lake.connect(["traces", "events"]) as all_traces:
        nearby = all_traces.execute(
            "SELECT t.trace_id FROM traces AS t, traces AS o WHERE o.trace_id = "
            f"{quoted(trace_id)} AND t.trace_id <> o.trace_id AND t.rank IS NOT DISTINCT FROM o.rank "
            "AND (t.job = o.job OR t.group_id = o.group_id) "
            "ORDER BY t.trace_start_ns > o.trace_start_ns, abs(t.trace_start_ns - o.trace_start_ns), t.trace_id "
            f"LIMIT {_TRIED}"
        ).fetchall()
        for (candidate_id,) in nearby:
            if all_traces.execute(
                f"SELECT 1 FROM events WHERE trace_id = {quoted(candidate_id)} AND name IN {begin_calls} LIMIT 1"
            ).fetchall():
                return candidate_id
    return None


def _add_capture(con: Any, trace_id: str, capture: str, lake: Path | str, folder: Path) -> str:
    """Add the rows of the trace that captured the graphs, from files in `folder`. Return its id."""
    from pipelines.faces.cli.fleet.opened_capture import processes_of
    from pipelines.lake.read.one_trace import INGESTED
    from pipelines.models.sqltext import parquet_rows, quoted
    from pipelines.readers.kineto import TraceRejected

    files = {table: folder / f"{table}.parquet" for table in INGESTED}
    try:
        with opened(capture, lake, with_arguments=True) as (other, capture_id):
            if capture_id == trace_id:
                raise fail(
                    f"{capture} is the trace itself",
                    "Pass another trace to --capture-trace; a trace is always looked up in itself.",
                )
            for table, file in files.items():
                other.execute(f"COPY (FROM {table}) TO {quoted(file)} (FORMAT parquet)")
    except TraceRejected:
        if n := len(processes_of(Path(capture))):
            # The reader's message recommends --process, which applies to TRACE only.
            raise fail(f"{capture} has {n} processes", "Give --capture-trace a file of one process.") from None
        raise
    views = {name for (name,) in con.execute("SELECT view_name FROM duckdb_views()").fetchall()}
    for table, file in files.items():
        con.execute(f"ALTER {'VIEW' if table in views else 'TABLE'} {table} RENAME TO _own_{table}")
        con.execute(f"CREATE VIEW {table} AS FROM _own_{table} UNION ALL BY NAME FROM {parquet_rows(file)}")
    return capture_id
