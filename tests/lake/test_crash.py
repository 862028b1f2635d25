"""Killed verbs: a verb that is killed at any step and run again leaves the same lake as an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import duckdb
import pytest

from pipelines.faces.cli.refresh_tables import open_analyst
from pipelines.lake import Lake
from pipelines.lake.commit.catalog_file import note
from pipelines.lake.names import ANALYST
from pipelines.lake.publish.analyst_file import PUBLISHED, publish
from pipelines.lake.table_files import table_files
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from tests.effort import ALL_STEPS, SEED, SLOW, steps
from tests.lake.world import (
    PROCESSES,
    TABLES,
    assert_whole,
    capture,
    do_ingest,
    do_materialize,
    do_publish,
    killed,
    run_killed,
    shown,
    steps_of,
    write_trace,
)


@pytest.mark.kills
def test_ingest_killed_at_a_step(tmp_path: Path) -> None:
    files = capture(tmp_path / "in", ranks=2)
    whole = Lake(tmp_path / "whole")
    n = steps_of(do_ingest, whole.root, files)
    assert n > 14  # before and after each of: layout, events, findings, rejects, commit marker, transactions
    tables = ["events", "findings", "rejects", "traces"]
    expected = shown(whole, tables)
    for step in steps(n, few=2):
        lake = Lake(tmp_path / f"lake{step}")
        assert run_killed(step, do_ingest, lake.root, files)
        with lake.connect(["events", "traces"]) as con:
            assert not lake.exists or assert_whole(con) == 2, f"step {step}"
        report = ingest(files, lake)
        assert shown(lake, tables) == expected, f"step {step}"
        assert {row.status for row in report.rows} <= {"ok", "known", "rejected"}
        assert len(lake.batches()) == 1


@pytest.mark.slow  # many processes; the test above kills at steps
@pytest.mark.kills
def test_ingest_killed_at_any_moment(tmp_path: Path) -> None:
    files, choice = capture(tmp_path / "in", ranks=6), random.Random(SEED)
    lake = Lake(tmp_path / "lake")
    for _ in range(30 if ALL_STEPS else 8 if SLOW else 2):
        process = PROCESSES.Process(target=do_ingest, args=(lake.root, files))
        process.start()
        process.join(choice.uniform(0.02, 0.6))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()
    ingest(files, lake)
    with lake.connect(["events", "traces"]) as con:
        assert assert_whole(con) == 6


@pytest.mark.slow  # 6 s
@pytest.mark.kills
def test_materialize_killed_at_a_step(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest(capture(tmp_path / "in"), lake)
    materialize(lake, TABLES)
    tables = ["traces", *TABLES]
    expected = shown(lake, tables)
    lake.take_away(lake.batches()[0], TABLES)
    for step, lake in killed(tmp_path, 8, do_materialize):
        half = shown(lake, tables)
        assert all(half[table] == expected[table] for table in half), f"step {step}"
        with open_analyst(lake.root, TABLES) as con:  # computes missing tables and publishes new ones
            counts = {table: con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in tables}
        assert counts == {table: len(rows) for table, rows in expected.items()}, f"step {step}"
        assert shown(lake, tables) == expected, f"step {step}"


@pytest.mark.slow
def test_what_came_in_or_changed_since_is_published_when_an_analyst_opens_the_lake(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest(capture(tmp_path / "in", ranks=1), lake)
    publish(lake)

    def seen(query: str) -> list[tuple]:
        with open_analyst(lake.root, []) as con:
            return con.execute(query).fetchall()

    assert seen("SELECT count(*) FROM traces") == [(1,)]
    before = (lake.root / ANALYST).stat().st_mtime_ns
    assert seen("SELECT count(*) FROM rejects") == [(1,)]
    assert (lake.root / ANALYST).stat().st_mtime_ns == before  # opened without an update
    ingest([write_trace(tmp_path / "late.json", 7)], lake)
    assert seen("SELECT count(*) FROM traces") == [(2,)]
    (lake.root / "prices.csv").write_text("job,team,price_per_gpu_hour,currency\nj,t,2.5,USD\n")
    assert seen("SELECT job FROM job_prices") == [("j",)]
    note(lake.root, PUBLISHED, None)
    assert seen("SELECT count(*) FROM traces") == [(2,)]


@pytest.mark.slow  # test_publish.py checks that incomplete files are not published
@pytest.mark.kills
def test_publish_killed_at_a_step(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest(capture(tmp_path / "in"), lake)
    do_publish(lake.root)
    (lake.root / "prices.csv").write_text("job\nj\n")  # something to publish
    for step, lake in killed(tmp_path, 6, do_publish):  # before and after moving each of three files into place
        with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
            assert assert_whole(con) == 3, f"step {step}"


def test_committed_leftovers_are_swept_after_a_day_and_staged_ones_at_once(tmp_path: Path) -> None:
    files = capture(tmp_path / "in")
    lake = Lake(tmp_path / "lake")
    assert run_killed(7, do_ingest, lake.root, files)  # the events are committed, their commit marker is not
    assert len(table_files(lake.root, "events")) == 1 and not lake.exists
    (staged,) = lake.root.glob(".staging/*")
    assert lake.sweep() == [staged] and not staged.exists()  # its process was killed
    assert lake.sweep() == []
    for path in table_files(lake.root, "events"):
        os.utime(path, (0, 0))
    assert len(lake.sweep()) == 1
    assert not table_files(lake.root, "events")
