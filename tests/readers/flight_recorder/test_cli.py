"""The command's output for a hand-made case."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from pipelines.faces.cli.app import app


def test_the_odd_rank_is_named(shared: Path) -> None:
    folder = shared / "golden" / "modelling" / "fr" / "two_groups"
    said = CliRunner().invoke(app, ["flight-recorder", str(folder)])
    assert said.exit_code == 0
    assert "is stuck on all_reduce number 2 of group 2" in said.output
    assert "rank 3 did not call it; rank 2 wait" in said.output
    assert "findings of groups 0 probably follow" in said.output
    answer = json.loads(CliRunner().invoke(app, ["flight-recorder", str(folder), "--json"]).output)
    assert answer["root"]["finding"]["culprits"] == [3]


def test_a_broken_dump_is_an_error_with_its_name(tmp_path: Path) -> None:
    (path := tmp_path / "nccl_trace_rank_0").write_bytes(b"{")
    said = CliRunner().invoke(app, ["flight-recorder", str(path)])
    assert said.exit_code == 1
    assert "nccl_trace_rank_0: broken JSON" in said.output.replace("\n", "")


def test_other_files_of_a_folder_are_passed_over_and_named(shared: Path, tmp_path: Path) -> None:
    for file in (shared / "golden" / "modelling" / "fr" / "healthy").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "store").write_bytes(b"gloo")
    said = CliRunner().invoke(app, ["flight-recorder", str(tmp_path)])
    assert said.exit_code == 0 and "no mismatch" in said.stdout
    assert "skipped, not dumps: store" in said.stderr
    (tmp_path / "none").mkdir()
    said = CliRunner().invoke(app, ["flight-recorder", str(tmp_path / "none")])
    assert said.exit_code == 1 and "no Flight Recorder dumps in this folder" in said.output.replace("\n", " ")
