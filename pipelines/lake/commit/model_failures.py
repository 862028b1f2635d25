"""Where models failed: which traces tables lack for it, and which they have because the model was run in another way.
Recorded with each file (manifest.py), shown as model_failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import duckdb

from pipelines.base import database
from pipelines.lake.commit.batch_rows import LEFT_OUT
from pipelines.lake.commit.manifest import Entry, shown
from pipelines.lake.lake import Lake
from pipelines.models.sqltext import quoted, row

FAILURES = "model_failures"
_COLUMNS = ("trace_id", "table_name", "model", "reason", "outcome", "batch_id")
_ROWS = 500


def add_failures(con: duckdb.DuckDBPyConnection, entries: Mapping[str, Entry], batches: Iterable[str]) -> None:
    """Add the rows of committed batches of these ids to the table model_failures. `entries`: what the logs say."""
    rows = [
        row([one.trace_id, table, one.model, one.reason, one.outcome, name])
        for name in sorted(entries.keys() & set(batches))
        for table, failures in sorted(entries[name].failures.items())
        for one in failures
    ]
    for first in range(0, len(rows), _ROWS):
        con.execute(f"INSERT INTO {FAILURES} VALUES {', '.join(rows[first : first + _ROWS])}")


def failures_of(lake: Lake, table: str) -> list[str]:
    """Returns `caveats` of a table, without an analysts' file."""
    with database.scratch() as con:
        con.execute(f"CREATE TEMP TABLE {FAILURES} ({', '.join(f'{column} VARCHAR' for column in _COLUMNS)})")
        add_failures(con, shown(lake.root), [batch.batch_id for batch in lake.batches()])
        return caveats(con, [table])


def caveats(con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> list[str]:
    """Returns a sentence for each of these tables that lacks traces, from the analysts' file."""
    listed = ", ".join(quoted(table) for table in tables) or "''"
    found = con.execute(
        f"SELECT table_name, count(DISTINCT trace_id), min(trace_id), min_by(model, trace_id), min_by(reason, trace_id) "
        f"FROM {FAILURES} WHERE outcome = '{LEFT_OUT}' AND table_name IN ({listed}) GROUP BY 1 ORDER BY 1"
    ).fetchall()
    return [
        f"{table} lacks {n} trace{'s' if n > 1 else ''}, such as {trace_id}, on which the model {model} failed "
        f"({reason}): SELECT * FROM {FAILURES} tells all"
        for table, n, trace_id, model, reason in found
    ]
