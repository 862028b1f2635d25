"""Exports in the commands: one file, and a lake with Kineto's traces beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.cli.app import app
from pipelines.synthetic import CaptureSpec, write_capture
from tests.nsys.small import PID, small, written
from tests.nsys.writer import document_of, export_of


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.stdout


def path_of(text: str) -> dict[str, Any]:
    said = json.loads(text)
    return {key: said[key] for key in ("success", "summary", "path_length_us") if key in said}


def test_the_path_of_a_small_file(tmp_path: Path) -> None:
    assert "gemm" in run("critical-path", str(written(small(), tmp_path)))


@pytest.mark.slow
def test_the_path_of_a_file(tmp_path: Path) -> None:
    (rank,) = write_capture(CaptureSpec(ranks=1, steps=1, layers=2, gz=False), tmp_path).ranks
    export = export_of(document_of(rank.path)).write(tmp_path / "rank0.sqlite")
    told = [path_of(run("critical-path", str(path), "--json")) for path in (rank.path, export)]
    assert told[0] == told[1] and told[0]["success"]
    parts = [json.loads(run("breakdown", str(path), "--json"))[0] for path in (rank.path, export)]
    assert [part.pop("path") for part in parts] == [str(rank.path), str(export)]
    assert parts[0].pop("trace_id") != parts[1].pop("trace_id")
    assert parts[0] == parts[1]


def test_ingest_shows_a_line_for_each_process(tmp_path: Path) -> None:
    export = small()
    small(PID + (1 << 24), into=export)
    files = [str(written(export, tmp_path, "both.sqlite")), str(tmp_path / "old.nsys-rep")]
    Path(files[1]).write_bytes(b"\0")
    lake = str(tmp_path / "lake")
    rows = json.loads(run("ingest", *files, "--lake", lake, "--json", code=1))
    assert [(Path(row["path"]).name, row["status"]) for row in rows] == [
        ("both.sqlite", "ok"), ("both.sqlite", "ok"), ("old.nsys-rep", "rejected"),
    ]  # fmt: skip
    query = "SELECT format, n_events FROM traces"
    assert (
        json.loads(run("sql", query, "--lake", lake, "--format", "json"))
        == [{"format": "sqlite/nsys", "n_events": 10}] * 2
    )
    table = run("ingest", files[0], "--lake", str(tmp_path / "other"))
    assert table.count("both.sqlite") == 2
