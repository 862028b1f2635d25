"""Drawings of tracelake are not traces of a profiler, so ingestion rejects them with the reason.

A slice is reported as a slice, and belongs to no job.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.lake.names import ANALYST
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import first_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write traces of two ranks of a job in `in`, a lake with them in `lake`, and a slice of rank 0."""
    folder = tmp_path_factory.mktemp("drawn")
    write_capture(CaptureSpec(ranks=2, steps=3, seed=2), folder / "in")
    run("ingest", folder / "in", "--lake", folder / "lake", "--job", "llm")
    run("slice", "--step", 1, "--rank", 0, "--out", folder / "slice.json", "--lake", folder / "lake")
    return folder


@pytest.fixture(scope="module")
def trace(folder: Path) -> str:
    """Return the id of the trace of rank 0."""
    with duckdb.connect(str(folder / "lake" / ANALYST), read_only=True) as con:
        ((trace,),) = con.execute("SELECT trace_id FROM traces WHERE rank = 0").fetchall()
    return trace


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, (words, done.output)
    return done.output


def marked(path: Path) -> dict:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)["tracelake"]


def drawn(kind: str, folder: Path, target: Path) -> Path:
    """Draw into `target` with this command, from rank 0 or from both ranks, and return the file."""
    (first,) = (path for path in (folder / "in").iterdir() if path.name.startswith("rank0"))
    words = {
        "timeline": [folder / "in", "--out", target / "timeline.json.gz"],
        "overlay": [first, "--out", target],
        "what-if": [first, "--scale", "*gemm*=0.5", "--redraw", target],
    }
    assert run(kind, *words[kind])
    (path,) = target.iterdir()
    return path


@pytest.mark.parametrize("kind", first_of(["timeline", "overlay", "what-if"], 1))
def test_each_drawing_has_a_mark_and_is_refused_with_the_reason(
    folder: Path, trace: str, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "out").mkdir()
    path = drawn(kind, folder, tmp_path / "out")
    assert marked(path)["drawing"] == kind and trace in marked(path)["of"]
    (row,) = ingest([path], Lake(tmp_path / "lake")).rows
    assert row.status == "rejected"
    assert f"`tracelake {kind}` drew" in str(row.reason) and "ingest the trace itself" in str(row.reason)
    assert trace in str(row.reason) or "2 traces" in str(row.reason)


def test_a_slice_is_a_slice_of_its_trace_and_no_capture_of_the_job(folder: Path, trace: str, tmp_path: Path) -> None:
    sliced = folder / "slice.json"
    assert marked(sliced)["drawing"] == "slice" and trace in marked(sliced)["of"]
    lake = Lake(folder / "lake")
    beside = tmp_path / "in" / "rank1.json"  # named as a copy in the job's folder would be
    beside.parent.mkdir()
    beside.write_bytes(sliced.read_bytes())
    rows = ingest([*(folder / "in").glob("*.json.gz"), beside], lake, job="llm").rows
    assert [row.status for row in rows] == ["known", "known", "ok"]
    materialize_all(lake, ["captures", "capture_ranks", "kernels"])
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        assert con.execute("SELECT job, n_ranks FROM captures ORDER BY n_ranks DESC").fetchall() == [
            ("llm", 2),
            (None, 1),
        ]
        details = con.execute("SELECT detail FROM findings WHERE check_name = 'slice'").fetchall()
    assert details == [(f"a slice of trace {trace}: it has only what was asked for, and is no capture of a job",)]
