"""The networkx backend on ordinary networkx graphs: whatever networkx answers or raises, so does the backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.critical_path.backend import BackendInterface
from pipelines.critical_path.graph import ArrayGraph
from tests.effort import examples

# No NaN: networkx itself walks back from such a node for ever.
NODES: list[Hashable] = [0, 7, -3, 2**70, "a", "", (1, "b"), 2.5, frozenset({1}), b"x", True, int]
WHOLE = [0, 0, 1, 1, 2, -1]
TENTHS = [0.1, 0.2, 0.3, 0.1 + 0.2, 0.0, -0.0, -0.1, 1e16]
ODD = [
    Fraction(1, 3),
    2**62,
    2**62,
    -(2**62),
    2**80,
    True,
    np.int64(3),
    np.float64(0.3),
    2**53,
    math.inf,
    math.nan,
    -math.inf,
]
WEIGHTS = (WHOLE, TENTHS, WHOLE + TENTHS, WHOLE + TENTHS + ODD)

# networkx keeps conversions with the graph and says so at the second call.
pytestmark = pytest.mark.filterwarnings("ignore:Note. conversions to backend graphs")


@st.composite
def graphs(draw: st.DrawFn, cycles: bool = False) -> nx.DiGraph:
    """A graph built, changed and perhaps seen through a view, with isolated nodes, weights missing and many ties."""
    nodes = draw(st.lists(st.sampled_from(NODES), unique_by=repr, max_size=9))
    graph = nx.DiGraph()
    graph.add_nodes_from(draw(st.permutations(nodes))[: draw(st.integers(0, 9))])
    weights = draw(st.sampled_from(WEIGHTS))
    pairs = [(u, v) for i, u in enumerate(nodes) for j, v in enumerate(nodes) if i < j or (cycles and i >= j)]
    for u, v in draw(st.lists(st.sampled_from(pairs), max_size=25)) if pairs else []:
        graph.add_edge(u, v, **draw(st.sampled_from([{"weight": w, "cost": w} for w in weights] + [{}, {"cost": 1}])))
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
    """What a call gives, with its type, or the class of what it raises."""
    try:
        found = function()
    except Exception as error:
        return type(error)
    return found if isinstance(found, list) else (type(found), repr(found))


def assert_same(plain: Callable[[], Any], ours: Callable[[], Any]) -> None:
    theirs, found = outcome(plain), outcome(ours)
    if isinstance(theirs, type):
        assert isinstance(found, type) and issubclass(found, theirs)
    else:
        assert found == theirs


@settings(max_examples=examples(500), deadline=None)
@given(graphs(), st.sampled_from(["weight", "cost", "nothing", None]), st.sampled_from([1, 0, -1, 0.5]))
def test_the_same_path_and_length(graph: nx.DiGraph, weight: str, default: float) -> None:
    for function in (nx.dag_longest_path, nx.dag_longest_path_length):
        how = {"weight": weight, "default_weight": default}
        assert_same(lambda: function(graph, **how), lambda: function(graph, **how, backend="tracelake"))  # noqa: B023


@settings(max_examples=examples(300), deadline=None)
@given(graphs(cycles=True))
@example(nx.DiGraph([(0, 1), (1, 0)]))
@example(nx.DiGraph([(0, 0)]))
def test_the_same_with_cycles(graph: nx.DiGraph) -> None:
    assert_same(lambda: nx.dag_longest_path(graph), lambda: nx.dag_longest_path(graph, backend="tracelake"))


@settings(max_examples=examples(300), deadline=None)
@given(graphs(cycles=True), st.sampled_from(["weight", "cost"]))
def test_there_and_back(graph: nx.DiGraph, weight: str) -> None:
    """Nodes, edges, their weights, and every order in which networkx lists them."""
    back = BackendInterface.convert_to_nx(BackendInterface.convert_from_nx(graph, edge_attrs={weight: 1}))
    assert type(back) is nx.DiGraph
    assert list(back) == list(graph)
    for now, before in ((back.succ, graph.succ), (back.pred, graph.pred)):
        assert [list(now[node]) for node in back] == [list(before[node]) for node in graph]
    kept = [(u, v, {weight: data[weight]} if weight in data else {}) for u, v, data in graph.edges(data=True)]
    assert repr(list(back.edges(data=True))) == repr(kept)
    back.add_edge("new", "node", weight=3)  # an ordinary graph to edit
    assert back.has_edge("new", "node") and back.size() == graph.size() + 1


@settings(max_examples=examples(150), deadline=None)
@given(graphs(), st.sampled_from([1, 0, 0.5]), st.randoms(use_true_random=False))
def test_a_graph_kept_as_arrays_answers_every_call(graph: nx.DiGraph, default: float, random: Any) -> None:
    """Other names, other defaults, and a topological order of the caller's own."""
    arrays: Any = BackendInterface.convert_from_nx(graph)
    plain = BackendInterface.convert_to_nx(arrays)
    keys = {repr(node): random.random() for node in plain}
    order = list(nx.lexicographical_topological_sort(plain, key=lambda node: keys[repr(node)]))
    for how in ({"default_weight": default}, {"weight": "cost", "default_weight": default}, {"topo_order": order}):
        assert_same(lambda: nx.dag_longest_path(plain, **how), lambda: nx.dag_longest_path(arrays, **how))  # noqa: B023
    assert_same(
        lambda: nx.dag_longest_path(graph, topo_order=order),
        lambda: nx.dag_longest_path(graph, topo_order=order, backend="tracelake"),
    )


