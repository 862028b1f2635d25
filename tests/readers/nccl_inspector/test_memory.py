"""Memory for ingesting a log of the NCCL Inspector is bounded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.readers.nccl_inspector.make_logs import lines

BOUND_MB = 800
# VmHWM is used because ru_maxrss of a child starts at the memory of its parent.
CHILD = """
import sys
from pathlib import Path
from pipelines.readers.ingest import ingest
from pipelines.lake import Lake
(row,) = ingest([Path(sys.argv[1])], Lake(Path(sys.argv[2]))).rows
status = Path("/proc/self/status").read_text()
print(row.status, row.n_events, next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


def write_large(path: Path, n: int) -> Path:
    """Write a log of `n` collectives, one line repeated with different numbers."""
    text = lines(2, [(7_777_777, 1 << 20, 123)])[1]
    before, after = text.split("7777777")
    with path.open("w") as file:
        file.writelines(f"{before}{seq}{after}\n" for seq in range(n))
    return path


@pytest.mark.slow  # test_logs.py checks that logs are ingested
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_stays_below_the_bound(tmp_path: Path) -> None:
    """The log is half a gigabyte, and DuckDB may use 300 MB."""
    n = 1_000_000
    log = write_large(tmp_path / "a.log", n)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, log, tmp_path / "lake"], capture_output=True, text=True, check=True
    )
    status, n_events, kilobytes = done.stdout.split()
    assert (status, int(n_events)) == ("ok", n)
    assert int(kilobytes) / 1024 < BOUND_MB
