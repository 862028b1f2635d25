"""Events written part by part equal those of a single part, in the same order."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.lake.commit.parquet import row_groups
from pipelines.readers import events_by_sql
from pipelines.readers.inputs.find import events_input
from pipelines.readers.kineto import ReadRequest, ReadTrace
from tests.effort import first_of
from tests.readers.sqlite_exports.test_memory import nsys, rocpd


def file_of(tool: str, folder: Path) -> Path:
    if tool == "nsys":
        return nsys(folder, 20)
    if tool == "rocm":
        return rocpd(folder, 20)
    pytest.importorskip("perfetto", reason="reading Perfetto traces needs the extra 'perfetto'")
    from tests.readers.perfetto.large import write_large

    write_large(folder / "a.pftrace", 1)
    return folder / "a.pftrace"


@pytest.mark.parametrize(("tool", "size"), first_of([("nsys", 70), ("rocm", 60), ("perfetto", 900)], 1))
def test_parts_are_the_whole(tool: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa

    path, results = file_of(tool, tmp_path), []
    for folder, rows in (("whole", events_by_sql._ROWS), ("parts", size)):
        monkeypatch.setattr(events_by_sql, "_ROWS", rows)
        (tmp_path / folder).mkdir()
        trace = events_input(path).read(ReadRequest(path, tmp_path / folder))
        assert isinstance(trace, ReadTrace)
        groups = list(row_groups(tmp_path / folder / f"{trace.trace_id}.parquet"))
        assert {group.num_rows for group in groups[:-1]} <= {rows}
        assert [group.num_rows for group in groups][-1] == trace.n_events - rows * (len(groups) - 1)
        results.append((trace.findings, pa.concat_tables(groups)))
    (findings, whole), (same, parts) = results
    assert parts.num_rows > 2 * size
    assert (same, parts) == (findings, whole)
    assert parts.column("event_id").to_pylist() == list(range(parts.num_rows))
    times = [
        ts for ts, ph in zip(*(parts.column(name).to_pylist() for name in ("start_ns", "ph")), strict=True) if ph != "M"
    ]
    assert times == sorted(times)
