"""Conversion of other tools' traces to `events`.

An input stages its own tables, and a SELECT in `sql/ingest/` converts them to events:

    @input_table("_staged_kernels", layer="ingest", doc="…", columns=(("name", "VARCHAR", "…"), …))
    def stage(con, request): ...  # fills these tables from the file (ReadRequest) and returns Contents

    INPUT = EventInput(suffixes=(".sqlite",), recognise=…, read=events_by_sql("_my_events", stage))

The SELECT (`sql/ingest/_my_events.sql`) has the columns of `events` that the tool records, at least NEEDED. Times are
ns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from pipelines.base import database
from pipelines.lake.commit.parquet import write_tables
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.models.dry_run import create_empty
from pipelines.models.errors import CatalogError
from pipelines.models.header import TRACE
from pipelines.models.run import only_selects, run_models
from pipelines.models.sqltext import first_line, quoted
from pipelines.readers.foreign_rows import foreign_rows
from pipelines.readers.gpu_row_doubts import gpu_row_doubts
from pipelines.readers.kineto import Finding, KnownTrace, ReadRequest, ReadTrace, TraceRejected
from pipelines.readers.kineto.events_file import add_findings, complete
from pipelines.readers.kineto.limits import allow
from pipelines.readers.kineto.numbers import LATEST_NS, LONGEST_NS
from pipelines.readers.kineto.reading_result import CHANGED, FindingCounter
from pipelines.readers.kineto.source import TooLarge, content_hash
from pipelines.readers.lost_work import BY_OTHERS, lost_work
from pipelines.readers.secrets import with_masked_ids, with_masks

if TYPE_CHECKING:
    import pyarrow as pa

NEEDED = ("event_id", "ph", "name", "start_ns", "duration_ns")
NAME_A_PROCESS = "each is a separate trace: name one (--process PID), or `tracelake ingest` the file"
_ROWS = 122_880
_MODEL, _PART = "_events_of_model", "_events_of_part"
# Memory of DuckDB's tables and sorts before they are spilled to disk. The process uses more, as measured by
# tests/readers/sqlite_exports/test_memory.py. The allocator returns the memory that it caches beyond that.
_GIGABYTES = 0.3
_THREADS = 2


@dataclass(frozen=True)
class Contents:
    """Facts about a file other than its events.

    `metadata`: as in Kineto's traces (distributedInfo, deviceProperties, host_name, …).

    `status`: `partial` if data is missing, `repaired` if data was repaired, else `ok`. `findings` describe the reasons.
    """

    format: str
    metadata: dict[str, Any] = field(default_factory=dict)
    status: str = "ok"
    findings: tuple[Finding, ...] = ()


Stage = Callable[[duckdb.DuckDBPyConnection, ReadRequest], Contents]


def events_by_sql(
    model: str, stage: Stage, others: Sequence[Path] = ()
) -> Callable[[ReadRequest], ReadTrace | KnownTrace]:
    """Return the `read` of an EventInput that stages tables with `stage(con, request)` and runs `model` on them.

    `others`: further files of the same trace that `stage` reads.

    If `stage` raises TraceRejected, or any other exception, only this file is rejected. For a file with several traces
    (`EventInput.parts`), `stage` reads `request.part`, and raises TraceRejected if that is None.
    """
    return partial(_read, model, stage, tuple(others))


def doubts(con: duckdb.DuckDBPyConnection, model: str) -> list[Finding]:
    """Return a model's findings about the staged tables, such as missing data or values that no profiler writes."""
    catalog = load_catalog()
    run_models(con, catalog, [model], frozenset(catalog.inputs))
    rows = con.execute(f"SELECT check_name, severity, n, detail FROM {model} ORDER BY check_name").fetchall()
    con.execute(f"DROP TABLE {model}")
    return [Finding(*row) for row in rows]


