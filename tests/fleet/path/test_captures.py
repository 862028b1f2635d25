"""Paths of real captures compared with the output of an independent program to the nanosecond, and the command line.

docs/reading-a-fleet.md lists where the two differ, and why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.faces.cli.app import app
from pipelines.fleet.path import load_capture
from pipelines.fleet.path.answer import NoCapture, PathRefused, capture_path, find_capture, why_no_path
from pipelines.fleet.path.capture_walks import instances_of, ranks_of
from pipelines.fleet.path.joined import join_ranks
from pipelines.fleet.path.load_ranks import load_ranks
from pipelines.fleet.path.walk import TARGETS
from pipelines.lake import Lake
from pipelines.lake.read.one_trace import OnlyDigest, stored_tables
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.runs.materialize.per_trace import materialize
from tests.harness import connect_all

TABLES = ("capture_critical_path", "capture_paths", "capture_ranks", "collectives", "collective_ranks", "clock_offsets")
GRAPHS = ("critical_path_nodes", "critical_path_edges")
LABELS = {
    "cpu_op": "CPU op",
    "gpu_kernel": "GPU kernel",
    "transfer": "collective transfer",
    "launch_delay": "launch delay",
    "cross_stream_wait": "cross-stream wait",
    "sync_return": "sync return",
    "thread_hand_off": "thread hand-off",
    "gap": "gap",
    "head": "head",
}
X1_NS = 20_000
"""The reference counts every call that can block as a gap.

