"""Model failures, which record the traces missing from tables, and the models that ran with the optimizer off.

They are recorded with each file (manifest.py), and readers see them as table model_failures.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from pipelines.base import database
from pipelines.lake.commit.batch_rows import LEFT_OUT, Failure, memory_mib
from pipelines.lake.commit.manifest import Entry, shown
from pipelines.lake.lake import Lake
from pipelines.lake.names import MARK
from pipelines.models.sqltext import row

FAILURES = "model_failures"
ALL = f"SELECT * FROM {FAILURES}"
_COLUMNS = ("trace_id", "table_name", "model", "reason", "outcome", "batch_id")
_ROWS = 500
_SHOWN, _TABLES = 10, 5


@dataclass(frozen=True)
class LeftOut:
    """A trace that is missing from tables, because a model that they need failed on it."""

    trace_id: str
    file: str
    batch_id: str
    model: str
    reason: str
    tables: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Return a sentence on the tables without the trace and the reason. It has no full stop."""
        more = len(self.tables) - _TABLES
        names = ", ".join(self.tables[:_TABLES]) + (f" and {more} more table{'s' * (more > 1)}" if more > 0 else "")
        verb = "lacks" if len(self.tables) == 1 else "lack"
        return (
            f"{names} {verb} trace {self.trace_id} ({self.file}): the model {self.model} failed on it ({self.reason})"
        )


def lacking(entries: Mapping[str, Entry]) -> dict[tuple[str, str], list[str]]:
    """Return the tables from which a trace is missing because a model failed on it, by (trace id, batch id)."""
    tables: dict[tuple[str, str], list[str]] = {}
    for name, entry in entries.items():
        for table, failures in sorted(entry.failures.items()):
            for failure in failures:
                if failure.trace_id is not None and failure.outcome == LEFT_OUT:
                    tables.setdefault((failure.trace_id, name), []).append(table)
    return tables


def add_failures(con: duckdb.DuckDBPyConnection, entries: Mapping[str, Entry], batches: Iterable[str]) -> None:
    """Insert the failures of the batches with these ids into the table model_failures. `entries`: batches by id."""
    names = sorted(entries.keys() & set(batches))
    rows = [values for name in names for values in failure_rows(name, entries[name].failures)]
    for first in range(0, len(rows), _ROWS):
        con.execute(f"INSERT INTO {FAILURES} VALUES {', '.join(rows[first : first + _ROWS])}")


def failure_rows(batch_id: str, failures: Mapping[str, Iterable[Failure]]) -> list[str]:
    """Return the rows of table model_failures for a batch, as SQL. `failures`: the failures by table."""
    return [
        row([failure.trace_id, table, failure.model, failure.reason, failure.outcome, batch_id])
        for table, of_table in sorted(failures.items())
        for failure in of_table
    ]


def drop_hidden_failures(con: duckdb.DuckDBPyConnection) -> None:
    """Delete the failures of traces that `con` does not show, because they were superseded or forgotten."""
    shown_traces = f"SELECT (trace_id, batch_id) FROM {MARK}"
    con.execute(f"DELETE FROM {FAILURES} WHERE trace_id IS NOT NULL AND (trace_id, batch_id) NOT IN ({shown_traces})")


def left_out(con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> list[LeftOut]:
    """Return the traces missing from these tables, ordered by file. `con` has model_failures and traces."""
    rows = con.execute(
        f"SELECT t.trace_id, t.path, t.batch_id, f.model, f.reason, list(f.table_name ORDER BY f.table_name) "
        f"FROM {FAILURES} AS f JOIN {MARK} AS t USING (trace_id, batch_id) "
        f"WHERE f.outcome = '{LEFT_OUT}' AND f.table_name IN {row(['', *tables])} "
        "GROUP BY ALL ORDER BY t.path, t.trace_id, f.model"
    ).fetchall()
    return [LeftOut(trace, path, batch, model, why, tuple(names)) for trace, path, batch, model, why, names in rows]


def left_out_of(lake: Lake, tables: Iterable[str]) -> list[LeftOut]:
    """Return `left_out` of a folder lake in its current state, without its analysts' file.

    Raise BrokenFiles if a model failed on any trace, and a file of `traces` is missing or damaged.
    """
    if not _any_left_out(lake):
        return []
    with lake.connect([MARK]) as con:
        _add_all_failures(con, lake)
        return left_out(con, tables)


def sentences(left: Sequence[LeftOut]) -> list[str]:
    """Return a line for each trace and model, at most _SHOWN, and a last line with the number of omitted lines."""
    more = len(left) - _SHOWN
    return [*(failure.sentence for failure in left[:_SHOWN]), *([f"and {more:,} more: {ALL}"] if more > 0 else [])]


def ways_out(left: Sequence[LeftOut], address: str) -> list[str]:
    """Return hints for completing the tables, each with a command to copy. `address`: the address of the lake."""
    if not left:
        return []
    lake = shlex.quote(address)
    tables = " ".join(sorted({table for failure in left for table in failure.tables}))
    ways = [f"To compute them again: tracelake materialize {tables} --force --lake {lake}"]
    if max_mib := max(memory_mib(failure.reason) for failure in left):
        more = f"For models that need more memory, set {database.MEMORY} to more than {max_mib} (MiB) first"
        ways.append(f"{more}, or profile fewer steps")
    return [*ways, f"To remove such a trace from the lake: tracelake forget {left[0].trace_id} --lake {lake}"]


def failures_of(lake: Lake, table: str) -> list[str]:
    """Return the `caveats` of a table without reading an analysts' file. Raise BrokenFiles as `left_out_of` does."""
    if not _any_left_out(lake):
        return []
    with lake.connect([MARK]) as con:
        _add_all_failures(con, lake)
        drop_hidden_failures(con)
        return caveats(con, [table])


def _any_left_out(lake: Lake) -> bool:
    entries = [entry for entry in shown(lake.root).values() if MARK in entry.kind.places]
    by_table = (failures for entry in entries for failures in entry.failures.values())
    return any(failure.outcome == LEFT_OUT for failures in by_table for failure in failures)


def _add_all_failures(con: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    con.execute(f"CREATE TEMP TABLE {FAILURES} ({', '.join(f'{column} VARCHAR' for column in _COLUMNS)})")
    add_failures(con, shown(lake.root), [batch.batch_id for batch in lake.batches()])


def caveats(con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> list[str]:
    """Return a sentence for each of these tables with missing traces. Read table model_failures in `con`."""
    rows = con.execute(
        f"SELECT table_name, count(DISTINCT trace_id), min(trace_id), min_by(model, trace_id), min_by(reason, trace_id) "
        f"FROM {FAILURES} WHERE outcome = '{LEFT_OUT}' AND table_name IN {row(['', *tables])} GROUP BY 1 ORDER BY 1"
    ).fetchall()
    return [
        f"{table} lacks {n} trace{'s' if n > 1 else ''}, such as {trace_id}, on which the model {model} failed "
        f"({reason}): {ALL}"
        for table, n, trace_id, model, reason in rows
    ]