LARGE = 2**53


@pytest.mark.parametrize(
    "edges",
    [
        pytest.param([(i, i + 1, 2**62) for i in range(4)] + [(0, 4, 1)], id="sums beyond 64 bits"),
        pytest.param([(0, 1, LARGE), (0, 2, LARGE), (1, 3, 0.5), (2, 3, 1)], id="a whole number that no double is"),
        pytest.param([(0, 3, math.nan), (1, 3, 1.0), (2, 3, 2.0), (3, 4, 1.0)], id="NaN first"),
        pytest.param([(0, 3, 1.0), (1, 3, math.nan), (2, 3, 2.0), (3, 4, 1.0)], id="NaN between"),
        pytest.param([(0, 1, math.inf), (1, 2, -math.inf), (0, 2, 1.0)], id="inf - inf"),
    ],
)
def test_numbers_that_arrays_do_not_add_as_python_does(edges: list) -> None:
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(edges)
    for function in (nx.dag_longest_path, nx.dag_longest_path_length):
        assert_same(lambda: function(graph), lambda: function(graph, backend="tracelake"))  # noqa: B023


def test_what_is_no_digraph_is_refused_as_networkx_does() -> None:
    for function in (nx.dag_longest_path, nx.dag_longest_path_length):
        with pytest.raises(nx.NetworkXNotImplemented, match="undirected"):
            function(nx.Graph([(0, 1)]), backend="tracelake")
        with pytest.raises(NotImplementedError, match="tracelake"):
            function(nx.MultiDiGraph([(0, 1)]), backend="tracelake")
    for graph in (nx.Graph(), nx.MultiDiGraph()):
        with pytest.raises(NotImplementedError, match="without parallel edges"):
            BackendInterface.convert_from_nx(graph)
    with pytest.raises(NotImplementedError, match="one edge attribute"):
        BackendInterface.convert_from_nx(nx.DiGraph(), edge_attrs={"a": 1, "b": 1})


def test_networkx_may_choose_the_backend_by_itself() -> None:
    """With a priority set, graphs come here where we can take them; the rest stays with networkx."""
    line, double = nx.DiGraph([(0, 1), (1, 2)]), nx.MultiDiGraph([(0, 1), (0, 1)])
    with nx.config.backend_priority(algos=["tracelake"]):
        assert nx.dag_longest_path(line) == [0, 1, 2]
        assert nx.dag_longest_path(line, topo_order=[0, 1, 2]) == [0, 1, 2]
        assert nx.dag_longest_path(double) == [0, 1]


def test_functions_of_networkx_that_are_not_here_run_on_the_converted_graph() -> None:
    arrays: Any = ArrayGraph.from_edges(np.array([4, 2]), np.array([2, 9]), np.array([1, 5]))
    assert nx.descendants(arrays, 4, backend="networkx") == {2, 9}
    assert (len(arrays), list(arrays), arrays.number_of_nodes(), arrays.number_of_edges()) == (3, [4, 2, 9], 3, 2)
