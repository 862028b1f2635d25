"""Metadata of tables in the UI: row counts from the logs match the files, and checks read only new files."""

import os
from pathlib import Path

import duckdb
import pytest

from assets.metadata import Span, shown
from pipelines.lake import Lake
from pipelines.lake.commit.catalog_file import CATALOG
from pipelines.readers.ingest import ingest
from pipelines.runs.forget import forget
from pipelines.runs.materialize.per_capture import compute_captures
from pipelines.runs.materialize.per_trace import materialize
from tests.dagster.tiny import write_trace
from tests.lake import world

ALL = Span(frozenset(), "")
TABLES = ("traces", "events", "kernels", "threads")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return a lake of two batches, each with one trace and two computed tables."""
    lake = Lake(tmp_path / "lake")
    for number in range(2):
        ingest([write_trace(tmp_path / f"rank{number}.json", number)], lake)
    materialize(lake, ["kernels", "threads"], and_publish=False)
    return lake


def said(lake: Lake, table: str) -> tuple[int, int, int]:
    metadata = shown(lake, table, ALL)
    return metadata["dagster/row_count"], metadata["files"], metadata["bytes"]


def counted(lake: Lake, table: str) -> tuple[int, int, int]:
    files = ALL.files(lake, table)
    ((n_rows,),) = duckdb.sql(f"SELECT count(*) FROM read_parquet({files})").fetchall()
    return n_rows, len(files), sum(map(os.path.getsize, files))


def test_rows_are_those_of_the_files(lake: Lake) -> None:
    for table in TABLES:
        assert said(lake, table) == counted(lake, table), table
    (lake.root / CATALOG).unlink()
    for table in TABLES:
        assert said(lake, table) == counted(lake, table), table


@pytest.mark.slow  # 9 s; the test above logs rows, too
def test_of_a_capture_that_was_computed_again_or_is_gone_only_the_newest_state_counts(tmp_path: Path) -> None:
    lake, tables = Lake(tmp_path / "lake"), ("captures", "capture_ranks")
    for rank in range(3):
        ingest([world.write_trace(tmp_path / f"{rank}.json", rank, distributedInfo={"rank": rank})], lake)
        list(compute_captures(lake, tables))
        assert [said(lake, table)[:2] for table in tables] == [(1, rank + 1), (rank + 1, rank + 1)]
    assert [counted(lake, table)[0] for table in tables] == [3, 1 + 2 + 3]
    for trace_id in list(lake.known_traces()):
        forget(lake, trace_id)
    list(compute_captures(lake, tables))
    assert [said(lake, table)[0] for table in tables] == [0, 0]


def test_only_the_newest_file_is_opened_and_one_of_another_size_is_counted(lake: Lake) -> None:
    first, _ = ALL.files(lake, "kernels")
    before, content = said(lake, "kernels"), Path(first).read_bytes()
    Path(first).write_bytes(b"?" * len(content))
    assert said(lake, "kernels") == before
    rows = f"(SELECT * FROM read_parquet('{ALL.files(lake, 'kernels')[1]}'))"
    duckdb.sql(f"FROM {rows} UNION ALL FROM {rows} UNION ALL FROM {rows}").write_parquet(first)
    assert said(lake, "kernels") == counted(lake, "kernels") != before
