"""The networkx backend on ordinary networkx graphs.

It answers as networkx does, or declines input that tracelake's tables never contain.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.longest.backend import BackendInterface
from tests.effort import examples

NODES: list[Hashable] = [0, 7, -3, 2**40, 1, 2, 3, 4, 5]
WEIGHTS = ([0, 0, 1, 1, 2], [0, 0, 1, 1, 2, -1], [2**40, 2**40 + 1, -(2**40)])
ODD_NODES: list[Hashable] = [2**70, "a", (1, "b"), 2.5, True]
ODD_WEIGHTS = [0.5, Fraction(1, 3), 2**80, True, np.int64(3), float("nan"), None]

# networkx caches conversions with the graph and warns about it on the second call.
pytestmark = pytest.mark.filterwarnings("ignore:Note. conversions to backend graphs")


@st.composite
def graphs(draw: st.DrawFn, cycles: bool = False) -> nx.DiGraph:
    """Draw a graph with isolated nodes and many ties, possibly after removals and through a view."""
    nodes = draw(st.lists(st.sampled_from(NODES), unique_by=repr, max_size=9))
    graph = nx.DiGraph()
    graph.add_nodes_from(draw(st.permutations(nodes))[: draw(st.integers(0, 9))])
    weights = draw(st.sampled_from(WEIGHTS))
    pairs = [(u, v) for i, u in enumerate(nodes) for j, v in enumerate(nodes) if i < j or (cycles and i >= j)]
    for u, v in draw(st.lists(st.sampled_from(pairs), max_size=25)) if pairs else []:
        graph.add_edge(u, v, weight=draw(st.sampled_from(weights)), cost=1)
        if draw(st.integers(0, 5)) == 0:
            graph.remove_edge(u, v)
    view: Callable[[nx.DiGraph], nx.DiGraph] = draw(
        st.sampled_from(
            [
                lambda g: g,
                lambda g: g.reverse(copy=False),
                lambda g: g.reverse(),
                lambda g: g.subgraph(list(g)[1:]),
                lambda g: g.subgraph(list(g)[:3]),
            ]
        )
    )
    return view(graph)


def outcome(function: Callable[[], Any]) -> Any:
    """Return the result of a call with its type, or the class of the exception."""
    try:
        result = function()
    except Exception as error:
        return type(error)
    return result if isinstance(result, list) else (type(result), repr(result))


def assert_same(plain: Callable[[], Any], ours: Callable[[], Any]) -> None:
    expected, actual = outcome(plain), outcome(ours)
    if isinstance(expected, type):
        assert isinstance(actual, type) and issubclass(actual, expected)
    else:
        assert actual == expected


@settings(max_examples=examples(500), deadline=None)
@given(graphs(), st.sampled_from([1, 0, 0.5]))
def test_the_same_path_and_length(graph: nx.DiGraph, default: float) -> None:
    for function in (nx.dag_longest_path, nx.dag_longest_path_length):
        ours = function(graph, default_weight=default, backend="tracelake")
        assert ours == function(graph, default_weight=default)


@settings(max_examples=examples(300), deadline=None)
@given(graphs(cycles=True))
@example(nx.DiGraph([(0, 1, {"weight": 1}), (1, 0, {"weight": 1})]))
@example(nx.DiGraph([(0, 0, {"weight": 1})]))
def test_the_same_with_cycles(graph: nx.DiGraph) -> None:
    assert_same(lambda: nx.dag_longest_path(graph), lambda: nx.dag_longest_path(graph, backend="tracelake"))


@settings(max_examples=examples(300), deadline=None)
@given(graphs(cycles=True))
def test_there_and_back(graph: nx.DiGraph) -> None:
    """The conversion keeps nodes, edges and weights.

    The conversion back returns the same graph object, with every order in which networkx lists it.
    """
    arrays = BackendInterface.convert_from_nx(graph)
    ids = arrays.node_ids
    assert list(arrays) == list(graph)
    edges = zip(ids[arrays.src].tolist(), ids[arrays.dst].tolist(), arrays.weight.tolist(), strict=True)
    assert sorted(edges) == sorted(graph.edges(data="weight"))
    assert BackendInterface.convert_to_nx(arrays) is graph


def declined(graph: Any, **how: Any) -> None:
    """Assert that the backend declines the graph.

    If the backend is named, it raises an error with a reason. If networkx may choose the backend, networkx itself
    answers.
    """
    for function in (nx.dag_longest_path, nx.dag_longest_path_length):
        if function is nx.dag_longest_path_length and "topo_order" in how:
            continue
        with pytest.raises(NotImplementedError, match=r"tracelake|networkx"):
            function(graph, **how, backend="tracelake")
        with nx.config.backend_priority(algos=["tracelake"]):
            assert repr(function(graph, **how)) == repr(function(graph, **how, backend="networkx"))


@pytest.mark.parametrize("node", ODD_NODES, ids=repr)
def test_nodes_that_are_no_whole_numbers_are_declined(node: Hashable) -> None:
    declined(nx.DiGraph([(0, node, {"weight": 3}), (0, 7, {"weight": 2})]))


@pytest.mark.parametrize("weight", ODD_WEIGHTS[:-2], ids=repr)
def test_weights_that_are_no_whole_numbers_are_declined(weight: Any) -> None:
    declined(nx.DiGraph([(0, 5, {"weight": weight}), (0, 7, {"weight": 2})]))
    with pytest.raises(NotImplementedError, match=r"whole numbers|64 bits"):
        BackendInterface.convert_from_nx(nx.DiGraph([(0, 5, {"weight": weight})]))


def test_what_else_our_tables_never_need_is_declined() -> None:
    line = nx.DiGraph([(0, 1, {"weight": 1, "cost": 5}), (1, 2, {"weight": 1})])
    declined(nx.DiGraph([(0, 1), (1, 2, {"weight": 2})]))  # the first edge has no weight
    declined(line, weight="cost")
    declined(line, weight=None)
    declined(line, topo_order=[0, 1, 2])


def test_networkx_adds_up_what_64_bits_do_not_hold() -> None:
    huge = nx.DiGraph()
    huge.add_weighted_edges_from([(i, i + 1, 2**62) for i in range(4)] + [(0, 4, 1)])
    for function in (nx.dag_longest_path, nx.dag_longest_path_length):
        assert function(huge, backend="tracelake") == function(huge)


def test_what_is_no_digraph_is_refused_as_networkx_does() -> None:
    for function in (nx.dag_longest_path, nx.dag_longest_path_length):
        with pytest.raises(nx.NetworkXNotImplemented, match="undirected"):
            function(nx.Graph([(0, 1)]), backend="tracelake")
        with pytest.raises(NotImplementedError, match="tracelake"):
            function(nx.MultiDiGraph([(0, 1)]), backend="tracelake")
    for graph in (nx.Graph(), nx.MultiDiGraph()):
        with pytest.raises(NotImplementedError, match="without parallel edges"):
            BackendInterface.convert_from_nx(graph)


def test_networkx_may_choose_the_backend_by_itself() -> None:
    """With a priority set, networkx uses the backend for the graphs that it supports, and answers the others itself."""
    line, double = nx.path_graph(3, nx.DiGraph), nx.MultiDiGraph([(0, 1), (0, 1)])
    nx.set_edge_attributes(line, 1, "weight")
    with nx.config.backend_priority(algos=["tracelake"]):
        assert nx.dag_longest_path(line) == [0, 1, 2]
        assert nx.dag_longest_path(line, topo_order=[0, 1, 2]) == [0, 1, 2]
        assert nx.dag_longest_path(double) == [0, 1]


def test_functions_of_networkx_that_are_not_here_run_on_the_converted_graph() -> None:
    arrays: Any = ArrayGraph.from_edges(np.array([4, 2]), np.array([2, 9]), np.array([1, 5]))
    assert nx.descendants(arrays, 4, backend="networkx") == {2, 9}
    assert (len(arrays), list(arrays), arrays.number_of_nodes(), arrays.number_of_edges()) == (3, [2, 4, 9], 3, 2)


@pytest.mark.parametrize("priority", [[], ["tracelake"]])
def test_graphs_of_the_program_stay_with_networkx(monkeypatch: pytest.MonkeyPatch, priority: list[str]) -> None:
    """A program that imports networkx keeps networkx's longest path even if tracelake is installed."""
    asked: list[type] = []
    monkeypatch.setattr(
        BackendInterface, "dag_longest_path", staticmethod(lambda graph, *_: asked.append(type(graph)) or [0])
    )
    with nx.config(backend_priority=priority):
        for place in ("args", "kwargs"):
            theirs = nx.DiGraph([(0, 1, {"weight": 5})])
            path = nx.dag_longest_path(theirs) if place == "args" else nx.dag_longest_path(G=theirs)
            assert path == [0, 1]
        assert asked == []
        assert nx.dag_longest_path(ArrayGraph.from_edges(np.array([0]), np.array([1]), np.array([5]))) == [0]
    assert asked == [ArrayGraph]
