"""Paths of real captures against the reference output of an independent program, segment for segment; the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.fleet.path.capture_walks import instances_of, ranks_of
from pipelines.fleet.path.joined import join_ranks
from pipelines.fleet.path.load_ranks import load_ranks
from pipelines.fleet.path.walk import TARGETS
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_capture import materialize_captures
from tests.harness import connect

TABLES = ("capture_critical_path", "capture_paths", "capture_ranks", "collectives", "collective_ranks", "clock_offsets")
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
GUESSES = ("cross-stream wait", "sync return", "thread hand-off")  # the reference has no other ones: no cuda_sync rows


def files_of(shared: Path, name: str) -> list[Path]:
    folder = shared / "traces" / "ranks" / name
    return sorted(path for path in folder.glob("*.json.gz") if "execution" not in path.name)


@pytest.fixture(scope="module")
def dlrm(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(tmp_path_factory.mktemp("dlrm") / "lake")
    ingest(files_of(shared, "dlrm_8"), lake)
    materialize_captures(lake, TABLES)
    return lake


@pytest.fixture(scope="module")
def tables(dlrm: Lake) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(str(dlrm.root / "analyst.duckdb"), read_only=True)


def reference(shared: Path, target: str) -> dict[str, Any]:
    return json.loads((shared / "golden" / "fleet" / f"multirank_dlrm_8_{target}.json").read_text())


@pytest.mark.parametrize("target", TARGETS)
def test_every_segment_is_the_reference_output(tables: duckdb.DuckDBPyConnection, shared: Path, target: str) -> None:
    said = reference(shared, target)
    rows = tables.execute(
        "SELECT p.kind, p.rank, e.name, p.start_ns, p.start_ns + p.duration_ns, p.guessed FROM capture_critical_path AS p "
        "JOIN events AS e USING (trace_id, event_id) WHERE p.target = ? ORDER BY p.seq",
        [target],
    ).fetchall()
    begin = rows[0][3] - round(1000 * said["segments"][0][3])
    told = [
        [LABELS[kind], rank, name, (start - begin) / 1000, (end - begin) / 1000]
        for kind, rank, name, start, end, _ in rows
    ]
    assert told == said["segments"]
    assert [guessed for *_, guessed in rows] == [segment[0] in GUESSES for segment in said["segments"]]


@pytest.mark.parametrize("target", TARGETS)
def test_shares_are_the_reference_output(tables: duckdb.DuckDBPyConnection, shared: Path, target: str) -> None:
    said = reference(shared, target)
    by_rank, by_kind = (
        tables.execute(
            f"SELECT {key}, sum(duration_ns) / 1000.0 FROM capture_critical_path WHERE target = ? GROUP BY {key}",
            [target],
        ).fetchall()
        for key in ("rank", "kind")
    )
    assert {str(rank): time for rank, time in by_rank} == said["share_us"]
    assert {LABELS[kind]: time for kind, time in by_kind} == said["by_type"]
    path = tables.execute(
        "SELECT span_ns / 1000.0, gap_ns / 1000.0, n_segments, refused_reason, n_ranks FROM capture_paths WHERE target = ?",
        [target],
    ).fetchall()
    assert path == [(said["span_us"], said["by_type"]["gap"], said["n_segments"], None, 8)]


@pytest.mark.slow  # every segment is compared above
def test_joined_graph_of_htas_edges_has_the_references_size(tables: duckdb.DuckDBPyConnection, shared: Path) -> None:
    (capture_id,) = tables.execute("SELECT capture_id FROM captures").fetchall()[0]
    graphs, said = [], reference(shared, "last_gpu_end")
    for rank, path in zip(ranks_of(tables, capture_id), files_of(shared, "dlrm_8"), strict=True):
        con, trace_id = connect(path)
        assert trace_id == rank.trace_id
        graphs += load_ranks(con, {rank.rank: trace_id}, "hta", {"zero_weight_launch": "true"})
        assert 2 * len(graphs[-1].events) == said["nodes"][str(rank.rank)]
    joined = join_ranks(graphs, instances_of(tables, capture_id), {})
    assert (len(joined), joined.n_edges, len(joined.meetings)) == (32_586, 33_054, 8)


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
    assert "thread hand off (guess)" in shown.stdout
    assert "19.8 % of the path" in shown.stdout


@pytest.fixture
def said(dlrm: Lake) -> Callable[..., str]:
    """What is said of words that `capture-path` refuses."""

    def refused(*arguments: str) -> str:
        ran = CliRunner().invoke(app, ["capture-path", *arguments, "--lake", str(dlrm.root)])
        assert ran.exit_code == 1
        return " ".join(ran.output.split())

    return refused


def test_what_the_command_line_refuses(said: Callable[..., str], shared: Path, tmp_path: Path) -> None:
    one = files_of(shared, "dlrm_8")[0]
    assert "no matched collectives: no_partner: only rank 0 is present" in said(str(one))
    assert "last_gpu_end, last_collective_end, last_event_end" in said(str(one), "--target", "end")
    assert "no capture id starts with 'zzz'" in said("zzz")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no trace found in" in said(str(empty))


@pytest.mark.slow
def test_files_of_several_captures_are_refused(said: Callable[..., str], shared: Path) -> None:
    mixed = [str(files_of(shared, name)[rank]) for name in ("dlrm_8", "torchrec_4") for rank in (0, 1)]
    assert "several captures" in said(*mixed)
