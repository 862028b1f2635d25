"""Columns under their agreed names, as analysts see them; sql/rules/agreed_names.csv declares which.

Files and models keep the older names: lakes that exist have them, and programs read them. Where analysts look (the
analysts' file, a DuckLake's views, Spark's) a table has the agreed name in the older one's place, and the older name as
one more column at the end, for one release.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import duckdb

from pipelines.base import database
from pipelines.base.datafiles import rule_rows
from pipelines.models.cache import digest_of, remembered
from pipelines.models.catalog import Column, Model

Types = list[tuple[str, str]]
UNTIL = "gone after the next release"


@dataclass(frozen=True)
class Agreed:
    """A column's two names. `expression`: its value under the agreed name if that is in another unit, else empty."""

    older: str
    name: str
    expression: str
    meaning: str


def agreed_columns(table: str) -> tuple[Agreed, ...]:
    """Returns the columns of a table that have an older name."""
    return _declared().get(table, ())


def shown_rows(table: str, rows: str) -> str:
    """Returns the SELECT of rows of a table as analysts see them; `rows` have the older names, all of them."""
    for one in agreed_columns(table):  # one after another: DuckDB writes a list of several in an order of its own
        # Lines of their own, since `rows` may end in a comment.
        rows = f'SELECT * RENAME ("{one.older}" AS {one.name}), "{one.older}" FROM (\n{rows}\n)'
        if one.expression:
            rows = f"SELECT * REPLACE ({one.expression} AS {one.name}) FROM ({rows})"
    return rows


def with_older(table: str, rows: str, types: Iterable[tuple[str, str]]) -> str:
    """Returns rows that have every column that `shown_rows` names: NULL where files of an older version lack it."""
    columns, kinds = agreed_columns(table), dict(types)
    if not columns:
        return rows
    nulls = ", ".join(f'CAST(NULL AS {kinds[one.older]}) AS "{one.older}"' for one in columns)
    return f"({rows}) UNION ALL BY NAME SELECT {nulls} WHERE false"


def shown_columns(model: Model) -> list[Column]:
    """Returns the columns of a table as analysts see them, with their meanings: those with older names last."""
    columns = {one.older: one for one in agreed_columns(model.name)}
    agreed = [_under_agreed(column, columns.get(column.name)) for column in model.columns]
    return [*agreed, *map(_under_older, columns.values())]


def _under_agreed(column: Column, agreed: Agreed | None) -> Column:
    return Column(agreed.name, agreed.meaning or column.doc) if agreed else column


def _under_older(agreed: Agreed) -> Column:
    same = f"Older name of {agreed.name}" if not agreed.expression else f"{agreed.name} as it was, in another unit"
    return Column(agreed.older, f"{same}; {UNTIL}.")


def shown_types(types: dict[str, Types]) -> dict[str, Types]:
    """Returns the columns and DuckDB types of tables as analysts see them, from those that are stored."""
    digest = digest_of([duckdb.__version__, repr(_declared()), repr(types)])
    found = remembered("shown-types", digest, lambda: _described(types))
    return {**types, **{table: [(name, kind) for name, kind in columns] for table, columns in found.items()}}


def _described(types: dict[str, Types]) -> dict[str, Types]:
    with database.connect() as con:
        empty = {
            table: ", ".join(f'CAST(NULL AS {kind}) AS "{name}"' for name, kind in types[table])
            for table in _declared()
            if table in types
        }
        return {
            table: [(r[0], r[1]) for r in con.execute(f"DESCRIBE {shown_rows(table, f'SELECT {row}')}").fetchall()]
            for table, row in empty.items()
        }


@lru_cache
def _declared() -> dict[str, tuple[Agreed, ...]]:
    found: defaultdict[str, list[Agreed]] = defaultdict(list)
    for row in rule_rows("agreed_names"):
        found[row["table_name"]].append(Agreed(row["older"], row["agreed"], row["expression"], row["meaning"]))
    return {table: tuple(columns) for table, columns in found.items()}
