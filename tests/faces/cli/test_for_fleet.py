"""`materialize --for fleet`, which computes the tables that a fleet needs every day, and no others.

Its answers are the same.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.fleet_tables import FLEET_TABLES
from pipelines.lake import Lake
from pipelines.lake.table_files import table_files
from pipelines.runs.store.requested_tables import requested_tables
from pipelines.synthetic import CaptureSpec, write_capture


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


@pytest.mark.slow  # 4 s
def test_answers_are_the_same_and_other_tables_wait_for_their_first_use(tmp_path: Path) -> None:
    write_capture(CaptureSpec(ranks=2, steps=2), tmp_path / "in")
    run("ingest", tmp_path / "in", "--lake", tmp_path / "all", "--job", "vision")
    shutil.copytree(tmp_path / "all", tmp_path / "lake")
    run("materialize", "--lake", tmp_path / "all")
    run("materialize", "--for", "fleet", "--lake", tmp_path / "lake")

    lake = Lake(tmp_path / "lake")
    assert not requested_tables(lake, FLEET_TABLES).are_stale
    assert not [*table_files(lake.root, "critical_path"), *table_files(lake.root, "event_slack")]
    assert json.loads(run("materialize", "--for", "fleet", "--lake", lake.root, "--json")) == []
    (trace,) = json.loads(run("sql", "SELECT min(trace_id) AS id FROM traces", "--lake", lake.root, "--format", "json"))
    for words in (["fleet", "--json"], ["metrics"], ["why", trace["id"], "--json"]):  # printed commands name the lake
        for_fleet, of_all = (
            run(*words, "--lake", root).replace(str(root), "LAKE") for root in (lake.root, tmp_path / "all")
        )
        assert for_fleet == of_all, words
    assert not table_files(lake.root, "critical_path")

    assert '"n": 0' not in run(
        "sql", "SELECT count(*) AS n FROM critical_path", "--lake", lake.root, "--format", "json"
    )
    assert table_files(lake.root, "critical_path")


def test_tables_and_a_purpose_exclude_each_other(tmp_path: Path) -> None:
    assert "tables or --for" in run("materialize", "kernels", "--for", "fleet", "--lake", tmp_path, code=1)
