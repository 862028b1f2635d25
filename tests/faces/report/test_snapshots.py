"""The section about a memory snapshot: the memory of a rank's operators and modules at the peak, as on a page."""

from __future__ import annotations

from pathlib import Path

import duckdb

from pipelines.faces.report.page import render
from pipelines.faces.report.sections.snapshots import snapshots
from pipelines.faces.report.subject import Subject
from tests.faces.report.read_page import Page
from tests.readers.memory_snapshots.make import INNER
from tests.readers.memory_snapshots.test_owners import WINDOW, Call, _allocation, _event, _joined


def _subject(con: duckdb.DuckDBPyConnection, trace_id: str) -> Subject:
    trace = {"trace_id": trace_id, "rank": 0, "path": "a.json"}
    return Subject(con, None, [trace], trace, "")


def test_the_section_has_what_operators_held_at_the_peak(tmp_path: Path) -> None:
    allocator, _ = _allocation(100, INNER)
    calls = [Call("module", "Linear_<3>", 1, 60_000, 150_000), Call("op", "aten::empty", 1, 99_000, 103_000)]
    con = _joined(tmp_path, allocator, [*WINDOW, *map(_event, calls)])
    ((trace_id,),) = con.execute("SELECT trace_id FROM traces").fetchall()
    assert snapshots(_subject(con, "none")) is None
    section = snapshots(_subject(con, trace_id))
    assert section is not None
    page = Page(render({"title": "t", "kind": "k", "facts": {}}, [section]))
    rows = page.rows("snapshot_peak_owners")
    assert [(row["n_allocations"], row["size_bytes"]) for row in rows] == [("1", "1000"), ("2", "30")]
    said = page.texts["snapshots"]
    assert "Device 0 of rank 0 (rank0_snapshot.pickle)" in said and "at the peak of its history. Of 97.1 %" in said
    for shown in ("aten::empty", "Linear_<3>", f"{INNER[0]}:7 forward", "clock"):
        assert shown in said
    assert "do not trust the peak" not in said


def test_a_history_that_does_not_fit_is_told(tmp_path: Path) -> None:
    allocator, _ = _allocation(100)
    allocator.segments[0].blocks[0].state = "inactive"  # it was released after the recording had stopped
    con = _joined(tmp_path, allocator, WINDOW)
    ((trace_id,),) = con.execute("SELECT trace_id FROM traces").fetchall()
    section = snapshots(_subject(con, trace_id))
    assert section is not None
    page = Page(render({"title": "t", "kind": "k", "facts": {}}, [section]))
    assert "The history does not fit the snapshot: do not trust the peak" in page.texts["snapshots"]
