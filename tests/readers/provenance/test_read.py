"""Logs and debug folders of torch.compile: every kernel, node and line is read, and damage is reported."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import analyst
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs import Rejected
from pipelines.readers.inputs.faults import Faults
from pipelines.readers.provenance import lake as input_
from pipelines.readers.provenance import torch_log
from pipelines.readers.provenance.graphs import Graph, WrongForm, operator_of
from pipelines.readers.provenance.lake import INPUT, is_log
from pipelines.readers.provenance.torch_log import TorchLog, lines
from tests.effort import examples
from tests.readers.inputs.read_tables import loaded
from tests.readers.provenance.make import (
    GENUINE,
    MAPPINGS,
    STACKS,
    artifact,
    folder_file,
    graph_lines,
    head,
    stack,
    written,
)

GRAPH = {
    "triton_poi_fused_add_relu_0:1": {"add": ["add"], "relu_1": ["relu"], "le": []},
    "extern_kernels.addmm:2": {"addmm_3": ["linear"]},
}
LINES = {
    "triton_poi_fused_add_relu_0:1": [stack(("/a.py", 1, "main"), ("/m.py", 7, "forward")), stack(("/m.py", 9, "f"))]
}


def rows(con: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return con.execute(query).fetchall()


def test_the_genuine_log_is_read_as_a_search_through_its_text_finds() -> None:
    """The generated code also contains the handles, as comments.

    Nodes and source lines are searched in the payloads.
    """
    con = loaded(INPUT, [GENUINE])
    text = GENUINE.read_text()
    handles = re.findall(r"\[Provenance debug handles\] (\S+):(\d+)", text)
    kernels = rows(con, "SELECT name, CAST(handle AS VARCHAR) FROM compiled_kernels ORDER BY graph, handle")
    assert kernels == handles and len(kernels) == 10
    (nodes,) = [json.loads(line) for line in text.split("\n") if line.startswith('\t{"preToPost')]
    expected = {
        (key.rpartition(":")[0], post, pre)
        for key, posts in nodes["cppCodeToPost"].items()
        for post in posts
        for pre in [name for name, after in nodes["preToPost"].items() if post in after] or [None]
    }
    node_rows = rows(con, "SELECT name, post_grad_node, pre_grad_node FROM compiled_kernel_nodes")
    assert set(node_rows) == expected and len(node_rows) == len(expected) == 11
    places = re.findall(r'  File \\"(.*?)\\", line (\d+), in (\w+)\\n    (.*?)\\n', text)
    frames = rows(
        con, "SELECT file, CAST(line AS VARCHAR), function, code FROM compiled_kernel_frames ORDER BY kernel_id, stack"
    )
    assert frames == places and len(frames) == 11
    about = rows(con, "SELECT pid, rank, job, n_graphs, n_kernels, unpacked_bytes FROM compile_provenance")
    assert about == [(4248, None, "j", 2, 10, len(text))]
    assert rows(con, "FROM compile_findings") == []
    kernel = rows(con, "SELECT compile_id, n_post_grad_nodes, operators, post_grad_nodes, pre_grad_nodes, source_lines"
                  " FROM compiled_kernels WHERE name IN ('cpp_fused__softmax_1', 'cpp_fused_sum_2') ORDER BY graph"
                  )  # fmt: skip
    place = "/train/model.py:6 forward"
    assert kernel == [
        ("0/0", 5, "amax, div, exp, sub, sum", "amax, div, exp, sub, sum_1", "softmax", place),
        ("0/0", None, None, None, None, place),  # a backward graph has no node mappings
    ]


def test_a_log_and_a_debug_folder_tell_the_same(tmp_path: Path) -> None:
    of_log = loaded(INPUT, [written(tmp_path / "a.log", graph_lines(GRAPH, LINES, number=3))])
    file = folder_file(tmp_path, GRAPH)
    (file.parent / f"{STACKS}.json.gz").write_bytes(gzip.compress(json.dumps(LINES).encode()))
    of_folder = loaded(INPUT, sorted(file.parent.iterdir()))
    query = "SELECT * EXCLUDE (provenance_id, batch_id, compile_id) FROM compiled_kernels ORDER BY kernel_id"
    assert rows(of_log, query) == rows(of_folder, query)
    first, _ = rows(of_folder, query)
    assert first[3:] == (
        *("triton_poi_fused_add_relu_0", 1, 3, "add, le, relu", "add, le, relu_1", "add, relu"),
        "/m.py:7 forward, /m.py:9 f",
    )
    assert rows(of_log, "SELECT DISTINCT compile_id FROM compiled_kernels") == [("3/0",)]
    assert rows(of_folder, "SELECT pid, n_graphs, n_kernels FROM compile_provenance") == [(41, 1, 2)]
    frames = "SELECT stack, depth, file, line, function, code FROM compiled_kernel_frames ORDER BY stack, depth"
    expected = [
        (0, 0, "/m.py", 7, "forward", "x = 1"),
        (0, 1, "/a.py", 1, "main", "x = 1"),
        (1, 0, "/m.py", 9, "f", "x = 1"),
    ]
    assert rows(of_log, frames) == rows(of_folder, frames) == expected


def test_the_files_of_a_debug_folder_are_one_set_whichever_comes_first(tmp_path: Path) -> None:
    lake, file = Lake(tmp_path / "lake"), folder_file(tmp_path, GRAPH)
    stacks = file.with_name(f"{STACKS}.json")
    (alone,) = ingest([file], lake).rows
    stacks.write_text(json.dumps(LINES))
    statuses = [row.status for path in (stacks, file) for row in ingest([path], lake).rows]
    assert [alone.status, *statuses] == ["ok", "ok", "known"]
    with lake.connect(["compile_provenance", "compiled_kernels"]) as con:
        assert rows(con, "SELECT count(*) FROM compile_provenance") == [(1,)]
        kernels = rows(con, "SELECT operators, source_lines FROM compiled_kernels ORDER BY kernel_id")
    assert kernels == [("add, le, relu", "/m.py:7 forward, /m.py:9 f"), ("addmm", None)]


def test_a_debug_folder_that_is_written_again_replaces_what_was_read_of_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    files = (folder_file(tmp_path, {f"{name}:1": {"mm": []}}) for name in ("longer", "short", "short"))
    assert [row.status for file in files for row in ingest([file], lake).rows] == ["ok", "ok", "known"]
    with lake.connect(["compiled_kernels"]) as con:
        assert rows(con, "SELECT name FROM compiled_kernels") == [("short",)]


@pytest.mark.parametrize(("source", "news"), [("log", {11}), ("debug_folder", {9, 11})])
def test_a_shorter_log_is_an_older_copy_and_a_shorter_debug_folder_is_not(source: str, news: set[int]) -> None:
    assert INPUT.state and INPUT.state({"source": source, "unpacked_bytes": 10}) == (source, 10)
    for n_bytes in (9, 10, 11):
        settled = INPUT.settled({"set": (source, 10), "other": (source, 10)}, {"set": (source, n_bytes)})
        assert settled == ({"other"} if n_bytes in news else {"set", "other"})


def test_each_rank_counts_though_all_compile_the_same(tmp_path: Path) -> None:
    files = [folder_file(tmp_path, GRAPH, pid) for pid in (41, 42)]
    assert rows(loaded(INPUT, files), "SELECT pid FROM compile_provenance ORDER BY pid") == [(41,), (42,)]


@pytest.mark.parametrize(
    ("node", "operator"),
    [("addmm", "addmm"), ("addmm_1", "addmm"), ("convolution_default", "convolution"), ("mm_default_12", "mm"),
     ("_softmax", "_softmax"), ("_to_copy_3", "_to_copy"), ("sum_1", "sum"), ("max_pool2d_with_indices", "max_pool2d_with_indices"),
     ("_1", "_1"), ("convert_element_type_10", "convert_element_type")],
)  # fmt: skip
def test_operators_by_the_names_of_nodes(node: str, operator: str) -> None:
    assert operator_of(node) == operator


def test_parts_that_cannot_be_read_are_told_and_the_others_stay(tmp_path: Path) -> None:
    good, bad = graph_lines(GRAPH, LINES), artifact(MAPPINGS, {"cppCodeToPost": {"k:1": [7]}}, 1)
    texts = [
        *good,
        *[artifact(MAPPINGS, 0)[0], '\t{"cppCode'],
        *[artifact(STACKS, 0)[0], "\t[]"],
        *[artifact(MAPPINGS, 0)[0], head({"dynamo_start": {}})],
        *bad,
        *artifact(MAPPINGS, {"version": 3.0}, 2),
        artifact(MAPPINGS, 0)[0][:-3],
        head({"artifact": {"name": MAPPINGS, "encoding": "json"}}),  # the line states that it has no payload
        *graph_lines({"k:1": {"mm": []}}, number=3),
        artifact(MAPPINGS, 0)[0],
    ]
    con = loaded(INPUT, [written(tmp_path / "a.log", texts)])
    assert rows(con, "SELECT fault, n, detail FROM compile_findings") == [
        ("no_payload", 2, "line 9 announces a payload that does not follow"),
        ("not_json", 2, 'line 6 is not JSON: {"cppCode'),
        ("wrong_form", 3, "line 8 is not an object"),
    ]
    query = "SELECT graph, compile_id, name, n_post_grad_nodes FROM compiled_kernels ORDER BY kernel_id"
    assert rows(con, query)[1:] == [(0, "0/0", "extern_kernels.addmm", 1), (1, "3/0", "k", 1)]


def test_stack_traces_belong_to_the_graph_before_them_only(tmp_path: Path) -> None:
    """Stack traces belong neither to a graph of another compilation nor to a graph that already has stacks."""
    graph, stacks = {"k:1": {"mm": []}}, {"k:1": [stack(("/m.py", 3, "f"))]}
    texts = [
        *graph_lines(graph, number=0),
        *artifact(STACKS, stacks, 1),
        *graph_lines(graph, stacks, 2),
        *artifact(STACKS, stacks, 2),
    ]
    con = loaded(INPUT, [written(tmp_path / "a.log", texts)])
    query = "SELECT compile_id, n_post_grad_nodes, source_lines FROM compiled_kernels ORDER BY compile_id, 2"
    assert rows(con, query) == [
        ("0/0", 1, None), ("1/0", None, "/m.py:3 f"), ("2/0", 1, "/m.py:3 f"), ("2/0", None, "/m.py:3 f")
    ]  # fmt: skip


@pytest.mark.slow  # tests/readers/nccl_inspector/test_logs.py tests another such log
def test_a_log_that_has_grown_replaces_what_was_read_of_it(tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake"), tmp_path / "a.log"
    first, more = graph_lines(GRAPH, LINES), graph_lines({"k:1": {"mm": []}}, number=1)
    path.write_text("\n".join([*first, more[0], more[1][:9]]))
    (row,) = ingest([path], lake).rows
    assert (row.status, row.n_events, row.reason) == ("partial", 2, "1 parts could not be read: compile_findings")
    written(path, [*first, *more])
    assert [(row.status, row.n_events) for row in ingest([path], lake).rows] == [("ok", 3)]
    with analyst(lake) as con:
        assert rows(con, "SELECT count(*), max(n_kernels) FROM compile_provenance") == [(1, 3)]
        assert rows(con, "SELECT count(*) FROM compiled_kernels") == [(3,)]
        assert rows(con, "FROM compile_findings") == []
    written(path, first)
    assert [row.status for row in ingest([path], lake).rows] == ["known"]


BAD = {
    "node_mappings.json is broken JSON: .* write or copy it again": '{"cppCode',
    "contains a list, not Inductor's names": "[]",
    "cppCodeToPost is a list, not names by name": '{"cppCodeToPost": []}',
    "cppCodeToPost of k are not a list of texts": '{"cppCodeToPost": {"k": "mm"}}',
    "postToPre of mm are not a list of texts": '{"cppCodeToPost": {"k": ["mm"]}, "postToPre": {"mm": [["a"]]}}',
    "name of a kernel has 0 characters": '{"cppCodeToPost": {"": []}}',
    "name of a node has 5,000 characters": json.dumps({"cppCodeToPost": {"k": ["a" * 5000]}}),
    "version 7 of the node mappings is unknown": '{"version": 7}',
}


@pytest.mark.parametrize("why", BAD)
def test_a_debug_folder_that_is_wrong_is_rejected(tmp_path: Path, why: str) -> None:
    path = folder_file(tmp_path, GRAPH)
    path.write_text(BAD[why])
    with pytest.raises(Rejected, match=why):
        loaded(INPUT, [path])


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder_file(tmp_path, GRAPH)
    texts = graph_lines(GRAPH, {key: [stack(("/m.py", 7, "f" * 300))] for key in LINES})
    log = written(tmp_path / "a.log", texts)
    monkeypatch.setattr(input_, "MOST_NAMES", 5)
    for file in (path, log):
        with pytest.raises(Rejected, match="more than 5 nodes and source lines"):
            loaded(INPUT, [file])
    monkeypatch.setattr(input_, "MOST_JSON", 20)
    with pytest.raises(Rejected, match="has more than 0 MiB"):
        loaded(INPUT, [path])
    monkeypatch.setattr(input_, "MOST_NAMES", 100)
    monkeypatch.setattr(torch_log, "LONGEST_LINE", len(texts[-1]) - 1)
    con = loaded(INPUT, [log])
    assert [row[0] for row in rows(con, "SELECT fault FROM compile_findings")] == ["cut_line"]
    assert rows(con, "SELECT n_post_grad_nodes, source_lines FROM compiled_kernels ORDER BY kernel_id") == [
        (3, None),
        (1, None),
    ]


def test_a_log_without_provenance_says_what_to_do(tmp_path: Path) -> None:
    log = written(tmp_path / "a.log", [head({"dynamo_start": {}}, rank=3)])
    (row,) = ingest([log], Lake(tmp_path / "lake")).rows
    assert (row.status, row.reason) == ("partial", "it contains no provenance: compile with INDUCTOR_PROVENANCE=1")
    assert rows(loaded(INPUT, [log]), "SELECT rank, n_graphs FROM compile_provenance") == [(3, 0)]


@pytest.mark.parametrize("text", ['{"traceEvents": []}', "plain text", "", "V1123 no log] {", "\t{}"])
def test_other_files_are_not_taken(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.log").write_text(text)
    assert not is_log(tmp_path / "a.log") and INPUT.recognise([tmp_path / "a.log"]) == {}


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.binary(max_size=9).map(lambda part: part + b"\n"), max_size=9), st.binary(max_size=5), st.integers(1, 8)
)
def test_lines_are_those_of_the_whole_whatever_the_pieces(parts: list[bytes], rest: bytes, size: int) -> None:
    text = b"".join(parts) + rest
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_log, "LONGEST_LINE", 6)
        cut_lines = list(lines(text[at : at + size] for at in range(0, len(text), size)))
    *ended, last = text.split(b"\n")
    assert cut_lines == [*((line[:6], len(line) <= 6) for line in ended), *([(last[:6], False)] if last else [])]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(
    st.fixed_dictionaries({}, optional={"cppCodeToPost": _JSON, "postToPre": _JSON, "version": _JSON}),
    st.none() | st.dictionaries(st.text(max_size=5), _JSON, max_size=3),
)
def test_any_json_is_kernels_or_the_wrong_form(mapping: dict[str, Any], stacks: dict[str, Any] | None) -> None:
    graph = Graph(None, mapping, stacks)
    try:
        kernels = list(graph.kernels())
    except WrongForm:
        return
    assert len(graph.key) == 16
    assert len(kernels) == len({*(mapping.get("cppCodeToPost") or {}), *(stacks or {})})
    for kernel in kernels:
        kernel.name.encode()
        assert all(isinstance(name, str) for name in kernel.post_nodes)


_GENUINE = GENUINE.read_bytes()


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, len(_GENUINE) - 1), st.binary(max_size=4), st.integers(0, 40))
def test_a_damaged_log_gives_graphs_or_faults_and_no_other_error(at: int, noise: bytes, cut: int) -> None:
    """A damaged log mentions no kernel more often than the whole log does, so no data is invented."""
    text = _GENUINE[:at] + noise + _GENUINE[at + cut :]
    whole, _ = _counts([_GENUINE])
    counts, faults = _counts(text[begin : begin + 1000] for begin in range(0, len(text), 1000))
    assert sum(whole.values()) == 4 + 10
    assert all(counts[key] <= n for key, n in whole.items()) and all(
        name and fault.detail for name, fault in faults.by_name.items()
    )


def _counts(chunks: Iterable[bytes]) -> tuple[Counter[Any], Faults]:
    """Return how often nodes and stacks of each kernel occur, and the faults."""
    log, counts = TorchLog(chunks), Counter()
    for graph in log:
        try:
            for kernel in graph.kernels():
                counts["nodes", kernel.name, kernel.handle] += kernel.is_mapped
                counts["stacks", kernel.name, kernel.handle] += kernel.stacks is not None
        except WrongForm as error:
            log.faults.add("wrong_form", "warning", str(error))
    return counts, log.faults
