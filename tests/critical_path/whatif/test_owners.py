"""Scenarios that name operators, modules and layers, compared with networkx over the same edges."""

from __future__ import annotations

import json
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from typer.testing import CliRunner

from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.owners import owners_of
from pipelines.critical_path.whatif.scenario import Scenario, ScenarioError
from pipelines.critical_path.whatif.targets import NothingMatches, owner_kinds
from pipelines.critical_path.whatif.window import Window, load
from pipelines.faces.cli.app import app
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import first_of
from tests.harness import connect, x
from tests.modelling.graph_traces import captured, eager, replay

OPS = [("aten::mm", [[2, 3], [3, 4]]), ("aten::add", [[8], [8]]), ("aten::mul", [[4], [4]]), ("aten::add", [[8], [8]])]
NAMES = ["gemm", "add", "mul", "add"]
MODULES = [
    x("python_function", "nn.Module: Net_0", 5, 45, **{"Python id": 1}),
    x("python_function", "nn.Module: Linear_3", 9, 10, **{"Python id": 2, "Python parent id": 1}),
]
# A capture, the same operators launched in another order, and two replays of the capture.
TRACE = [
    *MODULES,
    *captured(OPS, 0, 100),
    *eager(zip(OPS[::-1], NAMES[::-1], strict=True), 200, 300),
    *replay(NAMES, 500, 1),
    *replay(NAMES, 600, 2),
]


def opened(trace: list[dict[str, Any]] | Path, profile: str = "default") -> Window:
    con, trace_id = connect(trace)
    with con:
        window = load(con, load_catalog(), WindowRequest(trace_id, profile=profile))
        return replace(window, owners=owners_of(con, load_catalog(), trace_id))


def owned(trace: list[dict[str, Any]]) -> dict[int, tuple[str, set[str]]]:
    """Return operator and modules of each kernel of TRACE by its position; they are known by construction."""
    owners = {}
    kernels = [i for i, event in enumerate(trace) if event["cat"] == "kernel"]
    for place, i in enumerate(kernels):
        launched = place < len(NAMES)
        inside = set() if launched else {"Net_0", *(["Linear_3"] if place % len(NAMES) == 0 else [])}
        owners[i] = ((OPS[::-1] if launched else OPS)[place % len(NAMES)][0], inside)
    return owners


@cache
def edges(profile: str) -> list[tuple]:
    """Return the table of edges of TRACE."""
    con, trace_id = connect(TRACE)
    request_windows(con, [WindowRequest(trace_id, profile=profile)])
    run_models(con, load_catalog(), ["critical_path_edges"])
    columns = "src_node_id, dst_node_id, path_weight_ns, edge_type, attributed_event_id"
    return con.execute(f"SELECT {columns} FROM critical_path_edges ORDER BY edge_id").fetchall()


def longest(target: str, factor: float, profile: str) -> float:
    """Return the longest path by networkx over the table of edges, in us.

    The time of the selected kernels is scaled first.
    """
    kind, _, pattern = target.partition(":")
    chosen = {
        i
        for i, (op, modules) in owned(TRACE).items()
        if any(fnmatchcase(name, pattern) for name in ([op] if kind == "op" else modules))
    }
    graph = nx.DiGraph()
    for src, dst, weight, edge_type, event in edges(profile):
        own = edge_type == "OPERATOR_KERNEL" and event in chosen
        graph.add_edge(src, dst, weight=round(weight * factor) if own else weight)
    return nx.dag_longest_path_length(graph) / 1000


@pytest.mark.parametrize("profile", first_of(["default", "hta"], 1))
# Not 0, because that would also delete the delays before the work.
@pytest.mark.parametrize("factor", first_of([0.5, 1e-9, 20.0], 1))
@pytest.mark.parametrize("target", ["op:aten::add", "op:aten::m*", "module:Net_0", "module:Linear_*"])
def test_networkx_finds_the_same_length(target: str, factor: float, profile: str) -> None:
    if (target, profile) == ("module:Linear_*", "hta"):
        with pytest.raises(NothingMatches):  # HTA's graph contains only the last kernel of a launch, which is in Net_0
            next(what_if(_window(profile), [Scenario(((target, factor),))]))
        return
    comparison = next(what_if(_window(profile), [Scenario(((target, factor),))]))
    assert comparison.after.length_us == longest(target, factor, profile)


@cache
def _window(profile: str) -> Window:
    return opened(TRACE, profile)


