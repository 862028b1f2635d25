"""A clock that runs too fast. Its events are moved to their true times, and the path is the true one."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest

from pipelines.fleet.path.drift import drifting_ranks, on_common_clock
from pipelines.fleet.path.joined import Instance, join_ranks
from pipelines.fleet.path.walk import walk_back
from tests.effort import SLOW
from tests.fleet.path.make import joined, random_case

SINCE_1970 = 1_700_000_000_000_000_000


@pytest.mark.parametrize("seed", range(20 if SLOW else 8))
def test_a_drift_is_taken_out(seed: int) -> None:
    case = random_case(seed)
    true = joined(replace(case, events=tuple(replace(e, start=e.start + SINCE_1970) for e in case.events)))
    graph = true.ranks[1]
    # 10 % too fast, so that the order of events changes unless the drift is removed.
    fast = replace(graph, at_ns=SINCE_1970 + (graph.at_ns - SINCE_1970) * 11 // 10)
    fast = replace(fast, common_ns=fast.at_ns, weight=graph.weight * 11 // 10)
    points = [(int(fast.at_ns[i]), int(graph.common_ns[i])) for i in (0, -1)]
    mended = on_common_clock(fast, (points[0], points[1]))
    assert abs(mended.common_ns - graph.common_ns).max() <= 5
    ids = [[(true.ranks[r].rank, int(true.ranks[r].node[p]) // 2) for r, p in m.members] for m in true.meetings]
    instances = [Instance(m.collective_id, tuple(members)) for m, members in zip(true.meetings, ids, strict=True)]
    again = walk_back(join_ranks([mended if g is graph else g for g in true.ranks], instances))
    segments = [
        # All ranks leave a collective together. A nanosecond decides to which rank a transfer is attributed.
        [s.collective_id or (s.kind, s.rank, s.event_id) for s in path if s.duration_ns > 50]
        for path in (again, walk_back(true))
    ]
    assert segments[0] == segments[1]
    assert again[-1].end_ns == pytest.approx(walk_back(true)[-1].end_ns, abs=5)


def test_only_drifts_that_count_are_taken_out() -> None:
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE clock_offsets AS FROM (VALUES ('c', 0, false), ('c', 1, true), ('d', 0, true)) "
        "AS t(capture_id, rank, drift_applied)"
    )
    con.execute(
        "CREATE TABLE collective_ranks AS FROM (VALUES ('c', 0, 10, 10, true), ('c', 0, 90, 90, true), ('c', 1, 20, 12, true), "
        "('c', 1, 99, 90, true), ('c', 1, 120, 500, false), ('d', 0, 1, 1, true)) "
        "AS t(capture_id, rank, start_ns, aligned_start_ns, kept)"
    )
    assert drifting_ranks(con, "c") == {1: ((20, 12), (99, 90))}
    assert drifting_ranks(con, "d") == {}
