"""A trace with graph replays, opened together with what tells how its graphs were captured: another trace, annotations."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.faces.cli.console import fail, is_store, local
from pipelines.faces.cli.trace.opened_trace import opened

CaptureOption = Annotated[
    str | None,
    typer.Option(
        "--capture-trace",
        help="Another trace of the same program that shows how its graphs were captured, or the same work before: a "
        "file, or an id or unique prefix of one. Without it, a trace of a lake is looked up in the nearest trace of its "
        "job and rank that captured graphs; none: only in itself.",
        metavar="TRACE",
    ),
]
AnnotationsOption = Annotated[
    Path | None,
    typer.Option(
        "--annotations",
        parser=local,
        help="What the program called the nodes of its graphs: a file of torch.cuda.graph_annotations. Without it, "
        "kernel_annotations_rank0_*.pkl (or .json) beside the trace or one folder up, for its rank.",
        metavar="FILE",
    ),
]
_TRIED = 16
NONE = "none"
"""Given as the capture trace: the trace is looked up in itself only."""


@dataclass(frozen=True)
class GraphInputs:
    """What else was read: the id of the trace with the captures, and the file of annotations; None without.

    `is_found`: nobody named that trace, it was found in the lake.
    """

    capture_trace_id: str | None = None
    is_found: bool = False
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
    """Yields a private connection with `events`, `traces` and `findings`, the trace's id, and what else was read into it.

    `tables`: see `subject`; they are those of the trace alone. Ends the command for a file that is not there or not what it
    is given as.
    """
    from pipelines.modelling.graph_captures import use_capture

    with (
        tempfile.TemporaryDirectory() as folder,
        opened(trace, lake, tables, with_arguments=True, process=process) as (con, trace_id),
    ):
        alone = capture or Path(trace).exists() or is_store(lake)  # a DuckLake's traces are not looked through
        found = None if alone else _found(con, trace_id, Path(lake))
        other = None if capture == NONE else capture or found
        capture_id = _add(con, trace_id, other, lake, Path(folder)) if other else None
        if capture_id:
            use_capture(con, trace_id, capture_id)
        named = _named(con, trace_id, annotations)
        yield con, trace_id, GraphInputs(capture_id, bool(found), named)


def _named(con: Any, trace_id: str, annotations: Path | None) -> Path | None:
    """Gives the nodes of the trace's graphs the names of a file: the one that was asked for, else the one beside it."""
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


def _found(con: Any, trace_id: str, folder: Path) -> str | None:
    """Returns the nearest trace of the lake, of the same job or folder and the same rank, that captured graphs; None where
    the trace is known to have no replays.
    """
    from pipelines.base.datafiles import rule_rows
    from pipelines.lake import Lake
    from pipelines.lake.read.one_trace import STORED, stored_tables
    from pipelines.models.sqltext import quoted, row

    replays = f"SELECT 1 FROM {STORED}.graph_kernels LIMIT 1"
    if "graph_kernels" in stored_tables(con) and not con.execute(replays).fetchall():
        return None
    begins = row([one["name"] for one in rule_rows("capture_calls") if one["role"] == "begin"])
    with Lake(folder).connect(["traces", "events"]) as all_traces:
        near = all_traces.execute(
            "SELECT t.trace_id FROM traces AS t, traces AS o WHERE o.trace_id = "
            f"{quoted(trace_id)} AND t.trace_id <> o.trace_id AND t.rank IS NOT DISTINCT FROM o.rank "
            "AND (t.job = o.job OR t.group_id = o.group_id) "
            "ORDER BY t.trace_start_ns > o.trace_start_ns, abs(t.trace_start_ns - o.trace_start_ns), t.trace_id "
            f"LIMIT {_TRIED}"
        ).fetchall()
        for (one,) in near:
            if all_traces.execute(
                f"SELECT 1 FROM events WHERE trace_id = {quoted(one)} AND name IN {begins} LIMIT 1"
            ).fetchall():
                return one
    return None


def _add(con: Any, trace_id: str, capture: str, lake: Path | str, folder: Path) -> str:
    """Adds the rows of the trace that shows how graphs were captured, which are kept in `folder`; returns its id."""
    from pipelines.lake.read.one_trace import INGESTED
    from pipelines.models.sqltext import quoted

    files = {table: quoted(folder / f"{table}.parquet") for table in INGESTED}
    with opened(capture, lake, with_arguments=True) as (other, capture_id):
        if capture_id == trace_id:
            raise fail(
                f"{capture} is the trace itself",
                "--capture-trace takes another one; a trace is always looked up in itself.",
            )
        for table, file in files.items():
            other.execute(f"COPY (FROM {table}) TO {file} (FORMAT parquet)")
    views = {name for (name,) in con.execute("SELECT view_name FROM duckdb_views()").fetchall()}
    for table, file in files.items():
        con.execute(f"ALTER {'VIEW' if table in views else 'TABLE'} {table} RENAME TO _own_{table}")
        con.execute(f"CREATE VIEW {table} AS FROM _own_{table} UNION ALL BY NAME FROM read_parquet({file})")
    return capture_id
