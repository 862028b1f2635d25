"""Parquet files of an input's rows in a private folder, written with a bounded number of rows in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pyarrow.parquet as pq

AT_ONCE = 50_000
Columns = Mapping[str, Mapping[str, pa.DataType]]


class RowFiles:
    """Writer of one Parquet file per table that has rows. The files are complete when the `with` block ends.

    `columns`: names and types by table, as sql/ingest/<table>.sql reads them.
    """

    def __init__(self, folder: Path, columns: Columns) -> None:
        self._folder, self._columns = folder, columns
        self._rows: dict[str, list[Sequence[Any]]] = {table: [] for table in columns}
        self._counts = dict.fromkeys(columns, 0)
        self._writers: dict[str, pq.ParquetWriter] = {}

    def __enter__(self) -> RowFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        for table in self._columns if kind is None else ():
            self._flush(table)
        for writer in self._writers.values():
            writer.close()

    def add(self, table: str, row: Sequence[Any]) -> None:
        """Add a row, in the order of the table's columns."""
        rows = self._rows[table]
        rows.append(row)
        self._counts[table] += 1
        if len(rows) >= AT_ONCE:
            self._flush(table)

    def count(self, table: str) -> int:
        """Return the number of rows that were added to the table."""
        return self._counts[table]

    def paths(self, table: str) -> list[Path]:
        """Return a list of the table's file, or [] if it has no rows."""
        return [self._path(table)] if table in self._writers else []

    def _path(self, table: str) -> Path:
        return self._folder / f"{table}.parquet"

    def _flush(self, table: str) -> None:
        rows, columns = self._rows[table], self._columns[table]
        if not rows:
            return
        arrays = [
            pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), columns.values(), strict=True)
        ]
        import pyarrow.parquet as pq  # imports ssl; most runs have no such files

        batch = pa.record_batch(arrays, names=list(columns))
        if table not in self._writers:
            self._writers[table] = pq.ParquetWriter(self._path(table), batch.schema)
        self._writers[table].write_batch(batch)
        rows.clear()
