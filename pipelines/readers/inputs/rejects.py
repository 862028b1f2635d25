"""Reason for a file's rejection, from the error that was raised. Errors that a file did not cause are re-raised."""

from __future__ import annotations

import errno

import duckdb

from pipelines.base.database import WrongDuckDB
from pipelines.base.stopping import raise_if_stopped
from pipelines.lake.commit.staged_rows import unforeseen
from pipelines.models.errors import CatalogError
from pipelines.models.sqltext import first_line
from pipelines.readers.origin import WrongPattern

LAKE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def reason_of(error: Exception) -> str:
    """Return the reason for `rejects`.

    Raise the error if the lake's disk, the environment or tracelake's rules cause it.
    """
    raise_if_stopped(error)
    if isinstance(error, WrongPattern | CatalogError | WrongDuckDB):
        raise error
    if isinstance(error, OSError):
        if error.errno in LAKE_ERRNOS:
            raise error
        return f"cannot be read: {error.strerror or error}"
    if isinstance(error, duckdb.Error):
        return f"DuckDB cannot read it: {first_line(error)}"
    return unforeseen(error)  # a bug in tracelake that this file reveals; the other files are still ingested
