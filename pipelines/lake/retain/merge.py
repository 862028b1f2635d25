"""The writing of one batch's files from the files of several batches (compaction.py)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from pipelines.base import database
from pipelines.lake.commit.manifest import Entry
from pipelines.lake.commit.parquet import options, write_tables
from pipelines.lake.lake import Lake, Staged
from pipelines.lake.names import MARK, REJECTS, Batch, table_file
from pipelines.models.sqltext import parquet_rows, quoted

if TYPE_CHECKING:
    import pyarrow as pa

ORDER_OF_DIGEST = "ORDER BY ALL"
"""The order of rows, by trace or capture id, and then by the other columns.

The id is each table's first column. Values of windows and traces repeat in this order, so the rows compress better.
"""
_GIGABYTES = 2


class MergeFailed(Exception):
    """A merged file whose rows differ from the rows of its source files. No file was moved into place."""


def merged_files(
    con: duckdb.DuckDBPyConnection, lake: Lake, group: Sequence[Entry], merged: Batch, folder: Path
) -> tuple[dict[str, Staged], dict[str, str | None]]:
    """Write each table of a group of batches as one file in `folder`. Return the files, and the traces' source paths.

    Except for `rejects`, the batches have the same tables of the same versions. Rows that no marker commits are
    skipped. Raise MergeFailed, duckdb.IOException or OSError.
    """
    keys, keys_by_batch = begin_merge(con, lake, group, folder)
    of_digest = any(entry.kind.is_digest for entry in group)
    staged = {}
    for table in sorted({name for entry in group for name in entry.kind.places}):
        target = folder / f"{table}.parquet"
        failures = [failure for entry in group for failure in entry.failures.get(table, ()) if failure.trace_id in keys]
        version = next((v for entry in group if (v := entry.kind.versions.get(table))), None)
        if table == "events":
            write_tables(_events(_files(lake, group, table), keys_by_batch, merged), target)
        else:
            rows = merged_rows(lake, group, table, merged, of_digest)
            con.execute(f"COPY ({rows}) TO {quoted(target)} ({options(version, failures, of_digest)})")
        n_rows = _count(con, quoted(target))
        expected = con.execute(f"SELECT count(*) FROM ({committed(lake, group, table)})").fetchall()[0][0]
        if n_rows != expected:
            raise MergeFailed(f"{table}: {n_rows:,} of {expected:,} rows were written for {merged.batch_id}")
        staged[table] = Staged(target, n_rows, tuple(failures), version)
    return staged, keys


def begin_merge(
    con: duckdb.DuckDBPyConnection, lake: Lake, group: Sequence[Entry], folder: Path
) -> tuple[dict[str, str | None], dict[str, list[str]]]:
    """Create the table `mark` of the group's traces. Return the traces' source paths, and the traces by batch.

    Raise MergeFailed if a trace is in two of the batches.
    """
    con.execute(f"SET memory_limit = '{database.at_most(_GIGABYTES)}'")
    con.execute(f"SET temp_directory = {quoted(folder / 'spill')}")
    con.execute("SET preserve_insertion_order = false")
    marks = _files(lake, group, MARK)
    con.execute(f"CREATE TABLE mark AS SELECT trace_id, path, batch_id FROM {_read(marks)}")
    keys: dict[str, str | None] = {}
    keys_by_batch: defaultdict[str, list[str]] = defaultdict(list)
    for trace_id, path, batch_id in con.execute("SELECT trace_id, path, batch_id FROM mark").fetchall():
        keys[trace_id] = path
        keys_by_batch[batch_id].append(trace_id)
    if len(keys) != _count(con, "mark"):
        raise MergeFailed(f"a trace is in two of the batches {', '.join(path.stem for path in marks)}")
    return keys, keys_by_batch


def _files(lake: Lake, group: Sequence[Entry], table: str) -> list[Path]:
    return [table_file(lake.root, table, entry.batch) for entry in group if table in entry.kind.places]


def _read(files: Sequence[Path]) -> str:
    return parquet_rows(files, "union_by_name = true")


def _count(con: duckdb.DuckDBPyConnection, source: str) -> int:
    return con.execute(f"SELECT count(*) FROM {source}").fetchall()[0][0]


def committed(lake: Lake, group: Sequence[Entry], table: str) -> str:
    """Return the SELECT of a table's rows of traces in table `mark`, or of all rows of `rejects`."""
    rows = f"SELECT * FROM {_read(_files(lake, group, table))}"
    return rows if table in (MARK, REJECTS) else f"{rows} SEMI JOIN mark USING (trace_id, batch_id)"


def merged_rows(lake: Lake, group: Sequence[Entry], table: str, merged: Batch, of_digest: bool = False) -> str:
    """Return the SELECT of the `committed` rows as rows of the merged batch. `of_digest`: sort by ORDER_OF_DIGEST."""
    rows, batch = committed(lake, group, table), f"{quoted(merged.batch_id)} AS batch_id"
    if table == REJECTS:
        return f"SELECT * REPLACE ({batch}) FROM ({rows}) ORDER BY seen_at"
    if table == MARK:
        batch = f"coalesce(ingest_batch_id, batch_id) AS ingest_batch_id, {batch}"
    # Sort, so that readers find a trace's row groups by their bounds.
    order = ORDER_OF_DIGEST if of_digest else "ORDER BY trace_id"
    return f"SELECT * REPLACE ({batch}) FROM ({rows}) {order}"


def _events(files: Sequence[Path], keys_by_batch: Mapping[str, list[str]], merged: Batch) -> Iterator[pa.Table]:
    """Yield the row groups of all files with the id of the merged batch, ordered by trace, one in memory at a time.

    A file may have events of a trace that another batch committed first, so only the keys of the file's batch count.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet

    groups = sorted(group for path in files for group in _row_groups(path))
    schema = pa.unify_schemas([parquet.read_schema(path).remove_metadata() for path in files])
    yield schema.empty_table()
    for _, path, number in groups:
        with parquet.ParquetFile(path) as file:
            rows = file.read_row_group(number)
        for name in set(schema.names) - set(rows.column_names):
            rows = rows.append_column(name, pa.nulls(len(rows), schema.field(name).type))
        rows = rows.select(schema.names).cast(schema)
        keys = pa.array(keys_by_batch[path.stem], rows["trace_id"].type)
        rows = rows.filter(pc.is_in(rows["trace_id"], keys))  # pyright: ignore[reportAttributeAccessIssue]
        field = schema.field("batch_id")
        ids = pa.repeat(pa.scalar(merged.batch_id, field.type), len(rows))
        yield rows.set_column(schema.names.index("batch_id"), field, ids)


def _row_groups(path: Path) -> Iterator[tuple[str, Path, int]]:
    """Yield (minimum trace_id, path, index) of each row group of a file. The row groups are sorted by trace_id."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        column = file.schema_arrow.names.index("trace_id")
        for number in range(file.num_row_groups):
            statistics = file.metadata.row_group(number).column(column).statistics
            yield (statistics.min if statistics is not None and statistics.has_min_max else ""), path, number
