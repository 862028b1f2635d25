"""`tracelake sql`, `tracelake tables`, `tracelake materialize`: the lake for analysts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.table import Table

from pipelines.cli.shared import DEFAULT_LAKE, JsonOption, LakeOption, err, fail, out, print_json, progress, styled
from pipelines.foreign_text import in_spreadsheet, visible

WITHOUT_BROKEN = "TRACELAKE_WITHOUT_BROKEN"


class Format(StrEnum):
    """How a result is printed."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def sql(
    query: Annotated[str, typer.Argument(help="A SELECT over the tables that `tracelake tables` lists.")],
    lake: LakeOption = DEFAULT_LAKE,
    format: Annotated[
        Format, typer.Option(help="Output format; everything goes to stdout (redirect parquet to a file).")
    ] = Format.table,
    limit: Annotated[int, typer.Option(help="Rows to show with --format table; 0 for all.")] = 100,
    without_broken: Annotated[
        bool,
        typer.Option(
            "--without-broken",
            help="Answer without missing or damaged files, and name them.",
            envvar=WITHOUT_BROKEN,
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
) -> None:
    """Query the lake in SQL. Tables that are not computed yet are computed first.

    The query can read the lake's tables, nothing else, and cannot write.

    Example: `tracelake sql "SELECT rank, idle_percent FROM temporal_breakdown JOIN traces USING (trace_id)"`
    """
    import duckdb

    from pipelines.lake.failures import caveats
    from pipelines.lake.locked import (
        HINT,
        LimitReached,
        Limits,
        LockedLake,
        QueryRefused,
        connect_parser,
        refuse_but_reading,
    )
    from pipelines.renamed import columns_in

    if format is Format.parquet and sys.stdout.isatty():
        raise fail(
            "Parquet is binary and cannot be shown in a terminal",
            "Redirect it: tracelake sql … --format parquet > answer.parquet",
        )
    try:
        with connect_parser() as parser:
            if not allow_files:
                refuse_but_reading(query, parser)  # before anything is computed
            tables = tables_in(query, parser)
        ready = bring_up_to_date(lake, tables, without_broken=without_broken)
        limits = Limits(timeout, max_rows, memory, spill)
        with LockedLake(ready.lake, limits, allow_files=allow_files, tables=ready.tables) as locked:
            _tell(caveats(locked.con, ready.read))
            with locked.asked(query) as answer:
                if answer is not None:
                    _give(answer, format, limit, for_spreadsheet)
    except QueryRefused as error:
        raise fail(str(error), HINT) from None
    except (LimitReached, ValueError) as error:
        raise fail(str(error)) from None
    except duckdb.Error as error:
        hints = columns_in(str(error)) or ["`tracelake tables` lists the tables, `tracelake tables NAME` their columns"]
        raise fail(str(error), f"{'; '.join(hints)}.", lines=True) from None


def _give(answer: Any, format: Format, limit: int, for_spreadsheet: bool) -> None:
    if format is Format.table:
        _print_table(answer, limit)
    elif format is Format.json:
        print_json([dict(zip(answer.columns, row, strict=True)) for row in answer.rows()])
    else:
        _copy_out(answer.arrow(), format, for_spreadsheet)


def tables_in(query: str, con: Any = None) -> list[str]:
    """Returns the tables that a query reads, directly or through views, and that must be brought up to date or may be
    damaged.

    None of them if it cannot be parsed. `con`: a connection to parse it with; otherwise one is opened.
    """
    from pipelines.lake.layout import MARK
    from pipelines.lake.prices import PRICE_TABLE
    from pipelines.lake.store import TOLD_BY
    from pipelines.models.catalog import load_catalog
    from pipelines.renamed import tables_now

    catalog = load_catalog()
    named = _named_in(query, con)
    found = set(tables_now(named))
    views = [name for name in found if name in catalog.models and catalog.models[name].kind == "view"]
    read = {source for name in views for source in _read_by_view(catalog, name)}
    if MARK in found and "capture_id" in query.lower():  # which tables of captures it needs
        read.update(TOLD_BY)
    return [name for name in (*catalog.materialized, *catalog.of_captures, PRICE_TABLE) if name in found | read]


def _named_in(query: str, con: Any = None) -> set[str]:
    """The names after FROM and JOIN, in lower case; none where the query cannot be parsed: DuckDB says better why."""
    from pipelines.lake.locked import connect_parser
    from pipelines.lake.query_tree import named_in

    if con is None:
        with connect_parser() as own:
            return _named_in(query, own)
    named = named_in(con, query)
    return _named_in_others(query) if named is None else set(named.tables)


def _named_in_others(query: str) -> set[str]:
    """As `_named_in`, of PIVOT, which DuckDB does not tell the parts of."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        return {table.name.lower() for table in parse_one(query, dialect="duckdb").find_all(exp.Table)}
    except (SqlglotError, RecursionError):
        return set()


def _read_by_view(catalog: Any, name: str) -> set[str]:
    """What a view reads, directly or through other views."""
    found = set(catalog.models[name].dependencies)
    views = [source for source in found if source in catalog.models and catalog.models[source].kind == "view"]
    return found.union(*(_read_by_view(catalog, view) for view in views))


def open_analyst(folder: Path, tables: list[str], of: str = "", without_broken: bool = False) -> Any:
    """The analysts' file opened read-only for queries of ours, with the named model tables up to date.

    See bring_up_to_date. What others ask goes through pipelines/lake/locked.py.
    """
    from pipelines.lake.failures import caveats
    from pipelines.lake.publish import analyst

    ready = bring_up_to_date(folder, tables, of, without_broken)
    con = analyst(ready.lake, ready.tables)
    _tell(caveats(con, ready.read))
    return con


class Ready(NamedTuple):
    """A lake whose `tables` are up to date; `read` are all tables they depend on."""

    lake: Any
    tables: list[str]
    read: list[str]


def bring_up_to_date(folder: Path, tables: list[str], of: str = "", without_broken: bool = False) -> Ready:
    """Compute the named model tables that are missing or out of date. Exits if there is no lake.

    `of`: only compute for traces or captures whose ids start with this; for others the tables stay as they are.
    `without_broken`: answer without missing or damaged files and say so on stderr; otherwise what needs them fails.
    Raises CatalogError or RolesError for a prices.csv or roles.csv that they need and that cannot be read, BrokenFiles
    where tables cannot be computed.
    """
    from pipelines.lake import Lake
    from pipelines.lake.broken import BrokenFiles
    from pipelines.lake.layout import CAPTURE_MARK, KEYS
    from pipelines.lake.prices import PRICE_TABLE, PRICES, read_prices
    from pipelines.materialize.computed import discard
    from pipelines.materialize.per_capture import part_of, stale_captures, trace_tables
    from pipelines.materialize.per_trace import stale_batches
    from pipelines.materialize.run_order import materialize_all
    from pipelines.models.catalog import load_catalog

    lake = Lake(folder, without_broken)
    if not lake.exists:
        if broken := lake.broken(KEYS):
            raise BrokenFiles(broken)
        raise fail(f"no traces in the lake {lake.root}", f"Ingest some: tracelake ingest FILES --lake {folder}")
    catalog = load_catalog()
    if PRICE_TABLE in tables:
        read_prices(lake.root / PRICES)  # rejects those that cannot be read
    of_captures = [name for name in catalog.of_captures if name in tables]
    of_traces = [name for name in catalog.materialized if name in tables]
    part = part_of(lake, of) if of else None
    if part and not part.captures and not part.batches:  # no id begins with it: answer from what there is
        part, of_captures, of_traces = None, [CAPTURE_MARK], []
    batches = part.batches if part else lake.batches()
    is_stale = bool(of_traces) and bool(stale_batches(lake, catalog, of_traces, sorted(batches)))
    if lake.without_broken and (broken := lake.broken()):
        tell_broken(broken)
        of_captures = []  # nothing is stored from an incomplete lake
    is_stale = is_stale or stale_captures(lake, catalog, of_captures, part)
    stored = [*of_traces, *of_captures]
    if is_stale:
        discard(lake)
        with progress(None, "computing tables") as advance:
            materialize_all(lake, stored, on_step=lambda text: advance(1, f"computing {text}"), part=part)
    return Ready(lake, stored, [*stored, *trace_tables(catalog, of_captures)])


def _tell(caveats: list[str]) -> None:
    for caveat in caveats:
        err.print(styled("[yellow]damaged:[/] {}", caveat), soft_wrap=True)


def _tell_failures(folder: Path, table: str) -> None:
    """Say on stderr which traces a table lacks, if there is a lake."""
    from pipelines.lake import Lake
    from pipelines.lake.failures import failures_of

    if folder.is_dir():
        _tell(failures_of(Lake(folder), table))


def _print_table(answer: Any, limit: int) -> None:
    rows = answer.rows(limit + 1 if limit else 0)
    table = Table()
    for name, kind in zip(answer.columns, answer.types, strict=True):
        table.add_column(name, justify="right" if _is_number(kind) else "left", overflow="fold")
    for row in rows[: limit or None]:
        table.add_row(*(_cell(value) for value in row))
    out.print(table)
    if limit and len(rows) > limit:
        err.print(styled("[dim]only the first {} rows; --limit 0 shows all[/]", limit))


def _is_number(kind: str) -> bool:
    return any(word in kind for word in ("INT", "DOUBLE", "FLOAT", "DECIMAL"))


def _cell(value: Any) -> Any:
    if value is None:
        return styled("[dim]NULL[/]")
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _copy_out(table: Any, format: Format, for_spreadsheet: bool) -> None:
    """CSV to a pipe keeps every text unchanged; on a terminal it is shown as in a table."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    sink = pa.PythonFile(sys.stdout.buffer, mode="w")
    if format is Format.parquet:
        pyarrow.parquet.write_table(table, sink, compression="zstd")
    else:
        if for_spreadsheet:
            table = _texts_as(in_spreadsheet, table)
        if sys.stdout.isatty():
            table = _texts_as(visible, table)
        pyarrow.csv.write_csv(table, sink)
    sys.stdout.flush()


def _texts_as(written: Callable[[Any], Any], table: Any) -> Any:
    """Returns the table with its texts, and its columns' names, passed through a function."""
    import pyarrow as pa

    columns = [
        pa.array([None if text is None else written(text) for text in column.to_pylist()], pa.string())
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=[written(name) for name in table.column_names])


def tables(
    name: Annotated[str | None, typer.Argument(help="A table; without one, all tables are listed.")] = None,
    lake: LakeOption = DEFAULT_LAKE,
    search: Annotated[
        str | None, typer.Option(help="Only tables and columns with this in their name or meaning.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the tables and what a row of each is, or one table's columns with types and meanings.

    Example: `tracelake tables kernels`
    """
    from pipelines.lake.publish import column_types
    from pipelines.models.catalog import LAYERS, load_catalog
    from pipelines.renamed import old_tables

    catalog = load_catalog()
    renamed = old_tables()
    if name is None and search is None:
        layers = (*(layer for layer in LAYERS if layer != "rules"), "rules")
        models = sorted(
            (catalog.models[name] for name in catalog.public), key=lambda m: (layers.index(m.layer), m.name)
        )
        rows = [(m.layer, m.name, m.doc.removeprefix("One row: ").split(" How: ")[0]) for m in models]
        rows += [(catalog.models[new].layer, old, f"renamed to {new}") for old, new in sorted(renamed.items())]
        _show(("layer", "table", "one row"), rows, json)
        return
    if name in renamed:
        err.print(styled("[yellow]renamed:[/] {} is called {} now", name, renamed[name]))
        name = renamed[name]
    if name is not None and name not in catalog.public:
        raise fail(f"no table {name!r}", f"There are: {', '.join(sorted(catalog.public))}")
    if name is None or search is not None:
        _show(("table", "column", "meaning"), _found(catalog, search or "", name), json)
        return
    types = dict(column_types(catalog)[name])
    model = catalog.models[name]
    if not json:
        out.print(styled("[bold]{}[/]: {}", name, model.doc))
        out.print()
    _tell_failures(lake, name)
    _show(("column", "type", "meaning"), [(c.name, types.get(c.name, ""), c.doc) for c in model.columns], json)


def _found(catalog: Any, search: str, table: str | None) -> list[tuple[str, str, str]]:
    """Returns table, column and meaning of what has a text in its name or meaning; a table itself has no column."""
    rows = []
    for model in (catalog.models[name] for name in catalog.public if table in (None, name)):
        if search.lower() in f"{model.name} {model.doc}".lower():
            rows.append((model.name, "", model.doc.removeprefix("One row: ")))
        named = (column for column in model.columns if search.lower() in f"{column.name} {column.doc}".lower())
        rows += [(model.name, column.name, column.doc) for column in named]
    return rows


def tell_broken(broken: list[Any]) -> None:
    """Say on stderr which files an answer leaves out."""
    for one in broken[:10]:
        err.print(styled("[yellow]left out:[/] {}", one), soft_wrap=True)
    if len(broken) > 10:
        err.print(styled("[yellow]left out:[/] {:,} more files; `tracelake check` names them", len(broken) - 10))


def warn_of_prices(lake: Path) -> None:
    """Say on stderr that prices.csv cannot be read: everything but prices is still computed."""
    from pipelines.lake.prices import PRICES, read_prices
    from pipelines.models.errors import CatalogError

    try:
        read_prices(lake / PRICES)
    except CatalogError as error:
        err.print(styled("[yellow]no prices:[/] {}", error), soft_wrap=True)


def _show(headings: tuple[str, ...], rows: list[tuple[str, ...]], json: bool) -> None:
    if json:
        print_json([dict(zip(headings, row, strict=True)) for row in rows])
        return
    table = Table(*headings)
    for row in rows:
        table.add_row(*row)
    out.print(table)


def materialize(
    names: Annotated[
        list[str] | None, typer.Argument(help="Tables; all of them by default.", metavar="[TABLE]...")
    ] = None,
    lake: LakeOption = DEFAULT_LAKE,
    force: Annotated[bool, typer.Option(help="Also recompute what is up to date.")] = False,
    json: JsonOption = False,
) -> None:
    """Compute the model tables of the lake that are missing or out of date.

    Example: `tracelake materialize kernels temporal_breakdown`
    """
    from pipelines.lake import Lake
    from pipelines.materialize.run_order import materialize_all as bring_up_to_date

    with progress(None, "computing tables") as advance:
        done = bring_up_to_date(Lake(lake), names or None, force=force, on_step=lambda t: advance(1, f"computing {t}"))
    warn_of_prices(lake)
    rows = [(d.table, d.batch.batch_id, f"{d.n_rows:,}", f"{d.seconds:.2f}") for d in done]
    _show(("table", "batch", "rows", "seconds"), rows, json)
