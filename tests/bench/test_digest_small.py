"""Size limit for digests of small traces: 3 KB per rank and step, if enough traces share their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.digest_small import bytes_per_step


@pytest.mark.slow  # 9 s and 5 s; tests/runs/test_digest.py checks how the files are written
@pytest.mark.parametrize(("traces", "steps"), [(36, 1), (11, 3)])
def test_small_traces_share_the_cost_of_the_files(tmp_path: Path, traces: int, steps: int) -> None:
    assert bytes_per_step(tmp_path, traces, steps) <= 3000
