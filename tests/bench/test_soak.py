"""A small run of the soak, with the same code as `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.soak.soak import soak


@pytest.mark.slow
def test_every_good_trace_once_and_every_bad_one_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRACELAKE_INBOX", "TRACELAKE_LAKE"):
        monkeypatch.setenv(name, "")  # monkeypatch restores the value afterwards
    result = soak(tmp_path, traces=16, ticks=1, kills=1, seed=26)
    assert len(result.drops.good) == 16
    assert result.drops.late and result.drops.duplicates and result.drops.bad
    assert result.kills == 1
    assert result.rounds > 0
