"""Memory of reading a Perfetto trace is below a bound at two sizes; that it levels off beyond them is not shown here."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("perfetto", reason="reading Perfetto traces needs the extra 'perfetto'")

from tests.perfetto.writer import Written
from tests.sqlite_exports.test_memory import BOUND_MB, peak_mb

SLICES = 2_000


def repeated(path: Path, times: int) -> Path:
    """One group of slices as PyTorch writes it, so many times one after another in the file."""
    written = Written()
    args = {"External id": 1, "Sequence number": 2, "Input Dims": [[1, 2, 3]] * 4}
    events = [{"name": f"aten::op{i % 50}", "pid": 7, "tid": 8, "ts": i, "dur": 1, "args": args} for i in range(SLICES)]
    written.group(events, 0)
    whole = written.bytes()
    group = written.trace.SerializeToString()
    path.write_bytes(whole + group * (times - 1))
    return path


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_stays_below_the_bound(tmp_path: Path) -> None:
    """10,000 and 120,000 slices."""
    peaks = []
    for times in (5, 60):
        n_events, peak = peak_mb(repeated(tmp_path / f"{times}.pftrace", times), tmp_path)
        assert n_events == times * SLICES + 2
        peaks.append(peak)
    assert max(peaks) < BOUND_MB, peaks
