"""Tables of one capture of a lake: no tables of other captures are computed, and none of their rows are lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.lake import Lake
from pipelines.lake.table_files import table_files
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_capture import part_of, stale_captures
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture
from tests.fleet.fleet_world import write_capture as write_tiny

FIRST = ["captures", "capture_ranks", "temporal_breakdown"]
LATER = [*FIRST, "straggler_ranks"]
CAPTURES = ["captures", "straggler_ranks"]


def asked(lake: Lake, query: str) -> list[tuple]:
    con = lake.connect(["captures", "straggler_ranks"])
    try:
        return con.execute(query).fetchall()
    finally:
        con.close()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    folder = tmp_path_factory.mktemp("in")
    return {
        job: write_capture(CaptureSpec(ranks=2, steps=3, straggler=straggler, seed=straggler), folder / job).paths
        for straggler, job in enumerate(("one", "two"))
    }


@pytest.fixture
def lake(inputs: dict[str, list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Return a lake with both captures, in separate batches.

    The analysts' file is not written, because that takes longer than the tables.
    """
    monkeypatch.setattr("pipelines.runs.materialize.publishing.publish", lambda *_: None)
    made = Lake(tmp_path / "lake")
    for job, paths in inputs.items():
        ingest(paths, made, job=job)
    return made


def capture_of(lake: Lake, job: str) -> str:
    con = lake.connect(["traces"])
    ((capture_id,),) = con.execute(f"SELECT DISTINCT capture_id FROM traces WHERE job = '{job}'").fetchall()
    con.close()
    return capture_id


@pytest.mark.slow
def test_only_the_part_is_computed_and_parts_add_up_to_the_whole(lake: Lake) -> None:
    first, second = capture_of(lake, "one"), capture_of(lake, "two")
    part = part_of(lake, first)
    assert (part.captures, part.batches) == ({first}, {lake.batches()[0]})
    materialize_all(lake, LATER, part=part)
    assert [path.stem for path in table_files(lake.root, "temporal_breakdown")] == [lake.batches()[0].batch_id]
    assert asked(lake, "SELECT capture_id FROM captures") == [(first,)]
    assert asked(lake, "SELECT DISTINCT capture_id FROM straggler_ranks") == [(first,)]
    assert not stale_captures(lake, load_catalog(), CAPTURES, part)
    assert stale_captures(lake, load_catalog(), CAPTURES) and stale_captures(
        lake, load_catalog(), CAPTURES, part_of(lake, second)
    )
    query = "SELECT capture_id, rank, wait_ns, n_last FROM straggler_ranks ORDER BY ALL"
    rows_of_first = asked(lake, query)
    materialize_all(lake, LATER, part=part_of(lake, second))
    both = asked(lake, query)
    assert set(rows_of_first) < set(both) and {row[0] for row in both} == {first, second}
    assert not stale_captures(lake, load_catalog(), CAPTURES)


@pytest.mark.slow  # test_growth.py tests a capture that grew
def test_a_capture_that_changed_in_the_same_file_is_brought_up_to_date(lake: Lake, tmp_path: Path) -> None:
    three = write_capture(CaptureSpec(ranks=3, steps=3, straggler=1), tmp_path / "three").paths
    ingest(three[:2], lake, job="three")
    materialize_all(lake, FIRST)
    ingest(three[2:], lake, job="three")
    materialize_all(lake, LATER, part=part_of(lake, capture_of(lake, "one")))
    rank_counts = dict(asked(lake, "SELECT capture_id, count(*) FROM straggler_ranks GROUP BY capture_id"))
    assert rank_counts == {capture_of(lake, job): ranks for job, ranks in (("one", 2), ("two", 2), ("three", 3))}
    assert not stale_captures(lake, load_catalog(), CAPTURES)


def test_a_trace_s_batch_is_its_part(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    for day, job in enumerate(("one", "two")):
        ingest([write_tiny(tmp_path / job, day, [1000], ranks=(0,))], lake, job=job)
    con = lake.connect(["traces"])
    ((trace_id,),) = con.execute("SELECT min(trace_id) FROM traces WHERE job = 'two'").fetchall()
    con.close()
    part = part_of(lake, trace_id)
    assert (part.captures, part.batches) == (set(), {lake.batches()[1]})
