"""Refreshing of tables before a command reads them, and messages about data that they do not contain."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipelines.faces.cli.caveats import print_caveat
from pipelines.faces.cli.console import err
from pipelines.faces.cli.progress_steps import model_progress

if TYPE_CHECKING:
    from pipelines.runs.store import Store

WITHOUT_BROKEN = "TRACELAKE_WITHOUT_BROKEN"


def open_analyst(
    folder: Path | str,
    tables: list[str],
    id_prefix: str = "",
    tell_reduced: bool = True,
) -> Any:
    """Open the analysts' file read-only for our own queries, with the named model tables up to date.

    See refresh_tables for the parameters and errors. `tell_reduced`: name the tables on stderr that do not contain some
    traces, because only a digest of them is kept. Queries of users go through pipelines/lake/read/sandbox.py instead.
    `folder`: a folder, or the address of a DuckLake. The tables of a DuckLake are not recomputed. Outdated ones are
    named on stderr. Raise StoreError if the DuckLake cannot be opened.
    """
    from pipelines.lake.commit.model_failures import caveats
    from pipelines.runs.store import open_store

    store = open_store(folder)
    fresh = refresh_tables(store, tables, id_prefix, tell_reduced)
    con = store.analyst(fresh.tables)
    tell_damage(caveats(con, fresh.read))
    tell_outdated(store.outdated(con, tables))
    return con


class FreshTables(NamedTuple):
    """Stored `tables` that are up to date. `read`: these tables and all tables that they depend on."""

    tables: list[str]
    read: list[str]


def refresh_tables(store: Store, tables: list[str], id_prefix: str = "", tell_reduced: bool = True) -> FreshTables:
    """Compute the named model tables that are missing or out of date (`Store.asked`), with a progress bar.

    `id_prefix`: of traces or captures. The tables of all others stay unchanged. A store `without_broken` answers
    without missing or damaged files, and names them on stderr. By default, tables that need these files fail. If the
    lake cannot be written, the tables stay unchanged, and a message on stderr says so. Raise CatalogError or RolesError
    if a prices.csv or roles.csv that they need cannot be read, NoTraces if the lake has no traces, BrokenFiles if
    tables cannot be computed.
    """
    requested = store.asked(tables, id_prefix)
    if skipped := requested.skipped:
        for line in skipped:
            print_caveat("left out", line)
        requested = requested.without_captures()  # nothing is stored from an incomplete lake
    if requested.can_compute:
        with model_progress(store.catalog(), requested.stored, "computing tables") as on_step:
            requested.compute(on_step)
    else:
        for message in requested.bring_up():
            print_caveat("not computed", message)
    for message in requested.reduced if tell_reduced else ():
        print_caveat("reduced", message)
    return FreshTables(requested.stored, requested.read)


def tell_outdated(sentences: list[str]) -> None:
    """Print on stderr which tables of an answer are outdated, because the current models would compute other rows."""
    for sentence in sentences:
        print_caveat("out of date", sentence)


def tell_damage(caveats: list[str]) -> None:
    """Print caveats about damaged or missing data on stderr."""
    for caveat in caveats:
        print_caveat("damaged", caveat)


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
