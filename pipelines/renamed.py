"""Tables and columns that have a new name, as sql/rules/renamed.csv declares them.

A lake keeps the folders, logs and columns that an older version wrote: a batch is read and recomputed in its existing
folder. Queries may use a table's old name for one release.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from pipelines.base.datafiles import rule_rows


def table_now(name: str) -> str:
    """Returns the current name of a table; a name that did not change is returned as it is."""
    return _tables().get(name, name)


def tables_now(names: Iterable[str]) -> list[str]:
    """Returns `table_now` of each name, each table once, in order."""
    return list(dict.fromkeys(map(table_now, names)))


def old_tables() -> dict[str, str]:
    """Returns new names by old names of tables."""
    return dict(_tables())


def names_of(table: str) -> list[str]:
    """Returns the table's name followed by its old ones, as the folders of a lake may be called."""
    return [table, *(old for old, new in _tables().items() if new == table)]


def old_columns(table: str) -> dict[str, str]:
    """Returns new names by old names of columns; `table` by its new name."""
    columns = ((old.split("."), new) for old, new in _declared() if "." in old)
    return {old: new.split(".")[1] for (of, old), new in columns if of == table}


def columns_in(message: str) -> list[str]:
    """Returns sentences with the current names of columns that an error of DuckDB quotes."""
    columns = [(old, new) for old, new in _declared() if "." in old]
    return [f"{old} is called {new} now" for old, new in columns if f'"{old.partition(".")[2]}"' in message]


@lru_cache
def _tables() -> dict[str, str]:
    return {old: new for old, new in _declared() if "." not in old}


@lru_cache
def _declared() -> tuple[tuple[str, str], ...]:
    return tuple((row["old"], row["new"]) for row in rule_rows("renamed"))
