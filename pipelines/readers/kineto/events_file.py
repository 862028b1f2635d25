"""Conversion of one trace file to a Parquet file of its events, with the reader, `sql/ingest/` and the Parquet writer.

Memory is bounded at about 0.4 GB, whatever the file's size (measured by tests/readers/kineto/test_memory.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from pipelines.base import database
from pipelines.lake.commit.parquet import row_groups, write_tables
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.models.python_tables import create_table, input_table
from pipelines.models.rule_tables import create_rules
from pipelines.models.sqltext import parquet_rows, quoted, row
from pipelines.readers.counter_ranges import CATEGORY, counter_ranges, lacks_counters
from pipelines.readers.foreign_rows import foreign_rows
from pipelines.readers.gpu_row_doubts import gpu_row_doubts
from pipelines.readers.inputs import EventInput
from pipelines.readers.kineto import (
    KnownTrace,
    ReadRequest,
    ReadTrace,
    TraceReader,
    TraceRejected,
    base_of,
    connect_reader,
)
from pipelines.readers.kineto.merged import MergedRank, labels_of, merged_ranks
from pipelines.readers.kineto.numbers import LATEST_NS, LONGEST_NS
from pipelines.readers.lost_work import BY_KINETO, lost_work
from pipelines.readers.origin import unusable_numbers
from pipelines.readers.secrets import masked_text

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 20  # ranks in a message
_FEW_EVENTS = 10_000  # a second thread does not make so few events faster, and sorting them needs no disk
_WITHOUT_PROCESS = "e.cat = 'xpu_sync' AND e.pid = '-1'"
_CALLING_THREADS = (
    "SELECT tid, min(pid) AS pid FROM events WHERE cat = 'xpu_runtime' AND tid IN "
    f"(SELECT e.tid FROM events AS e WHERE {_WITHOUT_PROCESS}) GROUP BY tid HAVING min(pid) = max(pid)"
)
# The median start, ns. Times too far from it become NULL. Times of metadata events are meaningless.
_MIDDLE = "SELECT quantile_disc(start_ns, 0.5) FROM events WHERE ph IS DISTINCT FROM 'M'"


@dataclass(frozen=True)
class _Move:
    """Correction of a trace's times, ns. Add `shift_ns`, and set times too far from the median `middle_ns` to NULL."""

    shift_ns: int
    middle_ns: int | None


def load_events(request: ReadRequest) -> ReadTrace | KnownTrace:
    """Read a trace, and write its rows of `events` to its `events_path`. See EventInput.read.

    A known trace costs one pass of decompressing and hashing. In a lean file, the columns that no model reads are NULL
    (extra, and args except those of metadata events and counter ranges). `request.part`: the label of one rank, for a
    file into which several ranks were merged. Raise TraceRejected, or OSError if the file cannot be read.
    """
    reader = TraceReader(request, _merged_rank(request.path, request.part))
    if reader.trace_id in request.known:
        if request.on_bytes:
            request.on_bytes(request.path.stat().st_size)
        return KnownTrace(reader.trace_id, reader.metadata)
    catalog = load_catalog()
    target = request.events_path(reader.trace_id)
    with _reading() as con:
        _prepare(con, reader)
        texts = () if request.lean else ("args", "extra")
        # Closing a connection that threads still use, as after an interrupt, can crash the process (SIGSEGV).
        with closing(reader.tables(con, catalog.models["events"].sql, texts)) as tables:
            write_tables(map(_lean, tables) if request.lean else tables, target, request.compression)
        return _finished(con, catalog, reader, target)


def _merged_rank(path: Path, label: str | None) -> MergedRank | None:
    """Return the rank of a merged file with this label.

    Without a label, return the file's only rank, or None for a file that is not merged. Raise TraceRejected if no rank
    has this label, or if the file has several ranks and `label` is None.
    """
    ranks = merged_ranks(path)
    if label is None and len(ranks) < 2:
        return ranks[0] if ranks else None
    for rank in ranks:
        if rank.label == label:
            return rank
    labels_text = ", ".join(rank.label for rank in ranks[:_SHOWN])
    message = f"the traces of {len(ranks)} ranks were merged into it: choose one with --process: {labels_text}"
    raise TraceRejected(path, None, message)


def _lean(table: pa.Table) -> pa.Table:
    """Return the table with NULL in the columns that no model reads.

    These are `extra`, and `args` except of metadata events and counter ranges.
    """
    import pyarrow as pa
    from pyarrow import compute

    null_text = pa.nulls(1, pa.string())[0]  # pa.scalar would import pandas, which takes longer than a small trace
    is_metadata = compute.call_function("match_like", [table.column("ph")], compute.MatchSubstringOptions("M"))
    is_range = compute.call_function("match_like", [table.column("cat")], compute.MatchSubstringOptions(CATEGORY))
    is_kept = compute.call_function("or_kleene", [is_metadata, is_range])
    args = _masked(compute.call_function("if_else", [is_kept, table.column("args"), null_text]))
    for name, values in (("args", args), ("extra", pa.nulls(table.num_rows, pa.string()))):
        table = table.set_column(table.schema.get_field_index(name), name, values)
    return table


