"""Ingesting a snapshot takes bounded memory: what does not fit goes to disk, and comes out the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.inputs import spilling as bounds
from tests.memory_snapshots.large import write_large

# VmHWM and not ru_maxrss: the latter of a child begins with what its parent held.
CHILD = """
import sys
from pathlib import Path
from pipelines.ingest import ingest
from pipelines.inputs import spilling
from pipelines.lake import Lake
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


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc says what a process has taken")
def test_four_times_the_file_takes_the_same_memory(tmp_path: Path) -> None:
    """With 100 MB for DuckDB, so that both files exceed it."""
    peaks = []
    for n_events in (60_000, 240_000):
        path = write_large(tmp_path / f"{n_events}.pickle", n_events)
        words = [sys.executable, "-c", CHILD, path, tmp_path / f"lake{n_events}"]
        told = subprocess.run(words, capture_output=True, text=True, check=True)
        assert list((tmp_path / f"lake{n_events}" / "snapshot_timeline").rglob("*.parquet"))
        peaks.append(int(told.stdout))
    assert peaks[1] < 1.3 * peaks[0], peaks
