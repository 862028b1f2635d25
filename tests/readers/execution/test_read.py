"""Execution traces: both schemas, broken files, and the dependencies between nodes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.execution.edges import data_edges
from pipelines.readers.execution.execution_trace import read_nodes
from pipelines.readers.execution.node_stream import stream_nodes
from pipelines.readers.execution.nodes import mutated_arguments
from pipelines.readers.execution.stream import NodeStream
from pipelines.readers.kineto.reading_result import TraceRejected
from tests.readers.execution.make import Op, write

SCHEMAS = ("1.0.1", "1.1.1-chakra.0.0.4")


def edges_of(path: Path) -> set[tuple[str, str, str]]:
    nodes, _ = read_nodes(path)
    names = {node.node_id: node.name for node in nodes}
    return {(names[producer], names[consumer], kind) for producer, consumer, kind in data_edges(nodes)}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_both_schemas_read_alike(tmp_path: Path, schema: str) -> None:
    ops = [Op("a", [1], [2], [Op("b", [1], [3])], schema="a(Tensor self) -> Tensor"), Op("c", [2, 3], tid=2)]
    nodes, version = read_nodes(write(tmp_path / "et.json", ops, schema))
    assert version == schema
    operators = {node.name: node for node in nodes if node.is_operator}
    assert list(operators) == ["b", "a", "c"]  # in the order in which they end
    assert operators["b"].parent_id == operators["a"].node_id < operators["b"].node_id
    assert (operators["c"].tid, operators["a"].op_schema) == (2, "a(Tensor self) -> Tensor")
    assert [t.tensor_id for t in operators["c"].inputs] == [2, 3]
    assert edges_of(tmp_path / "et.json") == {("a", "c", "read"), ("b", "c", "read")}


def test_views_pass_on_and_writes_in_place_wait_for_readers(tmp_path: Path) -> None:
    ops = [
        Op("new", [], [1]),
        Op("view", [1], [(2, 1001)]),
        Op("look", [1], [5]),
        Op("add_", [(2, 1001)], [(2, 1001)], schema="add_(Tensor(a!) self) -> Tensor(a!)"),
        Op("after", [1], [6]),
    ]
    assert edges_of(write(tmp_path / "et.json", ops)) == {
        ("new", "view", "read"),
        ("new", "look", "read"),
        ("view", "add_", "read"),  # the tensor
        ("new", "add_", "read"),  # the tensor's memory
        ("look", "add_", "overwrite"),
        ("new", "after", "read"),
        ("add_", "after", "read"),
    }


def test_operators_around_a_node_are_no_producers(tmp_path: Path) -> None:
    ops = [Op("outer", [1], [2], [Op("one", [1], [2]), Op("two", [2], [2])]), Op("next", [2])]
    assert edges_of(write(tmp_path / "et.json", ops)) == {
        ("one", "two", "read"),
        ("outer", "next", "read"),  # it returned the tensor last
    }


def test_another_thread_sees_what_ended_before(tmp_path: Path) -> None:
    ops = [Op("forward", [1], [2]), Op("backward", [2], [3], tid=2), Op("step", [3])]
    assert edges_of(write(tmp_path / "et.json", ops)) == {("forward", "backward", "read"), ("backward", "step", "read")}


@pytest.mark.parametrize(
    ("schema", "places"),
    [
        ("aten::add_(Tensor(a!) self, Tensor other) -> Tensor(a!)", {0}),
        ("aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)", {3}),
        ("aten::f(int[2] x=[1, 1], Tensor(a!)[] self) -> ()", {1}),
        ("aten::view(Tensor(a) self, int[] size) -> Tensor(a)", set()),
        ("", set()),
    ],
)
def test_arguments_written_in_place(schema: str, places: set[int]) -> None:
    assert mutated_arguments(schema) == places


def test_bare_infinities_and_packed_files_are_read(tmp_path: Path) -> None:
    text = write(tmp_path / "et.json", [Op("masked_fill", [1], [2])]).read_text()
    text = text.replace('"inputs": [[', '"note": [-inf, nan, "inf"], "inputs": [[')
    (tmp_path / "et.json.gz").write_bytes(gzip.compress(text.encode()))
    nodes, _ = read_nodes(tmp_path / "et.json.gz")
    assert [len(node.inputs) for node in nodes if node.is_operator] == [1]


def test_a_large_file_comes_in_pieces(tmp_path: Path) -> None:
    """A large file is read in chunks of 1 MiB, whose borders cut nodes and multi-byte characters."""
    write(tmp_path / "et.json", [Op("ü" * 99, [n], [n + 1]) for n in range(1, 4000)])
    raw = json.loads((tmp_path / "et.json").read_text())
    (tmp_path / "et.json").write_text(json.dumps(raw, ensure_ascii=False, indent=4), encoding="utf-8")
    nodes, _ = read_nodes(tmp_path / "et.json")
    assert [node.node_id for node in nodes] == [node["id"] for node in raw["nodes"]]
    assert {node.name for node in nodes if node.is_operator} == {"ü" * 99}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"traceEvents": []}', "a profiler trace, not an execution trace"),
        ('{"a": 1}', "not an execution trace"),
        ("[]", "not an execution trace"),
        ("\n\x08\x00protobuf", "binary data"),
        ("", "the file is empty"),
        ('{"schema": "1.0.1", "nodes": [{"id": 1, "rf_id": 0}', "ends within the nodes"),
        ('{"schema": "1.0.1", "nodes": [{"id": 1, "rf', "cannot be read as JSON"),
        ('{"schema": "1.0.1", "nodes": [3]}', "not an object"),
        ('{"schema": "1.0.1", "nodes": [{"id": 1}]}', "neither rf_id nor attrs"),
        ('{"schema": "1.0.1", "nodes": [{"name": "x"}]}', "node 0 has no id"),
        ('{"schema": "1.0.1", "nodes": [{"id": 1, "rf_id": 0}, {"id": 1, "rf_id": 0}]}', "occurs twice"),
        ('{"schema": "1.0.1", "nodes": []', "is truncated"),
        ('{"schema": "1.0.1", "nodes": [{"id": 9223372036854775808, "rf_id": 0}]}', "node 0 has no id of 64 bits"),
        ('{"schema": "1.0.1", "nodes": [{"id": true, "rf_id": 0}]}', "node 0 has no id of 64 bits"),
        ('{"schema": "1.0.1", "nodes": [{"id": false, "rf_id": 0}]}', "node 0 has no id of 64 bits"),
        (
            '{"schema": "1.0.1", "nodes": [{"id": 1, "rf_id": 0, "inputs": 5}]}',
            "node 1: inputs or their types are not a list",
        ),
        ('{"schema": "1.0.1", "nodes": [{"id": 1, "attrs": [], "outputs": [[]]}]}', "node 1: outputs is not an object"),
        (
            '{"schema": "1.0.1", "nodes": [{"id": 1, "attrs": [], "inputs": {"values": [[]], "types": 5}}]}',
            "node 1: inputs or their types are not a list",
        ),
    ],
)
def test_what_is_no_execution_trace_is_refused_in_words(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(TraceRejected, match=reason):
        read_nodes(tmp_path / "x.json")


def test_true_is_no_number(tmp_path: Path) -> None:
    """`true` counts as a missing number, because a single one would make pyarrow reject the whole trace."""
    raw = json.loads(write(tmp_path / "et.json", [Op("a", [1], [2])]).read_text())
    raw["nodes"][-1] |= {key: True for key in ("parent", "rf_id", "tid", "seq_id")}
    raw["nodes"][-1]["inputs"][0][2] = True
    (tmp_path / "et.json").write_text(json.dumps(raw))
    node = read_nodes(tmp_path / "et.json")[0][-1]
    assert (node.parent_id, node.rf_id, node.tid, node.seq_id, node.inputs) == (0, 0, 0, -1, ())
    assert [tensor.tensor_id for tensor in node.outputs] == [2]


def test_lists_in_lists_that_are_too_deep_are_refused_in_words(tmp_path: Path) -> None:
    """Lists that are nested too deep are rejected with a message.

    Newer Pythons parse deeper lists than they can traverse; older ones reject the text.
    """
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    stream = NodeStream(tmp_path / "x.json")
    stream.nodes = lambda: iter([{"id": 1, "rf_id": 0, "inputs": deep}])
    with pytest.raises(TraceRejected, match="node 0 has lists in lists too deep to read"):
        list(stream_nodes(tmp_path / "x.json", stream))


def test_nodes_that_are_each_others_parents(tmp_path: Path) -> None:
    """A parent must begin before its node; other parents are ignored, because following them would never end."""
    nodes = [{"id": number, "rf_id": number, "parent": parent, "tid": 1} for number, parent in ((5, 6), (6, 5), (7, 1))]
    (tmp_path / "x.json").write_text(json.dumps({"schema": "1.0.1", "nodes": nodes}))
    assert edges_of(tmp_path / "x.json") == set()


def test_texts_that_no_table_can_hold_are_spelled_out(tmp_path: Path) -> None:
    op = {"id": 5, "rf_id": 1, "name": "\ud800", "op_schema": "\udfff", "inputs": [[1, 2, 0, 4, 4, "\udcff"]]}
    (tmp_path / "x.json").write_text(json.dumps({"schema": "1.0.1", "nodes": [op]}))
    (node,), _ = read_nodes(tmp_path / "x.json")
    assert (node.name, node.op_schema, node.inputs[0].device) == ("\\ud800", "\\udfff", "\\xff")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TraceRejected, match="no such file"):
        read_nodes(tmp_path / "x.json")
