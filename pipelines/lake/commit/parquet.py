"""The Parquet files of a lake, with zstd, row groups of one trace, statistics on filter columns, and page checksums."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.lake.names import DIGEST, VERSION_KEY
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.lake.commit.batch_rows import Failure

FAILURES_KEY = "tracelake_failures"  # metadata key of a file's model failures
# A digest is written once and kept for years, so its size counts. Bloom filters take a tenth of a digest of ten small
# traces. They save a reader at most 0.2 ms per file, because the catalog names the files of a trace.
_SMALLEST = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 19, WRITE_BLOOM_FILTER false"

# Arguments and times rarely repeat, so attempting dictionary encoding on them costs more than it saves.
_DIRECT = ("event_id", "start_ns", "duration_ns", "end_ns", "args", "correlation", "external_id", "flow_id", "extra")
_STATISTICS = (
    "trace_id",
    "batch_id",
    "event_id",
    "ph",
    "cat",
    "start_ns",
    "duration_ns",
    "end_ns",
    "correlation",
    "stream",
)


def options(version: str | None, failures: Iterable[Failure], of_digest: bool = False) -> str:
    """Return the options of a COPY to a file of the lake.

    The file's footer stores the version and the failures, from which a lost catalog is rebuilt. `of_digest`: whether
    the file is part of a digest. Files with the version DIGEST always are.
    """
    metadata = {VERSION_KEY: version} if version else {}
    if failed := [astuple(failure) for failure in failures]:
        metadata[FAILURES_KEY] = json.dumps(failed)
    listed = ", ".join(f"{key}: {quoted(value)}" for key, value in metadata.items())
    form = _SMALLEST if of_digest or version == DIGEST else "FORMAT parquet, COMPRESSION zstd"
    return form + (f", KV_METADATA {{{listed}}}" if listed else "")


def write_tables(tables: Iterable[pa.Table], target: Path, compression: str = "zstd") -> None:
    """Write tables of one schema into a file, one row group per table.

    An empty table provides the schema but adds no row group.
    """
    writer = None
    try:
        for table in tables:
            if writer is None:
                from pyarrow import parquet

                names = table.schema.names  # pyarrow accepts lists of names below, although its stubs declare only bool
                writer = parquet.ParquetWriter(
                    target,
                    table.schema,
                    compression=compression,
                    write_page_checksum=True,
                    use_dictionary=[name for name in names if name not in _DIRECT],  # pyright: ignore[reportArgumentType]
                    write_statistics=[name for name in _STATISTICS if name in names],  # pyright: ignore[reportArgumentType]
                )
            if table.num_rows:
                writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def join_files(parts: Iterable[Path], target: Path) -> None:
    """Concatenate the row groups of several files into one file, one row group in memory at a time."""
    write_tables(chain.from_iterable(map(row_groups, parts)), target)


def row_groups(path: Path) -> Iterator[pa.Table]:
    """Yield the row groups of a file in order, or an empty table if the file has no row groups."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            yield file.read_row_group(number)
        if not file.num_row_groups:
            yield file.schema_arrow.empty_table()
