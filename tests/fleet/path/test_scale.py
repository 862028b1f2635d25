"""64 and 128 ranks with a planted straggler: the path names it, and memory grows with the joined graph only."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pytest

from pipelines.fleet.path.rank_graph import RankGraph
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.synthetic import Capture, CaptureSpec, write_capture
from tests.fleet.path.make import joined, random_case

pytestmark = pytest.mark.slow(together="many ranks")

TABLES = ("capture_ranks", "clock_offsets", "collective_groups", "collectives", "collective_ranks")
GRAPHS = ("critical_path_nodes", "critical_path_edges")
CAUSES = ("_capture_cause_events", "_event_names", "_cause_names", "_faster_work", "cause_rules")
# A process of its own, so that nothing else counts in its peak (VmHWM: ru_maxrss begins with what its parent held); small
# groups, as ranks of real size would make them.
_WALK = f"""
import json, sys
from pathlib import Path
from pipelines.fleet.path import capture_walks, segment_causes
from pipelines.lake import Lake
segment_causes.MOST_EDGES = int(sys.argv[2])
capture_walks.GROUP_EVENTS = 20_000
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
con = Lake(sys.argv[1]).connect(["traces", "events", "kernels", *{TABLES}, *{GRAPHS}])
con.execute("SET threads = 1")  # each thread keeps memory of its own
given = frozenset(["traces", "events", "kernels", *{TABLES}, *{GRAPHS}])
run_models(con, load_catalog(), {CAUSES}, given)
capture_walks.walk_captures(con)
status = Path("/proc/self/status").read_text().splitlines()
peak = 1024 * int(next(line.split()[1] for line in status if line.startswith("VmHWM")))
print(json.dumps([peak, *con.execute("SELECT max(n_nodes), max(n_edges) FROM _walked_segments").fetchone()]))
"""
# What an edge of the joined graph and its share of nodes take: 50 bytes in the graphs of ranks, the rest while the joined
# graph is sorted for its heaviest path. Between 64 and 128 ranks 202 were measured in November 2026; of fewer ranks the
# models before the walk take part of the peak.
_BYTES_AN_EDGE = 220
# While causes and fixes are retimed, of graphs up to threshold retimed_edges, the windows of all ranks are there, too: 371.
_BYTES_WITH_FIXES = 400


@dataclass(frozen=True)
class Run:
    """A capture, its lake, and what computing its path took."""

    capture: Capture
    lake: Lake
    peak_with_fixes: int
    peak: int
    n_nodes: int
    n_edges: int


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    """By number of ranks."""
    return {ranks: _run(ranks, tmp_path_factory.mktemp(f"ranks{ranks}")) for ranks in (64, 128)}


def _run(ranks: int, folder: Path) -> Run:
    offsets = tuple((7919 * rank) % 100_000 - 50_000 for rank in range(ranks))
    spec = CaptureSpec(ranks=ranks, steps=12, layers=8, straggler=ranks // 3, clock_offset_ns=offsets)
    capture = write_capture(spec, folder / "traces")
    lake = Lake(folder / "lake")
    ingest(capture.paths, lake)
    materialize_captures(lake, [*TABLES, "capture_critical_path"])

    def walk(most_edges: int) -> list[int]:
        """Peak, nodes and edges; peaks vary by some percent: of the run with the median of three."""
        command = [sys.executable, "-c", _WALK, str(lake.root), str(most_edges)]
        outputs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(3)]
        return sorted(map(json.loads, outputs))[1]

    return Run(capture, lake, walk(10**9)[0], *walk(0))


@pytest.mark.parametrize("ranks", [64, 128])
def test_the_straggler_is_named(runs: dict[int, Run], ranks: int) -> None:
    run = runs[ranks]
    con = duckdb.connect(str(run.lake.root / "analyst.duckdb"), read_only=True)
    share = dict(
        con.execute(
            "SELECT rank, 100.0 * sum(duration_ns) / sum(sum(duration_ns)) OVER () FROM capture_critical_path "
            "WHERE target = 'last_collective_end' GROUP BY rank"
        ).fetchall()
    )
    assert run.capture.straggler == ranks // 3 == max(share, key=lambda rank: share[rank])
    assert share[ranks // 3] > 95
    assert [r.rank for r in run.capture.ranks if r.truth.arrived_last] == [ranks // 3]
    # The step waits for the last bucket only; the ones before it are over when the backward pass is.
    transfers = con.execute(
        "SELECT p.collective_id, p.duration_ns, c.transfer_ns FROM capture_critical_path AS p "
        "JOIN collectives AS c USING (capture_id, collective_id) "
        "WHERE p.kind = 'transfer' AND p.target = 'last_collective_end' ORDER BY p.seq"
    ).fetchall()
    a_step = run.capture.n_collectives // run.capture.spec.steps
    assert [row[0] for row in transfers] == list(range(a_step - 1, run.capture.n_collectives, a_step))
    assert all(abs(on_path - transfer) < 2_000 for _, on_path, transfer in transfers)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_grows_with_the_joined_graph(runs: dict[int, Run]) -> None:
    few, many = runs[64], runs[128]
    assert many.n_edges > 1.9 * few.n_edges
    more = many.n_edges - few.n_edges
    grown, with_fixes = (many.peak - few.peak) / more, (many.peak_with_fixes - few.peak_with_fixes) / more
    assert grown < _BYTES_AN_EDGE, f"{grown:.0f} bytes an edge: {few.peak} to {many.peak}"
    assert with_fixes < _BYTES_WITH_FIXES, f"{with_fixes:.0f} bytes an edge with fixes"


def test_bytes_of_a_graph() -> None:
    graphs: list[RankGraph] = [graph for seed in range(50) for graph in joined(random_case(seed)).ranks]
    for graph in graphs:
        n_bytes = sum(value.nbytes for value in vars(graph).values() if isinstance(value, np.ndarray))
        assert n_bytes == 25 * len(graph.node) + 4 * len(graph.first) + 22 * len(graph.src)
