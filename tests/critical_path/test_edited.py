"""Edited graphs passed back to the analysis.

The tests compare them with networkx's longest path and with what-if's numbers, and check errors that name the edge.
"""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.critical_path.answer.answer import critical_path
from pipelines.critical_path.answer.edited_graph import give_back
from pipelines.critical_path.answer.save_path import write_saved
from pipelines.critical_path.answer.saved_path import SavedPath, restore_path
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.scenario import of_options
from pipelines.critical_path.whatif.window import of_saved
from pipelines.faces.notebook import CPEdge, CPEdgeType, CriticalPath
from pipelines.models.catalog import load_catalog
from pipelines.synthetic import CaptureSpec, write_capture
from tests.critical_path.test_inferred import blocked, delays_of_devices
from tests.critical_path.whatif.test_of_saved import HELD_UP, OVERLAPPING
from tests.effort import examples, first_of
from tests.harness import call, connect, kernel, op

PROFILES = pytest.mark.parametrize("profile", ["default", "hta"])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Save the path of a small trace in each profile."""
    folder = tmp_path_factory.mktemp("edited")
    trace = write_capture(CaptureSpec(ranks=2, steps=2, straggler=1, seed=5), folder).ranks[0].path
    con, trace_id = connect(trace)
    saved = {}
    for profile in ("default", "hta"):
        saved[profile] = folder / f"{profile}.zip"
        request = WindowRequest(trace_id, profile=profile)
        assert critical_path(con, load_catalog(), request, save_to=saved[profile]).success
    return saved


def path_of(file: Path) -> CriticalPath:
    return CriticalPath.of(restore_path(file))


def same_path(saved: SavedPath, other: SavedPath) -> None:
    assert saved.edges.equals(other.edges) and saved.path.equals(other.path) and saved.nodes.equals(other.nodes)
    assert saved.events.equals(other.events)
    assert saved.answer == other.answer and saved.meta["summary"] == other.meta["summary"]


@pytest.mark.slow(together="edited paths")  # 3 s each; a test below undoes an edit of a small graph
@PROFILES
def test_what_was_not_edited_is_what_it_was(files: dict[str, Path], profile: str) -> None:
    """A path that was not edited has the same edges, steps, labels and names as before.

    The test compares the graph itself and copies in ns and in us.
    """
    path = path_of(files[profile])
    before = path.saved
    assert path.critical_path() and path.saved is before  # the graph was not handed out, so it is not edited
    assert len(path.nodes) == path.answer.nodes
    assert path.critical_path() and path.saved is not before
    same_path(path.saved, before)
    assert path.saved.title == before.title
    for graph in (path.to_networkx(), path.copy(), nx.DiGraph(path), path):
        same_path(path.with_graph(graph).saved, before)


@pytest.mark.slow  # 2 s; a test above also checks unedited paths
def test_waits_of_a_path_that_was_not_edited_stay_what_they_are(tmp_path: Path) -> None:
    """Four kinds of waits are unchanged in a path that was not edited.

    They are waits without a cuda_sync row, waits for work from before the window or before the trace, and waits on two
    devices.
    """
    before_the_trace = [
        *(op("a", 0, 100), call("cudaLaunchKernel", 10, 5, 1), kernel("k", 16, 10, 1)),
        call("hipMemcpyWithStream", 200, 463_000, 2),
        kernel("Memcpy DtoH", 463_100, 50, 2, cat="gpu_memcpy"),
        op("b", 463_210, 10),
    ]
    waits = (
        (blocked("cudaStreamSynchronize"), "", "is_inferred"),
        (HELD_UP, "ProfilerStep", "waits_for_earlier_work"),
        (before_the_trace, "", "waits_for_earlier_work"),
        (delays_of_devices(2), "", "is_inferred"),
    )
    for trace, annotation, flag in waits:
        con, trace_id = connect(trace)
        request = WindowRequest(trace_id, "w", annotation=annotation)
        critical_path(con, load_catalog(), request, save_to=tmp_path / "a.zip")
        path = path_of(tmp_path / "a.zip")
        assert any(path.saved.edges[flag].to_pylist())
        same_path(path.with_graph(path.to_networkx()).saved, path.saved)


@pytest.mark.slow(together="edited paths")
@PROFILES
def test_weights_that_were_scaled_give_what_a_scenario_gives(files: dict[str, Path], profile: str) -> None:
    """A graph with scaled weights has the length, summary and steps of the scenario with the same factor.

    HTA answers what-if questions with such edited graphs.
    """
    path = path_of(files[profile])
    window = of_saved(path.saved)
    [compared] = what_if(window, [of_options(["class:COMMUNICATION=0.5"], ["launch_overhead"], False)])
    communication = {row["event_id"] for row in path.saved.events.to_pylist() if row["class"] == "COMMUNICATION"}
    for *_, edge in path.edges(data=True):
        if edge["type"] == "critical_path_kernel_launch_delay":
            edge["weight"] = 0
        elif edge["type"] == "critical_path_operator" and edge["event_id"] in communication:
            edge["weight"] *= 0.5
    before = path.answer
    assert path.answer is before  # unchanged until the path is searched again
    assert path.critical_path()
    assert path.answer.length_us == compared.after.length_us < before.length_us
    assert path.answer.summary == pytest.approx(compared.after.summary)
    assert path.saved.edges["edge_id"].to_pylist() == window.edge_id.tolist()
    on_path = window.edge_id[compared.after.edges].tolist()
    assert path.saved.path["edge_id"].to_pylist() == on_path
    assert "edges changed" in path.saved.title and path.saved.title in repr(path)
    assert path.saved.meta["edited"]["edges added"] == path.saved.meta["edited"]["edges removed"] == 0


def check(path: CriticalPath, graph: nx.DiGraph) -> None:
    """Check the invariants of any path: networkx's length, consecutive steps, and sums that match the whole."""
    length = round(path.answer.length_us * 1000)
    assert length == nx.dag_longest_path_length(graph)
    nodes = path.critical_path_nodes
    assert sum(graph.edges[pair]["weight"] for pair in nx.utils.pairwise(nodes)) == length
    rows = path.get_critical_path_breakdown().to_pylist()
    assert len(rows) == len(path.critical_path_edges_set) == max(len(nodes) - 1, 0)
    assert sum(row["duration"] for row in rows) == pytest.approx(length / 1000)
    assert path.saved.path["seq"].to_pylist() == list(range(1, len(rows) + 1))
    if length:
        assert sum(dict(path.answer.summary).values()) == pytest.approx(100)
    seq = {row["edge_id"]: row["seq"] for row in path.saved.edges.to_pylist() if row["seq"]}
    assert seq == {row["edge_id"]: row["seq"] for row in path.saved.path.to_pylist()}
    assert (path.answer.nodes, path.answer.edges) == (len(graph), graph.number_of_edges())
    if graph.number_of_edges():
        [compared] = what_if(of_saved(path.saved), [of_options(["cpu=1"], [], False)])
        assert compared.before.length_us == path.answer.length_us
        assert compared.before.summary == pytest.approx(path.answer.summary)


