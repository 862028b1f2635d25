"""The vectorised replay of ops, which computes the longest path of a graph whose edges come from the ops."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.fleet.op_job import read_job
from pipelines.fleet.op_job.replay import replay
from pipelines.fleet.op_job.template import Template, Unit, build_template
from tests.effort import examples
from tests.fleet.op_job.make import AG, CLIP, EMB, LN, RS, UNIT, B, F, Shape, write_job


@st.composite
def templates(draw: st.DrawFn) -> Template:
    """Draw up to six units of up to three ops, each of which waits for any ops of earlier units."""
    deps: list[tuple[int, ...]] = []
    units = []
    for _ in range(draw(st.integers(1, 6))):
        before = len(deps)
        grouped = draw(st.booleans())
        ops = range(before, before + (draw(st.integers(1, 3)) if grouped else 1))
        waits = st.lists(st.integers(0, before - 1), max_size=3, unique=True) if before else st.just([])
        deps += [tuple(draw(waits)) for _ in ops]
        units.append(Unit(tuple(ops), grouped, grouped and draw(st.booleans())))
    return Template(tuple(deps), tuple(units))


def longest(template: Template, times: np.ndarray) -> np.ndarray:
    """Return the ends [op, step, dp], computed by networkx node by node."""
    n_ops, n_steps, n_dp = times.shape
    graph = nx.DiGraph()
    for op, step, dp in np.ndindex(times.shape):
        graph.add_edge("root", ("S", op, step, dp), weight=0.0)
        for before in template.deps[op]:
            graph.add_edge(("E", before, step, dp), ("S", op, step, dp), weight=0.0)
    for number, unit in enumerate(template.units):
        for op in unit.ops:
            for step, dp in np.ndindex(n_steps, n_dp):
                start, end = ("S", op, step, dp), ("E", op, step, dp)
                join = ("J", number, step, None if unit.across_dp else dp)
                if unit.grouped:
                    graph.add_edge(start, join, weight=0.0)
                graph.add_edge(join if unit.grouped else start, end, weight=times[op, step, dp])
    far: dict[object, float] = {}
    for node in nx.topological_sort(graph):
        far[node] = max((far[u] + w for u, _, w in graph.in_edges(node, data="weight")), default=0.0)
    ends = [far["E", *place] for place in np.ndindex(n_ops, n_steps, n_dp)]
    path = nx.dag_longest_path_length(graph)
    assert max(far.values()) == path
    return np.array(ends).reshape(times.shape)


@settings(max_examples=examples(150), deadline=None)
@given(templates(), st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_replay_is_the_longest_path(template: Template, n_steps: int, n_dp: int, seed: int) -> None:
    times = np.random.default_rng(seed).integers(0, 100, (len(template.deps), n_steps, n_dp)) / 8
    _, ends = replay(template, times)
    assert np.array_equal(ends, longest(template, times))


def test_each_op_waits_for_the_ops_of_its_edges(tmp_path: Path) -> None:
    job = read_job(write_job(tmp_path, Shape(pp=2, dp=2, steps=(1,), batches=1), lambda key: 8 * UNIT))
    waits = {
        (op.optype, op.stage): {job.ops[before].optype for before in deps}
        for op, deps in zip(job.ops, build_template(job).deps, strict=True)
    }
    in_turn = [("gc", B), (LN, "gc"), (EMB, LN), (CLIP, RS), ("optimizer", CLIP)]
    expected = {(op, stage): {before} for op, before in in_turn for stage in range(2)}
    expected |= {(op, stage): before for stage in range(2) for op, before in ((AG, set()), (RS, {AG, EMB}))}
    assert waits == {
        **expected,
        (F, 0): {AG},
        ("forward-send", 0): {F},
        ("backward-recv", 0): set(),
        (B, 0): {F, "backward-recv"},
        (F, 1): {AG, "forward-recv"},
        ("forward-recv", 1): set(),
        (B, 1): {F},
        ("backward-send", 1): {B},
    }
