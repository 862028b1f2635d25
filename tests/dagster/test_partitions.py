"""Dagster's day partitions, which are the days of the lake."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.metadata import first_day, today
from pipelines.lake import Batch, Lake


def file_of(lake: Path, table: str, batch_id: str) -> None:
    staged = Lake(lake).staging(Batch(batch_id)) / "file"
    staged.touch()
    Lake(lake).put(table, Batch(batch_id), staged)


@pytest.mark.parametrize("table", ["traces", "rejects", "schedule_runs"])
def test_days_begin_with_the_oldest_batch_of_any_kind(table: str, tmp_path: Path) -> None:
    assert first_day(str(tmp_path / "none")) == today()
    new = Lake(tmp_path).new_batch().batch_id
    file_of(tmp_path, "traces", new)
    assert first_day(str(tmp_path)) == today()
    file_of(tmp_path, table, "20260304" + new[8:])
    file_of(tmp_path, table, "20260305" + new[8:])
    assert first_day(str(tmp_path)) == "2026-03-04"
    (tmp_path / "traces" / "day=2026-01-01").mkdir(parents=True, exist_ok=True)  # retention removed its batches
    assert first_day(str(tmp_path)) == "2026-03-04"


def test_today_is_a_day_of_a_lake_whose_first_batch_was_written_while_the_clock_was_ahead(tmp_path: Path) -> None:
    """The days begin no later than today, even if the first batch is dated in the future.

    Otherwise no run of today could start.
    """
    new = Lake(tmp_path).new_batch().batch_id
    file_of(tmp_path, "traces", "2999" + new[4:])
    assert first_day(str(tmp_path)) == today()


def test_a_lake_that_cannot_be_read_is_for_the_run_to_tell(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert first_day(str(tmp_path / "file")) == first_day("s3://bucket/lake") == today()
