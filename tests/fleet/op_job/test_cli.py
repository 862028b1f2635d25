"""`tracelake op-job`, on a simulated job and on the published one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from tests.fleet.op_job.make import UNIT, B, F, Shape, write_job


def run(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["op-job", *map(str, words)])
    return result.exit_code, result.output


def test_json_of_the_published_job(shared: Path) -> None:
    status, text = run(shared / "traces/stragglers/trace-ST.parquet", "--json")
    answer, expected = json.loads(text), json.loads((shared / "golden/fleet/whatif_ST.json").read_text())
    assert status == 0
    assert answer["job"]["slowdown"] == pytest.approx(expected["blocking_slowdown"], rel=1e-6)
    assert {str(row["rank"]) for row in answer["rank_scores"] if row["is_worst"]} == {str(r) for r in expected["worst"]}
    slowdowns = {row["key"]: row["slowdown"] for row in answer["parts"] if row["scope"] == "optype"}
    assert slowdowns == pytest.approx(expected["by_optype"], rel=1e-6)


def test_tables_and_picture(tmp_path: Path) -> None:
    def own(key: tuple) -> float:
        return (64 if key[1] == 1 else 32) * UNIT if key[0] in (F, B) else UNIT

    path = write_job(tmp_path, Shape(2, 2, (1,), 2), own)
    status, text = run(path, "--out", tmp_path / "heat.svg")
    assert status == 0
    assert "last stage (1): making only these ideal removes" in text and "residual" in text
    assert (tmp_path / "heat.svg").read_text().startswith("<svg")


def test_a_job_without_stragglers_has_no_picture(tmp_path: Path) -> None:
    path = write_job(tmp_path, Shape(2, 2, (1,), 2), lambda key: 8 * UNIT)
    status, text = run(path)
    assert status == 0 and "Too small to say" in text
    status, text = run(path, "--out", tmp_path / "heat.svg")
    assert status == 1 and "no scores" in text and not (tmp_path / "heat.svg").exists()


def test_errors_name_the_file(tmp_path: Path) -> None:
    status, text = run(tmp_path / "gone.parquet")
    assert status == 1 and "gone.parquet" in text
    (tmp_path / "words.parquet").write_text("words")
    (tmp_path / "words.yaml").write_text("words")
    status, text = run(tmp_path / "words.parquet")
    assert status == 1 and "words.yaml" in text