def _read(model: str, stage: Stage, companions: tuple[Path, ...], request: ReadRequest) -> ReadTrace | KnownTrace:
    path, files, max_gib = request.path, (request.path, *companions), request.limits.max_unpacked_gib
    states_before = _states(files)
    packed_bytes = sum(size for size, _ in states_before)
    if request.on_bytes:
        request.on_bytes(packed_bytes)
    if packed_bytes > max_gib << 30:
        raise TraceRejected(path, None, f"more than {max_gib} GiB; {allow('max_unpacked_gib')}")
    trace_id, n_bytes = _content(request, files)
    if trace_id in request.known:
        return KnownTrace(trace_id, {})
    target = request.events_path(trace_id)
    with _connected(target.with_suffix(".spilled")) as con:
        try:
            contents = _staged(con, model, stage, request)
            write_tables(_tables(con, request, model, trace_id), target, request.compression)
        except duckdb.OutOfMemoryException:
            message = database.too_little(database.at_most(_GIGABYTES))
            raise TraceRejected(path, None, f"{message}; or profile for a shorter time") from None
        if states_before != _states(files):
            raise TraceRejected(path, None, CHANGED)
        counts = complete(con, load_catalog(), target, 0, request.compression)
        n_events = con.execute("SELECT count(*) FROM events").fetchall()[0][0]
        lost = lost_work(con, load_catalog(), BY_OTHERS) if contents.status != "partial" else ()
        foreign = foreign_rows(con, load_catalog(), counts) if counts else ()
        doubts = (*gpu_row_doubts(con, load_catalog()), *foreign)
    counter = FindingCounter()
    add_findings(counter.add, counts, path, contents.metadata)
    return ReadTrace(
        trace_id=trace_id,
        path=path,
        n_events=n_events,
        unpacked_bytes=n_bytes,
        trace_start_ns=counts.get("trace_start_ns"),
        trace_end_ns=counts.get("trace_end_ns"),
        format=contents.format,
        metadata=contents.metadata,
        findings=(*contents.findings, *counter.findings(), *lost, *doubts),
        status=contents.status,
    )


def _connected(spilled: Path) -> duckdb.DuckDBPyConnection:
    bounds = {"memory_limit": database.at_most(_GIGABYTES), "threads": database.threads(_THREADS)}
    return database.connect(config={**bounds, "allocator_flush_threshold": "32MB", "temp_directory": str(spilled)})


def _states(files: Iterable[Path]) -> list[tuple[int, int]]:
    """Return the size in bytes and the modification time in ns of each file."""
    return [(stat.st_size, stat.st_mtime_ns) for stat in (path.stat() for path in files)]


def _content(request: ReadRequest, files: Sequence[Path]) -> tuple[str, int]:
    """Return the trace's id and the size of the decompressed content in bytes.

    The id is a hash of the decompressed content, so a compressed copy is the same trace. For one trace of several in a
    file, the hash includes the part.
    """
    digests, n_bytes = [], 0
    for file in files:
        try:
            digest, n_bytes_of_file = content_hash(file, request.limits)
        except TooLarge as error:
            raise TraceRejected(request.path, error.offset, error.reason) from None
        digests.append(digest)
        n_bytes += n_bytes_of_file
    digests += [] if request.part is None else [request.part]
    is_single = len(digests) == 1
    return (digests[0] if is_single else hashlib.sha256("\0".join(digests).encode()).hexdigest())[:16], n_bytes


def _staged(con: duckdb.DuckDBPyConnection, model: str, stage: Stage, request: ReadRequest) -> Contents:
    catalog = load_catalog()
    create_empty(con, catalog, TRACE)  # `events` for its types
    try:
        contents = stage(con, request)
    except duckdb.OutOfMemoryException:
        raise
    except duckdb.Error as error:
        raise TraceRejected(request.path, None, f"DuckDB cannot read it: {first_line(error)}") from None
    inputs = frozenset(catalog.inputs)
    run_models(con, catalog, [name for name in catalog.models[model].dependencies if name not in inputs], inputs)
    return contents


