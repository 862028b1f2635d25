"""Memory for reading an export is bounded."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from pipelines.readers import events_by_sql
from pipelines.readers.inputs.find import events_input
from pipelines.readers.kineto import ReadRequest, ReadTrace, TraceRejected
from tests.readers.nsys.small import small as nsys_small
from tests.readers.rocm.small import small as rocm_small

BOUND_MB = 800
# VmHWM is used because ru_maxrss of a child starts at the memory of its parent.
CHILD = """
import sys
from pathlib import Path
from pipelines.readers.inputs.find import events_input
from pipelines.readers.kineto import ReadRequest
path = Path(sys.argv[1])
trace = events_input(path).read(ReadRequest(path, Path(sys.argv[2])))
status = Path("/proc/self/status").read_text()
print(trace.n_events, next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


def peak_mb(path: Path, folder: Path) -> tuple[int, float]:
    """Return (events, peak resident memory in MB) of a process that reads the file."""
    done = subprocess.run([sys.executable, "-c", CHILD, path, folder], capture_output=True, text=True, check=True)
    n_events, kilobytes = done.stdout.split()
    return int(n_events), int(kilobytes) / 1024


def nsys(folder: Path, times: int) -> Path:
    """Write the small run with its rows repeated `times` in sequence.

    Each repetition has other correlation ids and texts.
    """
    path = nsys_small().write(folder / f"{times}.sqlite")
    moved = {"start", "end", "correlationId", "eventSyncId"}
    with closing(sqlite3.connect(path)) as con:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                      "CUPTI_ACTIVITY_KIND_CUDA_EVENT", "NVTX_EVENTS"):  # fmt: skip
            _repeat(con, table, moved, times, {"text": "text || n"})
        con.commit()
    return path


def rocpd(folder: Path, times: int) -> Path:
    database = rocm_small()
    path = database.write(folder / f"{times}.db")
    with closing(sqlite3.connect(path)) as con:
        for table in ("rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region", "rocpd_event"):
            _repeat(con, table + database.end, {"id", "start", "end", "event_id", "stack_id"}, times, {})
        con.commit()
    return path


def _repeat(con: sqlite3.Connection, table: str, moved: set[str], times: int, others: dict[str, str]) -> None:
    names = [row[1] for row in con.execute(f'PRAGMA table_info("{table}")')]
    values = [f'"{name}" + 100000 * n' if name in moved else others.get(name, f'"{name}"') for name in names]
    numbers = f"WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number LIMIT {times - 1})"
    query = f'{numbers} SELECT {", ".join(values)} FROM (SELECT * FROM "{table}"), number'
    con.execute(f"CREATE TEMP TABLE more AS {query}")
    con.execute(f'INSERT INTO "{table}" SELECT * FROM more')
    con.execute("DROP TABLE more")


@pytest.mark.parametrize("make", [nsys, rocpd])
def test_repeated_runs_have_as_many_events(tmp_path: Path, make: Callable[[Path, int], Path]) -> None:
    """The test ensures that the slow test below measures a trace with all its rows."""
    counts = []
    for times in (1, 4):
        path = make(tmp_path, times)
        trace = events_input(path).read(ReadRequest(path, tmp_path))
        assert isinstance(trace, ReadTrace)
        counts.append(trace.n_events)
    fixed = 2 if make is rocpd else 0  # the thread's name and the mark are not repeated
    assert counts[1] - fixed == 4 * (counts[0] - fixed)


def test_what_does_not_fit_is_a_rejection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sorted_rows(*_: object) -> Iterator[object]:
        raise duckdb.OutOfMemoryException("could not allocate block")
        yield

    monkeypatch.setattr(events_by_sql, "_tables", sorted_rows)
    path = nsys_small().write(tmp_path / "a.sqlite")
    with pytest.raises(TraceRejected, match=r"a\.sqlite.*more memory than the 286 MiB.*profile for a shorter time"):
        events_input(path).read(ReadRequest(path, tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
@pytest.mark.parametrize(("make", "times", "expected"), [(nsys, 200_000, 2_000_000), (rocpd, 60_000, 480_002)])
def test_memory_stays_below_the_bound(
    tmp_path: Path, make: Callable[[Path, int], Path], times: int, expected: int
) -> None:
    """DuckDB's tables alone would exceed its memory limit, so DuckDB writes to disk.

    Two million events are 17 row groups, so memory kept per group would be visible.
    """
    n_events, peak = peak_mb(make(tmp_path, times), tmp_path)
    assert n_events == expected
    assert peak < BOUND_MB
