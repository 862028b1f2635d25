"""Files of a unit that a store links or copies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines.lake.lake import Staged
from pipelines.runs.store.unit_batches import linked


def refuse(*_: object) -> None:
    raise PermissionError("not permitted")


@pytest.mark.parametrize("refused", [None, "link", "utime"])
def test_a_file_that_cannot_be_linked_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str | None
) -> None:
    source, target = tmp_path / "source.parquet", tmp_path / "folder" / "target.parquet"
    source.write_bytes(b"rows")
    if refused:
        monkeypatch.setattr(os, refused, refuse)
    staged = linked(Staged(source), target)
    assert staged.path == target and target.read_bytes() == b"rows"
    assert target.samefile(source) == (refused is None)
