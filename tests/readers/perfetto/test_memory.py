"""Memory of reading a Perfetto trace is below a bound; that it levels off beyond this size is not shown here."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("perfetto", reason="reading Perfetto traces needs the extra 'perfetto'")

from tests.readers.perfetto.large import write_large
from tests.readers.sqlite_exports.test_memory import BOUND_MB, peak_mb


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_stays_below_the_bound(tmp_path: Path) -> None:
    """300,000 slices."""
    n = write_large(tmp_path / "a.pftrace", 120)
    n_events, peak = peak_mb(tmp_path / "a.pftrace", tmp_path)
    assert n_events == n + 2
    assert peak < BOUND_MB
