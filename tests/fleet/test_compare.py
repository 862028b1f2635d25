"""Comparing two captures: a worked example, properties that any comparison has, and real traces counted by hand."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.fleet.trends.comparison import CompareError, Difference, compare
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.effort import first_of
from tests.harness import connect, x

BEFORE = [
    x("user_annotation", "ProfilerStep#7", 0, 100),
    x("cpu_op", "aten::mm", 10, 20, **{"External id": 1, "Input Dims": [[4, 8], [8, 2]], "Input type": ["float"]}),
    x("cuda_runtime", "cudaLaunchKernel", 12, 3, correlation=1),
    x("kernel", "gemm", 20, 30, 7, 0, correlation=1, stream=7, device=0, **{"External id": 1}),
    x("cpu_op", "aten::add", 40, 5, **{"External id": 2, "Input Dims": [[4]], "Input type": ["float"]}),
    x("cuda_runtime", "cudaLaunchKernel", 41, 2, correlation=2),
    # No External id of its own: its launch has it. It runs after its step, and belongs to its launch's.
    x("kernel", "add", 120, 4, 7, 0, correlation=2, stream=7, device=0),
    x("user_annotation", "ProfilerStep#8", 100, 100),
    x("cpu_op", "aten::mm", 110, 50, **{"External id": 3, "Input Dims": [[4, 8], [8, 2]], "Input type": ["float"]}),
]
AFTER = [
    x("user_annotation", "ProfilerStep#3", 0, 100),
    x("cpu_op", "aten::mm", 10, 25, **{"External id": 1, "Input Dims": [[4, 8], [8, 2]], "Input type": ["float"]}),
    x("cpu_op", "aten::mm", 50, 6, **{"External id": 5, "Input Dims": [[1, 8], [8, 2]], "Input type": ["float"]}),
    x("cuda_runtime", "cudaLaunchKernel", 12, 3, correlation=1),
    x("kernel", "gemm", 20, 33.5, 7, 0, correlation=1, stream=7, device=0, **{"External id": 1}),
    x("cuda_runtime", "cudaLaunchKernel", 52, 3, correlation=4),
    x("kernel", "gemm", 60, 10, 7, 0, correlation=4, stream=7, device=0, **{"External id": 5}),
]
BEFORE[5]["args"]["External id"] = 2


def world(*traces: list[dict] | Path) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """A connection with the traces' tables; all of them are ranks of capture `cap`."""
    con, ids = duckdb.connect(), []
    for trace in traces:
        one, trace_id = connect(trace)
        run_models(one, load_catalog(), ["ops_by_shape", "profiler_steps"])
        for table in ("traces", "ops_by_shape", "profiler_steps"):
            con.register("given", one.execute(f"FROM {table}").to_arrow_table())
            con.execute(f"CREATE TABLE IF NOT EXISTS {table} AS FROM given LIMIT 0; INSERT INTO {table} FROM given")
            con.unregister("given")
        ids.append(trace_id)
    con.execute(
        "CREATE TABLE capture_ranks (capture_id VARCHAR, rank BIGINT, trace_id VARCHAR, left_out_reason VARCHAR)"
    )
    for rank, trace_id in enumerate(ids):
        con.execute(f"INSERT INTO capture_ranks VALUES ('cap', {rank}, '{trace_id}', NULL)")
    return con, ids


def by_key(rows: list[Difference]) -> dict[tuple, tuple]:
    """Counts, times in us and change by name, shape and device."""
    return {
        (row.device, row.name, row.input_dims): (
            row.control_n, row.test_n, row.control_ns / 1e3, row.test_ns / 1e3, row.change,
        )
        for row in rows
    }  # fmt: skip


