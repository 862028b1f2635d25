"""Comparisons of real traces: invariants, and numbers checked against the JSON and TraceLens."""

from __future__ import annotations

import ast
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipelines.fleet.trends.comparison import compare_pairs, totals
from pipelines.fleet.trends.comparison_verdict import sentence
from pipelines.models.sqltext import quoted
from tests.effort import LARGE, first_of
from tests.fleet.compare_json import (
    GPU,
    all_gpu_us,
    cat,
    from_before,
    json_of,
    kernels_of_the_first_step,
    launched_by_hand,
    launches_of,
    shape,
    traces_in,
)
from tests.fleet.compare_world import GPU_BY, World

SINGLE = ("h100_qwen", "mi300_qwen")


@pytest.fixture(scope="module")
def world_of() -> Callable[..., World]:
    """Return a function that returns the world of some files, which is modelled once for all tests."""
    return cache(lambda *paths: World(paths))


def assert_adds_up(shared: Path, paths: list[Path]) -> None:
    """Compare each trace with the next as a whole.

    All rows together must be all GPU time, whatever they are grouped by.
    """
    world = World(paths)
    expected = [all_gpu_us(path) for path in paths]
    assert sum(us > 0 for us in expected) > len(paths) // 2
    for by in GPU_BY:
        for n, trace in enumerate(world.traces):
            other = (n + 1) % len(paths)
            sums = totals(world.compare(trace, world.traces[other], by, "all").whole.rows)
            assert [ns / 1e3 for ns in sums] == pytest.approx([expected[n], expected[other]], rel=1e-6), (by, paths[n])


def of_each_kind(shared: Path) -> list[Path]:
    """Return the first rank of each capture, and one file per content, all of at most 2 MB compressed."""
    first = {path.parent: path for path in reversed(traces_in(shared)) if path.parent.parent.name == "ranks"}
    return [
        path
        for path in traces_in(shared)
        if path.stat().st_size < 2_000_000 and first.get(path.parent, path) == path and "top_level" not in path.name
    ]


@pytest.mark.slow  # the operators of one pair are counted below
@pytest.mark.parametrize("is_large", [False, True])
def test_rows_add_up_to_all_gpu_time(shared: Path, is_large: bool) -> None:
    assert_adds_up(shared, [path for path in of_each_kind(shared) if (path.stat().st_size >= LARGE) == is_large])


@pytest.mark.slow  # test_compare_rows.py tests the rows of hand-written traces
def test_a_trace_against_itself_and_the_other_way_round(shared: Path, world_of: Callable[..., World]) -> None:
    folder = shared / "traces" / "ranks" / "sampled_128"
    world = world_of(folder / "rank0.json.gz", folder / "rank1.json.gz")
    a, b = world.traces
    for by in GPU_BY:
        same = world.compare(a, a, by).whole
        assert same.rows and same.host
        assert all(row.change == "unchanged" and row.diff_ns == row.diff_n == 0 for row in (*same.rows, *same.host))
        opposite = {"added": "deleted", "deleted": "added", "increased": "decreased", "decreased": "increased"}
        there, back = (
            {(r.cat, r.name, r.input_dims, r.input_types): r for r in world.compare(*sides, by).whole.rows}
            for sides in ((a, b), (b, a))
        )
        assert there.keys() == back.keys() and any(row.change != "unchanged" for row in there.values())
        for key, row in there.items():
            assert (row.diff_n, row.diff_ns) == (-back[key].diff_n, -back[key].diff_ns)
            assert back[key].change == opposite.get(row.change, row.change)


