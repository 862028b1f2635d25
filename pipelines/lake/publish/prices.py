"""The user's GPU prices, from `prices.csv` in the lake's folder (columns job, team, price_per_gpu_hour, currency)."""

from __future__ import annotations

import math
from pathlib import Path

import duckdb

from pipelines.lake.publish.user_tables import NEEDED, TEXT, Row, UserTable
from pipelines.models.errors import CatalogError
from pipelines.models.sqltext import quoted, row

PRICES = "prices.csv"
PRICE_TABLE = "job_prices"
_TABLE = UserTable({"job": NEEDED, "team": TEXT, "price_per_gpu_hour": TEXT, "currency": TEXT})
COLUMNS = tuple(_TABLE.columns)


def add_prices(con: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Insert the rows of `prices.csv` in a folder into the table job_prices.

    If the file cannot be read, the table has no rows, and its comment contains the reason. This is not an error,
    because most queries need no prices. For queries that need them, `read_prices` raises the error.
    """
    try:
        prices = read_prices(folder / PRICES)
    except CatalogError as error:
        con.execute(f"COMMENT ON TABLE {PRICE_TABLE} IS {quoted(f'No rows, because of {error}')}")
        return
    if prices:
        con.execute(f"INSERT INTO {PRICE_TABLE} VALUES {', '.join(map(row, prices))}")


def read_prices(path: Path) -> list[tuple[str | None, ...]]:
    """Return the rows of a price table in the order of COLUMNS, or [] if the file does not exist.

    Empty values are None. Raise CatalogError with the file, the line and the remedy.
    """
    rows = _TABLE.rows(path)
    jobs: set[str | None] = set()
    for line, fields in rows:
        _check(path, line, fields)
        if fields["job"] in jobs:
            raise CatalogError(f"{path}:{line}: job {fields['job']!r} appears twice; keep one of its rows")
        jobs.add(fields["job"])
    return [tuple(fields[name] for name in COLUMNS) for _, fields in rows]


def _check(path: Path, line: int, fields: Row) -> None:
    price = fields["price_per_gpu_hour"]
    if price is not None and not _is_price(price):
        raise CatalogError(f"{path}:{line}: price {price!r} is not a number of at least 0; write it as 2.50")
    if price is not None and fields["currency"] is None:
        raise CatalogError(f"{path}:{line}: a price without currency; write one, such as EUR")


def _is_price(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return math.isfinite(value) and value >= 0
