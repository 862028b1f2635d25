"""One trace, from a file or from the lake, opened for a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.base import database
from pipelines.faces.cli.console import fail, progress

if TYPE_CHECKING:
    from pipelines.models.catalog import Catalog

TraceArgument = Annotated[
    str, typer.Argument(help="A trace file, or a trace id or unique prefix of one.", metavar="TRACE")
]
ProcessOption = Annotated[
    str | None,
    typer.Option(
        "--process", metavar="PID", help="Of a file with several processes (Nsight Systems, rocpd): this one."
    ),
]


@contextmanager
def opened(
    trace: str, lake: Path, *, with_arguments: bool = False, process: str | None = None
) -> Iterator[tuple[Any, str]]:
    """Opens a private DuckDB connection with tables `events`, `traces` and `findings` of one trace; also yields the
    trace's id.

    `with_arguments`: also include the text of all arguments, which no model reads. `process`: which one of a file.
    """
    import tempfile

    with tempfile.TemporaryDirectory() as folder, database.connect() as con:
        con.execute(f"SET temp_directory = '{folder}'")
        con.execute("SET memory_limit = '500MB'")
        con.execute("SET preserve_insertion_order = false")
        if Path(trace).is_file():
            yield con, _load(con, Path(trace), Path(folder), not with_arguments, process)
        elif Path(trace).is_dir():
            raise fail(
                f"{trace} is a folder, not a trace",
                f"Give one of its files. The path through all ranks: tracelake capture-path {trace}",
            )
        elif process:
            raise fail(
                "--process is for files: a trace of a lake is one process", f"Leave it out, or give a file: {trace}"
            )
        else:
            yield con, _find(con, trace, lake)


def catalog_of(trace: str, lake: Path) -> Catalog:
    """Returns the models of a trace of a lake, with that lake's own formulas; those as shipped for a file."""
    from pipelines.lake.lake import Lake
    from pipelines.models.catalog import load_catalog

    return load_catalog() if Path(trace).exists() else Lake(lake).catalog()


def keep_tables_in_file(con: Any) -> None:
    """From here on, new tables and views of an opened trace are in a file beside it, which goes when the trace is closed.

    DuckDB compresses the tables of a file, which in memory it does not: those of a long trace take a quarter, and what
    there is no room for need not be written again. Cursors of `con` do not find them: each has a search path of its own.
    """
    from pipelines.models.sqltext import quoted

    ((folder,),) = con.execute("SELECT current_setting('temp_directory')").fetchall()
    con.execute(f"ATTACH {quoted(Path(folder, 'tables.duckdb'))} AS kept (RECOVERY_MODE no_wal_writes)")
    con.execute("SET search_path = 'kept.main,memory.main'")


def _load(con: Any, path: Path, folder: Path, lean: bool, process: str | None) -> str:
    from pipelines.readers.inputs.single_trace import load_trace
    from pipelines.readers.kineto import TraceRejected

    try:
        with progress(path.stat().st_size, f"reading {path.name}") as advance:
            return load_trace(con, path, on_bytes=advance, folder=folder, lean=lean, process=process).trace_id
    except TraceRejected as rejection:
        raise fail(str(rejection)) from None


def _find(con: Any, trace: str, folder: Path) -> str:
    from pipelines.lake import Lake

    lake = Lake(folder)
    matching = sorted(t for t in lake.known_traces() if t.startswith(trace))
    if len(matching) != 1:
        what = (
            "is not a file, and no trace id starts with it,"
            if not matching
            else f"is a prefix of {len(matching)} trace ids"
        )
        known = ", ".join(matching or sorted(lake.known_traces())[:10]) or "none"
        raise fail(f"{trace!r} {what} in the lake {lake.root}", f"Trace ids: {known}")
    lake.create_views(con, ["events", "findings"], matching[0])
    return matching[0]
