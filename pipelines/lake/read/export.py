"""The export of answers as CSV or Parquet in parts, so that memory holds only one part of any number of rows."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from pipelines.base.errors import WrongValue
from pipelines.base.foreign_text import in_spreadsheet
from pipelines.lake.read.sandbox import Answer

_ROWS = 20_000  # rows per part and per Parquet row group; about 20 MB with the arguments of events


def csv_parts(answer: Answer, for_spreadsheet: bool) -> Iterator[bytes]:
    """Yield the rows as CSV with a header. `for_spreadsheet`: whether to apply `in_spreadsheet`.

    Raise WrongValue for columns that `check_types` refuses.
    """
    import pyarrow.csv

    reader = answer.arrow_parts(_ROWS)
    check_types(reader.schema, "CSV")
    sink = _Sink()
    first = True
    for batch in _or_none(reader):
        table = pa.table(batch)
        table = texts_as(in_spreadsheet, table) if for_spreadsheet else table
        pyarrow.csv.write_csv(table, sink, pyarrow.csv.WriteOptions(include_header=first))
        first = False
        yield sink.taken()


def check_types(schema: pa.Schema, format: str) -> None:
    """Raise WrongValue if a column's type is not possible in `format` ("CSV" or "Parquet").

    CSV has no lists, structs or intervals. Parquet has no intervals.
    """
    import pyarrow.csv
    import pyarrow.parquet

    write, other = {
        "CSV": (pyarrow.csv.write_csv, "; Parquet holds lists and structs"),
        "Parquet": (pyarrow.parquet.write_table, ""),
    }[format]
    for field in schema:
        try:
            write(pa.table([pa.nulls(1, field.type)], [field.name]), io.BytesIO())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise WrongValue(
                f"{format} cannot hold the column {field.name}, which is of type {field.type}: convert it, "
                f"CAST(… AS VARCHAR){other}"
            ) from None


def parquet_parts(answer: Answer) -> Iterator[bytes]:
    """Yield the rows as the bytes of a Parquet file. Raise WrongValue for columns that `check_types` refuses."""
    import pyarrow.parquet

    reader, sink = answer.arrow_parts(_ROWS), _Sink()
    check_types(reader.schema, "Parquet")
    with pyarrow.parquet.ParquetWriter(sink, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()  # the footer


def texts_as(written: Callable[[Any], Any], table: pa.Table) -> pa.Table:
    """Return the table with its text values and column names passed through `written`."""
    columns = [
        pa.array([None if text is None else written(text) for text in column.to_pylist()], pa.string())
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=[written(name) for name in table.column_names])


def _or_none(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a reader, or one empty batch if it has no batches, so that the header is written."""
    batch = None
    for batch in reader:
        yield batch
    if batch is None:
        yield pa.RecordBatch.from_pylist([], schema=reader.schema)


class _Sink(io.RawIOBase):
    """A write-only file in memory, from which `taken` removes the bytes that it returns."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[bytes] = []
        self._at = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._kept.append(bytes(data))
        self._at += len(self._kept[-1])
        return len(self._kept[-1])

    def tell(self) -> int:
        return self._at

    def taken(self) -> bytes:
        chunks, self._kept = self._kept, []
        return b"".join(chunks)
