"""Decorators that declare a table at the Python function that computes it, and nowhere else.

The catalog reads the declarations from the source files without importing them (sources.py), so their arguments are
literals, or names of literals in the same module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from pipelines.base import database
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Function = TypeVar("Function", bound=Callable[..., object])
_TYPES: dict[str, dict[str, str]] = {}  # of the tables in imported modules
_BATCH = 1 << 17  # rows
_ARRAYS = {"BIGINT": "int64", "DOUBLE": "float64", "BOOLEAN": "bool"}
# Maximum rows, and characters of text, that `insert_parts` has in memory at a time. A row takes some kB.
_ROWS, _CHARACTERS = 10_000, 8 << 20


def python_model(
    name: str,
    *,
    layer: str,
    doc: str,
    columns: Sequence[tuple[str, str, str]],
    reads: Sequence[str],
    runs: Sequence[str] = (),
    checks: Sequence[str] = (),
) -> Callable[[Function], Function]:
    """Declare a table that the decorated `function(con)` creates in a connection when the table is needed.

    `columns`: (name, SQL type, meaning). `reads`: tables that must exist before. `runs`: models that the function runs
    itself. `doc`: the meaning of a row. A function with several of these decorators creates all their tables in one
    call.
    """
    return _declared(name, columns)


def input_table(
    name: str, *, layer: str, doc: str = "", columns: Sequence[tuple[str, str, str]] = (), reads: Sequence[str] = ()
) -> Callable[[Function], Function]:
    """Declare a table that the decorated function creates. The code that runs the models calls the function first.

    `columns` are omitted if they follow from the SQL that reads the table (`_staged_…`).
    """
    return _declared(name, columns)


def _declared(name: str, columns: Sequence[tuple[str, str, str]]) -> Callable[[Function], Function]:
    _TYPES[name] = {column: kind for column, kind, _ in columns}
    return lambda function: function


def types_of(name: str) -> dict[str, str]:
    """Return the columns of a declared table and their SQL types. The module that declares it must be imported."""
    return _TYPES[name]


def create_table(con: duckdb.DuckDBPyConnection, name: str, how: str = "OR REPLACE TABLE") -> None:
    """Create a declared table in `con` without rows. `how`: the words between CREATE and the table's name."""
    con.execute(f"CREATE {how} {name} ({', '.join(f'{column} {kind}' for column, kind in _TYPES[name].items())})")


def insert_columns(con: duckdb.DuckDBPyConnection, name: str, values: Mapping[str, Sequence[Any]]) -> None:
    """Insert rows into a declared table, from columns of equal length. Missing columns are NULL.

    Raise TypeError for values of another type than the column's.
    """
    if not max(map(len, values.values()), default=0):
        return
    # DuckDB reads the arrays by the name of this variable. An Arrow table would make DuckDB import pandas.
    rows: dict[str, np.ndarray] = {}
    selected = []
    for column, kind in _TYPES[name].items():
        selected.append(_selected(rows, column, kind, values[column]) if column in values else "NULL")
    con.execute(f"INSERT INTO {name} SELECT {', '.join(selected)} FROM rows")
    del rows


def insert_rows(
    con: duckdb.DuckDBPyConnection, name: str, rows: Collection[Sequence[Any]], columns: Sequence[str] = ()
) -> None:
    """Insert rows into a declared table. `columns`: columns of the rows (default: all). Other columns are NULL."""
    import pyarrow as pa

    if not rows:
        return
    types = {
        **{"BIGINT": pa.int64(), "VARCHAR": pa.string(), "BOOLEAN": pa.bool_()},
        "BIGINT[]": pa.list_(pa.int64()),
    }
    kinds = _TYPES[name]
    by_column = zip(columns or kinds, zip(*rows, strict=True), strict=True)
    con.register("_part", pa.table({column: pa.array(values, types[kinds[column]]) for column, values in by_column}))
    con.execute(f"INSERT INTO {name} BY NAME SELECT * FROM _part")
    con.unregister("_part")


def insert_parts(con: duckdb.DuckDBPyConnection, name: str, rows: Iterable[Sequence[Any]]) -> int:
    """Insert rows into a declared table in parts, so that not all are in memory. Return the number of rows."""
    n = n_characters = 0
    part: list[Sequence[Any]] = []
    for row in rows:
        n += 1
        part.append(row)
        n_characters += sum(len(value) for value in row if isinstance(value, str))
        if len(part) >= _ROWS or n_characters >= _CHARACTERS:
            insert_rows(con, name, part)
            part, n_characters = [], 0
    insert_rows(con, name, part)
    return n


def fetch_columns(con: duckdb.DuckDBPyConnection, query: str) -> dict[str, np.ndarray]:
    """Return the columns of a query as arrays. Columns must be numbers or booleans without NULL.

    fetchnumpy() would store all rows in memory twice.
    """
    import numpy as np

    reader = database.arrow_result(con, query).to_arrow_reader(_BATCH)
    parts = {field.name: [np.zeros(0, dtype=str(field.type))] for field in reader.schema}
    for batch in reader:
        for name, column in zip(parts, batch.columns, strict=True):
            parts[name].append(_array(column))
    return {name: np.concatenate(parts.pop(name)) for name in list(parts)}


def column_arrays(batch: pa.RecordBatch) -> list[np.ndarray]:
    """Return the columns of a batch as arrays. Columns must be numbers or booleans without NULL."""
    return [_array(column) for column in batch.columns]


def _array(column: pa.Array) -> np.ndarray:
    """Copy a column into an array, so that the batch can be released."""
    import numpy as np

    if str(column.type) != "bool":
        return np.array(np.from_dlpack(column))
    bits = np.unpackbits(np.frombuffer(column.buffers()[1], dtype=np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)].view(bool)


def _selected(rows: dict[str, np.ndarray], column: str, kind: str, values: Sequence[Any]) -> str:
    """Add a column to `rows` as arrays without NULL. Return a SQL expression for its values."""
    import numpy as np

    if kind == "VARCHAR":  # few distinct texts
        number_by_text = {
            text: number for number, text in enumerate(dict.fromkeys(v for v in values if v is not None), 1)
        }
        rows[column] = np.array([0 if value is None else number_by_text[value] for value in values])
        texts = ", ".join(map(quoted, number_by_text))
        return f'list_extract(CAST([{texts}] AS VARCHAR[]), "{column}")'  # NULL for 0: elements count from 1
    filled = np.array([False if value is None else value for value in values])
    rows[column] = filled.astype(_ARRAYS[kind], casting="same_kind")
    rows[f"{column}?"] = np.array([value is None for value in values])
    return f'CASE WHEN NOT "{column}?" THEN "{column}" END'
