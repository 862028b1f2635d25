"""Memory for reading a Perfetto trace of one size is bounded.

The test does not check that memory stays constant beyond this size.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("perfetto", reason="reading Perfetto traces needs the extra 'perfetto'")

from tests.readers.perfetto.large import write_large
from tests.readers.sqlite_exports.test_memory import BOUND_MB, peak_mb


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_stays_below_the_bound(tmp_path: Path) -> None:
    """The trace has 240,000 slices and 60,000 kernels."""
    n = write_large(tmp_path / "a.pftrace", 120)
    n_events, peak = peak_mb(tmp_path / "a.pftrace", tmp_path)
    assert n_events == n + 2
    assert peak < BOUND_MB
