"""Op-level jobs in the lake: once per content, whole, with the numbers of the model."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import pytest

from pipelines.fleet.op_job import read_job, what_if
from pipelines.fleet.op_job.picture import colour, score_heat_map
from pipelines.fleet.op_job.result_rows import excess_rows
from pipelines.lake import Lake
from pipelines.lake.names import batch_of, tables_of
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.table_files import table_files
from pipelines.readers.ingest import ingest
from tests.fleet.op_job.make import UNIT, B, F, Key, Shape, write_job

SHAPE = Shape(pp=2, dp=3, steps=(3, 5), batches=2)


def own(key: Key) -> float:
    """Return durations with stage 1 twice as slow as stage 0."""
    return (64 if key[0] in (F, B) and key[1] == 1 else 32 if key[0] in (F, B) else 4) * UNIT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return write_job(tmp_path / "in", SHAPE, own)


def asked(lake: Lake, query: str) -> list[tuple]:
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        return con.execute(query).fetchall()


def test_a_job_comes_in_once_with_its_numbers(path: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    (row,) = ingest([path.parent], lake).rows  # the YAML file is not a separate file
    analysis = what_if(read_job(path))
    assert (row.status, row.n_events, Path(row.path)) == ("ok", analysis.job.n_ops, path)
    files = sorted(lake.root.rglob("*.parquet"))
    shutil.copytree(path.parent, tmp_path / "moved")
    assert [row.status for row in ingest([path, tmp_path / "moved"], lake).rows] == ["known", "known"]
    assert sorted(lake.root.rglob("*.parquet")) == files
    assert asked(lake, "SELECT job_id, job, dp, pp, tp, n_steps, n_ops, slowdown, gpu_seconds FROM op_jobs") == [
        (row.trace_id, "synthetic", 3, 2, 1, 2, analysis.job.n_ops, analysis.slowdown, analysis.gpu_seconds["total"])
    ]
    rows = asked(lake, "SELECT scope, key, slowdown, explained FROM op_job_what_if")
    assert rows == [(part.scope, part.key, part.slowdown, part.explained) for part in analysis.parts]
    assert asked(lake, "SELECT step, slowdown FROM op_job_steps WHERE scope = 'job' ORDER BY step") == list(
        zip([3, 5], analysis.parts[0].by_step, strict=True)
    )
    assert analysis.scores is not None
    scores = asked(lake, "SELECT score FROM op_job_rank_scores ORDER BY stage, dp_rank")
    assert [score for (score,) in scores] == list(analysis.scores.flat)
    assert asked(lake, "SELECT rank, stage, dp_rank FROM op_job_rank_scores WHERE is_worst") == [(3, 1, 0)]


@pytest.mark.slow  # tests/lake/test_crash.py tests commit markers of traces
def test_a_job_without_its_mark_is_not_shown(path: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([path], lake)
    for mark in table_files(lake.root, "op_jobs"):
        lake.take_away(batch_of(mark), ["op_jobs"])
    assert [asked(lake, f"SELECT count(*) FROM {table}") for table in tables_of("job")] == [[(0,)]] * 4
    assert [row.status for row in ingest([path], lake).rows] == ["ok"]
    assert asked(lake, "SELECT count(*) FROM op_jobs") == [(1,)]


@pytest.mark.slow  # 2 s
def test_a_yaml_file_that_comes_later_brings_its_job(path: Path, tmp_path: Path) -> None:
    lake, meta = Lake(tmp_path / "lake"), path.with_suffix(".yaml")
    text = meta.read_text()
    meta.unlink()
    (row,) = ingest([path], lake).rejected
    assert "no synthetic.yaml" in str(row.reason)
    assert asked(lake, "SELECT path, reason LIKE '%next to it%' FROM rejects") == [(str(path), True)]
    meta.write_text(text)
    (row,) = ingest([meta], lake, job="renamed").rows
    assert row.status == "ok"
    assert asked(lake, "SELECT job FROM op_jobs UNION ALL SELECT DISTINCT job FROM op_job_what_if") == [
        ("renamed",),
        ("renamed",),
    ]


def test_other_yaml_files_are_still_rejected(path: Path, tmp_path: Path) -> None:
    other = path.with_name("other.yaml")
    other.write_text("name: value\n")
    report = ingest([path.parent], Lake(tmp_path / "lake"))
    assert [(Path(row.path).name, row.status) for row in report.rows] == [
        ("other.yaml", "rejected"),
        ("synthetic.parquet", "ok"),
    ]


def test_the_picture_has_a_cell_for_every_rank(path: Path) -> None:
    analysis = what_if(read_job(path))
    assert analysis.scores is not None
    tree = ElementTree.fromstring(score_heat_map(analysis))
    space = "{http://www.w3.org/2000/svg}"
    cells = {r[0].text: r for r in tree.iter(f"{space}rect") if len(r) and r[0].tag == f"{space}title"}
    assert len(cells) == analysis.scores.size
    for (stage, dp), score in [((s, d), analysis.scores[s, d]) for s in range(2) for d in range(3)]:
        cell = cells[f"rank {stage * 3 + dp}: stage {stage}, dp rank {dp}, score {score:.4f}"]
        assert cell.get("fill") == colour(score)
        assert (cell.get("class") == "bad") == ((stage, dp) == (1, 0))


def test_colours_run_from_1_to_one_and_a_half() -> None:
    assert colour(0.7) == colour(1.0) != colour(1.25) != colour(1.5) == colour(9.0)


def test_the_residual_is_named(path: Path) -> None:
    analysis = what_if(read_job(path))
    rows = excess_rows(analysis, "stage")
    assert [row["key"] for row in rows] == ["1", "0", "residual"]
    assert rows[0]["share"] > 1 and rows[-1]["share"] < 0  # not additive
    assert sum(row["share"] for row in rows) == pytest.approx(1)
