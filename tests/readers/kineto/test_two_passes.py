"""Small content is kept in memory between the two passes, and larger content is read again.

Both give the same result.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from pyarrow import parquet

from pipelines.readers.kineto import ReadRequest, ReadTrace, scan, segments
from pipelines.readers.kineto.events_file import load_events
from pipelines.readers.kineto.source import Source
from tests.effort import first_of

EVENT = b'{"ph": "X", "name": "a", "ts": 1, "dur": 2}'


@pytest.mark.parametrize(("cut", "packed"), first_of([(30, True), (0, False), (0, True), (30, False)], 2))
def test_what_was_kept_is_what_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool, cut: int
) -> None:
    monkeypatch.setattr(segments, "PIECE_BYTES", 1 << 15)
    monkeypatch.setattr(segments, "TAIL_BYTES", 1 << 12)
    text = b'{"traceEvents": [' + b",".join([EVENT] * 4_000) + b'], "baseTimeNanoseconds": 7}'
    path = tmp_path / "trace.json"
    content = gzip.compress(text, 1) if packed else text
    path.write_bytes(content[: len(content) - cut])
    opened: list[Source] = []
    monkeypatch.setattr("pipelines.readers.kineto.reader.Source", lambda *a: opened.append(Source(*a)) or opened[-1])
    outcomes = []
    for kept_bytes, passes in ((64 << 20, 0), (1 << 15, 1)):
        monkeypatch.setattr(scan, "KEPT_BYTES", kept_bytes)
        byte_counts: list[int] = []
        trace = load_events(ReadRequest(path, tmp_path, on_bytes=byte_counts.append))
        assert isinstance(trace, ReadTrace)
        rows = parquet.read_table(tmp_path / f"{trace.trace_id}.parquet")
        outcomes.append((trace, rows, sum(byte_counts)))
        assert len(opened) == passes
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][2] == path.stat().st_size
    assert (outcomes[0][0].status == "partial") == bool(cut)


def test_the_end_is_searched_in_the_last_chunks_only() -> None:
    tail = scan._Tail()
    chunks = [bytes([number]) * (1 << 19) for number in range(9)]
    for number, chunk in enumerate(chunks):
        tail.add(chunk)
        assert tail.is_whole == (number < 4)
        assert tail.text() == b"".join(chunks[max(number - 3, 0) : number + 1])
