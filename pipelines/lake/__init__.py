"""The lake: immutable Parquet files by table, day and batch; what is committed; the analysts' view of it."""

from pipelines.lake.layout import Batch
from pipelines.lake.store import Lake

__all__ = ["Batch", "Lake"]
