"""Tables brought up to date before a command reads them, and what they lack."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.faces.cli.console import err, is_store, progress, styled
from pipelines.faces.cli.progress_steps import in_words, steps_for

WITHOUT_BROKEN = "TRACELAKE_WITHOUT_BROKEN"


def open_analyst(folder: Path | str, tables: list[str], of: str = "", without_broken: bool = False) -> Any:
    """The analysts' file opened read-only for queries of ours, with the named model tables up to date.

    See bring_up_to_date. What others ask goes through pipelines/lake/read/sandbox.py. `folder`: or the address of a DuckLake,
    whose tables are as they were committed; which of them are not of today's models is said. Raises StoreError.
    """
    if is_store(folder):
        from pipelines.faces.cli.store_address import tell_outdated
        from pipelines.runs.store import open_store

        con = open_store(str(folder)).connect(locked=False)
        tell_outdated(con, tables)
        return con
    from pipelines.lake.commit.model_failures import caveats
    from pipelines.lake.publish.analyst_file import analyst

    ready = bring_up_to_date(Path(folder), tables, of, without_broken)
    con = analyst(ready.lake, ready.tables)
    tell_damage(caveats(con, ready.read))
    return con


class Ready(NamedTuple):
    """A lake whose `tables` are up to date; `read` are all tables they depend on."""

    lake: Any
    tables: list[str]
    read: list[str]


def bring_up_to_date(folder: Path, tables: list[str], of: str = "", without_broken: bool = False) -> Ready:
    """Compute the named model tables that are missing or out of date (`asked_tables`), and show how far that is.

    `of`: only compute for traces or captures whose ids start with this; for others the tables stay as they are.
    `without_broken`: answer without missing or damaged files and say so on stderr; otherwise what needs them fails.
    Raises CatalogError or RolesError for a prices.csv or roles.csv that they need and that cannot be read, NoTraces,
    BrokenFiles where tables cannot be computed. In a lake that cannot be written they stay as they are, and this is said.
    """
    from pipelines.faces.asked_tables import asked_tables, left_out, told_broken
    from pipelines.lake import Lake

    asked = asked_tables(Lake(folder, without_broken), tables, of)
    if broken := left_out(asked.lake):
        for one in told_broken(broken):
            err.print(styled("[yellow]left out:[/] {}", one), soft_wrap=True)
        asked = replace(asked, of_captures=[])  # nothing is stored from an incomplete lake
    if asked.are_stale and asked.lake.is_writable:
        catalog = asked.lake.catalog()
        with progress(steps_for(catalog, asked.stored), "computing tables") as advance:
            asked.compute(lambda text: advance(1, in_words(catalog, text)))
    else:
        for told in asked.bring_up():
            err.print(styled("[yellow]not computed:[/] {}", told), soft_wrap=True)
    return Ready(asked.lake, asked.stored, asked.read)


def tell_damage(caveats: list[str]) -> None:
    for caveat in caveats:
        err.print(styled("[yellow]damaged:[/] {}", caveat), soft_wrap=True)


def tell_left_out(address: str, tables: Iterable[str] | None = None, traces: Collection[str] | None = None) -> bool:
    """Say on stderr which traces these tables (by default all) lack, and how to get them; return whether they lack any.

    `traces`: only of these.
    """
    from pipelines.lake.commit.model_failures import sentences, ways_out
    from pipelines.runs.left_out import left_out_at

    left = [one for one in left_out_at(address, tables) if traces is None or one.trace_id in traces]
    for line in sentences(left):
        err.print(styled("[bold red]left out:[/] {}", line), soft_wrap=True)
    for line in ways_out(left, address):
        err.print(styled("[dim]{}[/]", line), soft_wrap=True)
    return bool(left)


def warn_of_prices(lake: Path) -> None:
    """Say on stderr that prices.csv cannot be read: everything but prices is still computed."""
    from pipelines.lake.publish.prices import PRICES, read_prices
    from pipelines.models.errors import CatalogError

    try:
        read_prices(lake / PRICES)
    except CatalogError as error:
        err.print(styled("[yellow]no prices:[/] {}", error), soft_wrap=True)
