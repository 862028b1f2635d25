"""Tables brought up to date before a command reads them, and what they lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from pipelines.faces.cli.console import err, fail, progress, styled
from pipelines.faces.cli.progress_steps import in_words, steps_for

WITHOUT_BROKEN = "TRACELAKE_WITHOUT_BROKEN"


def tables_in(query: str, con: Any = None) -> list[str]:
    """Returns the tables that a query reads, directly or through views, and that must be brought up to date or may be
    damaged.

    None of them if it cannot be parsed. `con`: a connection to parse it with; otherwise one is opened.
    """
    from pipelines.lake.read.tables_read import tables_read

    return tables_read(query, con)


def open_analyst(folder: Path, tables: list[str], of: str = "", without_broken: bool = False) -> Any:
    """The analysts' file opened read-only for queries of ours, with the named model tables up to date.

    See bring_up_to_date. What others ask goes through pipelines/lake/read/sandbox.py.
    """
    from pipelines.lake.commit.model_failures import caveats
    from pipelines.lake.publish.analyst_file import analyst

    ready = bring_up_to_date(folder, tables, of, without_broken)
    con = analyst(ready.lake, ready.tables)
    tell_damage(caveats(con, ready.read))
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
    from pipelines.lake.layout import CAPTURE_MARK, KEYS
    from pipelines.lake.publish.prices import PRICE_TABLE, PRICES, read_prices
    from pipelines.lake.read.damage import BrokenFiles
    from pipelines.runs.materialize.computed_tables import discard
    from pipelines.runs.materialize.per_capture import part_of, stale_captures, trace_tables
    from pipelines.runs.materialize.per_trace import stale_batches
    from pipelines.runs.materialize.run_order import materialize_all

    lake = Lake(folder, without_broken)
    if not lake.exists:
        if broken := lake.broken(KEYS):
            raise BrokenFiles(broken)
        raise fail(f"no traces in the lake {lake.root}", f"Ingest some: tracelake ingest FILES --lake {folder}")
    catalog = lake.catalog()
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
        with progress(steps_for(catalog, stored), "computing tables") as advance:
            materialize_all(lake, stored, on_step=lambda text: advance(1, in_words(catalog, text)), part=part)
    return Ready(lake, stored, [*stored, *trace_tables(catalog, of_captures)])


def tell_damage(caveats: list[str]) -> None:
    for caveat in caveats:
        err.print(styled("[yellow]damaged:[/] {}", caveat), soft_wrap=True)


def tell_broken(broken: list[Any]) -> None:
    """Say on stderr which files an answer leaves out."""
    for one in broken[:10]:
        err.print(styled("[yellow]left out:[/] {}", one), soft_wrap=True)
    if len(broken) > 10:
        err.print(styled("[yellow]left out:[/] {:,} more files; `tracelake check` names them", len(broken) - 10))


def warn_of_prices(lake: Path) -> None:
    """Say on stderr that prices.csv cannot be read: everything but prices is still computed."""
    from pipelines.lake.publish.prices import PRICES, read_prices
    from pipelines.models.errors import CatalogError

    try:
        read_prices(lake / PRICES)
    except CatalogError as error:
        err.print(styled("[yellow]no prices:[/] {}", error), soft_wrap=True)