def test_what_is_known_of_the_trace() -> None:
    owners = _window("default").owners
    assert owners is not None
    by_op: dict[str, set[int]] = {}
    for i, (op, _) in owned(TRACE).items():
        by_op.setdefault(op, set()).add(i)
    assert {name: set(ids.tolist()) for name, ids in owners.ids["op"].items()} == by_op
    assert {name: len(ids) for name, ids in owners.ids["module"].items()} == {"Net_0": 8, "Linear_3": 2}
    assert owners.unknown_percent == pytest.approx({"op": 0, "module": 0, "layer": 100 * 8 / 12})


def test_a_target_that_selects_nothing_names_what_there_is() -> None:
    with pytest.raises(
        NothingMatches, match=r"There are: op:aten::add\|aten::m.*module:Net_0\|Linear_3; layer:\(none\); class:"
    ):
        next(what_if(_window("default"), [Scenario((("op:aten::conv", 0.5),))]))


def test_without_the_trace_there_is_no_operator() -> None:
    window = replace(_window("default"), owners=None)
    with pytest.raises(ScenarioError, match="op:aten::add needs the trace"):
        next(what_if(window, [Scenario((("op:aten::add", 0.5),))]))


def test_only_these_targets_need_more_than_the_graph() -> None:
    targets = ["op:aten::mm", "layer:3", "aten::mm", "stream:7", "opaque", "layer", "name:op:x"]
    assert owner_kinds(Scenario(tuple((target, 0.5) for target in targets))) == ["op", "layer"]


# The command ----------------------------------------------------------------------------------------------------------


def asked(*words: object) -> Any:
    return CliRunner().invoke(app, ["what-if", *map(str, words)])


@pytest.fixture(scope="module")
def decode(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return one replay of 4 layers of 8 kernels, with and without its capture."""
    spec = {"ranks": 1, "steps": 1, "shape": "inference_graph", "tokens": 1, "layers": 4}
    return {
        origin: write_capture(CaptureSpec(**spec, graph_origin=origin), tmp_path_factory.mktemp(origin)).paths[0]
        for origin in ("none", "capture")
    }


@pytest.mark.slow  # tests/modelling/test_graph_owners.py checks the owners of a replay
def test_layers_of_a_replay(decode: dict[str, Path]) -> None:
    """Removing one layer saves its kernels as far as they are on the path.

    Removing all layers saves more than two layers together.
    """
    saved = []
    for target in ("layer:0", "layer:3", "layer:*"):
        done = asked(decode["none"], "--remove", target, "--json")
        assert done.exit_code == 0, done.output
        answer = json.loads(done.stdout)
        assert answer["replays_without_layer_percent"] == 0
        saved.append(answer["before"]["length_us"] - answer["after"]["length_us"])
    assert saved[0] > 0 and saved[1] > 0 and saved[0] + saved[1] < saved[2]


@pytest.mark.slow  # test_what_is_known_of_the_trace checks the percentage
def test_the_caveat_says_how_much_no_target_can_select(decode: dict[str, Path]) -> None:
    shown = asked(decode["none"], "--scale", "op:aten::*=0.5").stdout
    assert (
        "of the trace's GPU time ran in graph replays whose operator is unknown: no op: target selects it"
        in " ".join(shown.split())
    )
    both = asked(decode["none"], "--scale", "op:aten::*=0.5", "--capture-trace", decode["capture"], "--json")
    assert json.loads(both.stdout)["replays_without_op_percent"] == 0, both.output
    alone = json.loads(asked(decode["none"], "--scale", "op:aten::*=0.5", "--json").stdout)
    assert alone["replays_without_op_percent"] > 50
    assert alone["after"]["length_us"] > json.loads(both.stdout)["after"]["length_us"]


@pytest.mark.slow  # the tests above use the command
def test_a_notebook_asks_the_same(tmp_path: Path) -> None:
    """A notebook accepts the same targets as the command.

    The notebook's path is saved without operators, which are read from the trace again.
    """
    from pipelines.faces.notebook import TraceAnalysis

    file = tmp_path / "rank0.json"
    file.write_text(json.dumps({"traceEvents": TRACE, "distributedInfo": {"rank": 0}}))
    path = TraceAnalysis(str(file)).critical_path_analysis()
    assert path.what_if({"op:aten::add": 20.0}).after.length_us == longest("op:aten::add", 20.0, "default")
