"""Why a file does not go in, from what was raised while it was read; or the error itself, where no file is to blame."""

from __future__ import annotations

import errno

import duckdb

from pipelines.lake.rows import unforeseen
from pipelines.models.errors import CatalogError
from pipelines.origin import WrongPattern
from pipelines.sqltext import first_line

LAKE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def reason_of(error: Exception) -> str:
    """The reason of a row of `rejects`. Raises the error if it is about the lake's disk, the environment or our rules."""
    if isinstance(error, WrongPattern | CatalogError):
        raise error
    if isinstance(error, OSError):
        if error.errno in LAKE_ERRNOS:
            raise error
        return f"cannot be read: {error.strerror or error}"
    if isinstance(error, duckdb.Error):
        return f"DuckDB cannot read it: {first_line(error)}"
    return unforeseen(error)  # a fault of ours that this file brings to light: the others go in
