"""The lake: immutable Parquet files a table, a day and a batch; what is committed; the analysts' view of it."""

from pipelines.lake.layout import Batch
from pipelines.lake.store import Lake

__all__ = ["Batch", "Lake"]
