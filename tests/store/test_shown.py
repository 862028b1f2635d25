"""The views of a DuckLake are kept in a file, which is another one when what they are made from changes."""

from pathlib import Path

import pytest

from pipelines.lake import agreed, views
from pipelines.models import run
from pipelines.models.catalog import load_catalog
from pipelines.store import shown, told


@pytest.mark.parametrize("module", [shown, run, agreed, views, told])
def test_kept_views_are_those_of_this_program(module: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = shown._Build(load_catalog(), {}, False, True, False)
    before = build.name
    assert build.name == before
    (tmp_path / "newer.py").write_text("another version")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "newer.py"))
    assert build.name != before