From this duration on (ns), it looks for the awaited work.
"""
_CALLS = {"cpu_op", "gpu_kernel", "launch_delay", "sync_return"}
DIFFER = {
    # The rank's host time before its first operator has an owner.
    "head": {"gap"},
    # Calls shorter than X1 that may wait have their own time, and the awaited work is on the path.
    "gap": _CALLS,
    "CPU op": _CALLS,
    # A hand-off takes at most 100 us. The time after it has an owner.
    "thread hand-off": {"gap"},
}
"""For each kind of the reference the kinds that the path may have instead."""


def files_of(shared: Path, name: str) -> list[Path]:
    folder = shared / "traces" / "ranks" / name
    return sorted(path for path in folder.glob("*.json.gz") if "execution" not in path.name)


@pytest.fixture(scope="module")
def dlrm(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("dlrm") / "lake")
    ingest(files_of(shared, "dlrm_8"), lake)
    materialize_captures(lake, TABLES)
    materialize(lake, GRAPHS)
    return lake


@pytest.fixture(scope="module")
def tables(dlrm: Lake) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(str(dlrm.root / "analyst.duckdb"), read_only=True)


def reference(shared: Path, target: str) -> dict[str, Any]:
    return json.loads((shared / "golden" / "fleet" / f"multirank_dlrm_8_{target}.json").read_text())


@dataclass(frozen=True)
class Part:
    """A segment of a path, in ns. `lasts`: the duration of the event that it leads into."""

    kind: str
    rank: int
    name: str
    start: int
    end: int
    owner: str | None = None
    lasts: int = 0


def pieces_of_both(path: list[Part], expected: list[Part]) -> Iterator[tuple[int, int, Part, Part]]:
    """Split both paths at every border of either, and yield start, end, and the part of each path."""
    borders = sorted({border for part in (*path, *expected) for border in (part.start, part.end)})
    path_parts, expected_parts = iter(path), iter(expected)
    here, there = next(path_parts), next(expected_parts)
    for start, end in pairwise(borders):
        here = here if end <= here.end else next(path_parts)
        there = there if end <= there.end else next(expected_parts)
        yield start, end, here, there


def path_of(tables: duckdb.DuckDBPyConnection, target: str) -> list[Part]:
    rows = tables.execute(
        "SELECT p.kind, p.rank, e.name, p.start_ns, p.start_ns + p.duration_ns, p.owner, e.duration_ns "
        "FROM capture_critical_path AS p "
        "JOIN events AS e USING (trace_id, event_id) WHERE p.target = ? ORDER BY p.seq",
        [target],
    ).fetchall()
    return [Part(*row) for row in rows]


@pytest.mark.slow(together="capture of dlrm")  # 19 s for its lake; test_walk.py tests hand-written captures
@pytest.mark.parametrize("target", TARGETS)
def test_every_nanosecond_is_the_reference_output(tables: duckdb.DuckDBPyConnection, shared: Path, target: str) -> None:
    """Every nanosecond of the path has the reference's rank.

    Kind and event differ only as DIFFER allows, and only in short segments.
    """
    path = path_of(tables, target)
    segments = reference(shared, target)["segments"]
    begin = path[0].start - round(1000 * segments[0][3])
    expected = [
        Part(kind, rank, name, begin + round(1000 * start), begin + round(1000 * end))
        for kind, rank, name, start, end in segments
    ]
    assert (path[0].start, path[-1].end) == (expected[0].start, expected[-1].end)
    in_calls: list[Part] = []
    for start, end, here, there in pieces_of_both(path, expected):
        assert here.rank == there.rank
        if LABELS[here.kind] == there.kind:
            # Time outside operators may lead into an annotation. The reference omits operators that take no time.
            assert here.name == there.name or here.kind in ("gap", "head", "thread_hand_off") or not here.lasts
            continue
        assert here.kind in DIFFER[there.kind], (here, there)
        if there.kind in ("gap", "CPU op"):
            whole = in_calls.pop().start if in_calls and in_calls[-1].end == start else start
            in_calls.append(replace(here, start=whole, end=end))
    # At most the launch of a copy and the following call that waits for the copy.
    lengths = [part.end - part.start for part in in_calls]
    assert max(lengths) <= 2 * X1_NS and sum(lengths) < 0.011 * (path[-1].end - path[0].start)


@pytest.mark.slow(together="capture of dlrm")
def test_every_gap_has_an_owner(tables: duckdb.DuckDBPyConnection) -> None:
    """Every part of the path has an owner.

    The first gaps, on rank 7, belong to annotations. A gap outside annotations and operators belongs to its thread.
    """
    path = path_of(tables, "last_gpu_end")
    assert all(part.owner for part in path)
    assert [(part.kind, part.owner, part.end - part.start) for part in path[:4]] == [
        ("head", "before the first event of rank 7", 7_443_250),
        ("gap", "ProfilerStep#10", 22_000),
        ("gap", "## zero_grad ##", 32_000),
        ("gap", "Optimizer.zero_grad#Adagrad.zero_grad", 31_000),
    ]
    nobody = {part.owner for part in path if part.kind == "gap" and (part.owner or "").startswith("outside operators")}
    ((unowned_ns,),) = tables.execute("SELECT unowned_ns FROM capture_paths WHERE target = 'last_gpu_end'").fetchall()
    assert nobody == {"outside operators, thread 60015"}  # autograd's thread, between two operators
    assert (
        unowned_ns
        == sum(part.end - part.start for part in path if part.owner in nobody)
        < 0.1 * sum(part.end - part.start for part in path if part.kind == "gap")
    )


@pytest.mark.slow(together="capture of dlrm")
@pytest.mark.parametrize("target", TARGETS)
def test_shares_are_the_reference_output(tables: duckdb.DuckDBPyConnection, shared: Path, target: str) -> None:
    said = reference(shared, target)
    by_rank = tables.execute(
        "SELECT rank, sum(duration_ns) / 1000.0 FROM capture_critical_path WHERE target = ? GROUP BY rank", [target]
    ).fetchall()
    assert {str(rank): time for rank, time in by_rank} == said["share_us"]
    path = tables.execute(
        "SELECT span_ns / 1000.0, refused_reason, n_ranks FROM capture_paths WHERE target = ?", [target]
    ).fetchall()
    assert path == [(said["span_us"], None, 8)]


@pytest.mark.slow(together="capture of dlrm")
def test_the_graph_is_what_the_ranks_have_alone_and_their_meetings(tables: duckdb.DuckDBPyConnection) -> None:
    """The joined graph has the nodes and edges of the ranks' graphs, and a node for each collective.

    Instead of its own edge a matched kernel has an edge to the node of the collective and one from it. Graphs of single
    steps do not count.
    """
    counts = "SELECT count(*) FILTER (WHERE window_id = 'full'), count(*) FILTER (WHERE window_id <> 'full') FROM "
    ((nodes, of_steps),) = tables.execute(counts + "critical_path_nodes").fetchall()
    ((edges, in_steps),) = tables.execute(counts + "critical_path_edges").fetchall()
    ((meetings, members),) = tables.execute(
        "SELECT count(DISTINCT collective_id), count(*) FROM collective_ranks JOIN collectives USING (capture_id, collective_id) "
        "WHERE refused_reason IS NULL"
    ).fetchall()
    sizes = tables.execute("SELECT DISTINCT n_nodes, n_edges FROM capture_paths").fetchall()
    assert sizes == [(nodes + meetings, edges + members)] and of_steps and in_steps


@pytest.mark.slow(together="capture of dlrm")  # every nanosecond is compared above
def test_joined_graph_of_htas_edges_has_the_references_size(tables: duckdb.DuckDBPyConnection, shared: Path) -> None:
    (capture_id,) = tables.execute("SELECT capture_id FROM captures").fetchall()[0]
    ranks, said = ranks_of(tables, capture_id), reference(shared, "last_gpu_end")
    con, trace_ids = connect_all(files_of(shared, "dlrm_8"))
    assert [*trace_ids] == [rank.trace_id for rank in ranks]
    windows = [WindowRequest(trace_id, profile="hta") for trace_id in trace_ids]
    request_windows(con, windows, {("hta", "zero_weight_launch"): "true"})
    run_models(con, load_catalog(), ["critical_path_nodes", "critical_path_edges"])
    graphs = [*load_ranks(con, {rank.rank: rank.trace_id for rank in ranks})]
    assert {str(graph.rank): len(graph.node) for graph in graphs} == said["nodes"]
    joined = join_ranks(graphs, instances_of(tables, capture_id))
    assert (len(joined), joined.n_edges, len(joined.meetings)) == (32_586, 33_054, 8)


@pytest.mark.slow(together="capture of dlrm")  # tests/critical_path/whatif tests retiming
def test_a_rank_is_retimed_by_the_edges_that_are_stored(dlrm: Lake, tables: duckdb.DuckDBPyConnection) -> None:
    """A rank is retimed by its stored edges, which equal those computed from its events."""
    (capture_id,) = tables.execute("SELECT capture_id FROM captures").fetchall()[0]
    ranks = ranks_of(tables, capture_id)[:1]
    with load_capture._stored(dlrm, ranks[0].trace_id) as con:
        assert "critical_path_edges" in stored_tables(con)
    (stored,), (computed,) = (load_capture._windows(tables, ranks, lake, ()) for lake in (dlrm, None))
    for name in ("edge_id", "duration", "edge_type", "owner", "inferred"):
        assert (getattr(stored.window, name) == getattr(computed.window, name)).all()


@pytest.mark.slow(together="capture of dlrm")  # 4 s
def test_command_line_on_a_capture_of_the_lake_and_on_files(dlrm: Lake, shared: Path, tmp_path: Path) -> None:
    said = reference(shared, "last_collective_end")
    (capture_id,) = (
        duckdb.connect(str(dlrm.root / "analyst.duckdb"), read_only=True)
        .execute("SELECT capture_id FROM captures")
        .fetchall()[0]
    )
    options = ["--target", "last_collective_end", "--lake", str(dlrm.root)]
    ran = CliRunner().invoke(app, ["capture-path", capture_id[:6], *options, "--json"])
    answer = json.loads(ran.stdout)
    assert (answer["span_us"], answer["share_us"]) == (said["span_us"], said["share_us"])
    assert answer["share_percent"]["7"] == pytest.approx(70.48, abs=0.005)
    assert [stretch["rank"] for stretch in answer["stretches"]] == [rank for rank, _ in said["rank_runs"]]
    shown = CliRunner().invoke(app, ["capture-path", capture_id, "--lake", str(dlrm.root)])
    assert shown.exit_code == 0
    assert "65.05" in shown.stdout and "34.95" in shown.stdout
    assert "return of a wait (inferred)" in shown.stdout
    assert "20.8 % of the path" in shown.stdout
    assert "DistributedDataParallel.forward" in shown.stdout


def test_captures_of_a_folder_are_told_apart_by_their_files_and_how_to_choose_one() -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE captures AS SELECT 'c' || n AS capture_id, 'a' AS job, 2 AS n_ranks, n = 9 AS is_gone, "
            "CASE WHEN n > 0 THEN TIMESTAMP '2026-09-21 14:13:20' END AS started_at FROM (VALUES (0), (1), (9)) AS v(n);"
            "CREATE TABLE traces AS SELECT 'c' || n AS capture_id, 'day' || n || '.rank' || r || '.json' AS file, r AS rank "
            "FROM (VALUES (0, 11), (1, 2)) AS v(n, ranks), LATERAL (SELECT unnest(range(ranks)) AS r)"
        )
        with pytest.raises(NoCapture) as of_files:
            find_capture(con, "")
        with pytest.raises(NoCapture) as of_lake:
            find_capture(con, "x")
        assert find_capture(con, "c1") == "c1"
    assert str(of_files.value) == (
        "several captures. Available captures: c0 (2 ranks of a: day0.rank0.json, day0.rank1.json and 9 more); "
        "c1 (2 ranks of a, 2026-09-21 14:13:20 UTC: day1.rank0.json, day1.rank1.json)"
    )
    assert "tracelake ingest FOLDER --lake LAKE" in of_files.value.hint
    assert str(of_lake.value).startswith("no capture id starts with 'x'. Available captures: c0 (")
    assert of_lake.value.hint == NoCapture.hint


@pytest.fixture
def said(dlrm: Lake) -> Callable[..., str]:
    """Return a function that returns the error message of `capture-path` for refused arguments."""

    def refused(*arguments: str) -> str:
        ran = CliRunner().invoke(app, ["capture-path", *arguments, "--lake", str(dlrm.root)])
        assert ran.exit_code == 1
        return " ".join(ran.output.split())

    return refused


@pytest.mark.slow(together="capture of dlrm")  # 2 s; the sentences are tested where they are raised
def test_what_the_command_line_refuses(said: Callable[..., str], shared: Path, tmp_path: Path) -> None:
    trace = files_of(shared, "dlrm_8")[0]
    assert "no matched collectives: no_partner: only rank 0 is present" in said(str(trace))
    assert "last_gpu_end, last_collective_end, last_event_end" in said(str(trace), "--target", "end")
    assert "no capture id starts with 'zzz'" in said("zzz")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no trace found in" in said(str(empty))


def test_the_path_of_a_digest_is_refused_because_its_segments_are_gone() -> None:
    """The path of a digest is not shown.

    A digest has the row of `capture_paths`, but no row of `capture_critical_path`.
    """
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE captures AS SELECT 'c' AS capture_id, 'job' AS job;"
            "CREATE TABLE capture_ranks AS SELECT 'c' AS capture_id, 0 AS rank, 'a' AS trace_id, NULL AS left_out_reason;"
            "CREATE TABLE clock_offsets AS SELECT 'c' AS capture_id, 0 AS rank, 0 AS offset_ns LIMIT 0;"
            "CREATE TABLE findings AS SELECT 'a' AS trace_id, 'lost_kernels' AS check_name;"
            "CREATE TABLE capture_paths AS SELECT 'c' AS capture_id, 'last_gpu_end' AS target, NULL::VARCHAR AS refused_reason, "
            "7980000 AS span_ns, 1 AS n_ranks, 0 AS n_guessed, 0 AS guessed_ns, 12.3 AS gap_percent, 0 AS unowned_ns, "
            "9 AS heaviest_ns, 1 AS n_nodes, 1 AS n_edges, NULL AS matched_by;"
            "CREATE TABLE capture_critical_path AS SELECT 'c' AS capture_id, 'last_gpu_end' AS target, 0 AS seq, 0 AS rank, "
            "'gap' AS kind, 0 AS start_ns, 0 AS duration_ns, 0 AS event_id, 0 AS owner_event_id, '' AS name, FALSE AS guessed, "
            "0 AS collective_id, '' AS owner, '' AS owner_cat LIMIT 0"
        )
        assert capture_path(con, "c", "last_gpu_end").span_us == 7980
        con.execute("INSERT INTO findings VALUES ('a', 'reduced_to_digest')")
        with pytest.raises(OnlyDigest, match="c: only a digest of this capture is kept"):
            capture_path(con, "c", "last_gpu_end")
        con.execute("UPDATE capture_paths SET refused_reason = 'no clocks'")  # a digest keeps the reason
        with pytest.raises(PathRefused, match="no clocks"):
            capture_path(con, "c", "last_gpu_end")


def test_a_path_that_is_not_computed_is_not_one_without_traces() -> None:
    """A path that is not computed is not reported as one without traces.

    In a lake that cannot be written, capture_paths and capture_ranks may have no rows yet.
    """
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE capture_paths AS SELECT 'x' AS capture_id, '' AS refused_reason LIMIT 0;"
            "CREATE TABLE capture_ranks AS SELECT 'x' AS capture_id, '' AS left_out_reason LIMIT 0"
        )
        assert why_no_path(con, "c").startswith("table capture_paths is not computed")
        con.execute("INSERT INTO capture_ranks VALUES ('c', 'other_job')")
        assert why_no_path(con, "c").startswith("none of the capture's traces is used")
        con.execute("INSERT INTO capture_ranks VALUES ('c', NULL)")
        assert why_no_path(con, "c").startswith("table capture_paths is not computed")
        con.execute("UPDATE capture_ranks SET left_out_reason = 'no_rank'")
        assert why_no_path(con, "c").startswith("2 of its files do not say which rank they are")
        con.execute("INSERT INTO capture_paths VALUES ('c', 'no clocks')")
        assert why_no_path(con, "c") == "no clocks"
