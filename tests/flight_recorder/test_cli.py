"""What the command prints about a made case."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from pipelines.cli.app import app


def test_the_odd_rank_is_named(shared: Path) -> None:
    folder = shared / "golden" / "modelling" / "fr" / "two_groups"
    said = CliRunner().invoke(app, ["flight-recorder", str(folder)])
    assert said.exit_code == 0
    assert "hangs on all_reduce number 2 of group 2" in said.output
    assert "rank 3 did not call it; rank 2 wait" in said.output
    assert "groups 0 show probably follows" in said.output
    answer = json.loads(CliRunner().invoke(app, ["flight-recorder", str(folder), "--json"]).output)
    assert answer["root"]["finding"]["culprits"] == [3]


def test_a_broken_dump_is_an_error_with_its_name(tmp_path: Path) -> None:
    (path := tmp_path / "nccl_trace_rank_0").write_bytes(b"{")
    said = CliRunner().invoke(app, ["flight-recorder", str(path)])
    assert said.exit_code == 1
    assert "nccl_trace_rank_0: broken JSON" in said.output.replace("\n", "")
