"""What the user tells of costs: `prices.csv` in the lake's folder, columns job, team, price_per_gpu_hour, currency."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import duckdb

from pipelines.models.errors import CatalogError
from pipelines.sqltext import row

PRICES = "prices.csv"
COLUMNS = ("job", "team", "price_per_gpu_hour", "currency")


def add_prices(con: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Add the rows of `prices.csv` in a folder to the table job_prices. Raises CatalogError."""
    if prices := read_prices(folder / PRICES):
        con.execute(f"INSERT INTO job_prices VALUES {', '.join(map(row, prices))}")


def read_prices(path: Path) -> list[tuple[str | None, ...]]:
    """The rows of a table of prices, values in COLUMNS' order, None where empty; no rows where there is no file.

    Raises CatalogError with file, line and the way out.
    """
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        if "job" not in (reader.fieldnames or ()):
            raise CatalogError(f"{path}:1: no column 'job'; write a header `{','.join(COLUMNS)}`")
        rows = [_row(path, number, given) for number, given in enumerate(reader, 2)]
    for number, (job, *_) in enumerate(rows, 2):
        if job in {earlier for earlier, *_ in rows[: number - 2]}:
            raise CatalogError(f"{path}:{number}: job {job!r} stands there twice; keep one of its rows")
    return rows


def _row(path: Path, line: int, given: dict[str, str | None]) -> tuple[str | None, ...]:
    values = tuple((given.get(name) or "").strip() or None for name in COLUMNS)
    job, _, price, currency = values
    if job is None:
        raise CatalogError(f"{path}:{line}: 'job' is empty; every row has the name of a job")
    if price is not None and not _is_price(price):
        raise CatalogError(f"{path}:{line}: price {price!r} is no number of at least 0; write it as 2.50")
    if price is not None and currency is None:
        raise CatalogError(f"{path}:{line}: a price without currency; write one, such as EUR")
    return values


def _is_price(text: str) -> bool:
    try:
        value = float(text)
    except ValueError:
        return False
    return math.isfinite(value) and value >= 0
