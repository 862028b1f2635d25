"""A lake's own causes.csv: its rules win over the shipped ones, and an unusable rule is refused with its line."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import NothingMatches, change_of
from pipelines.faces.cli.app import app
from pipelines.fleet.path import load_capture
from pipelines.fleet.path.capture_walks import JoinableRank
from pipelines.lake.publish.user_causes import read_causes, with_causes
from pipelines.models.catalog import load_catalog
from pipelines.models.errors import CatalogError
from pipelines.synthetic import CaptureSpec, write_capture
from tests.critical_path.whatif.windows import opened
from tests.harness import op, x


def run(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def first(lake: Path) -> dict:
    query = "SELECT cause, name FROM causes WHERE window_id = 'full' ORDER BY duration_ns DESC LIMIT 1"
    return json.loads(run("sql", query, "--lake", lake, "--format", "json"))[0]


@pytest.mark.slow  # 2.6 CPU s; test_formulas.py checks the same code with a user's formulas
def test_its_rules_win_and_the_tables_are_computed_again(tmp_path: Path) -> None:
    spec = CaptureSpec(ranks=1, steps=2, shape="planted", plant="preprocessing", sync_each_step=False)
    (trace,) = write_capture(spec, tmp_path / "job").paths
    lake = tmp_path / "lake"
    run("ingest", trace, "--lake", lake)
    assert first(lake) == {"cause": "host_between_operators", "name": "transforms.py(31): normalize"}
    (lake / "causes.csv").write_text("cause,frame_pattern\ndata_loading,: normalize$\n")
    assert first(lake) == {"cause": "data_loading", "name": "transforms.py(31): normalize"}
    (lake / "causes.csv").write_text("cause,frame_pattern\nlunch,: normalize$\n")
    assert "causes.csv:2: cause 'lunch' is unknown" in run("materialize", "--lake", lake, code=1)


def test_they_are_those_of_its_captures_in_what_if(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "causes.csv"
    path.write_text("cause,annotation_pattern\ndata_loading,^augment$\n")
    lake: Any = SimpleNamespace(catalog=lambda: with_causes(load_catalog(), path))
    loading = Scenario((("cause:data_loading", 0.0),))
    with opened([x("user_annotation", "augment", 0, 100), op("aten::mm", 100, 50)]) as (con, window):
        for name in ("_stored", "_alone"):
            monkeypatch.setattr(load_capture, name, lambda *_: nullcontext(con))
        monkeypatch.setattr(load_capture, "load", lambda *_: window)
        ranks = [JoinableRank(0, window.trace_id, 0, 1)]
        (shipped,), (own,) = (load_capture._windows(con, ranks, source, [loading]) for source in (None, lake))
        with pytest.raises(NothingMatches):
            change_of(shipped.window, loading)
        assert change_of(own.window, loading).of(own.window.graph.weight, own.window.graph.dst).sum() == 50_000


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("data_loading,,,", "2: give at least one of annotation_pattern"),
        ("data_loading,(,,", "2: annotation_pattern '(' is not a regular expression"),
        ("data_loading,.*,,", "2: annotation_pattern '.*' fits every name"),
        ("data_loading,^x,,maybe", "2: takes_gpu_work 'maybe' is neither true nor false"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "causes.csv"
    path.write_text(f"cause,annotation_pattern,call_pattern,takes_gpu_work\n{row}\n")
    with pytest.raises(CatalogError, match=f"causes.csv:{message.replace('(', '[(]').replace('.*', '[.][*]')}"):
        read_causes(path)
