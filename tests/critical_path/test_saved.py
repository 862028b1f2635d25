"""Saved paths: restored as they were, without the trace or a lake; nothing else is taken for one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from pipelines.critical_path.answer.answer import critical_path
from pipelines.critical_path.answer.saved_path import NotASavedPath, restore_path
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.faces.cli.app import app
from pipelines.models.catalog import load_catalog
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import examples
from tests.harness import connect, x

PROFILES = pytest.mark.parametrize("profile", ["default", "hta"])


def saved(trace: Any, target: Path, profile: str = "default", annotation: str = "", **how: Any) -> tuple[Any, Any]:
    """The connection in which the path was computed, and the answer."""
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
    assert restored_rows(restored.edges.drop_columns("seq")) == edges
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


def test_another_process_needs_neither_trace_nor_lake(trace: Path, tmp_path: Path) -> None:
    """Through the command line, with the file moved and the trace gone; the rest in this process, which costs less."""
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
    (tmp_path / "b.zip").write_bytes(b"PK\3\4 and no more")
    refused = tracelake(tmp_path / "b.zip")
    assert refused.exit_code == 1 and "b.zip is damaged" in refused.stderr and "--save" in refused.stderr


def test_what_it_was_computed_with_is_in_it(trace: Path, tmp_path: Path) -> None:
    con, _ = saved(trace, tmp_path / "a.zip", "hta", "ProfilerStep", overrides={("hta", "zero_weight_launch"): "true"})
    meta = restore_path(tmp_path / "a.zip").meta
    assert (meta["format"], meta["version"], meta["profile"]) == ("tracelake critical path", 2, "hta")
    assert meta["trace"]["file"] == trace.name
    assert meta["window"]["annotation"] == "ProfilerStep"
    bounds = con.execute("SELECT start_ns, end_ns FROM critical_path_windows").fetchall()
    assert bounds == [(meta["window"]["start_ns"], meta["window"]["end_ns"])]
    assert meta["switches"]["zero_weight_launch"] == "true"
    assert set(meta["switches"].items()) > {("drop_last_step", "true"), ("summary_weight", "measured")}


def test_a_path_of_no_edges(tmp_path: Path) -> None:
    """A trace without operators or kernels has a window and no graph."""
    _, answer = saved([x("other", "neither", 0, 1)], tmp_path / "a.zip")
    restored = restore_path(tmp_path / "a.zip")
    assert restored.answer == answer and not answer.success
    assert len(restored.graph()) == restored.nodes.num_rows == restored.path.num_rows == 0


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


def rewritten(file: Path, target: Path, change: dict[str, bytes | None]) -> Path:
    """A copy of an archive with parts replaced (bytes), added or left out (None)."""
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(target, "w") as new:
        parts = {name: old.read(name) for name in old.namelist()} | change
        for name, content in parts.items():
            if content is not None:
                new.writestr(name, content)
    return target


def test_strangers_are_named_with_the_way_out(file: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        meta = json.loads(archive.read("meta.json"))
    strangers: list[tuple[dict[str, bytes | None], str]] = [
        (
            {"meta.json": json.dumps({**meta, "version": 1}).encode()},
            "format version 1; this tracelake reads version 2",
        ),
        ({"meta.json": json.dumps({**meta, "format": "schedule"}).encode()}, "but 'schedule'"),
        ({"meta.json": json.dumps({**meta, "profile": "hta"}).encode()}, "meta.json does not match what was written"),
        ({"meta.json": b"[1]"}, "meta.json cannot be read"),
        ({"meta.json": b"{"}, "meta.json cannot be read"),
        ({"edges.parquet": None}, "edges.parquet is missing"),
        ({"edges.parquet": b"PAR1"}, "edges.parquet is not as it was written"),
        ({"meta.json": None}, "no meta.json"),
        ({"meta.json": None, "trace_data.pkl": b"cos\nsystem\n"}, "it was saved by HTA"),
    ]
    for change, why in strangers:
        stranger = rewritten(file, tmp_path / "stranger.zip", change)
        with pytest.raises(NotASavedPath, match=r"stranger\.zip .*tracelake critical-path TRACE --save FILE") as found:
            restore_path(stranger)
        assert why in str(found.value)
    with pytest.raises(FileNotFoundError):
        restore_path(tmp_path / "nothing.zip")


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_damage_is_found_wherever_it_is(
    file: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A byte changed or the end missing: an error that names the file, or (in the archive's dates) the same path."""
    whole = file.read_bytes()
    # Half of the places from the directory at the end, which is small and where every field matters.
    place = data.draw(st.integers(0, len(whole) - 1) | st.integers(len(whole) - 400, len(whole) - 1))
    damaged = tmp_path_factory.getbasetemp() / "damaged.zip"
    if data.draw(st.booleans()):
        damaged.write_bytes(whole[:place])
    else:
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :])
    try:
        restored = restore_path(damaged)
    except NotASavedPath as error:
        assert str(damaged) in str(error) and "Save the path again" in str(error)
    else:
        expected = restore_path(file)
        assert restored.meta == expected.meta and restored.edges.equals(expected.edges)
        assert restored.nodes.equals(expected.nodes) and restored.path.equals(expected.path)
        assert restored.events.equals(expected.events)
