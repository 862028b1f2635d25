"""`tracelake sql`: SQL queries of the lake."""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer

from pipelines.base.foreign_text import in_spreadsheet, visible
from pipelines.faces.cells import is_number, shown, valid_json
from pipelines.faces.cli.answer_table import print_answer
from pipelines.faces.cli.caveats import print_caveat
from pipelines.faces.cli.console import err, fail, out, print_json, styled
from pipelines.faces.cli.named_traces_query import open_named_traces
from pipelines.faces.cli.narrow_tables import Kind
from pipelines.faces.cli.options import DEFAULT_LAKE, LakeOption
from pipelines.faces.cli.refresh_tables import WITHOUT_BROKEN, FreshTables, refresh_tables, tell_damage, tell_outdated
from pipelines.models.sqltext import distinct

_PROSE = ("detail", "reason", "meaning", "caveat", "query")
"""Columns of sentences: folded if they are too wide, and cut after three lines."""
_NUMBERED = re.compile(
    r"(^|_)(id|ids|rank|step|device|stream|pid|tid|port|line|number|place|layer|repetition|correlation|ns)$"
)
"""Columns of numbers that identify something, such as ranks, steps, devices and ids, or that are times in ns."""


class Format(StrEnum):
    """Output format of a result."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


class SqlEngine(StrEnum):
    """Engine that computes the answer to a query."""

    duckdb = "duckdb"
    spark = "spark"


SqlEngineOption = Annotated[
    SqlEngine, typer.Option(help="Engine that computes the answer; spark needs its extra and Java.")
]
MasterOption = Annotated[
    str,
    typer.Option(
        help="With --engine spark: where Spark runs, as in spark-submit.",
        envvar="TRACELAKE_SPARK_MASTER",
        show_default="local[*]",
    ),
]


def sql(
    query: Annotated[str, typer.Argument(help="A SELECT over the tables that `tracelake tables` lists.")],
    lake: LakeOption = DEFAULT_LAKE,
    format: Annotated[
        Format, typer.Option(help="Output format; everything goes to stdout (redirect parquet to a file).")
    ] = Format.table,
    limit: Annotated[int, typer.Option(help="Rows to show with --format table; 0 for all.", min=0)] = 100,
    without_broken: Annotated[
        bool,
        typer.Option(
            "--without-broken", help="Answer without missing or damaged files, and name them.", envvar=WITHOUT_BROKEN
        ),
    ] = False,
    for_spreadsheet: Annotated[
        bool,
        typer.Option("--for-spreadsheet", help="In CSV, put ' before text that a spreadsheet would run as a formula."),
    ] = False,
    timeout: Annotated[float, typer.Option(help="Stop the query after this many seconds; 0 for never.", min=0)] = 600,
    max_rows: Annotated[
        int, typer.Option(help="Fail if the answer has more rows than this; 0 for any number.", min=0)
    ] = 0,
    memory: Annotated[
        str, typer.Option(help="Memory it may use, e.g. 4GB.", show_default="80 % of the machine's")
    ] = "",
    spill: Annotated[str, typer.Option(help="Disk it may use when memory runs out.")] = "10GB",
    allow_files: Annotated[
        bool, typer.Option("--allow-files", help="Also let it read and write files and change settings.")
    ] = False,
    engine: SqlEngineOption = SqlEngine.duckdb,
    master: MasterOption = "",
    compute: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE",
            help="With --engine spark: compute this table on Spark from its input tables, instead of reading its files.",
        ),
    ] = None,
) -> None:
    """Query the lake in SQL. Tables that are not computed yet are computed first.

    The query can read the lake's tables, nothing else, and cannot write.

    Example: `tracelake sql "SELECT rank, idle_percent FROM temporal_breakdown JOIN traces USING (trace_id)"`
    """
    answer_query(
        query,
        lake,
        format,
        limit,
        "--limit 0 shows all",
        engine=engine,
        master=master,
        compute=compute,
        without_broken=without_broken,
        for_spreadsheet=for_spreadsheet,
        timeout=timeout,
        max_rows=max_rows,
        memory=memory,
        spill=spill,
        allow_files=allow_files,
    )


def answer_query(
    query: str,
    lake: str,
    format: Format,
    limit: int,
    how_to_see_all: str,
    *,
    engine: SqlEngine,
    master: str,
    compute: list[str] | None = None,
    without_broken: bool = False,
    for_spreadsheet: bool = False,
    timeout: float = 600,
    max_rows: int = 0,
    memory: str = "",
    spill: str = "10GB",
    allow_files: bool = False,
    is_of_part: bool = False,
) -> None:
    """Print the answer to a query, as a table its first `limit` rows (0: all), with `how_to_see_all` if there are more.

    `is_of_part`: the query reads a part of the lake, and the caller has printed the caveats of that part.
    """
    import duckdb

    from pipelines.faces.limiting_findings import caveats_of_query
    from pipelines.lake.commit.model_failures import caveats
    from pipelines.lake.read.query_tables import tables_read
    from pipelines.lake.read.sandbox import HINT, Limits, LockedLake, QueryRefused, connect_parser, refuse_but_reading
    from pipelines.runs.store import open_store

    if format is Format.parquet and sys.stdout.isatty():
        raise fail(
            "Parquet is binary and cannot be shown in a terminal",
            "Redirect it: tracelake sql … --format parquet > answer.parquet",
        )
    store = open_store(lake, without_broken=without_broken)
    if engine is SqlEngine.spark and store.lake is None:
        raise fail("--engine spark reads the files of a folder lake", "Omit it: DuckDB reads this lake.")
    named: list[str] = []
    try:
        on_spark = _spark(engine, compute or [], allow_files, master, memory)
        with connect_parser() as parser:
            if not allow_files:
                refuse_but_reading(query, parser)  # before anything is computed
            tables = named = tables_read(query, parser)
            limits = Limits(timeout, max_rows, memory, spill)
            opened = None
            if store.lake and not (on_spark or allow_files or without_broken):
                opened = open_named_traces(store.lake.root, query, tables, parser, limits)
        if opened:
            fresh = FreshTables(tables, tables)
        else:
            fresh = refresh_tables(store, on_spark.read_for(tables) if on_spark else tables)
            connect = partial(store.connect, locked=not allow_files, tables=fresh.tables)
            opened = LockedLake(connect, limits, allow_files=allow_files), query
        with opened[0] as locked:
            tell_damage(caveats(locked.con, fresh.read))
            tell_outdated(store.outdated(locked.con, tables))
            for caveat in () if is_of_part else caveats_of_query(locked, opened[1]):
                print_caveat("caveat", caveat)
            max_rows_shown = limit + 1 if limit and format is Format.table else 0
            running_query = (
                on_spark.asked(locked, store.lake, query, max_rows_shown) if on_spark else locked.asked(opened[1])
            )
            with running_query as answer:
                if answer is not None:
                    is_whole = _write_answer(answer, format, limit, for_spreadsheet)
                    if not is_whole:
                        err.print(styled("[dim]only the first {} rows; {}[/]", limit, how_to_see_all))
    except QueryRefused as error:
        raise fail(str(error), HINT) from None
    except duckdb.Error as error:
        raise fail(str(error), _hint(str(error), named), lines=True) from None


_NO_COLUMN = re.compile(r'(?:Referenced column|does not have a column named) "([^"]+)"')


def _hint(error: str, tables: list[str]) -> str:
    """Return the advice for an error of DuckDB.

    It has similar column names in the tables of the query, and how to list tables and columns.
    """
    from pipelines.base.close_names import near
    from pipelines.models.catalog import load_catalog

    models = load_catalog().models
    columns = {column.name for table in tables if table in models for column in models[table].columns}
    unknown = _NO_COLUMN.search(error)
    suggestions = list(near(unknown[1], sorted(columns))) if unknown else []
    return " ".join([*suggestions, "`tracelake tables` lists the tables, `tracelake tables NAME` their columns."])


def _spark(engine: SqlEngine, compute: list[str], allow_files: bool, master: str, memory: str) -> Any:
    """Return an object that runs queries on Spark, or None for DuckDB. Exit if the options contradict each other."""
    if engine is SqlEngine.duckdb:
        if compute:
            raise fail("--compute is for --engine spark")
        return None
    if allow_files:
        raise fail("--allow-files is for DuckDB: on Spark a query reads the lake's tables only")
    from pipelines.engines.spark.query import Asker
    from pipelines.engines.spark.session import need_spark

    asker = Asker(master, memory, compute)
    need_spark()  # before tables are computed for it
    return asker


def _write_answer(answer: Any, format: Format, limit: int, for_spreadsheet: bool) -> bool:
    """Write the answer to stdout. Return False if it has more rows than the `limit` of a table."""
    if format is Format.table:
        return _print_table(answer, limit)
    if format is Format.json:
        columns = distinct(answer.columns)
        print_json(valid_json([dict(zip(columns, row, strict=True)) for row in answer.rows()]))
    else:
        _copy_out(answer.arrow(), format, for_spreadsheet)
    return True


def _print_table(answer: Any, limit: int) -> bool:
    rows = answer.rows(limit + 1 if limit else 0)
    cells = [
        [name, *(_cell(name, row[index]) for row in rows[: limit or None])] for index, name in enumerate(answer.columns)
    ]
    are_numbers = [is_number(kind) for kind in answer.types]
    kinds = [_kind(name, number) for name, number in zip(answer.columns, are_numbers, strict=True)]
    if not print_answer(out, cells, kinds, are_numbers):
        note = "wider than {} columns, so each row is a block; --format csv has them in lines, with all of each value"
        err.line(f"[dim]{note}[/]", out.width)
    return not limit or len(rows) <= limit


def _cell(column: str, value: Any) -> str:
    """Return a value as text: counts with thousands separators, other numbers and ns in a form that a query accepts."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and not _NUMBERED.search(column)
    return f"{value:,}" if is_count else shown(value)


def _kind(column: str, is_number: bool) -> Kind:
    if is_number or (column.endswith("_id") and column != "batch_id"):
        return Kind.WHOLE
    return Kind.PROSE if column in _PROSE else Kind.NAME


def _copy_out(table: Any, format: Format, for_spreadsheet: bool) -> None:
    """Write the answer to stdout as CSV or Parquet.

    CSV to a pipe keeps every text unchanged. On a terminal, texts are shown as in a table.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    from pipelines.lake.read.export import check_types, texts_as

    sink = pa.PythonFile(sys.stdout.buffer, mode="w")
    if format is Format.parquet:
        check_types(table.schema, "Parquet")
        pyarrow.parquet.write_table(table, sink, compression="zstd")
    else:
        check_types(table.schema, "CSV")
        if for_spreadsheet:
            table = texts_as(in_spreadsheet, table)
        if sys.stdout.isatty():
            table = texts_as(visible, table)
        pyarrow.csv.write_csv(table, sink)
    sys.stdout.flush()
