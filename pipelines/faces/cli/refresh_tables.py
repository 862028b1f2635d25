"""Refreshing of tables before a command reads them, and messages about data that they do not contain."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.faces.cli.console import err
from pipelines.faces.cli.options import is_store
from pipelines.faces.cli.progress_steps import model_progress

WITHOUT_BROKEN = "TRACELAKE_WITHOUT_BROKEN"


def open_analyst(folder: Path | str, tables: list[str], id_prefix: str = "", without_broken: bool = False) -> Any:
    """Open the analysts' file read-only for our own queries, with the named model tables up to date.

    See refresh_tables for the parameters and errors. Queries of users go through pipelines/lake/read/sandbox.py instead.
    `folder`: a folder, or the address of a DuckLake. The tables of a DuckLake are not recomputed; outdated ones are named on
    stderr. Raise StoreError if the DuckLake cannot be opened.
    """
    if is_store(folder):
        from pipelines.faces.cli.store_address import tell_outdated
        from pipelines.runs.store import open_store

        con = open_store(str(folder)).connect(locked=False)
        tell_outdated(con, tables)
        return con
    from pipelines.lake.commit.model_failures import caveats
    from pipelines.lake.publish.analyst_file import analyst

    fresh = refresh_tables(Path(folder), tables, id_prefix, without_broken)
    con = analyst(fresh.lake, fresh.tables)
    tell_damage(caveats(con, fresh.read))
    return con


class FreshTables(NamedTuple):
    """A lake whose `tables` are up to date. `read`: these tables and all tables that they depend on."""

    lake: Any
    tables: list[str]
    read: list[str]


def refresh_tables(folder: Path, tables: list[str], id_prefix: str = "", without_broken: bool = False) -> FreshTables:
    """Compute the named model tables that are missing or out of date (`asked_tables`), with a progress bar.

    `id_prefix`: of traces or captures. The tables of all others stay unchanged.
    `without_broken`: answer without missing or damaged files, and name them on stderr. By default, tables that need them fail.
    If the lake cannot be written, the tables stay unchanged, and stderr says so.
    Raise CatalogError or RolesError if a prices.csv or roles.csv that they need cannot be read, NoTraces if the lake has no
    traces, BrokenFiles if tables cannot be computed.
    """
    from pipelines.faces.asked_tables import asked_tables, left_out, told_broken
    from pipelines.lake import Lake

    requested = asked_tables(Lake(folder, without_broken), tables, id_prefix)
    if broken := left_out(requested.lake):
        for line in told_broken(broken):
            err.line("[yellow]left out:[/] {}", line)
        requested = replace(requested, of_captures=[])  # nothing is stored from an incomplete lake
    if requested.are_stale and requested.lake.is_writable:
        with model_progress(requested.lake.catalog(), requested.stored, "computing tables") as on_step:
            requested.compute(on_step)
    else:
        for message in requested.bring_up():
            err.line("[yellow]not computed:[/] {}", message)
    return FreshTables(requested.lake, requested.stored, requested.read)


def tell_damage(caveats: list[str]) -> None:
    """Print caveats about damaged or missing data on stderr."""
    for caveat in caveats:
        err.line("[yellow]damaged:[/] {}", caveat)


def tell_left_out(address: str, tables: Iterable[str] | None = None, traces: Collection[str] | None = None) -> bool:
    """Print on stderr which traces are missing from these tables (None: from any), and how to add them.

    `traces`: consider only the traces with these ids. Return whether any trace is missing.
    """
    from pipelines.lake.commit.model_failures import sentences, ways_out
    from pipelines.runs.left_out import left_out_at

    entries = [entry for entry in left_out_at(address, tables) if traces is None or entry.trace_id in traces]
    for line in sentences(entries):
        err.line("[bold red]left out:[/] {}", line)
    for line in ways_out(entries, address):
        err.line("[dim]{}[/]", line)
    return bool(entries)


def warn_of_prices(lake: Path) -> None:
    """Print on stderr if prices.csv cannot be read. Everything except prices is still computed."""
    from pipelines.lake.publish.prices import PRICES, read_prices
    from pipelines.models.errors import CatalogError

    try:
        read_prices(lake / PRICES)
    except CatalogError as error:
        err.line("[yellow]no prices:[/] {}", error)
