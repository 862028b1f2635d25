"""The lake: immutable Parquet files by table, day and batch; which of them are committed; the analysts' DuckDB file."""

from pipelines.lake.layout import Batch
from pipelines.lake.store import Lake

__all__ = ["Batch", "Lake"]
