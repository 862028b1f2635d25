"""The lake as Ibis tables, for analysts in Python. Nothing else imports this file: ibis takes two seconds to import."""

from __future__ import annotations

from pathlib import Path

import duckdb
import ibis
from ibis.backends.duckdb import Backend

from pipelines.lake.layout import ANALYST
from pipelines.lake.publish import analyst
from pipelines.lake.store import Lake
from pipelines.models.materialize import materialize
from pipelines.sqltext import quoted


def open_tables(lake: Lake | str | Path, *tables: str) -> Backend:
    """What `<lake>/analyst.duckdb` shows, read-only: `open_tables("/data/lake", "kernels").table("kernels")`.

    The model tables named in `tables` are computed first where they are missing or out of date; others are as they lie,
    empty where they were never computed. What is published later does not show: open again. `disconnect()` closes it.
    Raises FileNotFoundError for a lake without traces, CatalogError for a name that is no table.
    """
    lake = lake if isinstance(lake, Lake) else Lake(lake)
    if not lake.exists:
        raise FileNotFoundError(f"no traces in the lake {lake.root}")
    if tables:
        materialize(lake, tables)
    analyst(lake).close()
    # Attached, not connected to: a process that still has an older state of the file open would be given that one.
    con = duckdb.connect()
    con.execute(f"ATTACH {quoted(lake.root / ANALYST)} AS analyst (READ_ONLY)")
    con.execute("USE analyst")
    return ibis.duckdb.from_connection(con)