@pytest.mark.slow(together="edited paths")
@settings(max_examples=examples(6), deadline=None)
@given(data=st.data())
def test_any_edit_gives_networkxs_path(files: dict[str, Path], tmp_path_factory: Any, data: st.DataObject) -> None:
    """Weights, edges and nodes are randomly changed, added and removed, without a cycle."""
    profile = data.draw(st.sampled_from(["default", "hta"]))
    path = path_of(files[profile])
    graph = path.to_networkx()
    edges, order = list(graph.edges), list(nx.topological_sort(graph))
    n_events = path.saved.meta["trace"]["n_events"]
    pick = data.draw(st.randoms(use_true_random=False))
    for u, v in pick.sample(edges, pick.randrange(20)):
        graph.edges[u, v]["weight"] = pick.choice([0, 1, 1000, 10**9, pick.randrange(10**7)])
    graph.remove_edges_from(pick.sample(edges, pick.randrange(5)))
    graph.remove_nodes_from(pick.sample(order, pick.randrange(3)))
    for number in range(pick.randrange(3)):
        graph.add_node(2 * n_events + number, name="fused", at_ns=5)
        order.insert(pick.randrange(len(order)), 2 * n_events + number)
    for _ in range(pick.randrange(10)):
        first, second = sorted(pick.sample(range(len(order)), 2))
        kind = pick.choice(list(CPEdgeType))
        if order[first] in graph and order[second] in graph:
            graph.add_edge(order[first], order[second], weight=pick.randrange(10**6), type=kind.value)
    edited = path.with_graph(graph)
    check(edited, graph)
    target = tmp_path_factory.getbasetemp() / "edited.zip"
    write_saved(edited.saved, target)
    same_path(restore_path(target), edited.saved)
    same_path(path.saved, restore_path(files[profile]))  # the original path was not changed


