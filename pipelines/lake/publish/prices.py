"""User-supplied costs: `prices.csv` in the lake's folder, with columns job, team, price_per_gpu_hour, currency."""

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
    """Add the rows of `prices.csv` in a folder to the table job_prices.

    If it cannot be read, the table has no rows and its comment says why: most queries need no prices, and those
    that do get an error from `read_prices`.
    """
    try:
        prices = read_prices(folder / PRICES)
    except CatalogError as error:
        con.execute(f"COMMENT ON TABLE {PRICE_TABLE} IS {quoted(f'No rows, because of {error}')}")
        return
    if prices:
        con.execute(f"INSERT INTO {PRICE_TABLE} VALUES {', '.join(map(row, prices))}")


def read_prices(path: Path) -> list[tuple[str | None, ...]]:
    """Returns the rows of a price table, values in COLUMNS' order, None where empty; no rows if there is no file.

    Raises CatalogError with file, line and what to do.
    """
    rows = _TABLE.rows(path)
    seen: set[str | None] = set()
    for line, given in rows:
        _check(path, line, given)
        if given["job"] in seen:
            raise CatalogError(f"{path}:{line}: job {given['job']!r} appears twice; keep one of its rows")
        seen.add(given["job"])
    return [tuple(given[name] for name in COLUMNS) for _, given in rows]


def _check(path: Path, line: int, given: Row) -> None:
    price = given["price_per_gpu_hour"]
    if price is not None and not _is_price(price):
        raise CatalogError(f"{path}:{line}: price {price!r} is not a number of at least 0; write it as 2.50")
    if price is not None and given["currency"] is None:
        raise CatalogError(f"{path}:{line}: a price without currency; write one, such as EUR")


def _is_price(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return math.isfinite(value) and value >= 0
