"""Events from an input's own SQL: types, times out of range, begin and end events, and rejected files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

import pipelines.readers.events_by_sql
import pipelines.readers.kineto.events_file
from pipelines.base import database
from pipelines.models.catalog import Catalog, Model, load_catalog
from pipelines.models.errors import CatalogError
from pipelines.models.sources import DeclaredTable
from pipelines.models.sqlfile import parse_statement
from pipelines.models.statements import Statement
from pipelines.readers.events_by_sql import Contents, events_by_sql
from pipelines.readers.kineto import KnownTrace, ReadRequest, ReadTrace, TraceRejected
from pipelines.readers.kineto.limits import Limits
from pipelines.readers.kineto.numbers import LATEST_NS, LONGEST_NS
from tests.effort import first_of

Read = Callable[[ReadRequest], ReadTrace | KnownTrace]
COLUMNS = ("event_id", "ph", "name", "tid", "start_ns", "duration_ns")


def stage(con: duckdb.DuckDBPyConnection, request: ReadRequest) -> Contents:
    con.execute(
        "CREATE TABLE _rows AS SELECT * FROM read_csv($1, header = true, all_varchar = true)", [str(request.path)]
    )
    return Contents("csv")


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Read]:
    """Return a function that makes the `read` of an input whose SQL selects these columns of a CSV file."""

    def made(columns: tuple[str, ...] = COLUMNS) -> Read:
        path = tmp_path / "_made_events.sql"
        lines = ",\n".join(f"    {name}  -- Of the file." if name == columns[-1] else f"    {name}" for name in columns)
        text = f"-- One row: an event.\nSELECT\n{lines.replace(',', ',  -- Of the file.')}\nFROM _rows\n"
        parsed = parse_statement(Statement("_made_events", "ingest", path, 1, text))
        model = Model("_made_events", "ingest", path, text, "", parsed.columns, parsed.dependencies, (), "sql")
        real = load_catalog()
        inputs = {**real.inputs, "_rows": DeclaredTable("_rows", "ingest", "", "", is_input=True)}
        catalog: Catalog = replace(real, models={**real.models, model.name: model}, inputs=inputs)
        monkeypatch.setattr(pipelines.readers.events_by_sql, "load_catalog", lambda: catalog)
        return events_by_sql(model.name, stage)

    return made


def events(folder: Path, trace: ReadTrace | KnownTrace, columns: str) -> list[tuple[Any, ...]]:
    with database.connect() as con:
        part = folder / f"{trace.trace_id}.parquet"
        return con.execute(f"SELECT {columns} FROM '{part}' ORDER BY event_id").fetchall()


def test_times_that_do_not_fit_are_null_and_counted(tmp_path: Path, reader: Callable[..., Read]) -> None:
    rows = [
        (5, 7),
        (LATEST_NS + 1, 7),
        (5, LONGEST_NS + 1),
        ("1e400", 7),
        (2**70, 7),
        ("soon", 7),
        (5, "nan"),
        ("", ""),
        (9, -1),
    ]
    (file := tmp_path / "a.csv").write_text(
        "event_id,ph,name,tid,start_ns,duration_ns\n"
        + "".join(f"{i},X,n,1,{ts},{dur}\n" for i, (ts, dur) in enumerate(rows))
    )
    trace = reader()(ReadRequest(file, tmp_path, batch_id="b1"))
    assert isinstance(trace, ReadTrace)
    assert events(tmp_path, trace, "start_ns, duration_ns, end_ns, time_flaw") == [
        (5, 7, 12, None),
        (None, 7, None, "out_of_range"),
        (5, None, None, "out_of_range"),
        (None, 7, None, "not_a_number"),
        (None, 7, None, "out_of_range"),
        (None, 7, None, "not_a_number"),
        (5, None, None, "not_a_number"),
        (None, None, None, None),
        (9, -1, 8, None),
    ]
    counts = {finding.check_name: finding.n for finding in trace.findings}
    assert counts == {"time_out_of_range": 3, "time_not_a_number": 3, "negative_duration": 1, "unread_events": 2}
    assert (trace.n_events, trace.trace_start_ns, trace.trace_end_ns, trace.format) == (9, 5, 12, "csv")
    assert trace.unpacked_bytes == file.stat().st_size
    assert events(tmp_path, trace, "DISTINCT ON (batch_id) trace_id, batch_id, args, stream") == [
        (trace.trace_id, "b1", None, None)
    ]


@pytest.mark.slow  # tests/readers/rocm/test_json.py joins such events with Kineto's events
def test_it_has_the_columns_and_types_of_events(tmp_path: Path, reader: Callable[..., Read]) -> None:
    """A file without rows also has all columns and types, because row groups of several files are joined."""
    from pyarrow import parquet

    from pipelines.lake.publish.contents import column_types
    from tests.lake.world import write_trace

    (empty := tmp_path / "a.csv").write_text("event_id,ph,name,tid,start_ns,duration_ns\n")
    (single := tmp_path / "b.csv").write_text("event_id,ph,name,tid,start_ns,duration_ns\n0,X,n,1,5,7\n")
    kineto = pipelines.readers.kineto.events_file.load_events(
        ReadRequest(write_trace(tmp_path / "k.json", 1), tmp_path)
    )
    wanted = parquet.read_schema(tmp_path / f"{kineto.trace_id}.parquet")
    assert wanted.names == [name for name, _ in column_types(load_catalog())["events"]]
    for file in (empty, single):
        trace = reader()(ReadRequest(file, tmp_path))
        assert parquet.read_schema(tmp_path / f"{trace.trace_id}.parquet") == wanted
        assert isinstance(trace, ReadTrace) and trace.n_events == (file == single)


def test_begin_and_end_events_are_paired(tmp_path: Path, reader: Callable[..., Read]) -> None:
    (file := tmp_path / "a.csv").write_text(
        "event_id,ph,name,tid,start_ns,duration_ns\n0,B,n,1,5,\n1,B,m,1,6,\n2,E,m,1,8,\n3,E,n,1,9,\n4,B,open,1,10,\n"
    )
    trace = reader()(ReadRequest(file, tmp_path))
    assert [dur for (dur,) in events(tmp_path, trace, "duration_ns")] == [4, 2, None, None, None]
    checks = ["unmatched_begin", "unread_events"]
    assert isinstance(trace, ReadTrace) and [finding.check_name for finding in trace.findings] == checks


@pytest.mark.parametrize("ids", first_of(["0,2", "0,0", "1,2"], 1))
def test_events_that_are_not_numbered_are_refused(tmp_path: Path, reader: Callable[..., Read], ids: str) -> None:
    first, second = ids.split(",")
    text = f"event_id,ph,name,tid,start_ns,duration_ns\n{first},X,n,1,5,7\n{second},X,n,1,5,7\n"
    (file := tmp_path / "a.csv").write_text(text)
    with pytest.raises(TraceRejected, match="does not number its events from 0 on"):
        reader()(ReadRequest(file, tmp_path))


def test_what_is_wrong_with_the_sql_is_no_fault_of_the_file(tmp_path: Path, reader: Callable[..., Read]) -> None:
    (file := tmp_path / "a.csv").write_text("event_id,ph,name,tid,start_ns,duration_ns,odd\n0,X,n,1,5,7,1\n")
    with pytest.raises(CatalogError, match=r"_made_events\.sql:1: no column 'duration_ns'"):
        reader(COLUMNS[:-1])(ReadRequest(file, tmp_path))
    with pytest.raises(CatalogError, match=r"_made_events\.sql:1: `events` has no column 'odd'"):
        reader((*COLUMNS, "odd"))(ReadRequest(file, tmp_path))
    with pytest.raises(CatalogError, match="DuckDB rejects _made_events"):
        reader((*COLUMNS, "stream"))(ReadRequest(file, tmp_path))  # the file does not have this column


def test_a_file_that_is_known_broken_or_too_large(tmp_path: Path, reader: Callable[..., Read]) -> None:
    (file := tmp_path / "a.csv").write_text("event_id,ph,name,tid,start_ns,duration_ns\n0,X,n,1,5,7\n")
    trace = reader()(ReadRequest(file, tmp_path))
    assert reader()(ReadRequest(file, tmp_path, known={trace.trace_id})) == KnownTrace(trace.trace_id, {})
    (cut := tmp_path / "b.csv").write_bytes(b"\xff\xfe\0\0")
    with pytest.raises(TraceRejected, match="DuckDB cannot read it"):
        reader()(ReadRequest(cut, tmp_path))
    with pytest.raises(TraceRejected, match="max-unpacked-gib"):
        reader()(ReadRequest(file, tmp_path, limits=Limits(max_unpacked_gib=0)))


def test_a_file_that_changes_is_rejected(tmp_path: Path, reader: Callable[..., Read]) -> None:
    (file := tmp_path / "a.csv").write_text("event_id,ph,name,tid,start_ns,duration_ns\n0,X,n,1,5,7\n")

    def written_on(_: int) -> None:
        with file.open("a") as more:
            more.write("1,X,n,1,5,7\n")

    with pytest.raises(TraceRejected, match="changed while it was being read"):
        reader()(ReadRequest(file, tmp_path, on_bytes=written_on))
