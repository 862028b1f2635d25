"""Long traces: storing their tables in a file changes no answer, and the path stays within the documented memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

from bench.enlarge import enlarge
from pipelines.critical_path.graph import host_edges, window_edges
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.longest import long_window, window_paths
from pipelines.faces.cli.app import app
from pipelines.faces.cli.trace import opened_trace
from pipelines.synthetic import CaptureSpec, write_capture

BOUND_MIB = 763
"""Documented memory limit, 0.8 GB."""
# VmHWM is used because ru_maxrss of a child starts at the memory of its parent.
CHILD = """
import sys
from pathlib import Path
from pipelines.faces.cli.app import app
try:
    app(["critical-path", *sys.argv[1:]])
finally:
    status = Path("/proc/self/status").read_text()
    print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_capture(CaptureSpec(ranks=1, steps=3, seed=7), tmp_path_factory.mktemp("capture")).ranks[0].path


def said(*words: object) -> str:
    done = CliRunner().invoke(app, ["critical-path", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow  # tests/critical_path/test_windows.py
@pytest.mark.parametrize(
    "options",
    [("--alternatives", 2), ("--profile", "hta", "--annotation", "ProfilerStep", "--instance", "1:2", "--json")],
)
def test_a_trace_that_counts_as_long_has_the_same_path(
    trace: Path, options: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / name for name in ("short.parquet", "short.zip", "long.parquet", "long.zip")]
    short = said(trace, *options, "--edges", files[0], "--save", files[1])
    monkeypatch.setattr(opened_trace, "_LONG", 1)
    monkeypatch.setattr(window_edges, "EDGES", 1)
    monkeypatch.setattr(host_edges, "EVENTS", 1)
    monkeypatch.setattr(window_paths, "LONG", 1)
    monkeypatch.setattr(long_window, "PIECE", 1000)
    monkeypatch.setattr(long_window, "_BUCKET", 8)
    kept = []
    keep = opened_trace._keep_tables_in_file

    def keep_and_look(con: duckdb.DuckDBPyConnection) -> None:
        keep(con)
        con.execute("CREATE TABLE probe (a INTEGER)")
        kept.extend(con.execute("SELECT database_name FROM duckdb_tables() WHERE table_name = 'probe'").fetchall())

    monkeypatch.setattr(opened_trace, "_keep_tables_in_file", keep_and_look)
    assert said(trace, *options, "--edges", files[2], "--save", files[3]) == short and kept == [("kept",)]
    assert files[0].read_bytes() == files[2].read_bytes() and files[1].read_bytes() == files[3].read_bytes()


def test_a_graph_of_narrow_nodes_is_the_same_graph() -> None:
    src, dst, weight = np.array([[0, 4, 4, 9], [4, 9, 12, 12], [5, 0, 7, 2]])
    wide = ArrayGraph.from_edges(src, dst, weight)
    narrow = ArrayGraph.from_edges(src.astype(np.int32), dst.astype(np.int32), weight)
    for name in ("node_ids", "src", "dst", "weight"):
        assert getattr(wide, name).tolist() == getattr(narrow, name).tolist()
    assert wide.node_ids.tolist() == [0, 4, 9, 12]


def test_nodes_of_a_long_window_are_narrow_only_if_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_edges, "EDGES", 1)
    with duckdb.connect() as con:
        con.execute("CREATE TABLE _refused_windows (window_no BIGINT)")
        con.execute("CREATE TABLE _edges (window_no BIGINT, edge_id BIGINT, src_node_id BIGINT, dst_node_id BIGINT)")
        for window, last in ((1, 2**31 - 1), (2, 2**31)):
            con.execute(f"INSERT INTO _edges VALUES ({window}, 2, 8, {last}), ({window}, 1, 4, 8)")
        (first,), (second,) = window_edges.window_groups(con, ("src_node_id", "dst_node_id"))
    for (number, columns), last, width in ((first, 2**31 - 1, np.int32), (second, 2**31, np.int64)):
        assert [column.tolist() for column in columns] == [[1, 2], [4, 8], [8, last]], number
        assert [column.dtype for column in columns] == [np.int64, width, width]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_the_path_of_a_long_trace_takes_less_than_is_said(shared: Path, tmp_path: Path) -> None:
    source = shared / "traces" / "single" / "v100_54mb_rank1.json.gz"
    if not source.exists():
        pytest.skip(f"{source} is not here")
    long = tmp_path / "long.json"
    n_events = enlarge(source, long, 10)
    assert n_events > opened_trace._LONG
    for options in ((), ("--json",)):
        done = subprocess.run([sys.executable, "-c", CHILD, long, *options], capture_output=True, text=True, check=True)
        peak = int(done.stderr.split()[-1]) / 1024
        assert peak < BOUND_MIB, (options, peak)
        if options:
            answer = json.loads(done.stdout)
            assert answer["success"] and len(answer["path"]) > 1_000_000
