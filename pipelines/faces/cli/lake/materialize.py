"""`tracelake materialize`: computation of the model tables of a lake."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.faces.cli.console import fail, out, print_json, print_rows, progress
from pipelines.faces.cli.lake.engine import (
    IN_PROCESS,
    AddressOption,
    EngineOption,
    StoreOption,
    engine_at,
    following,
    tell_failed,
    units_as_json,
)
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption
from pipelines.faces.cli.refresh_tables import tell_left_out, warn_of_prices


class Purpose(StrEnum):
    """The purpose for which tables are computed."""

    fleet = "fleet"


def materialize(
    names: Annotated[
        list[str] | None, typer.Argument(help="Tables; all of them by default.", metavar="[TABLE]...")
    ] = None,
    purpose: Annotated[
        Purpose | None,
        typer.Option(
            "--for",
            help="Compute only the tables that the fleet pages, alerts and `why` read; a command that reads another table computes it.",
        ),
    ] = None,
    lake: LakeOption = DEFAULT_LAKE,
    force: Annotated[bool, typer.Option(help="Also recompute tables that are up to date.")] = False,
    engine: EngineOption = None,
    address: AddressOption = None,
    store: StoreOption = None,
    prices: Annotated[
        Path | None,
        typer.Option(help="Store this prices.csv in the lake.", exists=True, dir_okay=False),
    ] = None,
    roles: Annotated[
        Path | None, typer.Option(help="Store this roles.csv in the lake.", exists=True, dir_okay=False)
    ] = None,
    formulas: Annotated[
        Path | None,
        typer.Option(help="Store this op_formulas.csv in the lake.", exists=True, dir_okay=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compute the model tables of the lake that are missing or out of date.

    Exits with 1 if one of them lacks a trace because a model failed on it, now or in an earlier run; stderr says which, why, and
    how to get it. All other tables and traces are computed.

    Example: `tracelake materialize kernels temporal_breakdown`
    """
    from pipelines.faces.fleet_tables import FLEET_TABLES
    from pipelines.lake import Lake
    from pipelines.runs.materialize.run_order import materialize_all
    from pipelines.runs.store import open_store

    if names and purpose:
        raise fail("materialize accepts tables or --for, not both", f"Leave out --for {purpose}, or {' '.join(names)}.")
    names = list(FLEET_TABLES) if purpose is Purpose.fleet else names
    if open_store(lake).lake is None:
        store, engine = store or str(lake), engine or IN_PROCESS
    if prices or roles or formulas:
        open_store(store or str(lake)).set_user_tables(prices, roles, formulas)
    with engine_at(engine, address, store) as cluster:
        open_store(store or str(lake)).need_folder()
        if cluster is not None:
            _materialize_on(cluster, Path(lake), store, names, force, json)
            return

    with progress(None, "computing tables") as advance:
        done = materialize_all(Lake(lake), names or None, force=force, on_step=lambda t: advance(1, f"computing {t}"))
    warn_of_prices(Path(lake))
    headings = ("table", "batch", "rows", "seconds")
    rows = [(d.table, d.batch.batch_id, d.n_rows, round(d.seconds, 2)) for d in done]
    if json:
        print_json([dict(zip(headings, row, strict=True)) for row in rows])
    else:
        print_rows(headings, [(table, batch, f"{n:,}", f"{s:.2f}") for table, batch, n, s in rows], json=False)
    if tell_left_out(str(lake), names or None):
        raise typer.Exit(1)


def _materialize_on(
    cluster: Any, lake: Path, store: str | None, names: list[str] | None, force: bool, json: bool
) -> None:
    from pipelines.engines.run import materialize_on
    from pipelines.lake import Lake
    from pipelines.lake.publish.analyst_file import publish

    with following("computing tables") as on_unit:
        run = materialize_on(cluster, store or str(lake), names or None, on_unit, force=force)
    if store is None:
        publish(Lake(lake))
        warn_of_prices(lake)
    if json:
        print_json(units_as_json(run))
    else:
        out.print(f"units: {run.n_done}, CPU s on the workers: {run.cpu_seconds:.1f}")
    is_left_out = tell_left_out(store or str(lake), names or None)
    tell_failed(run)
    if is_left_out:
        raise typer.Exit(1)
