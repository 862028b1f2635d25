"""The commands as a user calls them, on a lake that the test creates.

A few run as separate processes, which cost a second each.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.synthetic import CaptureSpec, write_capture


def tracelake(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, and return its result as that of a separate process."""
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    print(done.stderr, file=sys.stderr)  # the reason, if a test expects an answer and gets an error
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def process(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipelines.faces.cli.app", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])


@pytest.mark.slow
def test_from_files_to_answers(tmp_path: Path) -> None:
    """The test ingests, asks, breaks down, computes the path and draws it. Errors exit with 1 and name a remedy."""
    capture = write_capture(CaptureSpec(ranks=2, steps=2, straggler=1, seed=5), tmp_path / "in")
    (tmp_path / "in" / "notes.txt").write_text("not a trace")
    lake = tmp_path / "lake"
    done = tracelake("ingest", tmp_path / "in", "--lake", lake, "--json")
    rows = json.loads(done.stdout)
    assert done.returncode == 1  # one file was rejected, with a reason
    assert sorted(row["status"] for row in rows) == ["ok", "ok", "rejected"]
    assert all(row["reason"] for row in rows if row["status"] == "rejected")

    done = tracelake("sql", "SELECT count(*) AS n FROM critical_path_summary", "--lake", lake, "--format", "json")
    assert json.loads(done.stdout)[0]["n"] >= 4, done.stderr
    assert len(json.loads(tracelake("breakdown", "--lake", lake, "--json").stdout)) == 2

    trace_id = next(row["trace_id"] for row in rows if row["rank"] == 0)
    edges = tmp_path / "edges.parquet"
    done = tracelake("critical-path", trace_id[:8], "--lake", lake, "--edges", edges, "--json")
    answer = json.loads(done.stdout)
    assert answer["success"] and round(1000 * answer["length_us"]) == capture.ranks[0].truth.full.length_ns
    assert set(answer["path"][0]) == {"event_id", "name", "edge_type", "duration_us", "bound_by", "owner"}
    assert sum(kind["count"] for kind in answer["edges_by_type"].values()) == answer["edges"]
    assert edges.stat().st_size > 0
    done = tracelake("critical-path", trace_id[:8], "--lake", lake, "--alternatives", 3, "--json")
    others = json.loads(done.stdout)["alternatives"]
    assert len(others) == 3 and answer["alternatives"] == []
    assert all(round(o["length_us"] + o["shorter_by_us"] - answer["length_us"], 3) == 0 for o in others)
    assert all(o["entered"] or o["left"] for o in others)
    overlay = json.loads(tracelake("overlay", capture.ranks[0].path, "--out", tmp_path, "--json").stdout)["path"]
    assert Path(overlay).name.startswith("overlaid_critical_path_")
    with (gzip.open if overlay.endswith(".gz") else open)(overlay) as drawn:
        kept = [event.get("args", {}) for event in json.load(drawn)["traceEvents"]]
    assert any("External id" in args for args in kept)  # the redrawn events have their arguments

    assert json.loads(tracelake("tables", "kernels", "--json").stdout)[0]["column"] == "trace_id"
    for wrong in (("critical-path", "ffff", "--lake", lake), ("sql", "SELECT x", "--lake", lake), ("tables", "nope")):
        done = tracelake(*wrong)
        assert done.returncode == 1 and "error:" in done.stderr
    assert process("sql", "SELECT x", "--lake", lake).returncode == 1


def test_every_command_explains_itself() -> None:
    for name in ("ingest", "sql", "tables", "breakdown", "critical-path", "overlay", "materialize", "demo", "ui"):
        done = (process if name == "ui" else tracelake)(name, "--help")
        assert done.returncode == 0 and "Example: " in done.stdout.replace("\n", " "), name
