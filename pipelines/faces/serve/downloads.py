"""A query's answer as a CSV or Parquet file, written while it is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

from pipelines.base.foreign_text import visible
from pipelines.faces.untrusted_queries import LakeQuery, errors_as_sentences
from pipelines.lake.read.export import csv_parts, parquet_parts

CAVEATS = "Tracelake-Caveats"
"""The response header with the caveats of a download: a list in JSON."""
_LONGEST_HEADER = 4_000
KINDS = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


class Download:
    """A query that stays open until `close`. Different threads may call its methods, one at a time."""

    def __init__(self, asking: LakeQuery, kind: str, for_spreadsheet: bool) -> None:
        """Prepare the download of a query. `kind`: csv or parquet."""
        self.asking, self.kind, self.for_spreadsheet = asking, kind, for_spreadsheet
        self._open = ExitStack()
        self.parts: Iterator[bytes] = iter(())
        self._caveats: list[str] = []

    def first(self) -> bytes:
        """Start the query and return the first part. Raise the errors of LakeQuery.answer, before anything is sent."""
        try:
            self._open.enter_context(errors_as_sentences())
            answer, self._caveats = self._open.enter_context(self.asking.answer())
            self.parts = parquet_parts(answer) if self.kind == "parquet" else csv_parts(answer, self.for_spreadsheet)
            return next(self.parts, b"")
        except BaseException as error:
            # The contexts translate the error, as they do at the end of a `with` block.
            self._open.__exit__(type(error), error, error.__traceback__)
            raise

    def headers(self) -> dict[str, str]:
        """Return the header with the caveats, or {} without caveats.

        Call it after `first`. Caveats that do not fit are counted.
        """
        shown = [visible(caveat) for caveat in self._caveats]
        listed, n_more = json.dumps(shown), 0
        while len(listed) > _LONGEST_HEADER:
            n_more += 1
            counted = f"{n_more:,} more caveat{'s' * (n_more > 1)}: run the query"
            listed = json.dumps([*shown[: len(shown) - n_more], counted])
        return {CAVEATS: listed} if shown else {}

    def close(self) -> None:
        """End the download's query."""
        self._open.close()
