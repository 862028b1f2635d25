"""A snapshot written without Python's pickler is read like any other, and a very large snapshot is rejected."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pipelines.readers.inputs import Rejected
from pipelines.readers.memory_snapshots import lake
from tests.readers.inputs.read_tables import loaded
from tests.readers.memory_snapshots.large import write_large


@pytest.mark.slow  # a test below reads such a file
def test_what_the_large_one_holds_is_a_pickle(tmp_path: Path) -> None:
    made = pickle.loads(write_large(tmp_path / "s.pickle", 2_100).read_bytes())
    (history,) = made["device_traces"]
    assert len(history) == 2_100 and {len(event["frames"]) for event in history} == {40}
    con = loaded(lake.INPUT, [tmp_path / "s.pickle"])
    ((n_events, n_stacks),) = con.execute("SELECT n_events, n_stacks FROM memory_snapshots").fetchall()
    assert (n_events, n_stacks) == (2_100, len({str(event["frames"]) for event in history}))


def test_one_that_is_too_large_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_large(tmp_path / "s.pickle", 2_100)
    monkeypatch.setattr(lake, "LARGEST", path.stat().st_size - 1)
    with pytest.raises(Rejected, match="record a shorter history"):
        loaded(lake.INPUT, [path])
    monkeypatch.setattr(lake, "LARGEST", path.stat().st_size)
    assert loaded(lake.INPUT, [path]).execute("SELECT count(*) FROM snapshot_timeline").fetchall() == [(2_100,)]