@pytest.mark.slow  # 2 s; a whole trace is counted from its JSON below
def test_parts_add_up_to_the_whole(shared: Path) -> None:
    """The parts of a comparison of captures add up to the whole. The parts are its ranks, and its pairs of steps."""
    paths = [
        shared / "traces" / "ranks" / name / f"{rank}.json.gz"
        for name in ("torchrec_4", "torchrec_unequal")
        for rank in (0, 1)
    ]
    world = World(paths)
    comparison = world.compare(world.traces[:2], world.traces[2:])
    assert [part.pairs[0].where for part in comparison.places] == ["rank 0", "rank 1"]
    # Only one side's first step may be warm-up.
    assert [(step_pair.pair.rank, step_pair.pair.control.step) for step_pair in comparison.pairs] == [
        (r, s) for r in (0, 1) for s in (4, 5, 6)
    ]
    whole = totals(comparison.whole.rows)
    assert whole == totals(comparison.whole.categories)
    for side in (0, 1):
        assert sum(totals(part.rows)[side] for part in comparison.places) == whole[side] > 0
        assert (
            sum((step_pair.gpu.control_ns, step_pair.gpu.test_ns)[side] for step_pair in comparison.pairs)
            == whole[side]
        )
    for step_pair in comparison.pairs:  # compared alone, a pair has the same rows
        rows = compare_pairs(world.con, [step_pair.pair], "operator").whole.rows
        assert totals(rows) == step_pair.gpu[:2]
        assert (rows[0].name, rows[0].diff_ns) == (step_pair.gpu.changed_name, step_pair.gpu.changed_ns)
        assert step_pair.gpu.grown_ns == max(row.diff_ns for row in rows)
        assert step_pair.gpu.grown_name in {row.name for row in rows if row.diff_ns == step_pair.gpu.grown_ns}


@pytest.mark.slow  # 2 s; the work of a step is counted from its JSON below
def test_windows_measured_from_their_json(shared: Path, world_of: Callable[..., World]) -> None:
    """Lengths and idle times of the compared steps equal those computed from the JSON."""
    paths = [shared / "traces" / "single" / f"{name}.json.gz" for name in SINGLE]
    world = world_of(*paths)
    for path, trace in zip(paths, world.traces, strict=True):
        events = [e for e in json_of(path) if e.get("ph") == "X"]
        (step,) = (e for e in events if e["name"] == "ProfilerStep#6" and cat(e) == "user_annotation")
        launches, work = launches_of(events), [e for e in events if cat(e) in GPU]
        since, until = step["ts"], step["ts"] + step["dur"]
        launched = {id(e): launches[n]["ts"] for e in work if (n := e["args"]["correlation"]) in launches}
        before = [*from_before(events), *(e for e in work if launched.get(id(e), since) < since)]
        own = [e for e in work if since <= launched.get(id(e), -1) < until]
        start = max([since, *(e["ts"] + e["dur"] for e in before)])
        end = max([until, *(e["ts"] + e["dur"] for e in own)])
        assert start > since + 13_000 and end > until + 2_000  # the host is ahead at both ends
        busy, reached = 0.0, start
        for event in sorted(work, key=lambda e: e["ts"]):
            first, last = max(event["ts"], start), min(event["ts"] + event["dur"], end)
            busy += max(last - max(first, reached), 0)
            reached = max(reached, last)
        (window,) = trace.steps
        measured = (window.duration_ns, window.host_ns, window.idle_ns)
        assert measured == pytest.approx([1e3 * us for us in (end - start, step["dur"], end - start - busy)], abs=100)
        assert window.earlier_ns == 0
    said = sentence(world.compare(world.traces[0], world.traces[1]).whole)
    assert said.startswith("The step takes 33.76 ms instead of 35.18 ms (\N{MINUS SIGN}4.1 %): ")


