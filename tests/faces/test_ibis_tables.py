"""The lake's tables in Ibis."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

pytest.importorskip("ibis", reason="the extra notebook is not installed")

import ibis

from pipelines.faces.ibis_tables import open_tables
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from tests.engines.ibis_page import busy
from tests.lake.world import write_trace


@pytest.mark.slow  # 4 s
def test_models_are_ibis_tables(tmp_path: Path) -> None:
    """Every public table exists, and a named table is computed first. A join and a sum equal those in SQL."""
    lake = Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / f"rank{rank}.json", rank, distributedInfo={"rank": rank}) for rank in (0, 1)], lake)
    tables = open_tables(lake, "kernels")
    assert set(tables.list_tables()) == {*load_catalog().public}
    kernels, traces = tables.table("kernels"), tables.table("traces")
    per_rank = kernels.join(traces, "trace_id").group_by("rank").agg(busy_ns=kernels.duration_ns.sum()).order_by("rank")
    assert per_rank.to_pyarrow().to_pylist() == [{"rank": 0, "busy_ns": 80_000}, {"rank": 1, "busy_ns": 80_000}]
    of_page = busy()(tables).to_pyarrow().to_pylist()  # docs/other-engines.md
    assert [(row["rank"], row["busy_ns"]) for row in of_page] == [(0, 80_000), (1, 80_000)]
    assert kernels.schema()["start_ns"] == ibis.dtype("int64")
    with pytest.raises(duckdb.InvalidInputException, match="read-only"):
        tables.raw_sql("CREATE TABLE mine AS SELECT 1")
    tables.disconnect()
    ranks = open_tables(lake, "capture_ranks").table("capture_ranks")  # tables of captures, too
    assert ranks.count().to_pyarrow().as_py() == 2


@pytest.mark.slow  # 3 s; tests/faces/notebook/test_frames.py opens tables
def test_opened_again_it_has_what_was_published_meanwhile(tmp_path: Path) -> None:
    """Ingestion continues while a backend is open.

    The open backend keeps its state, and the next one has the new state.
    """
    lake = Lake(tmp_path / "lake")
    ingest([write_trace(tmp_path / "rank0.json", 0)], lake)
    before = open_tables(lake.root)
    ingest([write_trace(tmp_path / "rank1.json", 1)], lake)
    publish(lake)
    after = open_tables(str(lake.root))
    assert [tables.table("traces").count().to_pyarrow().as_py() for tables in (before, after)] == [1, 2]


def test_a_lake_without_traces_is_refused(tmp_path: Path) -> None:
    """A lake without traces is refused, with a message that says so. No file is created."""
    with pytest.raises(FileNotFoundError, match="no traces in the lake"):
        open_tables(tmp_path / "lake")
    assert not (tmp_path / "lake").exists()


def test_commands_leave_it_alone() -> None:
    """The commands import neither ibis, which takes two seconds, nor pandas."""
    code = "import sys, pipelines.faces.cli.app; print({'ibis', 'pandas'} & set(sys.modules))"
    command = [sys.executable, "-c", code]
    root = Path(__file__).parents[2]
    assert subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout == "set()\n"
