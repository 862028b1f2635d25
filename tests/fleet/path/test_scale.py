"""A capture of 64 ranks with a planted straggler. The path names it, and memory grows only with the joined graph."""

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
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.synthetic import Capture, CaptureSpec, write_capture
from tests.fleet.path.make import joined, random_case

pytestmark = pytest.mark.slow(together="many ranks")

TABLES = ("capture_ranks", "clock_offsets", "collective_groups", "collectives", "collective_ranks")
READ = ("traces", "events", "kernels", *TABLES, "critical_path_nodes", "critical_path_edges")
CAUSES = ("_capture_cause_events", "_event_names", "_cause_names", "_faster_work", "cause_rules")
# A separate process, so that nothing else is included in its peak (VmHWM, because ru_maxrss starts at its parent's
# memory). Small groups replace the groups of ranks of real size. It walks through the first `ranks` ranks of the
# capture.
_WALK = f"""
import json, sys
from pathlib import Path
from pipelines.fleet.path import capture_walks, segment_causes
from pipelines.lake import Lake
lake, causes, ranks, most_edges = sys.argv[1:]
segment_causes.MOST_EDGES = int(most_edges)
capture_walks.GROUP_EVENTS = 20_000
con = Lake(lake).connect({READ})
con.execute("ALTER VIEW clock_offsets RENAME TO all_clock_offsets")
con.execute(f"CREATE VIEW clock_offsets AS FROM all_clock_offsets WHERE rank < {{ranks}}")
con.execute("SET threads = 1")  # each thread keeps memory of its own
con.execute(f"ATTACH '{{causes}}' AS stored (READ_ONLY)")
for table in {CAUSES}:
    con.execute(f"CREATE TABLE {{table}} AS FROM stored.{{table}}")
con.execute("DETACH stored")
capture_walks.walk_captures(con)
status = Path("/proc/self/status").read_text().splitlines()
peak = 1024 * int(next(line.split()[1] for line in status if line.startswith("VmHWM")))
print(json.dumps([peak, *con.execute("SELECT max(n_ranks), max(n_edges) FROM _walked_segments").fetchone()]))
"""
RANKS, FEW = 64, 16
# Memory per edge of the joined graph, with its share of nodes: 50 bytes in the graphs of ranks, the rest while the
# joined graph is sorted for its heaviest path. Between 16 and 64 ranks 140 to 180 bytes were measured in November 2026.
_BYTES_AN_EDGE = 200
# While causes and fixes are retimed, for graphs up to the threshold retimed_edges, memory also contains the
# windows of all ranks: 280 to 350 bytes.
_BYTES_WITH_FIXES = 380


@dataclass(frozen=True)
class Run:
    """A capture, and the lake with its path."""

    capture: Capture
    lake: Lake


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("ranks")
    offsets = tuple((7919 * rank) % 100_000 - 50_000 for rank in range(RANKS))
    spec = CaptureSpec(ranks=RANKS, steps=6, layers=8, straggler=RANKS // 3, clock_offset_ns=offsets)
    capture = write_capture(spec, folder / "traces")
    lake = Lake(folder / "lake")
    ingest(capture.paths, lake)
    materialize_captures(lake, [*TABLES, "capture_critical_path"])
    return Run(capture, lake)


def test_the_straggler_is_named(run: Run) -> None:
    con = duckdb.connect(str(run.lake.root / "analyst.duckdb"), read_only=True)
    share = dict(
        con.execute(
            "SELECT rank, 100.0 * sum(duration_ns) / sum(sum(duration_ns)) OVER () FROM capture_critical_path "
            "WHERE target = 'last_collective_end' GROUP BY rank"
        ).fetchall()
    )
    assert run.capture.straggler == RANKS // 3 == max(share, key=lambda rank: share[rank])
    assert share[RANKS // 3] > 95
    assert [r.rank for r in run.capture.ranks if r.truth.arrived_last] == [RANKS // 3]
    # The step waits only for the last bucket. The earlier buckets end before the backward pass does.
    transfers = con.execute(
        "SELECT p.collective_id, p.duration_ns, c.transfer_ns FROM capture_critical_path AS p "
        "JOIN collectives AS c USING (capture_id, collective_id) "
        "WHERE p.kind = 'transfer' AND p.target = 'last_collective_end' ORDER BY p.seq"
    ).fetchall()
    a_step = run.capture.n_collectives // run.capture.spec.steps
    assert [row[0] for row in transfers] == list(range(a_step - 1, run.capture.n_collectives, a_step))
    assert all(abs(on_path - transfer) < 2_000 for _, on_path, transfer in transfers)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_grows_with_the_joined_graph(run: Run, tmp_path: Path) -> None:
    with run.lake.connect(READ) as con:
        run_models(con, load_catalog(), CAUSES, frozenset(READ))
        con.execute(f"ATTACH '{tmp_path / 'causes.duckdb'}' AS stored")
        for table in CAUSES:
            con.execute(f"CREATE TABLE stored.{table} AS FROM {table}")

    def walk(ranks: int, most_edges: int) -> tuple[int, int]:
        """Return peak memory in bytes and the number of edges."""
        words = [str(run.lake.root), str(tmp_path / "causes.duckdb"), str(ranks), str(most_edges)]
        done = subprocess.run([sys.executable, "-c", _WALK, *words], capture_output=True, text=True, check=True)
        peak, n_ranks, n_edges = json.loads(done.stdout)
        assert n_ranks == ranks
        return peak, n_edges

    for most_edges, bound in ((0, _BYTES_AN_EDGE), (10**9, _BYTES_WITH_FIXES)):
        (few_peak, few_edges), (peak, n_edges) = walk(FEW, most_edges), walk(RANKS, most_edges)
        assert n_edges > 3.9 * few_edges
        grown = (peak - few_peak) / (n_edges - few_edges)
        assert grown < bound, f"{grown:.0f} bytes an edge: {few_peak} to {peak}, retimed up to {most_edges} edges"


def test_bytes_of_a_graph() -> None:
    graphs: list[RankGraph] = [graph for seed in range(50) for graph in joined(random_case(seed)).ranks]
    for graph in graphs:
        n_bytes = sum(value.nbytes for value in vars(graph).values() if isinstance(value, np.ndarray))
        assert n_bytes == 25 * len(graph.node) + 4 * len(graph.first) + 22 * len(graph.src)
