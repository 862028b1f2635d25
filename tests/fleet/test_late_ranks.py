"""Late ranks: the causes of the path and the table of stragglers agree with the planted delays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from pipelines.fleet.path.segment_causes import SegmentCause, _late, _Waited
from pipelines.fleet.path.walk import walk_back
from pipelines.lake import Lake
from pipelines.models.catalog import load_catalog
from pipelines.models.rule_tables import create_rules
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.synthetic import Capture, CaptureSpec, write_capture
from tests.effort import first_of
from tests.fleet.path.make import Case, Event, joined

TABLES = ("captures", "capture_causes", "straggler_ranks", "collectives")
LATE_NS = 12_000_000  # how late a rank is in a step
HOST = CaptureSpec(
    ranks=2, steps=5, layers=1, ops_per_layer=2, shape="planted", plant="late_host", collective_skew_ns=0,
    straggler=1, straggler_slowdown=2.0, sync_each_step=False,
)  # fmt: skip
GPU = replace(HOST, plant="late_rank", straggler_slowdown=200.0)
IN_TURN = replace(HOST, ranks=3, straggler=None, sync_each_step=True, steps=6)
HALF = 500 * 10**9
FAST = {"host runs ahead": HOST, "in turn": IN_TURN}
MORE = {
    "host waits": replace(HOST, sync_each_step=True),
    "four ranks, clocks apart": replace(
        HOST, ranks=4, straggler=2, clock_offset_ns=tuple(HALF * rank for rank in range(4))
    ),
    "in turn without waiting": replace(IN_TURN, sync_each_step=False),
    "slow kernels of four": replace(GPU, ranks=4, straggler=0),
    "nobody": replace(HOST, plant="none"),
    "buckets": CaptureSpec(ranks=4, steps=5, straggler=2, collective_skew_ns=0),
}


@pytest.fixture(autouse=True)
def unpublished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not write the analysts' file, because no test here reads it."""
    monkeypatch.setattr("pipelines.runs.materialize.publishing.publish", lambda *_: None)


def answers(specs: Mapping[str, CaptureSpec], folder: Path) -> dict[str, tuple[Capture, dict[int, dict[str, Any]]]]:
    """Return for each capture its truth and, for each rank, the answers about its lateness, in ns.

    `path` and `saves` are from the causes of the capture's path. `table`, `caused` and `waited` are from the rank's row
    of straggler_ranks.
    """
    lake = Lake(folder / "lake")
    written = {job: write_capture(spec, folder / job) for job, spec in specs.items()}
    for job, capture in written.items():
        ingest(capture.paths, lake, job=job)
    materialize_captures(lake, TABLES)
    with lake.connect(TABLES) as con:
        rows = con.execute(
            "WITH path AS (SELECT capture_id, rank, sum(duration_ns) AS late, max(cause_saves_ns) AS saves FROM capture_causes "
            "WHERE cause = 'late_rank' GROUP BY capture_id, rank) "
            "SELECT c.job, s.rank, s.late_ns, s.caused_wait_ns, s.wait_clock_ns, "
            "coalesce(p.late, 0), coalesce(p.saves, 0) "
            "FROM straggler_ranks AS s JOIN captures AS c USING (capture_id) LEFT JOIN path AS p USING (capture_id, rank)"
        ).fetchall()
    names = ("table", "caused", "waited", "path", "saves")
    ranks_by_job: dict[str, dict[int, dict[str, Any]]] = {job: {} for job in specs}
    for job, rank, *values in rows:
        ranks_by_job[job][rank] = dict(zip(names, map(int, values), strict=True))
    return {job: (written[job], ranks) for job, ranks in ranks_by_job.items()}


def check(spec: CaptureSpec, capture: Capture, ranks: dict[int, dict[str, Any]]) -> None:
    assert len(ranks) == spec.ranks
    for of_rank in ranks.values():
        assert of_rank["path"] == pytest.approx(of_rank["table"], abs=2_000)
    # All waiting equals the simulated waiting, and late ranks cause all of it.
    assert sum(of_rank["waited"] for of_rank in ranks.values()) == pytest.approx(
        sum(rank.truth.collective_wait_ns for rank in capture.ranks), abs=20_000 * spec.ranks
    )
    if spec.shape == "planted":  # the ranks of the others arrive together
        for of_rank in ranks.values():
            assert of_rank["caused"] == pytest.approx((spec.ranks - 1) * of_rank["table"], abs=20_000 * spec.ranks)


@pytest.mark.parametrize("job", first_of(FAST, 1))
def test_the_path_and_the_table_agree_with_what_is_planted(job: str, tmp_path: Path) -> None:
    ((capture, ranks),) = answers({job: FAST[job]}, tmp_path).values()
    check(FAST[job], capture, ranks)
    if job == "in turn":
        assert [ranks[rank]["path"] for rank in range(3)] == [pytest.approx(2 * LATE_NS, rel=0.01)] * 3
    else:
        assert ranks[0]["path"] == 0
        # five delays, although the path goes through only one collective
        assert 4.9 * LATE_NS < ranks[1]["path"] < 5 * LATE_NS


