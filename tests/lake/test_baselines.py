"""Baselines of a lake, kept in its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.lake.baselines import NoBaseline, set_baseline


def test_removing_a_baseline_makes_no_lake(tmp_path: Path) -> None:
    """Removing a missing baseline creates neither a folder nor a layout marker.

    A lake of tracelake 0.1 has no layout marker. Writing one would make its files count as the current layout.
    """
    with pytest.raises(NoBaseline, match="no baseline 'main': there are none") as unknown:
        set_baseline(tmp_path / "lake", "main", None)
    assert unknown.value.hint == f"Set one with `tracelake baseline set NAME TRACE --lake {tmp_path / 'lake'}`."
    assert not (tmp_path / "lake").exists()
