"""A query's answer as a file: CSV or Parquet, made while it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from pipelines.faces.asking import Asking, told_as_sentences
from pipelines.lake.read.export import csv_parts, parquet_parts

KINDS = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


class Download:
    """A query that is open until `close`. Its methods may be called from different threads, one at a time."""

    def __init__(self, asking: Asking, kind: str, for_spreadsheet: bool) -> None:
        """`kind`: csv or parquet."""
        self.asking, self.kind, self.for_spreadsheet = asking, kind, for_spreadsheet
        self._open = ExitStack()
        self.parts: Iterator[bytes] = iter(())

    def first(self) -> bytes:
        """Start the query; returns the first part. Raises what Asking.answer raises: nothing has been sent then."""
        try:
            self._open.enter_context(told_as_sentences())
            answer, _ = self._open.enter_context(self.asking.answer())
            self.parts = parquet_parts(answer) if self.kind == "parquet" else csv_parts(answer, self.for_spreadsheet)
            return next(self.parts, b"")
        except BaseException as error:
            # The contexts turn it into a sentence, as they would in a `with` block.
            self._open.__exit__(type(error), error, error.__traceback__)
            raise

    def close(self) -> None:
        """End the query."""
        self._open.close()
