"""The walk through joined ranks: worked examples, small changes of random captures, targets, refusals."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from pipelines.fleet.path import capture_walks
from pipelines.fleet.path.joined import Instance, RanksDisagree, heaviest_path_ns, join_ranks
from pipelines.fleet.path.rank_graph import rank_graph
from pipelines.fleet.path.walk import TARGETS, NoTarget, Segment, find_target, first_ns, walk_back
from tests.effort import SLOW
from tests.fleet.path.make import Case, Event, joined, makespan, numbered, random_case

EXAMPLES = (
    "E1_two_ranks_one_allreduce",
    "E2_three_ranks_alternating_culprits_clock_offset",
    "E3_two_communicators_overlap_stream",
)


def _example(shared: Path, name: str) -> tuple[Case, dict]:
    said = json.loads((shared / "golden" / "fleet" / f"multirank_{name}.json").read_text())
    events = tuple(
        Event(e["id"], e["rank"], e["lane"], 1000 * e["start"], 1000 * e["dur"], e.get("inst")) for e in said["events"]
    )
    offsets = tuple(1000 * said["clock_offset"].get(str(rank), 0) for rank in range(4))
    return Case(events, tuple(map(tuple, said["deps"])), offsets), said


def _names(case: Case) -> dict[tuple[int, int], str]:
    ids = numbered(case)
    return {(event.rank, ids[event.id]): event.id for event in case.events}


def _critical(case: Case, path: list[Segment]) -> dict[str, int]:
    """Return the time on the path (ns) of events whose work is on it, and of collectives whose transfer is."""
    names = _names(case)
    ns_by_name: dict[str, int] = {}
    for s in path:
        name = names[s.rank, s.event_id] if s.kind == "gpu_kernel" else s.collective_id
        if name:
            ns_by_name[name] = ns_by_name.get(name, 0) + s.duration_ns
    return ns_by_name


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(shared: Path, name: str) -> None:
    case, said = _example(shared, name)
    kinds, names = {"gpu_kernel": "run"}, _names(case)
    graph = joined(case)
    path = walk_back(graph)
    begin = first_ns(graph)
    rows = [
        [kinds.get(s.kind, s.kind), s.rank, names[s.rank, s.event_id], *((t - begin) / 1000 for t in (s.start_ns, s.end_ns))]
        for s in path
    ]  # fmt: skip
    assert rows == said["path"] == said["expect"]
    assert path[-1].end_ns - path[0].start_ns == 1000 * said["makespan"]
    assert sorted(_critical(case, path)) == said["epsilon_critical"]
    assert makespan(case) == 1000 * said["makespan"]
    assert not any(segment.guessed for segment in path)


@pytest.mark.parametrize("seed", range(100 if SLOW else 30))
def test_shortening_what_is_on_the_path_shortens_the_whole(seed: int) -> None:
    case = random_case(seed)
    path = walk_back(joined(case))
    whole = makespan(case)
    assert path[0].start_ns == first_ns(joined(case))
    assert path[-1].end_ns - path[0].start_ns == whole
    assert all(earlier.end_ns == later.start_ns for earlier, later in pairwise(path))
    names = {event.instance or event.id for event in case.events}
    critical = {name for name in names if makespan(case, faster=name, by=500) == whole - 500}
    assert set(_critical(case, path)) == critical
    assert critical


@pytest.mark.parametrize("seed", range(30 if SLOW else 10))
def test_joined_graph_is_networkx_graph(seed: int) -> None:
    case = random_case(seed)
    graph = joined(case)
    whole = graph.graph().to_networkx()
    n_meetings = len({event.instance for event in case.events if event.instance})
    n_members = sum(event.instance is not None for event in case.events)
    n_waits = sum(len(sources) for sources in case.before().values())
    assert len(graph) == 2 * len(case.events) + n_meetings
    # Every event has its own edge, except the matched kernels. Each of these has one to its meeting and one from it.
    assert graph.n_edges == len(case.events) + n_waits + n_members == whole.number_of_edges()
    assert nx.is_directed_acyclic_graph(whole)
    assert heaviest_path_ns(graph) == nx.dag_longest_path_length(whole, backend="networkx")


def test_targets() -> None:
    # Rank 1's last kernel is its collective. Rank 0 continues alone.
    case = Case((Event("a0", 0, 7, 0, 10), Event("A0", 0, 7, 10, 20, "A"), Event("b0", 0, 7, 30, 10),
                 Event("a1", 1, 7, 0, 20), Event("A1", 1, 7, 20, 10, "A")))  # fmt: skip
    graph = joined(case)
    assert find_target(graph, "last_gpu_end") == find_target(graph, "last_event_end") == (0, 5)
    assert find_target(graph, "last_collective_end") == (0, 3)  # of equal ends the lowest rank's
    assert [(s.kind, s.rank, s.duration_ns) for s in walk_back(graph, "last_collective_end")] == [
        ("gpu_kernel", 1, 20),
        ("transfer", 0, 10),
    ]
    with pytest.raises(ValueError, match="last_gpu_end, last_collective_end, last_event_end"):
        walk_back(graph, "the end")
    alone = join_ranks(graph.ranks, [])
    with pytest.raises(NoTarget, match="last_collective_end"):
        walk_back(alone, "last_collective_end")


def test_a_rank_that_began_late_has_a_head() -> None:
    case = Case((Event("A0", 0, 7, 0, 100, "A"), Event("a1", 1, 7, 40, 50), Event("A1", 1, 7, 90, 10, "A")))
    path = walk_back(joined(case))
    assert [(s.kind, s.rank, s.start_ns, s.end_ns) for s in path] == [
        ("head", 1, 0, 40),
        ("gpu_kernel", 1, 40, 90),
        ("transfer", 0, 90, 100),
    ]


def test_ranks_that_disagree_about_the_order_are_refused() -> None:
    case = Case((Event("A0", 0, 7, 0, 10, "A"), Event("B0", 0, 7, 10, 10, "B"),
                 Event("B1", 1, 7, 0, 10, "B"), Event("A1", 1, 7, 10, 10, "A")))  # fmt: skip
    with pytest.raises(RanksDisagree, match="collective A") as refused:
        heaviest_path_ns(joined(case))
    (component,) = refused.value.components
    assert {"collective A", "collective B"} < set(component)
    assert any(node.startswith("rank 0 event") for node in component)
    assert any(node.startswith("rank 1 event") for node in component)


@pytest.mark.parametrize("without", [(1,), (0, 1)])
def test_a_rank_without_a_graph_refuses_the_path(monkeypatch: pytest.MonkeyPatch, without: tuple[int, ...]) -> None:
    """A capture has no path if a rank has no graph, because other ranks may have waited for this rank.

    A rank has no graph if a model failed or its own graph has a cycle.
    """
    full = joined(Case((Event("A0", 0, 7, 0, 10, "A"), Event("A1", 1, 7, 0, 10, "A")))).ranks[0]
    columns = dict.fromkeys(("src", "dst", "weight", "code", "attributed", "owner", "flags"), np.empty(0, np.int64))
    nodes = dict.fromkeys(("node", "at_ns", "side"), np.empty(0, np.int64))
    ranks = [capture_walks.JoinableRank(rank, f"trace{rank}", 0, 1) for rank in (0, 1)]
    empty = [rank_graph(rank, f"trace{rank}", nodes, columns) for rank in without]
    for name, value in {
        "instances_of": [Instance("0", ((0, 0), (1, 0)))],
        "ranks_of": ranks,
        "drifting_ranks": {},
        "load_ranks": [*([] if 0 in without else [full]), *empty],
    }.items():
        monkeypatch.setattr(capture_walks, name, lambda *_, value=value: value)
    rows = list(capture_walks._walk_capture(None, "c", None))  # pyright: ignore[reportArgumentType]
    numbers = ", ".join(map(str, without))
    reason = f"no dependency graph of rank {numbers} (tables model_failures and critical_path_caveats may say why)"
    assert rows == [
        ("_walked_segments", {"capture_id": ["c"], "target": [target], "refused_reason": [reason]})
        for target in TARGETS
    ]


def test_members_that_no_graph_holds_do_not_meet() -> None:
    case = Case((Event("A0", 0, 7, 0, 10, "A"), Event("A1", 1, 7, 0, 10, "A")))
    graphs = joined(case).ranks
    whole = join_ranks(graphs, [Instance("A", ((0, 0), (1, 5), (9, 0)))])
    assert (len(whole.meetings), np.sum([len(m) for m in whole.meeting_of])) == (0, 0)


def test_a_collective_takes_what_is_left_when_the_last_rank_has_come() -> None:
    """A collective's transfer on a rank lasts from the last rank's arrival to the end of the rank's own kernel.

    It is measured on the common clock. It is 0 if the kernel ended before the last arrival, which errors of the clocks
    can cause.
    """
    case = Case((Event("A0", 0, 7, 0, 10, "A"), Event("A1", 1, 7, 25, 10, "A")), offsets=(0, 5))
    graph, at, _ = joined(case).timed()
    after = graph.src == 4
    assert dict(zip(graph.dst[after].tolist(), graph.weight[after].tolist(), strict=True)) == {1: 0, 3: 10}
    assert at.tolist() == [0, 10, 20, 30, 20]


def test_what_else_leads_to_the_end_of_a_kernel_stays() -> None:
    """Where a kernel meets those of other ranks, only its own edge is replaced. Other edges into its end stay."""
    ends = {"src": np.array([0, 1, 2, 1]), "dst": np.array([1, 2, 3, 3]), "weight": np.array([5, 1, 5, 2])}
    zeros = dict.fromkeys(("code", "attributed", "owner", "flags"), np.zeros(4))
    nodes = {"node": np.arange(4), "at_ns": np.array([0, 5, 6, 11]), "side": np.zeros(4)}
    graphs = [rank_graph(rank, "t", nodes, {**ends, **zeros}) for rank in (0, 1)]
    whole = join_ranks(graphs, [Instance("A", ((0, 1), (1, 1)))])
    edges = {(u, v) for u, v, *_ in zip(*(column.tolist() for column in whole.edges()), strict=True)}
    of_ranks = {(0, 1), (1, 2), (1, 3), (4, 5), (5, 6), (5, 7)}
    assert edges == of_ranks | {(2, 8), (8, 3), (6, 8), (8, 7)} and whole.n_edges == 10


def test_whose_time_each_edge_of_the_joined_graph_is() -> None:
    """An edge within a rank belongs to that rank.

    An edge out of a meeting belongs to the kernel that ends there, and an edge into it has no owner.
    """
    n_meetings = 0
    for seed in range(20):
        whole = joined(random_case(seed))
        base, graphs = whole.bases(), whole.ranks
        own_src, own_dst, own_weight = (
            np.concatenate(parts)
            for parts in (
                [graph.src + begin for graph, begin in zip(graphs, base, strict=False)],
                [graph.destinations() + begin for graph, begin in zip(graphs, base, strict=False)],
                [graph.weight for graph in graphs],
            )
        )
        src, dst, weight, own = whole.edges()
        into, out_of = dst >= base[-1], src >= base[-1]
        inside = ~(into | out_of)
        assert (own[into] == -1).all() and len(src) == whole.n_edges
        assert (own_src[own[inside]] == src[inside]).all() and (own_dst[own[inside]] == dst[inside]).all()
        assert (own_weight[own[inside]] == weight[inside]).all()
        ends = out_of & (own >= 0)
        assert (own_dst[own[ends]] == dst[ends]).all() and (own_src[own[ends]] == dst[ends] - 1).all()
        n_meetings += int(ends.sum())
    assert n_meetings > 20


def test_ranks_that_meet_nowhere_keep_their_times_to_the_nanosecond() -> None:
    """Ranks without common collectives keep their times to the nanosecond.

    A double cannot represent times since 1970 so exactly.
    """
    began = 1_795_924_800_123_456_789
    graph = joined(Case((Event("k", 0, 7, began, 5),)))
    _, node_ns, _ = graph.timed()
    assert not graph.meetings and node_ns.tolist() == [began, began + 5]
