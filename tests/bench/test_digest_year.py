"""The benchmark lake with a year of digests: the number of steps, and an answer for each page."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.digest_year import RANKS, STEPS, pages, seed_lake, year
from pipelines.lake.publish.analyst_file import publish
from pipelines.runs.store import open_store


@pytest.mark.slow  # 15 s
def test_days_of_digests(tmp_path: Path) -> None:
    lake = year(seed_lake(tmp_path / "seed"), tmp_path / "lake", days=2, gpus=2 * RANKS)
    publish(lake)
    assert all(map(lake.is_digest, lake.batches())) and len(lake.batches()) == 2
    with lake.connect(["traces", "digest_steps"]) as con:
        rows = con.execute(
            "SELECT count(*), count(DISTINCT trace_id) FROM digest_steps WHERE step IS NOT NULL"
        ).fetchall()
    with open_store(lake.root).analyst() as con:
        assert con.execute("SELECT count(*), sum(n_captures) FROM job_days").fetchall() == [(4, 4)]
    assert rows == [(2 * 2 * RANKS * STEPS, 2 * 2 * RANKS)]
    assert {"fleet", "jobs", "regressions", "why, one trace"} <= dict(pages(lake)).keys()
