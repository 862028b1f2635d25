"""Memory of reading a Perfetto trace is below a bound at two sizes; that it levels off beyond them is not shown here."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("perfetto", reason="reading Perfetto traces needs the extra 'perfetto'")

from pipelines.readers.inputs.find import events_input
from pipelines.readers.kineto import ReadRequest, ReadTrace
from tests.readers.perfetto.large import write_large
from tests.readers.sqlite_exports.test_memory import BOUND_MB, peak_mb


@pytest.mark.slow  # it looks at what the other one reads
def test_large_traces_have_as_many_events(tmp_path: Path) -> None:
    """What the slow test measures is a trace with all its rows."""
    n = write_large(tmp_path / "a.pftrace", 2)
    trace = events_input(tmp_path / "a.pftrace").read(ReadRequest(tmp_path / "a.pftrace", tmp_path))
    assert isinstance(trace, ReadTrace)
    assert (trace.n_events, [finding.check_name for finding in trace.findings]) == (n + 2, [])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_stays_below_the_bound(tmp_path: Path) -> None:
    """100,000 and 300,000 slices."""
    peaks = []
    for groups in (40, 120):
        path = tmp_path / f"{groups}.pftrace"
        n = write_large(path, groups)
        n_events, peak = peak_mb(path, tmp_path)
        assert n_events == n + 2
        peaks.append(peak)
    assert max(peaks) < BOUND_MB, peaks