def _tables(con: duckdb.DuckDBPyConnection, request: ReadRequest, model: str, trace_id: str) -> Iterator[pa.Table]:
    """Yield the rows of `events` by row group, at least one group, so that the file has columns.

    Each group is a separate query for a range of event ids, because the memory for sorting all rows would grow with
    their number. A model that only selects becomes a view, evaluated per group. Any other model becomes a table.
    """
    import numpy as np

    catalog = load_catalog()
    kind = "VIEW" if only_selects(catalog.models[model]) else "TABLE"
    try:
        query = with_masks(_query(con, catalog, model, trace_id, request.batch_id))
        con.execute(f"CREATE OR REPLACE {kind} {_MODEL} AS {catalog.models[model].sql}")
        ((n,),) = con.execute(f"SELECT count(*) FROM {_MODEL}").fetchall()
        for first in range(0, max(n, 1), _ROWS):
            within = f"CAST(event_id AS BIGINT) >= {first} AND CAST(event_id AS BIGINT) < {first + _ROWS}"
            con.execute(f"CREATE OR REPLACE VIEW {_PART} AS FROM {_MODEL} WHERE {within}")
            table = with_masked_ids(database.arrow_result(con, query).to_arrow_table())
            expected = np.arange(first, min(first + _ROWS, n))
            if not np.array_equal(table.column("event_id").to_numpy(), expected):
                message = f"{model}.sql does not number its events from 0 on; correct its event_id"
                raise TraceRejected(request.path, None, message)
            yield table
            del table
            database.trim()  # otherwise memory grows by about 10 MB per row group
    except (
        duckdb.BinderException,
        duckdb.CatalogException,
        duckdb.ParserException,
    ) as error:  # not a fault of the data
        raise CatalogError(f"{catalog.models[model].place}: DuckDB rejects {model}: {first_line(error)}") from None
    con.execute(f"DROP TABLE events; DROP VIEW {_PART}; DROP {kind} {_MODEL}")


def _query(con: duckdb.DuckDBPyConnection, catalog: Catalog, model: str, trace_id: str, batch_id: str) -> str:
    """Return the SELECT of all columns of `events`, with their types, over the rows in _PART, ordered by event id.

    Columns that the model does not have are NULL. Times that the lake cannot store become NULL and are counted, as in
    Kineto's traces (`time_flaw`).
    """
    types = {name: kind for name, kind, *_ in con.execute("DESCRIBE events").fetchall()}
    model_columns = {column.name for column in catalog.models[model].columns}
    path = catalog.models[model].path
    if unknown := sorted(model_columns - types.keys()):
        raise CatalogError(f"{path}:1: `events` has no column {unknown[0]!r}; it has {', '.join(types)}")
    if missing := [name for name in NEEDED if name not in model_columns]:
        raise CatalogError(f"{path}:1: no column {missing[0]!r}; events need {', '.join(NEEDED)}")
    flaw = "time_flaw" if "time_flaw" in model_columns else "CAST(NULL AS VARCHAR)"
    computed = {
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
    values = {name: f'"{name}"' for name in model_columns} | computed
    columns = (f'CAST({values.get(name, "NULL")} AS {kind}) AS "{name}"' for name, kind in types.items())
    within = (
        f"CASE WHEN TRY_CAST({name} AS HUGEINT) BETWEEN -{limit} AND {limit} THEN TRY_CAST({name} AS BIGINT) END AS {alias}"
        for name, limit, alias in (("start_ns", LATEST_NS, "_ts"), ("duration_ns", LONGEST_NS, "_dur"))
    )
    return f"SELECT {', '.join(columns)} FROM (SELECT *, {', '.join(within)} FROM {_PART}) ORDER BY event_id"


def _is_number(name: str) -> str:
    return f"({name} IS NULL OR coalesce(isfinite(TRY_CAST({name} AS DOUBLE)), FALSE))"
