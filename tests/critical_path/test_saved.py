"""Saved paths: they are restored unchanged without the trace or a lake, and other files are rejected."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from pipelines.critical_path.answer.answer import critical_path
from pipelines.critical_path.answer.save_path import write_saved
from pipelines.critical_path.answer.saved_path import NotASavedPath, restore_path
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.faces.cli.app import app
from pipelines.models.catalog import load_catalog
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import examples
from tests.harness import connect, x

PROFILES = pytest.mark.parametrize("profile", ["default", "hta"])


def saved(trace: Any, target: Path, profile: str = "default", annotation: str = "", **how: Any) -> tuple[Any, Any]:
    """Save the path, and return the connection in which it was computed, and the answer."""
    con, trace_id = connect(trace)
    request = WindowRequest(trace_id, "asked", profile, annotation)
    return con, critical_path(con, load_catalog(), request, save_to=target, **how)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("capture")
    return write_capture(CaptureSpec(ranks=1, steps=3, seed=7), folder).ranks[0].path


@pytest.fixture(scope="module")
def file(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("saved") / "rank 0's.zip"
    saved(trace, target)
    return target


@pytest.mark.slow  # 3 s
@PROFILES
def test_nodes_edges_path_and_summary_are_what_they_were(trace: Path, profile: str, tmp_path: Path) -> None:
    con, answer = saved(trace, tmp_path / "it's.zip", profile)
    restored = restore_path(tmp_path / "it's.zip")
    assert restored.answer == answer and answer.success

    def rows(query: str) -> list[tuple]:
        return con.execute(query).fetchall()

    def restored_rows(table: Any, *columns: str) -> list[tuple]:
        return list(zip(*(table[name].to_pylist() for name in columns or table.column_names), strict=True))

    nodes = rows("SELECT node_id, event_id, is_start, at_ns FROM critical_path_nodes ORDER BY node_id")
    assert restored_rows(restored.nodes, "node_id", "event_id", "is_start", "at_ns") == nodes
    assert None not in restored.nodes["name"].to_pylist()
    edges = "FROM critical_path_edges LEFT JOIN critical_path USING (trace_id, window_id, edge_id)"
    assert restored_rows(restored.edges, "edge_id", "seq") == rows(f"SELECT edge_id, seq {edges} ORDER BY edge_id")
    edges = rows("SELECT * EXCLUDE (trace_id, window_id) FROM critical_path_edges ORDER BY edge_id")
    assert restored_rows(restored.edges.drop_columns(["seq"])) == edges
    path = rows("SELECT * EXCLUDE (trace_id, window_id) FROM critical_path ORDER BY seq")
    assert restored_rows(restored.path) == path
    share = "SELECT bound_by, n_edges, duration_ns, percent, percent_of_window FROM critical_path_summary"
    assert sorted(tuple(row.values()) for row in restored.meta["summary"]) == sorted(rows(share))

    graph: Any = restored.graph()
    assert sorted(graph) == restored.nodes["node_id"].to_pylist()
    ends = restored_rows(restored.path, "src_event_id", "src_is_start", "dst_event_id", "dst_is_start")
    chosen = [(2 * src + (not starts), 2 * dst + (not also)) for src, starts, dst, also in ends]
    assert list(nx.utils.pairwise(nx.dag_longest_path(graph))) == chosen
    assert nx.dag_longest_path(graph.to_networkx()) == nx.dag_longest_path(graph)
    assert nx.dag_longest_path_length(graph) == np.sum(restored.path["path_weight_ns"].to_numpy())


def tracelake(*words: object) -> Result:
    done = CliRunner().invoke(app, ["critical-path", *map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.mark.slow
def test_another_process_needs_neither_trace_nor_lake(trace: Path, tmp_path: Path) -> None:
    """The command line reads the file after it was moved and the trace was deleted.

    Only one call is a process, because processes take long.
    """
    copy = shutil.copy(trace, tmp_path / trace.name)
    done = tracelake(copy, "--save", tmp_path / "a.zip", "--json", "--annotation", "ProfilerStep", "--instance", "1:2")
    assert done.exit_code == 0, done.stderr
    Path(copy).unlink()
    (tmp_path / "a.zip").rename(tmp_path / "b.zip")
    again = [sys.executable, "-m", "pipelines.faces.cli.app", "critical-path", str(tmp_path / "b.zip"), "--json"]
    again += ["--lake", str(tmp_path / "none")]
    other = subprocess.run(again, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert json.loads(other.stdout) == json.loads(done.stdout)
    assert f"{trace.name}, ProfilerStep 1:2, profile default" in tracelake(tmp_path / "b.zip").stdout
    for wrong in (["--annotation", "x"], ["--profile", "hta"], ["--save", tmp_path / "c.zip"]):
        refused = tracelake(tmp_path / "b.zip", *wrong)
        assert refused.exit_code == 1 and "is a saved path" in refused.stderr
    (tmp_path / "b.zip").write_bytes((tmp_path / "b.zip").read_bytes()[:-1])
    refused = tracelake(tmp_path / "b.zip")
    assert (
        refused.exit_code == 1
        and "b.zip is damaged: it is not as it was written" in refused.stderr
        and "--save" in refused.stderr
    )


@pytest.mark.slow  # 2 s
def test_what_it_was_computed_with_is_in_it(trace: Path, tmp_path: Path) -> None:
    con, _ = saved(trace, tmp_path / "a.zip", "hta", "ProfilerStep", overrides={("hta", "zero_weight_launch"): "true"})
    meta = restore_path(tmp_path / "a.zip").meta
    assert (meta["version"], meta["profile"]) == (4, "hta")
    assert meta["trace"]["file"] == trace.name
    assert meta["window"]["annotation"] == "ProfilerStep"
    bounds = con.execute("SELECT start_ns, end_ns FROM critical_path_windows").fetchall()
    assert bounds == [(meta["window"]["start_ns"], meta["window"]["end_ns"])]
    assert meta["switches"]["zero_weight_launch"] == "true"
    assert set(meta["switches"].items()) > {("drop_last_step", "true"), ("summary_weight", "measured")}


@pytest.mark.slow  # 2 s
def test_a_path_of_no_edges(tmp_path: Path) -> None:
    """The saved path of a trace without operators and kernels has a window but no graph."""
    _, answer = saved([x("other", "neither", 0, 1)], tmp_path / "a.zip")
    restored = restore_path(tmp_path / "a.zip")
    assert restored.answer == answer and not answer.success
    assert len(restored.graph()) == restored.nodes.num_rows == restored.path.num_rows == 0


@pytest.mark.slow  # test_nodes_edges_path_and_summary_are_what_they_were
def test_no_other_file_is_overwritten(trace: Path, file: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.json").write_text("{}")
    with pytest.raises(FileExistsError, match=r"precious\.json exists"):
        saved(trace, tmp_path / "precious.json")
    with pytest.raises(FileNotFoundError, match=r"folder .*nowhere does not exist"):
        saved(trace, tmp_path / "nowhere" / "a.zip")
    again = shutil.copy(file, tmp_path / "a.zip")
    saved(trace, Path(again), annotation="ProfilerStep")
    assert restore_path(Path(again)).meta["window"]["annotation"] == "ProfilerStep"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "precious.json"]


def test_strangers_are_named_with_the_way_out(file: Path, tmp_path: Path) -> None:
    whole, stranger = file.read_bytes(), tmp_path / "stranger.parquet"
    parquet = tmp_path / "other.parquet"
    connect([])[0].execute(f"COPY (SELECT 1 AS n) TO '{parquet}'")
    changed = bytearray(whole)
    changed[100] ^= 1
    saved_now = restore_path(file)
    write_saved(replace(saved_now, meta={**saved_now.meta, "version": 2}), tmp_path / "older.parquet")
    older = (tmp_path / "older.parquet").read_bytes()
    for content, why in (
        (older, "has format version 2; this tracelake reads version 4"),
        (parquet.read_bytes(), "is not a critical path saved by tracelake"),
        (b"PAR1", "is not a critical path saved by tracelake, or its end is missing"),
        (whole[:-300], "is not a critical path saved by tracelake, or its end is missing"),
        (bytes(changed), "is damaged: it is not as it was written"),
        (b"PK\x03\x04", "but a zip, as HTA saves paths"),
        (b"", "is not a critical path saved by tracelake"),
    ):
        stranger.write_bytes(content)
        with pytest.raises(NotASavedPath, match=why) as error:
            restore_path(stranger)
        assert str(stranger) in str(error.value) and "tracelake critical-path TRACE --save FILE" in error.value.hint
    with pytest.raises(FileExistsError, match="is not a saved path"):
        write_saved(saved_now, parquet)
    with pytest.raises(FileNotFoundError):
        restore_path(tmp_path / "nothing.parquet")


def test_any_tool_reads_it_as_parquet(file: Path) -> None:
    """The file contains the bound of each edge, on the path and off it.

    Its tables are columns next to each other.
    """
    con, restored = connect([])[0], restore_path(file)
    rows = "FROM (SELECT unnest({part}) FROM read_parquet('{file}') WHERE {part} IS NOT NULL)"
    edges, path = (rows.format(part=part, file=str(file).replace("'", "''")) for part in ("edges", "path"))
    assert con.execute(f"SELECT count(*) {edges}").fetchall() == [(restored.edges.num_rows,)]
    differ = f"SELECT count(*) FROM (SELECT edge_id, bound_by {path}) JOIN (SELECT edge_id, bound_by AS of_edge {edges}) USING (edge_id)"
    assert con.execute(differ).fetchall() == [(restored.path.num_rows,)]
    assert con.execute(f"{differ} WHERE bound_by IS DISTINCT FROM of_edge").fetchall() == [(0,)]


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_damage_is_found_wherever_it_is(
    file: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """If a byte is changed or the file is truncated, the error names the file."""
    whole = file.read_bytes()
    # Half of the positions are in the metadata at the end, which is small and in which every field matters.
    place = data.draw(st.integers(0, len(whole) - 1) | st.integers(len(whole) - 400, len(whole) - 1))
    damaged = tmp_path_factory.getbasetemp() / "damaged.zip"
    if data.draw(st.booleans()):
        damaged.write_bytes(whole[:place])
    else:
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :])
    with pytest.raises(NotASavedPath, match=re.escape(str(damaged))):
        restore_path(damaged)
