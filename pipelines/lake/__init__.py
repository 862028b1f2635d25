"""The lake: immutable Parquet files by table, day and batch, the catalog of commits, and the analysts' DuckDB file."""

from typing import TYPE_CHECKING, Any

from pipelines.lake.names import Batch

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake

__all__ = ["Batch", "Lake"]


def __getattr__(name: str) -> Any:
    """Import `Lake` on first access, because a command that reads a single file does not need it."""
    if name != "Lake":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipelines.lake.lake import Lake

    return Lake
