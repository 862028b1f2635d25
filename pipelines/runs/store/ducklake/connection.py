"""A DuckLake at an address, with connections for reading and for writing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import duckdb

from pipelines.runs.store.ducklake.address import Address, parse_address
from pipelines.runs.store.ducklake.attach import attach, data_of
from pipelines.runs.store.ducklake.schema import check_format
from pipelines.runs.store.interface import StoreError

TRIES = 8
"""Maximum number of attempts for a transaction that conflicts with other transactions on the same tables."""


class DuckLake:
    """A DuckLake. Each call opens a new connection."""

    def __init__(self, address: str, data: str | None = None) -> None:
        """Parse the address without connecting. Raise StoreError for an invalid address."""
        self.parsed: Address = parse_address(address, data)

    @property
    def address(self) -> str:
        """See Store."""
        return self.parsed.text

    def reader(
        self, config: Mapping[str, Any] | None = None, settings: Mapping[str, str] | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Return a read-only connection with the DuckLake attached as `lake`. The caller closes it.

        Raise StoreError.
        """
        return self._checked(attach(self.parsed, read_only=True, config=config, settings=settings))

    def writer(self) -> duckdb.DuckDBPyConnection:
        """Return a connection that may write, with the DuckLake attached as `lake`. The caller closes it."""
        con = attach(self.parsed, read_only=False)
        if not self.parsed.data:
            self.parsed = replace(self.parsed, data=data_of(con))
        return self._checked(con)

    def _checked(self, con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        try:
            check_format(con, self.address)
        except BaseException:
            con.close()
            raise
        return con

    def conflict(self) -> StoreError:
        """Return the error for a transaction that conflicted with other transactions TRIES times."""
        return StoreError(f"{self.address}: other writers changed the same tables {TRIES} times; try again")