@pytest.mark.slow
def test_other_captures(tmp_path: Path) -> None:
    """The saving without the cause of a rank's lateness equals that of a second run.

    If ranks are late in turn and do not wait, all hosts take equally long in the end. Then less work on one rank saves
    nothing, because the other ranks are still late.
    """
    for job, (capture, ranks) in answers(MORE, tmp_path).items():
        spec = MORE[job]
        check(spec, capture, ranks)
        late = [rank for rank, of_rank in ranks.items() if of_rank["path"] > LATE_NS / 2]
        assert late == ([] if job in ("nobody", "buckets") else [0] if "turn" in job else [spec.straggler]), job
        if spec.straggler is None:
            assert job == "nobody" or 0 < ranks[0]["saves"] < 0.01 * ranks[0]["path"]
            continue
        again = write_capture(replace(spec, plant="none", straggler=None), tmp_path / "again" / job)
        before, after = (max(rank.truth.full.length_ns for rank in of.ranks) for of in (capture, again))
        assert ranks[spec.straggler]["saves"] == pytest.approx(before - after, abs=before / 100), job


@pytest.mark.parametrize("n_ranks", [2, 3, 16])
def test_what_a_rank_does_while_others_wait_in_earlier_collectives_counts_too(n_ranks: int) -> None:
    """Work of a rank while others wait in earlier collectives counts as lateness.

    Rank 1 works on lane 0 without waiting for its collectives on lane 1, so only the last is on the path.
    """
    events, deps = [], []
    for step in range(3):
        end = 1_000 * (step + 1)
        events += [Event(f"sleep{step}", 1, 0, 1_000 * step, 1_000), Event(f"r1c{step}", 1, 1, end, 50, f"c{step}")]
        deps.append((f"sleep{step}", f"r1c{step}"))
        for rank in (0, *range(2, n_ranks)):  # the last rank arrives 200 later than the others
            start = 1_000 * step + (200 if step else 100) + (200 if rank == n_ranks - 1 else 0)
            events.append(Event(f"r{rank}c{step}", rank, 1, start, end + 50 - start, f"c{step}"))
    events.append(Event("last", 0, 1, 3_050, 100))
    case = joined(Case(tuple(events), tuple(deps)))
    path = walk_back(case)
    assert {segment.collective_id for segment in path} == {None, "c2"}
    causes = _late(case, path, [SegmentCause("gpu_computing") for _ in path])
    assert sum(cause.late_ns for cause in causes) == 2_500


def test_how_much_later_than_the_median_of_the_others() -> None:
    """A rank is late by the time from the median start of the other ranks to its own start.

    Time before the rank left the previous collective does not count. Each list has the starts of a collective's ranks
    on the common clock.
    """
    models = load_catalog().models
    starts = [[0, 90], [100, 150, 130], [10, 20, 40, 70], [10, 20, 30, 40, 70], [5, 5], [None, None]]
    expected = [90, 50, 50, 50, 0, None]
    with duckdb.connect() as con:
        create_rules(con, models["collective_kinds"])
        con.execute(
            "CREATE TABLE collective_ranks (capture_id VARCHAR, collective_id BIGINT, lane BIGINT, rank BIGINT, trace_id VARCHAR, "
            "event_id BIGINT, step BIGINT, aligned_start_ns BIGINT, aligned_end_ns BIGINT)"
        )
        for number, of_ranks in enumerate([*starts, [1_000, 1_100], [1_090, 1_350]]):
            lane = min(number, len(starts))  # the last two are in one lane, and rank 1 left the first of them late
            for rank, at in enumerate(of_ranks):
                end = (
                    None
                    if at is None
                    else 1_250
                    if (lane, rank) == (len(starts), 1) and number == lane
                    else max(of_ranks) + 9
                )
                row = ("c", number, lane, rank, f"t{rank}", number, 0, at, end)
                con.execute(f"INSERT INTO collective_ranks VALUES ({', '.join('?' * 9)})", row)
        con.execute(
            "CREATE TABLE ranks AS SELECT *, 100 AS duration_ns, 0 AS wait_ns, 0 AS wait_clock_ns, 0 AS root_rank, TRUE AS kept, "
            "'spread' AS matched_by FROM collective_ranks; DROP TABLE collective_ranks; ALTER TABLE ranks RENAME TO collective_ranks;"
            "CREATE TABLE collective_kernels AS SELECT trace_id, event_id, 'allreduce' AS kind, 'x' AS collective_name, 8 AS bytes, "
            "2 AS group_size FROM collective_ranks;"
            "CREATE TABLE collective_groups AS SELECT DISTINCT 'c' AS capture_id, lane, rank, 0 AS reference_rank, '0' AS group_name, "
            "NULL AS refused_reason FROM collective_ranks"
        )
        rows = con.execute(
            f"SELECT late_of_median_ns FROM ({models['collectives'].sql}) ORDER BY collective_id"
        ).fetchall()
    assert [ns for (ns,) in rows] == [*expected, 100, 100]


def test_stretches_of_waiting() -> None:
    """Time in which two groups wait for the same rank counts once."""
    waited = _Waited.of([(50, 60), (10, 20), (15, 30), (30, 31), (52, 55)])
    assert (waited.starts.tolist(), waited.ends.tolist()) == ([10, 50], [31, 60])
    cases = {(0, 10): 0, (0, 11): 1, (0, 100): 31, (12, 14): 2, (31, 50): 0, (30, 51): 2, (59, 70): 1, (60, 70): 0}
    assert {case: waited.during(*case) for case in cases} == cases
    draw = np.random.default_rng(3)
    for _ in range(50):
        stretches = [(a, a + n) for a, n in draw.integers(1, 40, (5, 2)).tolist()]
        start, length = draw.integers(0, 60, 2).tolist()
        held = {at for a, b in stretches for at in range(a, b)}
        assert _Waited.of(stretches).during(start, start + length) == len(held & set(range(start, start + length)))