@pytest.mark.parametrize(
    ("a", "b", "step"),
    [
        pytest.param("single/h100_qwen", "single/mi300_qwen", 6, marks=pytest.mark.slow),
        pytest.param("ranks/dlrm_8/worker2", "ranks/dlrm_8/worker5", None, marks=pytest.mark.slow),
    ],
)
def test_operators_counted_from_their_json(
    shared: Path, world_of: Callable[..., World], a: str, b: str, step: int | None
) -> None:
    paths = [shared / "traces" / f"{name}.json.gz" for name in (a, b)]
    world = world_of(*paths)
    rows = world.compare(world.traces[0], world.traces[1], steps=step or "all").whole.rows
    before, after = (launched_by_hand(path, step) for path in paths)
    assert {row.name for row in rows} == before.keys() | after.keys()
    for row in rows:
        expected = [*before.get(row.name, (0, 0)), *after.get(row.name, (0, 0))]
        assert [row.control_n, row.control_ns / 1e3, row.test_n, row.test_ns / 1e3] == pytest.approx(expected), row.name
    assert len(rows) > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "a", "b"),
    [("sampled_128", "rank0", "rank1"), ("torchrec_4", "0", "2")],
)
def test_kernels_of_a_step_counted_from_their_json(
    shared: Path, world_of: Callable[..., World], folder: str, a: str, b: str
) -> None:
    paths = [shared / "traces" / "ranks" / folder / f"{name}.json.gz" for name in (a, b)]
    world = world_of(*paths)
    work_by_name: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in world.compare(world.traces[0], world.traces[1], "kernel", "first").whole.rows:
        for place, value in enumerate((row.control_n, row.control_ns / 1e3, row.test_n, row.test_ns / 1e3)):
            work_by_name[row.name][place] += value
    before, after = map(kernels_of_the_first_step, paths)
    assert work_by_name.keys() == before.keys() | after.keys() and len(work_by_name) > 10
    for name, ours in work_by_name.items():
        assert ours == pytest.approx([*before.get(name, (0, 0)), *after.get(name, (0, 0))]), name


@pytest.mark.slow  # 5 s
def test_operators_and_shapes_are_tracelens_s(shared: Path, world_of: Callable[..., World]) -> None:
    """TraceLens has rows of an H100 and an MI300 that run the same model.

    Each row matches to a hundredth of a microsecond.
    """
    world = world_of(*(shared / "traces" / "single" / f"{name}.json.gz" for name in SINGLE))
    golden = [json.loads((shared / "golden" / "modelling" / f"flops__{name}.json").read_text()) for name in SINGLE]
    ours: list[Counter[Any]] = [Counter(), Counter()]
    for row in world.compare(world.traces[0], world.traces[1], "shape", "all").whole.rows:
        key = (row.name, shape(json.loads(row.input_dims or "[]")))
        for side, ns in enumerate((row.control_ns, row.test_ns)):
            ours[side][key] += ns
    for side, reference in enumerate(golden):
        theirs: Counter[Any] = Counter()
        for row in reference["tracelens_rows"]:
            if row["matched"]:
                theirs[row["name"], shape(ast.literal_eval(row["dims"]))] += row["tl_kernel_us"]
        assert len(theirs) > 25
        for key, us in theirs.items():
            assert ours[side][key] / 1e3 == pytest.approx(us, abs=0.01), key
        summary = reference["summary"]
        unlaunched = ours[side]["(launch not in the trace)", ()]
        assert unlaunched / 1e3 == pytest.approx(summary["gpu_us_no_launch"])
        assert sum(ours[side].values()) / 1e3 == pytest.approx(summary["gpu_us_total"])


@pytest.mark.parametrize("name", first_of(["h100_qwen", "mi300_qwen", "a100_cuda_graphs_rank0_of_16"], 1))
def test_operators_are_those_of_the_saved_question(shared: Path, world_of: Callable[..., World], name: str) -> None:
    """A trace's GPU time by operator equals that of `ask gpu-operators`, including the work of graph replays."""
    names = SINGLE if name in SINGLE else (name,)
    world = world_of(*(shared / "traces" / "single" / f"{stem}.json.gz" for stem in names))
    only = world.traces[names.index(name)]
    ns_by_operator = {row.name: row.control_ns for row in world.compare(only, only, steps="all").whole.rows}
    asked = world.own.execute(
        f"SELECT op, sum(duration_ns) FROM kernel_owners WHERE op IS NOT NULL AND trace_id = {quoted(only.trace_id)} GROUP BY op"
    ).fetchall()
    assert {op: ns for op, ns in ns_by_operator.items() if not op.startswith("(")} == dict(asked)