def _masked(args: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    masked_by_text = {text: masked_text(text) for text in args.unique().to_pylist() if text}
    if all(text == masked for text, masked in masked_by_text.items()):
        return args
    return pa.chunked_array([[masked_by_text.get(text, text) for text in args.to_pylist()]], pa.string())


_idle: list[duckdb.DuckDBPyConnection] = []
"""Connection of the last file, for the next file, because opening one takes longer than reading a small file."""


@contextmanager
def _reading() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection for `TraceReader`, with the rule tables. The next file reuses it if `_cleared` succeeds."""
    try:
        con = _idle.pop()
    except IndexError:
        con = connect_reader()
        _create_rules(con)
    try:
        yield con
    except BaseException:
        con.close()
        raise
    if _idle or not _cleared(con):
        con.close()
    else:
        _idle.append(con)


def _cleared(con: duckdb.DuckDBPyConnection) -> bool:
    """Drop a file's tables and views in a connection. Return False if the connection cannot read another file."""
    try:
        con.execute("DROP TABLE IF EXISTS _begin_end; DROP TABLE IF EXISTS _calling_threads")
        con.execute("DROP VIEW IF EXISTS events; DROP TABLE _ingest_context")
        con.execute("SET threads = 1; SET temp_directory = ''")
    except duckdb.NotImplementedException:  # DuckDB cannot change a temp_directory that was used
        return False
    return True


def _create_rules(con: duckdb.DuckDBPyConnection) -> None:
    catalog = load_catalog()
    for name in catalog.models["events"].dependencies:
        model = catalog.models.get(name)
        if model is not None and model.kind == "rules":
            create_rules(con, model)


@input_table(
    "_ingest_context",
    layer="ingest",
    doc="One row: the trace that is read.",
    columns=(
        ("trace_id", "VARCHAR", "The trace."),
        ("batch_id", "VARCHAR", "Ingest run that writes it."),
        ("base_ns", "BIGINT", "What is added to its times, ns."),
    ),
)
def _prepare(con: duckdb.DuckDBPyConnection, reader: TraceReader) -> None:
    """Create `_ingest_context`, which `sql/ingest/traces/events.sql` reads in addition to `raw_events` and rules."""
    create_table(con, "_ingest_context", "TABLE")
    con.execute(f"INSERT INTO _ingest_context VALUES {row([reader.trace_id, reader.request.batch_id, reader.base_ns])}")


def _finished(con: duckdb.DuckDBPyConnection, catalog: Catalog, reader: TraceReader, part: Path) -> ReadTrace:
    path = reader.request.path
    if reader.n_events > _FEW_EVENTS:
        con.execute("RESET threads")  # the reader threads have ended
        # All begin events are sorted together, which may not fit in memory.
        con.execute(f"SET temp_directory = {quoted(part.with_suffix('.spilled'))}")
    counts = complete(con, catalog, part, base_of(reader.metadata) - reader.base_ns, reader.request.compression)
    if counts and not counts["n_readable"]:
        raise TraceRejected(path, 0, "no element of the array is a readable event; is it a profiler trace?")
    add_findings(reader.add_finding, counts, path, reader.metadata)
    _note_counters(con, reader, counts)
    is_whole = not any(finding.check_name == "truncated" for finding in reader.findings)
    lost = lost_work(con, catalog, BY_KINETO) if is_whole and counts else ()
    doubts = (*gpu_row_doubts(con, catalog), *foreign_rows(con, catalog, counts)) if counts else ()
    return ReadTrace(
        trace_id=reader.trace_id,
        path=path,
        n_events=reader.n_events,
        unpacked_bytes=reader.unpacked_bytes,
        trace_start_ns=counts.get("trace_start_ns"),
        trace_end_ns=counts.get("trace_end_ns"),
        format=reader.format,
        metadata=reader.metadata,
        findings=(*reader.findings, *lost, *doubts, *([reader.part.finding()] if reader.part else [])),
        status=reader.status,
    )


def _note_counters(con: duckdb.DuckDBPyConnection, reader: TraceReader, counts: dict[str, Any]) -> None:
    ranges = counter_ranges(con) if counts.get("n_counter_ranges") else []
    n_counted = sum(counter_range.has_values for counter_range in ranges)
    reader.add_finding("counter_ranges", n_counted)
    reader.add_finding("empty_counter_ranges", len(ranges) - n_counted)
    reader.add_finding("no_counters", lacks_counters(reader.metadata, counts))


def complete(
    con: duckdb.DuckDBPyConnection, catalog: Catalog, part: Path, shift: int, compression: str
) -> dict[str, Any]:
    """Set durations of begin events, shift all times by `shift` ns, and set times too far from the median to NULL.

    Waits on XPU, which Kineto writes with process -1, get the process that calls the runtime on their thread.

    Return the row of `_event_counts`, {} for a trace without events, and `n_pairs`, the number of begin events that
    have their end event, if any begin events exist. `con` gets the part as the view `events`.
    """
    con.execute(f"CREATE VIEW events AS SELECT * FROM {parquet_rows(part)}")
    counts = _counts(con, catalog)
    far_apart = (counts.get("greatest_ts_ns") or 0) - (counts.get("least_ts_ns") or 0) > LONGEST_NS
    if counts.get("n_begins") or counts.get("n_without_process") or shift or far_apart:
        middle = con.execute(_MIDDLE).fetchall()[0][0] if far_apart else None
        _complete(con, catalog, part, _Move(shift, middle), compression)
        counts = _counts(con, catalog)
        if counts:
            counts["n_pairs"] = con.execute("SELECT count(*) FROM _begin_end").fetchall()[0][0]
    return counts


def add_findings(add: Callable[..., Any], counts: dict[str, Any], path: Path, metadata: dict[str, Any]) -> None:
    """Report the faults that counts, file name and metadata show, by calling `add(check, n, place)` for each check."""
    n_pairs = counts.get("n_pairs", 0)  # not min(n_begins, n_ends), because unpaired events may be of two threads
    unusable = unusable_numbers(path, metadata)
    add("unusable_number", len(unusable), ", ".join(unusable))
    add("time_not_a_number", counts.get("n_not_a_number", 0))
    add("time_out_of_range", counts.get("n_out_of_range", 0))
    add("negative_duration", counts.get("n_negative", 0))
    add("sub_nanosecond_time", counts.get("n_sub_nanosecond", 0))
    add("unmatched_begin", counts.get("n_begins", 0) - n_pairs)
    add("unmatched_end", counts.get("n_ends", 0) - n_pairs)


def _counts(con: duckdb.DuckDBPyConnection, catalog: Catalog) -> dict[str, Any]:
    """Return the row of `_event_counts`, {} for a trace without events."""
    return next(iter(database.rows_of(con, catalog.models["_event_counts"].sql)), {})


def _complete(con: duckdb.DuckDBPyConnection, catalog: Catalog, part: Path, move: _Move, compression: str) -> None:
    """Rewrite the part, with the durations of begin events, corrected times, and processes of waits on XPU."""
    durations = f"SELECT event_id, duration_ns FROM (\n{catalog.models['_begin_end'].sql}\n) ORDER BY event_id"
    con.execute(f"CREATE TABLE _begin_end AS {durations}")
    con.execute(f"CREATE OR REPLACE TABLE _calling_threads AS {_CALLING_THREADS}")
    completed = part.with_suffix(".completed")
    write_tables(_completed(con, part, move), completed, compression)
    os.replace(completed, part)


def _completed(con: duckdb.DuckDBPyConnection, part: Path, move: _Move) -> Iterator[pa.Table]:
    """Yield the corrected row groups one by one, because the memory for sorting the whole file would grow with it."""
    first, shifted_sql = 0, f"(CAST(e.start_ns AS HUGEINT) + {move.shift_ns})"
    fits_sql = f"abs({shifted_sql}) <= {LATEST_NS}"
    if move.middle_ns is not None:
        is_near_sql = f"abs(CAST(e.start_ns AS HUGEINT) - {move.middle_ns}) <= {LONGEST_NS // 2}"
        fits_sql += f" AND (e.ph IS NOT DISTINCT FROM 'M' OR {is_near_sql})"
    for group in row_groups(part):
        con.register("_row_group", group)
        durations = f"SELECT * FROM _begin_end WHERE event_id >= {first} AND event_id < {first + group.num_rows}"
        first += group.num_rows
        times = con.sql(
            f"SELECT s.start_ns, s.duration_ns, s.start_ns + s.duration_ns AS end_ns, s.time_flaw, s.pid FROM ("
            "SELECT e.event_id, coalesce(c.pid, e.pid) AS pid, "
            f"CASE WHEN {fits_sql} THEN CAST({shifted_sql} AS BIGINT) END AS start_ns, "
            f"coalesce(e.duration_ns, CASE WHEN b.duration_ns <= {LONGEST_NS} THEN b.duration_ns END) AS duration_ns, "
            f"CASE WHEN NOT ({fits_sql}) OR b.duration_ns > {LONGEST_NS} THEN 'out_of_range' "
            "ELSE e.time_flaw END AS time_flaw "
            f"FROM _row_group AS e LEFT JOIN ({durations}) AS b USING (event_id) "
            f"LEFT JOIN _calling_threads AS c ON c.tid = e.tid AND {_WITHOUT_PROCESS}) AS s ORDER BY s.event_id"
        ).to_arrow_table()
        for name in times.schema.names:
            group = group.set_column(group.schema.get_field_index(name), name, times.column(name))
        yield group
        con.unregister("_row_group")


INPUT = EventInput(suffixes=(), read=load_events, parts=lambda path, _: labels_of(path))