def test_by_hand() -> None:
    con, (before, after) = world(BEFORE, AFTER)
    large, small, one = "[[4,8],[8,2]]", "[[1,8],[8,2]]", "[[4]]"
    assert by_key(compare(con, before, after)) == {
        ("cpu", "ProfilerStep#7", None): (1, 0, 100, 0, "deleted"),
        ("cpu", "ProfilerStep#3", None): (0, 1, 0, 100, "added"),
        ("cpu", "aten::mm", large): (1, 1, 20, 25, "unchanged"),
        ("cpu", "aten::mm", small): (0, 1, 0, 6, "added"),
        ("cpu", "aten::add", one): (1, 0, 5, 0, "deleted"),
        ("cpu", "cudaLaunchKernel", None): (2, 2, 5, 6, "unchanged"),
        ("gpu", "gemm", large): (1, 1, 30, 33.5, "unchanged"),
        ("gpu", "gemm", small): (0, 1, 0, 10, "added"),
        ("gpu", "add", one): (1, 0, 4, 0, "deleted"),
    }
    by_name = by_key(compare(con, before, after, by_shape=False))
    assert by_name["gpu", "gemm", None] == (1, 2, 30, 43.5, "increased")
    assert by_name["cpu", "aten::mm", None] == (1, 2, 20, 31, "increased")


def test_steps() -> None:
    con, (before, after) = world(BEFORE, AFTER)
    every = by_key(compare(con, before, after, steps="all"))
    assert every["cpu", "aten::mm", "[[4,8],[8,2]]"] == (2, 1, 70, 25, "decreased")
    other = by_key(compare(con, before, before, steps=8))
    assert other["cpu", "aten::mm", "[[4,8],[8,2]]"] == (1, 1, 50, 50, "unchanged")
    with pytest.raises(CompareError, match="has no step 8; it has 3"):
        compare(con, before, after, steps=8)


def test_ranks_of_a_capture() -> None:
    con, (before, _) = world(BEFORE, AFTER)
    assert compare(con, "cap", before) == compare(con, before, before)
    both = by_key(compare(con, "cap", before, ranks="all"))
    assert both["gpu", "gemm", "[[4,8],[8,2]]"] == (2, 1, 63.5, 30, "decreased")
    assert by_key(compare(con, "cap", before, ranks=1))["gpu", "add", "[[4]]"] == (0, 1, 0, 4, "added")
    with pytest.raises(CompareError, match="no rank 9; it has 0, 1"):
        compare(con, "cap", before, ranks=9)
    with pytest.raises(CompareError, match="no capture or trace id"):
        compare(con, "zzz", before)
    with pytest.raises(CompareError, match="a prefix of 3"):
        compare(con, "", before)


def test_a_trace_against_itself_and_the_other_way_round(shared: Path) -> None:
    folder = shared / "traces" / "ranks" / "sampled_128"
    con, (a, b) = world(folder / "rank0.json.gz", folder / "rank1.json.gz")
    same = compare(con, a, a)
    assert same
    assert all(row.change == "unchanged" and row.diff_ns == 0 for row in same)
    opposite = {"added": "deleted", "deleted": "added", "increased": "decreased", "decreased": "increased"}
    there = {(r.device, r.cat, r.name, r.input_dims, r.input_types): r for r in compare(con, a, b)}
    back = {(r.device, r.cat, r.name, r.input_dims, r.input_types): r for r in compare(con, b, a)}
    assert there.keys() == back.keys()
    assert any(row.change != "unchanged" for row in there.values())
    for key, row in there.items():
        assert (row.diff_n, row.diff_ns) == (-back[key].diff_n, -back[key].diff_ns)
        assert back[key].change == opposite.get(row.change, row.change)


def counted(path: Path) -> dict[tuple[str, str], list[float]]:
    """Count and summed microseconds by device and name in the first step, from the JSON (HTA 2.4 and 2.18)."""
    events: list[dict[str, Any]] = [
        e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e.get("ph") == "X"
    ]
    steps = [e for e in events if e["name"].startswith("ProfilerStep#") and e["cat"] == "user_annotation"]
    first = min(steps, key=lambda e: e["ts"])
    cpu = ("cpu_op", "cuda_runtime", "cuda_driver", "user_annotation")
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0])

    def is_in(event: dict[str, Any]) -> bool:
        return first["ts"] <= event["ts"] < first["ts"] + first["dur"]

    launches = {e["args"]["correlation"]: e for e in events if e["cat"] in cpu and "correlation" in e.get("args", {})}
    for event in events:
        gpu = event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
        at = launches.get(event.get("args", {}).get("correlation")) if gpu else event
        if (gpu or event["cat"] in cpu) and at and is_in(at):
            one = found["gpu" if gpu else "cpu", event["name"]]
            one[0] += 1
            one[1] += event["dur"]
    return found


