"""What tracelake drew is no profiler's trace: ingestion refuses it with the reason. A slice is named as one, and is of no job."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.lake.layout import ANALYST
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, Path]]:
    """A folder, the id of a trace of rank 0 of a job, and what was drawn, by kind."""
    folder = tmp_path_factory.mktemp("drawn")
    first = write_capture(CaptureSpec(ranks=2, steps=3, seed=2), folder / "in").ranks[0].path
    lake = folder / "lake"
    run("ingest", folder / "in", "--lake", lake, "--job", "llm")
    files = {
        "slice": folder / "slice.json",
        "timeline": folder / "timeline.json.gz",
        "overlay": folder / f"overlaid_critical_path_{first.name}",
        "what-if": folder / "redrawn.json",
    }
    run("slice", "--step", 1, "--rank", 0, "--out", files["slice"], "--lake", lake)
    run("timeline", folder / "in", "--out", files["timeline"])
    run("overlay", first, "--out", folder)
    told = run("what-if", first, "--scale", "*gemm*=0.5", "--redraw", folder / "redrawn")
    files["what-if"] = next((folder / "redrawn").iterdir(), files["what-if"])
    assert told
    with duckdb.connect(str(lake / ANALYST), read_only=True) as con:
        ((trace,),) = con.execute("SELECT trace_id FROM traces WHERE rank = 0").fetchall()
    return folder, trace, files


def run(*words: object) -> str:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, (words, done.output)
    return done.output


def marked(path: Path) -> dict:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)["tracelake"]


def test_each_drawing_has_a_mark_and_is_refused_with_the_reason(
    world: tuple[Path, str, dict[str, Path]], tmp_path: Path
) -> None:
    _, trace, files = world
    assert {kind: marked(path)["drawing"] for kind, path in files.items()} == {kind: kind for kind in files}
    assert all(trace in marked(path)["of"] for path in files.values())
    drawings = {kind: path for kind, path in files.items() if kind != "slice"}
    rows = {Path(row.path): row for row in ingest(list(drawings.values()), Lake(tmp_path / "lake")).rows}
    assert {row.status for row in rows.values()} == {"rejected"}
    for kind, path in drawings.items():
        reason = rows[path].reason or ""
        assert f"`tracelake {kind}` drew" in reason and "ingest the trace itself" in reason
        assert trace in reason or "2 traces" in reason


def test_a_slice_is_a_slice_of_its_trace_and_no_capture_of_the_job(
    world: tuple[Path, str, dict[str, Path]], tmp_path: Path
) -> None:
    folder, trace, files = world
    lake = Lake(tmp_path / "lake")
    beside = tmp_path / "in" / "rank1.json"  # as a copy in the folder of the job would be called
    beside.parent.mkdir()
    beside.write_bytes(files["slice"].read_bytes())
    assert [row.status for row in ingest([*(folder / "in").glob("*.json.gz"), beside], lake, job="llm").rows] == [
        "ok"
    ] * 3
    materialize_all(lake, ["captures", "capture_ranks", "kernels"])
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        assert con.execute("SELECT job, n_ranks FROM captures ORDER BY n_ranks DESC").fetchall() == [
            ("llm", 2),
            (None, 1),
        ]
        found = con.execute("SELECT detail FROM findings WHERE check_name = 'slice'").fetchall()
    assert found == [(f"a slice of trace {trace}: it has only what was asked for, and is no capture of a job",)]
