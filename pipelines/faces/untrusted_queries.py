"""Untrusted queries on a lake: on the locked connection, within limits, with the caveats of their answers.

`tracelake serve` and `tracelake mcp` use this module. It computes no tables. If tables are missing or outdated, the
answer carries a caveat.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.errors import TracelakeError
from pipelines.faces.cells import Cutter, Rows
from pipelines.faces.limiting_findings import caveats_of_query
from pipelines.lake.commit.model_failures import caveats
from pipelines.lake.read.query_tables import tables_read
from pipelines.lake.read.sandbox import (
    Answer,
    Limits,
    LockedLake,
    QueryStopped,
    connect_parser,
    refuse_but_reading,
)
from pipelines.runs.store import open_store

_PART = 500  # rows fetched at a time


class QueryFailed(TracelakeError):
    """Raised if a query has no answer. The message states why, `hint` what to do."""


@dataclass(eq=False)
class LakeQuery:
    """A query on a lake (a folder, or the address of a DuckLake). Any thread may call `stop`."""

    lake: Path | str
    query: str
    limits: Limits = field(default_factory=Limits)
    without_broken: bool = False  # answer without missing or damaged files, and name them
    is_of_user: bool = False  # the caveats include the findings about the traces and captures that the query reads
    needs_all: bool = False  # refuse to answer from tables that are not computed yet for all traces
    is_stopped: bool = False
    _locked: LockedLake | None = None

    def stop(self) -> None:
        """Stop the query, so that `answer` raises QueryStopped, now or when it is called."""
        self.is_stopped = True
        if self._locked is not None:
            self._locked.stop()

    @contextmanager
    def answer(self) -> Iterator[tuple[Answer, list[str]]]:
        """Yield the answer, to be read inside the block, and its caveats.

        Raise TracelakeError for every error of the query, the lake or the system, including QueryStopped.
        """
        with errors_as_sentences(), connect_parser() as parser:
            refuse_but_reading(self.query, parser)
            tables = tables_read(self.query, parser)
        with errors_as_sentences():
            self._not_if_stopped()
            store = open_store(self.lake, without_broken=self.without_broken)
            requested = store.asked(tables)
            lacks = requested.lacks()
            if self.needs_all and (missing := lacks[len(requested.skipped) :]):
                reason, _, how = missing[0].partition("; ")
                raise QueryFailed(reason, how[:1].upper() + how[1:])
            with LockedLake(lambda settings: store.connect(settings, tables=tables), self.limits) as locked:
                self._locked = locked
                self._not_if_stopped()
                notes = [
                    *lacks,
                    *requested.reduced,
                    *caveats(locked.con, requested.read),
                    *store.outdated(locked.con, tables),
                    *(caveats_of_query(locked, self.query) if self.is_of_user else ()),
                ]
                with locked.asked(self.query) as result:
                    assert result is not None  # a read-only statement has an answer
                    yield result, notes

    def _not_if_stopped(self) -> None:
        if self.is_stopped:
            raise QueryStopped("the query was stopped")


def first_rows(answer: Answer, most: int, most_bytes: int, longest: int = sys.maxsize) -> Rows:
    """Return up to `most` rows and about `most_bytes` bytes of text of an answer, without computing further rows.

    The text is that of the cells as sent, each cut to `longest` characters. A number counts as 8 bytes.
    """
    rows: list[tuple[Any, ...]] = []
    size, cutter = 0, Cutter(longest)
    for part in answer.parts(min(_PART, most + 1)):
        for row in part:
            size += sum(len(cell) if isinstance(cell, str) else 8 for cell in map(cutter.cell, row))
            if len(rows) == most:
                return Rows(answer.columns, answer.types, rows, f"{_first(most)}; there are more")
            if size > most_bytes and rows:
                reason = f"{_first(len(rows))}; there are more, and these are {most_bytes / 1e6:g} MB of text"
                return Rows(answer.columns, answer.types, rows, reason)
            rows.append(row)
    return Rows(answer.columns, answer.types, rows, "")


def _first(n: int) -> str:
    return f"the first {n:,} rows" if n > 1 else "the first row"


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Translate errors of DuckDB and the system to QueryFailed. A TracelakeError passes unchanged."""
    try:
        yield
    except TracelakeError:
        raise
    except (duckdb.Error, ValueError) as error:
        raise QueryFailed(str(error)) from None
    except OverflowError:  # an INTERVAL beyond Python's timedelta, in which a month is a number of days
        raise QueryFailed(
            "a value of the answer, such as an interval, is too large", "Convert it to text: CAST(… AS VARCHAR)."
        ) from None
    except MemoryError:
        raise QueryFailed("the query needs more memory than this program may use: raise --memory") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise QueryFailed(f"{error.filename}: {reason}" if error.filename else reason) from None


def default_memory(queries: int) -> str:
    """Return a memory limit per query for `queries` concurrent queries. Together they may use DuckDB's default limit."""
    return f"{memory_bytes() // queries >> 20}MiB"


def memory_bytes(size: str = "") -> int:
    """Return a memory limit in DuckDB's notation as bytes, rounded as DuckDB prints it.

    "" means DuckDB's default. Raise WrongValue if `size` is not a size.
    """
    with database.connect() as con:
        database.change_settings(con, {"memory_limit": size} if size else {})
        return database.limit_bytes(con)


def bound_process(memory: str, queries: int) -> None:
    """Limit the memory of this process if the system allows it, because DuckDB's limit does not count long texts.

    A query that needs more fails, and the process continues. `memory`: limit of each of `queries` concurrent queries.
    """
    overhead = (1 << 30) + (16 << 20) * queries * (os.cpu_count() or 1)  # bytes for Python, Arrow and thread stacks
    max_bytes = memory_bytes(memory) * queries + overhead
    # ValueError if an administrator's limit is lower. OverflowError if `memory` is `none` or -1, which mean no limit.
    with suppress(ValueError, OSError, OverflowError):
        resource.setrlimit(resource.RLIMIT_DATA, (max_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))