def small() -> list[dict[str, Any]]:
    """Return two operators that launch a kernel each, on two streams; events are numbered in list order."""
    return [
        op("first", 0, 10),
        call("cudaLaunchKernel", 2, 2, 1),
        kernel("gemm", 20, 30, 1),
        op("second", 60, 5),
        call("cudaLaunchKernel", 61, 2, 2),
        kernel("ncclDevKernel_AllReduce", 70, 100, 2, stream=20),
    ]


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    con, trace_id = connect(small())
    file = tmp_path_factory.mktemp("tiny") / "a.zip"
    critical_path(con, load_catalog(), WindowRequest(trace_id), save_to=file)
    return file


@pytest.fixture
def tiny(tiny_file: Path) -> CriticalPath:
    return path_of(tiny_file)


def steps(path: CriticalPath) -> list[tuple]:
    rows = path.get_critical_path_breakdown().to_pylist()
    return [
        (row["type"].removeprefix("critical_path_"), row["s_name"], row["duration"], row["bound_by"]) for row in rows
    ]


def test_whose_time_an_added_edge_is_where_nothing_says_so(tiny: CriticalPath) -> None:
    """If no event is named, an operator's edge between two ends belongs to the event that ends there, as in HTA.

    Other edges with time belong to the event that they start from.
    """
    graph = tiny.to_networkx()
    ends = [node for node in graph if node % 2]
    src, dst = next((a, b) for a in ends for b in ends if a != b and not graph.has_edge(a, b))
    for kind, of in (
        ("operator", dst),
        ("kernel_kernel_delay", src),
        ("kernel_launch_delay", None),
        ("dependency", None),
    ):
        graph.add_edge(src, dst, weight=1, type=f"critical_path_{kind}")
        (row,) = [
            row
            for row in give_back(tiny.saved, graph).edges.to_pylist()
            if row["src_node_id"] == src and row["dst_node_id"] == dst
        ]
        assert row["attributed_event_id"] == (None if of is None else of // 2), kind


def test_an_edge_that_was_added_is_on_the_path(tiny: CriticalPath) -> None:
    """A collective waits for the first kernel through an added edge, which is on the path.

    This edge is a dependency with time. Another edge is passed as HTA's object with a type.
    """
    before = tiny.saved
    assert ("operator", "gemm", 30.0, "gpu_compute_bound") not in steps(tiny)
    tiny.add_edge(2 * 2 + 1, 2 * 5, weight=400)
    tiny.add_edge(0, 2, weight=500, object=CPEdge(0, 2, 500, CPEdgeType.OPERATOR_KERNEL))
    assert tiny.critical_path() is True
    on_path = steps(tiny)
    assert ("operator", "first", 500.0, "cpu_bound") in on_path
    assert ("operator", "gemm", 30.0, "gpu_compute_bound") in on_path and (
        "dependency",
        None,
        400.0,
        "dependency",
    ) in on_path
    assert on_path[-1] == ("operator", "ncclDevKernel_AllReduce", 100.0, "gpu_communication_bound")
    assert tiny.saved.meta["edited"] == {
        "edges added": 1, "edges removed": 0, "edges changed": 1, "nodes added": 0, "nodes removed": 0
    }  # fmt: skip
    assert tiny.answer.length_us == sum(step[2] for step in on_path) == nx.dag_longest_path_length(tiny)
    tiny.remove_edge(5, 10)
    tiny.edges[0, 2].update(weight=2, object=CPEdge(0, 2, 2))
    assert tiny.critical_path() and "edited" not in tiny.saved.title
    same_path(tiny.saved, before)


@pytest.mark.slow  # 2 s
def test_time_of_an_event_that_was_added(tiny: CriticalPath, tmp_path: Path) -> None:
    """Insert an operator between two existing ones, and check its two nodes, its self time and its bound."""
    n = tiny.saved.meta["trace"]["n_events"]
    tiny.add_node(2 * n, name="fused", at_ns=12_000)
    tiny.add_edge(1, 2 * n, weight=0)
    tiny.add_edge(2 * n, 2 * n + 1, weight=1000.5, type="critical_path_operator")
    tiny.add_edge(2 * n + 1, 2 * 3, weight=7.25)
    tiny.critical_path()
    assert ("operator", "fused", 1000.5, "cpu_bound") in steps(tiny)
    assert ("dependency", None, 7.25, "dependency") in steps(tiny)
    again = path_of(Path(tiny.save(tmp_path / "edited")))
    assert again.answer.nodes == 2 * 6 + 2 and "2 nodes added" in repr(again)
    node = again.node_list[2 * n]
    assert (node.ev_idx, node.ts, node.is_start) == (n, 12, True)
    [of_event] = [row for row in again.slack().to_pylist() if row["event_id"] == n]
    assert (of_event["name"], of_event["slack_ns"]) == ("fused", 0)
    assert again.what_if({"fused": 0.5}).after.length_us == again.answer.length_us - 1000.5 / 2
    with pytest.raises(ValueError, match="nodes were added"):
        again.redraw(again.what_if({"fused": 0.5}), tmp_path)


@pytest.mark.slow  # 2 s
def test_what_was_measured_stays_where_the_weight_does(tmp_path: Path) -> None:
    """A negative gap weighs 0 on HTA's path and keeps its measured value, also if the edge gets another type."""
    con, trace_id = connect(OVERLAPPING)
    request = WindowRequest(trace_id, profile="hta")
    critical_path(con, load_catalog(), request, save_to=tmp_path / "a.zip")
    path = path_of(tmp_path / "a.zip")
    [gap] = [ends for *ends, kind in path.edges(data="type") if kind == "critical_path_kernel_kernel_delay"]
    path.edges[gap].update(type="critical_path_dependency", event_id=None)
    path.critical_path()
    [row] = [row for row in path.saved.edges.to_pylist() if [row["src_node_id"], row["dst_node_id"]] == gap]
    assert (row["edge_type"], row["weight_ns"], row["path_weight_ns"]) == ("DEPENDENCY", -20_000, 0)
    path.edges[gap]["weight"] = 1
    path.critical_path()
    assert path.saved.edges["weight_ns"].to_pylist().count(1000) == 1


@pytest.mark.slow  # 1 s
def test_a_deep_copy_is_edited_by_itself(tiny: CriticalPath) -> None:
    """An edit of a path changes neither an earlier nor a later deep copy of it.

    One copy is taken before the dictionaries are built. The other is taken after an edit, before the path is searched
    again.
    """
    early, length = copy.deepcopy(tiny), tiny.answer.length_us
    tiny.edges[0, 2]["weight"] += 3
    late = copy.deepcopy(tiny)
    tiny.edges[0, 2]["weight"] += 3
    outcomes = [(path.critical_path(), path.answer.length_us - length) for path in (early, late, tiny)]
    assert outcomes == [(True, 0), (True, 3), (True, 6)] and type(late) is CriticalPath


def test_a_cycle_has_no_path_and_a_warning_says_where(tiny: CriticalPath) -> None:
    tiny.add_edge(11, 0, weight=0)
    with pytest.warns(UserWarning, match="no critical path: .*cycle"):
        assert tiny.critical_path() is False
    assert tiny.critical_path_nodes == [] and not tiny.success and tiny.get_critical_path_breakdown().num_rows == 0
    tiny.remove_edge(11, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tiny.critical_path() is True
    tiny.clear_edges()
    assert tiny.critical_path() is False and tiny.answer.edges == 0


@pytest.mark.parametrize(
    ("edit", "said"),
    first_of(
        [
            (lambda g: g.add_edge(1, 10, weight="much"), r"edge \(1, 10\): weight is 'much', not a number"),
            (lambda g: g.add_edge(1, 10, weight=-3), r"edge \(1, 10\): weight -3 is negative"),
            (
                lambda g: g.add_edge(1, 10, weight=1, type="fast"),
                r"edge \(1, 10\): unknown type 'fast'; choose one of critical_path",
            ),
            (
                lambda g: g.add_edge(1, 10, weight=1, event_id=77),
                r"edge \(1, 10\): event_id 77 is not an event of the graph",
            ),
            (lambda g: g.add_node("fused"), "node 'fused' is not in the graph; number new ones from 12 on"),
            (lambda g: g.add_edge(1, 10, weight=float("nan")), r"edge \(1, 10\): weight is nan"),
            (lambda g: g.add_edge(1, 10, weight=True), r"edge \(1, 10\): weight is True"),
            (lambda g: g.add_edge(1, 10, weight=10.0**19), "overflow 64 bits"),
            (lambda g: g.add_edge(1, 10, weight=1, type="OPERATOR_KERNEL", event_id=None), "give its event_id"),
            (lambda g: g.add_edge(1, 10, type="critical_path_operator"), r"edge \(1, 10\): weight is None"),
            (lambda g: g.add_node(7.5), r"node 7\.5"),
            (lambda g: g.add_node(10**12), "node 1000000000000"),
            (lambda g: g.add_node(12, at_ns="now"), "at_ns is 'now'"),
        ],
        5,
    ),
)
def test_what_cannot_be_taken_is_named(tiny: CriticalPath, edit: Any, said: str) -> None:
    """The error of a rejected edit names the edge or node, and the path stays unchanged."""
    before, nodes = tiny.saved, tiny.critical_path_nodes
    edit(tiny)
    with pytest.raises(ValueError, match=said):
        tiny.critical_path()
    assert tiny.saved is before and tiny.critical_path_nodes == nodes


@pytest.mark.slow  # 1 s
def test_a_graph_says_what_its_weights_are_in(tiny: CriticalPath) -> None:
    """Copies of the path state the unit of their weights. For other graphs, the caller must set the unit."""
    graph = nx.DiGraph(tiny.edges)
    with pytest.raises(ValueError, match="set it to ns or us, the unit of the weights"):
        tiny.with_graph(graph)
    for name, ns in (("ns", 1), ("us", 1000)):
        graph.graph["weight_unit"] = name
        nx.set_edge_attributes(graph, 7, "weight")
        steps = len(nx.dag_longest_path(graph)) - 1
        assert tiny.with_graph(graph).answer.length_us == 7 * steps * ns / 1000
    tiny.add_edge(1, 10)  # a dependency takes no time
    assert tiny.critical_path() and tiny.saved.edges["path_weight_ns"].to_pylist()[-1] == 0


def test_a_window_that_its_profile_refuses_is_not_edited(tiny: CriticalPath) -> None:
    tiny.saved.meta["refused"] = "a kernel waits for an event of its own stream"
    with pytest.raises(ValueError, match="rejects this graph: a kernel waits"):
        give_back(tiny.saved, tiny)
