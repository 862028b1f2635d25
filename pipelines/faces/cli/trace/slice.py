"""`tracelake slice`: part of a trace, or the rows of a query, as a trace for Perfetto."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.base.paths import UnusablePath
from pipelines.faces.cli.console import err, fail, out, print_json, styled
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, folder_option, out_option

_OF_DUCKLAKE = "pass the trace's file and omit --lake"

_MOST_TRACES = 64


def slice_(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="Trace files, the folder of a capture, or the folder of a lake. By default the lake of --lake.",
            metavar="[FILE|FOLDER|LAKE]",
            show_default=False,
        ),
    ] = None,
    sql: Annotated[
        str,
        typer.Option(
            metavar="QUERY",
            help="Draw the rows of this query: events by trace_id and event_id, or anything with a time.",
        ),
    ] = "",
    step: Annotated[
        int | None,
        typer.Option(
            help="Draw this profiler step (its number, or else its position, from 1), with the GPU work that it launched."
        ),
    ] = None,
    rank: Annotated[int | None, typer.Option(help="With --step: draw only this rank.")] = None,
    trace: Annotated[
        str, typer.Option(metavar="ID", help="With --step: draw only traces with this id prefix or file name.")
    ] = "",
    out_file: Annotated[Path, out_option("Write the trace to this file, compressed if the name ends in .gz.")] = Path(
        "slice.json.gz"
    ),
    lake: Annotated[Path, folder_option(_OF_DUCKLAKE)] = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """Write a step of a trace, or the rows of a query, as a trace for Perfetto (ui.perfetto.dev).

    A row with trace_id and event_id becomes that event, with the arrows between such events; its other columns are added to the event's arguments.
    A row with start_ns (or at_ns) becomes a slice if it has duration_ns or end_ns; otherwise a counter if it has numbers; otherwise a mark.

    Example: `tracelake slice rank3.json.gz --step 5 --out step5.json.gz`

    Example: `tracelake slice --sql "SELECT trace_id, event_id FROM kernels WHERE class = 'COMMUNICATION'"`
    """
    import duckdb

    from pipelines.faces.drawings.trace_slice import step_query

    if bool(sql) == (step is not None):
        raise fail("pass either --sql or --step", "tracelake slice --help shows examples.")
    if sql and (rank is not None or trace):
        raise fail("--rank and --trace go with --step", "In a query: WHERE … or JOIN traces USING (trace_id).")
    if out_file.is_dir():
        raise fail(f"{out_file} is a folder", "Pass a file name to --out.")
    try:
        with _lake(what or [], lake) as folder:
            number = None if step is None else _step(folder, step, rank, trace)
            query = sql if number is None else step_query(number, rank, trace)
            written = _draw(folder, query, out_file)
    except duckdb.Error as error:
        raise fail(str(error), "`tracelake tables` lists the tables.", lines=True) from None
    if json:
        fields = {name: value for name, value in vars(written).items() if name != "path"}
        print_json({"path": str(written.path), **fields})
        return
    counts = {
        "events": written.n_events,
        "slices": written.n_slices,
        "counter values": written.n_counters,
        "marks": written.n_marks,
    }
    out.print(", ".join(f"{n:,} {name}" for name, n in counts.items() if n))
    if written.left_out:
        err.print(styled("[yellow]skipped {:,} rows:[/] no time, duplicate, or no matching event", written.left_out))
    out.line("open in https://ui.perfetto.dev: [bold]{}[/]", written.path)


def _step(folder: Path, step: int, rank: int | None, trace: str) -> int:
    """Return the number of the step to draw. If it differs from `step`, print a notice on stderr."""
    from pipelines.faces.cli.refresh_tables import refresh_tables
    from pipelines.faces.drawings.trace_slice import step_meant
    from pipelines.runs.store import open_store

    store = open_store(folder)
    refresh_tables(store, ["profiler_steps", "traces"])
    with store.analyst() as con:
        number = step_meant(con, step, rank, trace)
    if number != step:
        err.print(f"there is no step {step}: step {number} is drawn, number {step} of those in the trace")
    return number


@contextmanager
def _lake(sources: list[str], lake: Path) -> Iterator[Path]:
    """Yield the folder of the lake to query: a folder in `sources`, a temporary lake of files, or `lake` without sources."""
    from pipelines.faces.cli.fleet.opened_capture import lake_of

    if not sources:
        yield lake
    elif len(sources) == 1 and is_lake(Path(sources[0])):
        yield Path(sources[0])
    else:
        with lake_of(sources, lake) as (folder, id_prefix):
            if id_prefix:
                raise fail(f"{id_prefix}: there is no such file or folder", "Pass an id in the lake to --trace.")
            yield Path(folder)


def is_lake(folder: Path) -> bool:
    """Return whether the folder is a lake with batches. A folder of traces may have a path that no lake may have."""
    from pipelines.lake import Lake

    try:
        return folder.is_dir() and Lake(folder).exists
    except UnusablePath:
        return False


def _draw(folder: Path, query: str, target: Path) -> Any:
    import pyarrow.parquet

    from pipelines.faces.cli.fleet.opened_capture import keep_trace
    from pipelines.faces.cli.refresh_tables import refresh_tables
    from pipelines.faces.drawings.row_slice import write_rows
    from pipelines.faces.drawings.trace_slice import NoSlice, write_events
    from pipelines.lake.read.query_tables import tables_read
    from pipelines.lake.read.sandbox import Limits, LockedLake, connect_parser, refuse_but_reading
    from pipelines.models.sqltext import distinct, parquet_rows
    from pipelines.runs.store import open_store

    with connect_parser() as parser:
        refuse_but_reading(query, parser)
        tables = tables_read(query, parser)
    store = open_store(folder)
    fresh = refresh_tables(store, tables)
    if target.exists():
        with store.analyst() as con:
            keep_trace(con, target)
    with LockedLake(folder, Limits(), tables=fresh.tables) as locked, locked.asked(query) as answer:
        if answer is None:
            raise NoSlice("nothing to draw: the query returned no rows")
        columns = distinct(answer.columns)
        if not {"trace_id", "event_id"} <= set(columns):
            rows = [dict(zip(columns, row, strict=True)) for row in answer.rows()]
            return write_rows(rows, columns, target)
        events = answer.arrow().rename_columns(columns)
    if (n := len(events["trace_id"].unique())) > _MOST_TRACES:
        raise NoSlice(f"the rows are of {n:,} traces: draw at most {_MOST_TRACES}, see --rank and --trace")
    with tempfile.TemporaryDirectory(prefix="tracelake-") as scratch, store.analyst() as con:
        file = Path(scratch) / "rows.parquet"
        pyarrow.parquet.write_table(events, file)
        return write_events(con, f"(FROM {parquet_rows(file)})", target)
