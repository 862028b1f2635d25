"""Memory for ingesting a snapshot is bounded: data that does not fit goes to disk, and the result is the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.base.database import TooLittleMemory
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs import spilling as bounds
from pipelines.readers.inputs.file_sets import ingest_sets
from pipelines.readers.inputs.kinds import Read
from pipelines.readers.inputs.reading import Reading
from pipelines.readers.memory_snapshots.lake import INPUT
from tests.readers.memory_snapshots.large import write_large
from tests.readers.memory_snapshots.make import snapshot, training, write

# VmHWM is used because ru_maxrss of a child starts at the memory of its parent.
CHILD = """
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs import spilling
from pipelines.lake import Lake
from pipelines.readers.memory_snapshots.lake import INPUT
spilling._GIGABYTES = 0.1
ingest([Path(sys.argv[1])], Lake(Path(sys.argv[2])))
status = Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


def test_tables_that_do_not_fit_go_to_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bounds, "_GIGABYTES", 0.032)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    n = 8_000_000  # 64 MB
    with bounds.spilling() as con:
        con.execute(f"CREATE TABLE numbers AS SELECT hash(range) AS number FROM range({n})")
        assert con.execute("SELECT count(DISTINCT path) > 0 FROM duckdb_temporary_files()").fetchall() == [(True,)]
        assert list(tmp_path.glob("*/*")), "the files are elsewhere"
        same = f"SELECT (SELECT bit_xor(number) FROM numbers) = (SELECT bit_xor(hash(range)) FROM range({n}))"
        assert con.execute(same).fetchall() == [(True,)]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow  # a test below covers too little memory for reading
def test_too_little_memory_to_commit_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If the memory does not suffice to commit, the error names a remedy, and the lake has no part of the snapshot.

    So the snapshot can be ingested again.
    """
    small, lake = write(tmp_path / "small.pickle", snapshot(training(6))), Lake(tmp_path / "lake")
    with monkeypatch.context() as less:
        less.setattr(bounds, "_GIGABYTES", 0.0085)
        for limit, way_out in (
            ("64", "raise TRACELAKE_MEMORY=64, or unset it"),
            ("", "pass fewer or smaller files per command"),
        ):
            less.setenv("TRACELAKE_MEMORY", limit)
            with pytest.raises(TooLittleMemory, match=r"were not ingested: .* more memory than the 8 MiB") as raised:
                ingest([small], lake)
            assert way_out in str(raised.value)
    assert not lake.known("memory_snapshots")
    assert [row.status for row in ingest([small], lake).rows] == ["ok"]


def test_a_set_that_needs_more_memory_to_be_read_is_rejected_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def read(reading: Reading, path: Path, files: Collection[Path]) -> Read | None:
        if path == large:
            reading.con.execute("SELECT list(range) FROM range(10_000_000)")  # a list does not spill to disk
        return INPUT.read(reading, path, files)

    small, large = (write(tmp_path / f"{name}.pickle", snapshot(training(n))) for name, n in (("a", 6), ("b", 5)))
    monkeypatch.setattr(bounds, "_GIGABYTES", 0.064)
    rows = ingest_sets(replace(INPUT, read=read), {path: [path] for path in (large, small)}, Lake(tmp_path / "lake"))
    assert [row.status for row in rows] == ["rejected", "ok"] and rows[0].reason is not None
    assert "DuckDB needs more memory than the 61 MiB that it may use here; pass fewer or smaller" in rows[0].reason


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc says what a process has taken")
def test_four_times_the_file_takes_the_same_memory(tmp_path: Path) -> None:
    """A file of four times the size takes the same memory. DuckDB gets 100 MB, which both files exceed."""
    peaks = []
    for n_events in (60_000, 240_000):
        path = write_large(tmp_path / f"{n_events}.pickle", n_events)
        words = [sys.executable, "-c", CHILD, path, tmp_path / f"lake{n_events}"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert list((tmp_path / f"lake{n_events}" / "snapshot_timeline").rglob("*.parquet"))
        peaks.append(int(done.stdout))
    assert peaks[1] < 1.3 * peaks[0], peaks