@pytest.mark.parametrize(
    ("folder", "a", "b"),
    first_of([("sampled_128", "rank0", "rank1"), ("torchrec_4", "0", "2"), ("dlrm_8", "worker0", "worker7")], 1),
)
def test_real_traces_counted_from_their_json(shared: Path, folder: str, a: str, b: str) -> None:
    paths = [shared / "traces" / "ranks" / folder / f"{name}.json.gz" for name in (a, b)]
    con, ids = world(*paths)
    ours: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in compare(con, *ids, by_shape=False):
        for place, value in enumerate((row.control_n, row.control_ns / 1e3, row.test_n, row.test_ns / 1e3)):
            ours[row.device, row.name][place] += value
    before, after = map(counted, paths)
    assert ours.keys() == before.keys() | after.keys()
    for key, found in ours.items():
        assert found == pytest.approx([*before.get(key, (0, 0)), *after.get(key, (0, 0))]), key
    assert Counter(device for device, _ in ours)["gpu"] > 10


def test_command_line(tmp_path: Path) -> None:
    from pipelines.lake import Lake
    from pipelines.readers.ingest import ingest

    lake, ids = Lake(tmp_path / "lake"), []
    for name, events in (("before", BEFORE), ("after", AFTER)):
        path = tmp_path / name / "rank0.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": events}))
        ids.append(ingest([path], lake, job="train").rows[0].trace_id)
    with lake.connect(["traces"]) as con:
        found = dict(con.execute("SELECT trace_id, capture_id FROM traces").fetchall())
    captures = [found[trace_id] for trace_id in ids]
    run = CliRunner().invoke(app, ["compare", *captures, "--lake", str(lake.root), "--json"])
    rows = {(row["name"], row["input_dims"]): row["diff_ns"] for row in json.loads(run.stdout)}
    assert rows["gemm", "[[4,8],[8,2]]"] == 3500
    printed = CliRunner().invoke(app, ["compare", *captures, "--lake", str(lake.root)]).stdout
    assert "gpu: 1 added, 1 deleted, 0 increased, 0 decreased, 1 unchanged; 9.5 us in all" in printed
    for wrong in (["nothing", captures[0]], [*captures, "--rank", "last"]):
        assert CliRunner().invoke(app, ["compare", *wrong, "--lake", str(lake.root)]).exit_code == 1


@pytest.mark.parametrize(
    ("allowed", "code", "told"),
    # GPU time of the first step, by hand: gemm 30 and add 4 us before, gemm 33.5 and 10 us after: 27.94 % more.
    first_of(
        [
            ("27.95%", 0, "fine"),
            ("30", 0, "fine"),
            ("27.9", 3, "+27.9 %"),
            ("0", 3, "slower"),
            ("much", 1, "percentage"),
        ],
        2,
    ),
)
def test_more_gpu_time_than_allowed_is_an_exit_code(tmp_path: Path, allowed: str, code: int, told: str) -> None:
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    for path, events in zip(files, (BEFORE, AFTER), strict=True):
        path.write_text(json.dumps({"traceEvents": events}))
    said = CliRunner().invoke(app, ["compare", *map(str, files), "--fail-on", allowed])
    assert (said.exit_code, told in said.stderr) == (code, True), said.stderr
    assert bool(said.stdout) == (allowed != "much")


def test_without_gpu_time_nothing_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps({"traceEvents": BEFORE[:2]}))
    said = CliRunner().invoke(app, ["compare", str(path), str(path), "--fail-on", "5%"])
    assert (said.exit_code, "has none" in said.stderr) == (1, True)
