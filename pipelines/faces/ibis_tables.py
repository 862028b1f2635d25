"""The lake as Ibis tables, for analysts in Python. Nothing else imports this file: ibis takes two seconds to import."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.base.extras import need
from pipelines.faces.asked_tables import asked_tables
from pipelines.lake.lake import Lake
from pipelines.lake.publish.analyst_file import analyst
from pipelines.lake.read.sandbox import CLOSED, connect_attached, lock

if TYPE_CHECKING:
    from ibis.backends.duckdb import Backend


def open_tables(lake: Lake | str | Path, *tables: str, locked: bool = False) -> Backend:
    """Opens `<lake>/analyst.duckdb` read-only: `open_tables("/data/lake", "kernels").table("kernels")`.

    The model tables named in `tables` are computed first if they are missing or out of date; others are as they are,
    empty if they were never computed. Open again to see what is published later. `disconnect()` closes it. `locked`:
    for untrusted users, as in pipelines/lake/read/sandbox.py: no files except the lake's tables, and no settings. Raises
    FileNotFoundError for a lake without traces, CatalogError for a name that is not a table, MissingExtra without Ibis.
    """
    need("notebook", "a table in Ibis")
    import ibis

    lake = lake if isinstance(lake, Lake) else Lake(lake)
    if not lake.exists:
        raise FileNotFoundError(f"no traces in the lake {lake.root}")
    if tables:
        lake.catalog().closure(tables)  # rejects names that are not tables
        for told in asked_tables(lake, tables).bring_up():
            warnings.warn(told, stacklevel=3)
    # Attached, not connected to: otherwise a process that has an older state of the file open would get that one.
    con = analyst(lake, connect=lambda file: connect_attached(file, config=CLOSED if locked else None))
    backend = ibis.duckdb.from_connection(con)  # this sets the time zone
    if locked:
        lock(con, lake.root)
    return backend
