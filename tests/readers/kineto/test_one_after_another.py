"""Files that are read in sequence share a connection, and each is read as if it were alone."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from pipelines.readers.kineto import ReadRequest, ReadTrace, TraceRejected, events_file, segments
from pipelines.readers.kineto.reader import _Pieces


def _file(folder: Path, name: str, events: list[dict], **metadata: object) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"traceEvents": events, **metadata}))
    return path


def _read(path: Path, folder: Path) -> tuple[ReadTrace, list[tuple]]:
    folder.mkdir(exist_ok=True)
    trace = events_file.load_events(ReadRequest(path, folder))
    assert isinstance(trace, ReadTrace)
    return trace, duckdb.sql(f"FROM read_parquet('{folder}/{trace.trace_id}.parquet') ORDER BY event_id").fetchall()


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    pair = [{"ph": ph, "name": "f", "pid": 1, "tid": 2, "ts": ts} for ph, ts in (("B", 1), ("E", 5.5), ("B", 9))]
    whole = [{"ph": "X", "name": f"n{i}", "cat": "cpu_op", "pid": 1, "tid": i, "ts": i, "dur": 2} for i in range(9)]
    return [
        _file(tmp_path, "pair", pair),
        _file(tmp_path, "whole", whole, baseTimeNanoseconds=10**18),
        _file(tmp_path, "both", [*whole, *pair], schemaVersion=1),
        _file(tmp_path, "other_keys", [event | {"unknown": [1]} for event in whole]),
    ]


@pytest.mark.slow  # 4 s
def test_each_is_read_as_if_it_were_alone(files: list[Path], tmp_path: Path) -> None:
    alone = []
    for path in files:
        events_file._idle.clear()
        alone.append(_read(path, tmp_path / "alone"))
    events_file._idle.clear()
    assert [_read(path, tmp_path / "together") for path in files] == alone
    assert len(events_file._idle) == 1
    assert [_read(path, tmp_path / "back") for path in reversed(files)] == alone[::-1]


def test_a_connection_that_failed_or_spilled_is_not_used_again(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _read(files[0], tmp_path / "out")
    bad = tmp_path / "bad.json"
    bad.write_text('{"traceEvents": ["no", "event"]}')
    (con,) = events_file._idle
    with pytest.raises(TraceRejected):
        events_file.load_events(ReadRequest(bad, tmp_path / "out"))
    assert events_file._idle == []
    monkeypatch.setattr(
        events_file, "_counts", lambda *_: (_ for _ in ()).throw(duckdb.NotImplementedException("of the SQL"))
    )
    with pytest.raises(duckdb.NotImplementedException):
        events_file.load_events(ReadRequest(files[1], tmp_path / "out"))
    monkeypatch.undo()
    assert events_file._idle == []
    assert _read(files[0], tmp_path / "out") == before
    (con,) = events_file._idle
    con.execute(f"SET temp_directory = '{tmp_path / 'spilled'}'; SET memory_limit = '40MB'")
    con.execute("CREATE TABLE large AS SELECT range AS a, hash(range) AS b FROM range(4000000)")
    assert any((tmp_path / "spilled").iterdir())
    con.execute("CREATE TABLE _ingest_context (a INTEGER)")
    assert not events_file._cleared(con)
    events_file._idle.clear()
    con.close()


@pytest.mark.slow  # takes waits; tests above cover failing connections
def test_an_interrupt_ends_all_reading_before_the_connection_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading threads end before their connection is closed, because closing it also closes their cursors.

    Otherwise, a query that is running would crash with a segmentation fault.
    """
    monkeypatch.setattr(segments, "PIECE_BYTES", 1 << 15)
    monkeypatch.setattr(segments, "TAIL_BYTES", 1 << 12)
    event = {"ph": "X", "name": "a", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    path = _file(tmp_path, "pieces", [event] * 4_000)
    begun, ended, read = [], [], _Pieces._plainly

    def slowly(pieces: _Pieces, piece: segments.Piece) -> object:
        begun.append(piece)
        time.sleep(0.1)
        table = read(pieces, piece)
        ended.append(piece)
        return table

    def interrupted(tables: Iterator[object], *_: object) -> None:
        next(tables)
        raise KeyboardInterrupt

    monkeypatch.setattr(_Pieces, "_plainly", slowly)
    monkeypatch.setattr(events_file, "write_tables", interrupted)
    with pytest.raises(KeyboardInterrupt):
        events_file.load_events(ReadRequest(path, tmp_path))
    assert len(begun) == len(ended) > 1
    time.sleep(0.2)
    assert len(begun) == len(ended)
