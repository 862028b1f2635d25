"""The lake as Ibis tables, for analysts in Python. Only they import this module, because importing ibis takes two seconds."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.base.errors import WrongValue
from pipelines.base.extras import need
from pipelines.lake.commit import model_failures
from pipelines.lake.lake import Lake
from pipelines.lake.publish.analyst_file import analyst, connect_attached
from pipelines.lake.read.sandbox import CLOSED, lock
from pipelines.models.catalog import load_catalog
from pipelines.runs.store import open_store

if TYPE_CHECKING:
    from ibis.backends.duckdb import Backend


def open_tables(lake: Lake | str | Path, *tables: str, locked: bool = False) -> Backend:
    """Open `<lake>/analyst.duckdb` read-only: `open_tables("/data/lake", "kernels").table("kernels")`.

    The tables in `tables` are computed first if they are missing or outdated. Other tables are unchanged, and empty if they were
    never computed. To see later commits, open the lake again. `disconnect()` closes it. `locked`: for untrusted users, forbid
    all files except the lake's tables, and all settings (pipelines/lake/read/sandbox.py). Raise FileNotFoundError for a lake
    without traces, CatalogError for a name that is not a table, MissingExtra without Ibis.

    `lake` may be the address of a DuckLake (`ducklake:postgres:…`), whose tables are read as committed. Warnings name
    the outdated tables among `tables`, and those from which traces are missing because a model failed on them. Raise
    StoreError, or WrongValue with `locked`.
    """
    need("notebook", "a table in Ibis")
    import ibis

    store = open_store(lake)
    if locked and store.lake is None:
        raise WrongValue(
            "locked=True is for a lake in a folder; for untrusted users of a DuckLake, use `tracelake sql`"
        )
    if not store.exists:
        raise FileNotFoundError(f"no traces in the lake {store.address}")
    requested = None
    if tables:
        load_catalog().closure(tables)  # rejects names that are not tables
        requested = store.asked(tables)
        for caveat in (*requested.bring_up(), *requested.reduced):
            warnings.warn(caveat, stacklevel=3)
    if locked and store.lake:
        con = analyst(store.lake, connect=lambda file: connect_attached(file, config=CLOSED))
    else:
        con = store.connect(locked=False)
    for caveat in model_failures.caveats(con, requested.read) if requested else ():
        warnings.warn(caveat, stacklevel=3)
    for caveat in store.outdated(con, tables):
        warnings.warn(f"out of date: {caveat}", stacklevel=3)
    backend = ibis.duckdb.from_connection(con)  # this sets the time zone
    if locked and store.lake:
        lock(con, store.lake.root)
    return backend
