"""The lake: immutable Parquet files by table, day and batch; which of them are committed; the analysts' DuckDB file."""

from typing import TYPE_CHECKING, Any

from pipelines.lake.names import Batch

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake

__all__ = ["Batch", "Lake"]


def __getattr__(name: str) -> Any:
    """`Lake`, imported when it is asked for: a command that reads one file needs none."""
    if name != "Lake":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipelines.lake.lake import Lake

    return Lake
