"""Traces of other tools → `events`: an input stages tables of its own, and a SELECT in `sql/ingest/` makes events of them.

    @given_table("_staged_kernels", layer="ingest", doc="…", columns=(("name", "VARCHAR", "…"), …))
    def stage(con, path): ...  # fills these tables from the file and returns Contents

    INPUT = EventInput(suffixes=(".sqlite",), recognise=…, read=events_by_sql("_my_events", stage))

The SELECT (`sql/ingest/_my_events.sql`) has the columns of `events` that the tool knows, at least NEEDED; times are ns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from pipelines.base import database
from pipelines.base.paths import path_text
from pipelines.lake.commit.parquet import write_tables
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.models.dry_run import create_empty
from pipelines.models.errors import CatalogError
from pipelines.models.header import TRACE
from pipelines.models.run import only_selects, run_models
from pipelines.models.sqltext import first_line, quoted
from pipelines.readers.kineto.events_file import add_findings, complete
from pipelines.readers.kineto.limits import Limits, allow
from pipelines.readers.kineto.numbers import LATEST_NS, LONGEST_NS
from pipelines.readers.kineto.reading_result import Finding, FindingCounter, KnownTrace, ReadTrace, TraceRejected
from pipelines.readers.kineto.source import Source, TooLarge
from pipelines.readers.lost_work import BY_OTHERS, lost_work
from pipelines.readers.origin import unusable_numbers
from pipelines.readers.secrets import with_masks

if TYPE_CHECKING:
    import pyarrow as pa

NEEDED = ("event_id", "ph", "name", "start_ns", "duration_ns")
_ROWS = 122_880
_MODEL, _PART = "_events_of_model", "_events_of_part"
# What DuckDB's tables and sorts take before they go to disk; what the process takes is more, and is measured by
# tests/readers/sqlite_exports/test_memory.py. The allocator gives back what it keeps beyond that.
_GIGABYTES = 0.3
_THREADS = 2


@dataclass(frozen=True)
class Contents:
    """What a file says beside its events. `metadata`: as in Kineto's (distributedInfo, deviceProperties, host_name, …).

    `status`: partial if something is missing, repaired if something was repaired; `findings` say what.
    """

    format: str
    metadata: dict[str, Any] = field(default_factory=dict)
    status: str = "ok"
    findings: tuple[Finding, ...] = ()


def events_by_sql(
    model: str, stage: Callable[[duckdb.DuckDBPyConnection, Path], Contents], others: Sequence[Path] = ()
) -> Callable[..., ReadTrace | KnownTrace]:
    """The `read` of an EventInput: `stage(con, path)` creates the tables from which the SQL of `model` makes events.

    `others`: further files that `stage` reads, parts of the same trace.

    `stage` raises TraceRejected, or anything, and only this file is rejected. For a trace of a file that holds several
    (`EventInput.parts`) it must know which one is meant.
    """
    return partial(_read, model, stage, tuple(others))


def _read(
    model: str,
    stage: Callable[[duckdb.DuckDBPyConnection, Path], Contents],
    others: tuple[Path, ...],
    path: Path,
    folder: Path,
    batch_id: str = "",
    known: Set[str] = frozenset(),
    on_bytes: Callable[[int], Any] | None = None,
    lean: bool = False,
    limits: Limits | None = None,
    part: str | None = None,
) -> ReadTrace | KnownTrace:
    files = (path, *others)
    before = _states(files)
    packed_bytes = sum(size for size, _ in before)
    if on_bytes:
        on_bytes(packed_bytes)
    limits = limits or Limits.of_environment()
    if packed_bytes > limits.max_unpacked_gib << 30:
        raise _rejected(path, f"more than {limits.max_unpacked_gib} GiB; {allow('max_unpacked_gib')}")
    trace_id, n_bytes = _content(path, files, part, limits)
    if trace_id in known:
        return KnownTrace(trace_id, {})
    target, compression = folder / f"{trace_id}.parquet", "none" if lean else "zstd"
    with _connected(target.with_suffix(".spilled")) as con:
        try:
            contents = _staged(con, model, stage, path)
            write_tables(_tables(con, path, model, trace_id, batch_id), target, compression)
        except duckdb.OutOfMemoryException:
            told = database.too_little(database.at_most(_GIGABYTES))
            raise _rejected(path, f"{told}; or profile for a shorter time") from None
        if before != _states(files):
            raise _rejected(path, "the file changed while it was being read: try again when it is complete")
        counts = complete(con, load_catalog(), target, compression=compression)
        n_events = con.execute("SELECT count(*) FROM events").fetchall()[0][0]
        lost = lost_work(con, load_catalog(), BY_OTHERS) if contents.status != "partial" else ()
    counter = FindingCounter()
    add_findings(counter.add, counts)
    unusable = unusable_numbers(path, contents.metadata)
    counter.add("unusable_number", len(unusable), ", ".join(unusable))
    return ReadTrace(
        trace_id=trace_id,
        path=path_text(path),
        n_events=n_events,
        unpacked_bytes=n_bytes,
        trace_start_ns=counts.get("trace_start_ns"),
        trace_end_ns=counts.get("trace_end_ns"),
        format=contents.format,
        metadata=contents.metadata,
        findings=(*contents.findings, *counter.findings(), *lost),
        status=contents.status,
    )


def _connected(spilled: Path) -> duckdb.DuckDBPyConnection:
    bounds = {"memory_limit": database.at_most(_GIGABYTES), "threads": database.threads(_THREADS)}
    return database.connect(config={**bounds, "allocator_flush_threshold": "32MB", "temp_directory": str(spilled)})


def _states(files: Iterable[Path]) -> list[tuple[int, int]]:
    """Sizes and times of change."""
    return [(found.st_size, found.st_mtime_ns) for found in (path.stat() for path in files)]


def _content(path: Path, files: Sequence[Path], part: str | None, limits: Limits) -> tuple[str, int]:
    """Return the trace's id and the bytes of the unpacked content.

    The id is of the content, so that a packed file is the same trace; where a file holds several, it is of the part, too.
    """
    digests, n_bytes = [], 0
    for file in files:
        source, digest = Source(file, limits=limits), hashlib.sha256()
        try:
            for chunk in source.chunks():
                digest.update(chunk)
        except TooLarge as error:
            raise TraceRejected(path_text(path), error.offset, error.reason) from None
        digests.append(digest.hexdigest())
        n_bytes += source.unpacked_bytes
    digests += [] if part is None else [part]
    alone = len(digests) == 1
    return (digests[0] if alone else hashlib.sha256("\0".join(digests).encode()).hexdigest())[:16], n_bytes


def _staged(
    con: duckdb.DuckDBPyConnection,
    model: str,
    stage: Callable[[duckdb.DuckDBPyConnection, Path], Contents],
    path: Path,
) -> Contents:
    catalog = load_catalog()
    create_empty(con, catalog, TRACE)  # `events` for its types
    try:
        contents = stage(con, path)
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        raise _rejected(path, f"DuckDB cannot read it: {first_line(error)}") from None
    given = frozenset(catalog.given)
    run_models(con, catalog, [name for name in catalog.models[model].dependencies if name not in given], given)
    return contents


def _tables(con: duckdb.DuckDBPyConnection, path: Path, model: str, trace_id: str, batch_id: str) -> Iterator[pa.Table]:
    """Yields the rows of `events` by row group; at least one, so that the file has its columns.

    Each group is a query of its own, with the numbers of its events: sorting all rows at once would take memory that grows
    with them. A model that only selects is asked so often; what another one computes is kept as a table.
    """
    import numpy as np

    catalog = load_catalog()
    kind = "VIEW" if only_selects(catalog.models[model]) else "TABLE"
    try:
        query = with_masks(_query(con, catalog, model, trace_id, batch_id))
        con.execute(f"CREATE OR REPLACE {kind} {_MODEL} AS {catalog.models[model].sql}")
        ((n,),) = con.execute(f"SELECT count(*) FROM {_MODEL}").fetchall()
        for first in range(0, max(n, 1), _ROWS):
            within = f"CAST(event_id AS BIGINT) >= {first} AND CAST(event_id AS BIGINT) < {first + _ROWS}"
            con.execute(f"CREATE OR REPLACE VIEW {_PART} AS FROM {_MODEL} WHERE {within}")
            table = database.arrow_result(con, query).to_arrow_table()
            expected = np.arange(first, min(first + _ROWS, n))
            if not np.array_equal(table.column("event_id").to_numpy(), expected):
                raise _rejected(path, f"{model}.sql does not number its events from 0 on; correct its event_id")
            yield table
            del table
            database.trim()  # some 10 MB more after each row group
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException) as error:  # no fault of the data
        raise CatalogError(f"{catalog.models[model].place}: DuckDB rejects {model}: {first_line(error)}") from None
    con.execute(f"DROP TABLE events; DROP VIEW {_PART}; DROP {kind} {_MODEL}")


def _query(con: duckdb.DuckDBPyConnection, catalog: Catalog, model: str, trace_id: str, batch_id: str) -> str:
    """Returns the SELECT of all columns of `events`, in their types, from its rows in _PART, by number; others are NULL.

    Times that the lake cannot hold become NULL and are counted, as in Kineto's traces (`time_flaw`).
    """
    types = {name: kind for name, kind, *_ in con.execute("DESCRIBE events").fetchall()}
    own = {column.name for column in catalog.models[model].columns}
    path = catalog.models[model].path
    if wrong := sorted(own - types.keys()):
        raise CatalogError(f"{path}:1: `events` has no column {wrong[0]!r}; it has {', '.join(types)}")
    if missing := [name for name in NEEDED if name not in own]:
        raise CatalogError(f"{path}:1: no column {missing[0]!r}; events need {', '.join(NEEDED)}")
    flaw = "time_flaw" if "time_flaw" in own else "CAST(NULL AS VARCHAR)"
    given = {
        "trace_id": quoted(trace_id),
        "batch_id": quoted(batch_id),
        "start_ns": "_ts",
        "duration_ns": "_dur",
        "end_ns": "_ts + _dur",
        "time_flaw": f"""CASE
            WHEN start_ns IS NOT NULL AND _ts IS NULL OR duration_ns IS NOT NULL AND _dur IS NULL
                THEN CASE WHEN {_is_number("start_ns")} AND {_is_number("duration_ns")} THEN 'out_of_range' ELSE 'not_a_number' END
            ELSE {flaw}
        END""",
    }
    values = {name: f'"{name}"' for name in own} | given
    columns = (f'CAST({values.get(name, "NULL")} AS {kind}) AS "{name}"' for name, kind in types.items())
    within = (
        f"CASE WHEN TRY_CAST({name} AS HUGEINT) BETWEEN -{most} AND {most} THEN TRY_CAST({name} AS BIGINT) END AS {own_name}"
        for name, most, own_name in (("start_ns", LATEST_NS, "_ts"), ("duration_ns", LONGEST_NS, "_dur"))
    )
    return f"SELECT {', '.join(columns)} FROM (SELECT *, {', '.join(within)} FROM {_PART}) ORDER BY event_id"


def _is_number(name: str) -> str:
    return f"({name} IS NULL OR coalesce(isfinite(TRY_CAST({name} AS DOUBLE)), FALSE))"


def _rejected(path: Path, why: str) -> TraceRejected:
    return TraceRejected(path_text(path), None, why)
