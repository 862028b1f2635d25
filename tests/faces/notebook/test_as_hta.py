"""Examples from HTA's documents, which print the documents' numbers (HTA-19 to HTA-56, LWC-5 to LWC-9).

The trace is HTA's `simple_add`, although its annotation names alex_net (trap T23).
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import networkx as nx
import pyarrow as pa
import pytest

from pipelines.faces.notebook import TraceAnalysis as Ours
from pipelines.faces.notebook.hta import (
    CPEdge,
    CPEdgeType,
    CPGraph,
    CPNode,
    CriticalPathAnalysis,
    Trace,
    TraceAnalysis,
    restore_cpgraph,
)
from pipelines.faces.notebook.sources import TraceFilesInvalid
from tests.effort import first_of
from tests.faces.notebook.test_hta_numbers import golden

ANNOTATION = "[param|pytorch.model.alex_net|0|0|0|measure|forward]"
HEADER = "Critical Path broken down by boundedness = (in % of duration)"
# HTA-24
SUMMARY = {
    "": 0.0,
    "cpu_bound": 99.779087,
    "gpu_compute_bound": 0.210157,
    "gpu_kernel_kernel_overhead": 0.003723,
    "gpu_kernel_launch_overhead": 0.007033,
}
# Document 000, section 2.1. The imports are ours, and the folders are the test's.
PROGRAM = """
import inspect
from pipelines.faces.notebook.hta import TraceAnalysis
from pipelines.faces.notebook.hta import restore_cpgraph

hta_dir = "{home}/HolisticTraceAnalysis"
trace_dir = hta_dir + "/tests/data/critical_path/simple_add/"
analyzer = TraceAnalysis(trace_dir = trace_dir)

annotation = "[param|pytorch.model.alex_net|0|0|0|measure|forward]"
instance_id = 1 # note this is zero based

cp_graph, success = analyzer.critical_path_analysis(
        rank = 0, annotation=annotation, instance_id=instance_id)
print(success)
print(cp_graph.summary())

cp_graph.show_critical_path()

analyzer.overlay_critical_path_analysis(
    0, cp_graph, output_dir='~/HolisticTraceAnalysis/tests/data/critical_path/simple_add/')

zip_file = cp_graph.save(out_dir="{tmp}/my_saved_cp_graph")
rest_graph = restore_cpgraph(zip_filename=zip_file, t_full=analyzer.t, rank=0)

print(len(rest_graph.critical_path_edges_set) == len(cp_graph.critical_path_edges_set))
print(len(rest_graph.nodes) == len(cp_graph.nodes))
print(rest_graph.summary())

# recompute critical path
rest_graph.critical_path()
print(rest_graph.summary())
"""


@pytest.fixture(params=[pytest.param("pandas", marks=pytest.mark.slow), "no pandas"])
def pandas(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return pandas, or None if the test hides pandas."""
    if request.param == "pandas":
        return pytest.importorskip("pandas")
    # These modules look for pandas once per process. They do so before pandas is hidden, or later tests of this process
    # would miss it.
    pa.array([0])
    import_module("ibis.backends.duckdb.converter")
    monkeypatch.setitem(sys.modules, "pandas", None)
    return None


@pytest.fixture
def home(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home folder with HTA's checkout in it."""
    folder = tmp_path / "HolisticTraceAnalysis" / "tests" / "data" / "critical_path" / "simple_add"
    folder.mkdir(parents=True)
    source = shared / "traces" / "critical_path" / "simple_add.json.gz"
    (folder / "benchmark_result_493459_1694039959_trace.json.gz").write_bytes(source.read_bytes())
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def printed_summary(lines: list[str]) -> dict[str, float]:
    """Return the percent of each label.

    The header is followed by the name of the index, the labels, and pandas' line about a Series.
    """
    assert lines[1] == "bound_by" and lines[-1] == "Name: duration, dtype: float64"
    rows = [line.rsplit(None, 1) for line in lines[2:-1]]
    return {(row[0].strip() if len(row) == 2 else ""): float(row[-1]) for row in rows}


@pytest.mark.slow  # 4 s
def test_the_example_of_the_document(
    home: Path, pandas: Any, capsys: pytest.CaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    """The document's example prints the document's numbers.

    With pandas the program runs twice. In the second run the overlay of the first run is next to the trace.

    No warning is ours (HTA-27).
    """
    for _ in range(1 if pandas is None else 2):
        exec(PROGRAM.format(home=home, tmp=home), {"__name__": "__main__"})
        shown = capsys.readouterr().out
        assert shown.count(HEADER) == 3
        first, *rest = shown.split(HEADER)
        assert first == "True\n"
        tail = rest[0].index("Name: duration, dtype: float64\n") + len("Name: duration, dtype: float64\n")
        path = rest[0][tail:].splitlines()
        assert path[-2:] == ["True", "True"] and len(path) == 314 + 2
        for text in (rest[0][:tail], rest[1], rest[2]):
            assert printed_summary([HEADER, *text.strip("\n").splitlines()]) == pytest.approx(SUMMARY, abs=1e-6)
    folder = home / "HolisticTraceAnalysis" / "tests" / "data" / "critical_path" / "simple_add"
    written = sorted(path.name for path in folder.iterdir())
    assert written == [
        "benchmark_result_493459_1694039959_trace.json.gz",
        "overlaid_critical_path_benchmark_result_493459_1694039959_trace.json.gz",
    ]
    assert (home / "my_saved_cp_graph.zip").is_file()
    assert [str(warning.message) for warning in recwarn if "pipelines" in warning.filename] == []


@pytest.fixture(scope="module")
def analyzer(shared: Path) -> Iterator[TraceAnalysis]:
    with TraceAnalysis(trace_files={0: str(shared / "traces" / "critical_path" / "simple_add.json.gz")}) as opened:
        yield opened


@pytest.fixture(scope="module")
def cp_graph(analyzer: TraceAnalysis) -> CPGraph:
    graph, success = analyzer.critical_path_analysis(rank=0, annotation=ANNOTATION, instance_id=1)
    assert success is True
    return graph


def test_summary_is_a_series_or_a_dict_that_prints_as_one(
    cp_graph: CPGraph, pandas: Any, capsys: pytest.CaptureFixture
) -> None:
    """HTA-24, HTA-26, HTA-32. Either kind is read by label, by items and as a dict, in HTA's order."""
    summary = cp_graph.summary()
    assert capsys.readouterr().out == f"{HEADER}\n"
    assert isinstance(summary, dict if pandas is None else pandas.Series)
    assert list(dict(summary)) == [label for label, _ in summary.items()] == sorted(SUMMARY)
    assert dict(summary) == pytest.approx(SUMMARY, abs=1e-6) == dict(cp_graph.answer.summary)
    assert summary["cpu_bound"] == summary.get("cpu_bound") == pytest.approx(99.779087)
    assert sum(dict(summary).values()) == pytest.approx(100)
    assert printed_summary([HEADER, *str(summary).splitlines()]) == pytest.approx(SUMMARY, abs=1e-6)
    if pandas is not None:
        assert (summary.index.name, summary.name, str(summary.dtype)) == ("bound_by", "duration", "float64")


def test_breakdown(cp_graph: CPGraph) -> None:
    """HTA-25, HTA-36: the breakdown has 314 rows and 10 columns, and the rows of the document's figure.

    HTA's rows are in the order of a set (trap T24).
    """
    breakdown = cp_graph.get_critical_path_breakdown()
    assert breakdown.shape == (314, 10)
    names = "event_idx duration type s_name cat pid tid stream index bound_by"
    assert breakdown.column_names == names.split()
    rows = Counter((row["event_idx"], row["duration"], row["s_name"]) for row in breakdown.to_pylist())
    for row in (
        (987, 1, "cudaDeviceGetStreamPriorityRange"),
        (337, 19, "aten::native_dropout"),
        (331, 12, "aten::_adaptive_avg_pool2d"),
        (315, 21, "aten::view"),
        (292, 19, "aten::_convolution"),
        (338, 14, "aten::empty_like"),
        (293, 11, "aten::cudnn_convolution"),
        (303, 7, "aten::_convolution"),
        (284, 21, "aten::view"),
        (293, 2, "aten::cudnn_convolution"),
    ):
        assert rows[row] >= 1, row
    for row in breakdown.to_pylist():
        if row["event_idx"] in (987, 337):
            assert (row["type"], row["pid"], row["stream"], row["bound_by"]) == (
                "critical_path_operator", "493459", -1, "cpu_bound"
            )  # fmt: skip


def test_it_is_a_digraph_with_htas_nodes_and_edges(shared: Path, cp_graph: CPGraph) -> None:
    """LWC-6, HTA-38, HTA-51 to HTA-56: each edge and its weight in us equal HTA's own output."""
    expected = golden(shared, "simple_add__alexfwd_1")
    assert isinstance(cp_graph, nx.DiGraph) and isinstance(cp_graph, CPGraph)
    theirs = {
        (2 * begin + (not starts), 2 * end + (not also)): (
            weight,
            CPEdgeType[kind],
            None if event in (-1, None) else event,
        )
        for begin, starts, end, also, weight, kind, event, *_ in expected["edges"]
    }
    ours = {
        (u, v): (data["weight"], CPEdgeType(data["type"]), data["event_id"]) for u, v, data in cp_graph.edges(data=True)
    }
    assert ours == theirs and len(ours) == 415 == expected["n_edges"]
    assert len(cp_graph.nodes) == len(cp_graph.node_list) == 414 == expected["n_nodes"]
    for (u, v), (weight, kind, _) in theirs.items():
        assert cp_graph.edges[u, v]["object"] == CPEdge(begin=u, end=v, weight=weight, type=kind)
    assert nx.dag_longest_path(cp_graph) == cp_graph.critical_path_nodes
    assert nx.dag_longest_path_length(cp_graph) == expected["critical_path"]["length"] == cp_graph.answer.length_us
    on_path = [2 * event + (not starts) for event, starts, *_ in expected["critical_path_nodes"]]
    assert cp_graph.critical_path_nodes == on_path and len(on_path) == 315
    assert cp_graph.critical_path_events_set == {node // 2 for node in on_path}
    edges = cp_graph.critical_path_edges_set
    assert len(edges) == 314 and {(edge.begin, edge.end) for edge in edges} == set(nx.utils.pairwise(on_path))
    assert sum(edge.weight for edge in edges) == cp_graph.answer.length_us


def test_nodes_and_maps(shared: Path, cp_graph: CPGraph) -> None:
    starts, ends = cp_graph.event_to_start_node_map, cp_graph.event_to_end_node_map
    assert len(starts) == len(ends) == 207
    first = {
        2 * event + (not is_start): ts for event, is_start, ts, *_ in golden(shared, "simple_add__alexfwd_1")["nodes"]
    }
    base = {round(node.ts - first[node.idx]) for node in cp_graph.node_list if node.idx in first}
    assert len(base) == 1  # HTA counts from the first event
    for node in cp_graph.node_list:
        assert isinstance(node, CPNode) and "CPNode" in repr(node) and node == cp_graph.node_list[node.idx]
        assert (starts if node.is_start else ends)[node.ev_idx] == node.idx
    blocking = {node.ev_idx for node in cp_graph.node_list if node.is_blocking}
    names = {row["event_id"]: row["name"] for row in cp_graph.trace_df.to_pyarrow().to_pylist()}
    assert (
        blocking
        == {event for event, name in names.items() if name in ("cudaDeviceSynchronize", "cudaMemcpyAsync")}
        != set()
    )
    for (u, v), event in cp_graph.edge_to_event_map.items():
        assert cp_graph.edges[u, v]["event_id"] == event
    edge = cp_graph.edges[next(iter(cp_graph.edge_to_event_map))]["object"]
    assert cp_graph.get_events_for_edge(edge) == (edge.begin // 2, edge.end // 2)
    event = next(iter(cp_graph.edge_to_event_map.values()))
    assert edge in cp_graph.get_edges_attributed_to_event(event)
    assert [node.ev_idx for node in cp_graph.get_nodes_for_event(event)] == [event, event]
    assert cp_graph.get_edges_attributed_to_event(-5) == []
    with pytest.raises(IndexError, match="no node 3"):
        cp_graph.node_list[3]
    assert (CPNode(), CPEdge(1, 2)) == (CPNode(-1, -1, 0, False, False), CPEdge(1, 2, 0, CPEdgeType.OPERATOR_KERNEL))
    assert {kind.name: kind.value for kind in CPEdgeType} == {
        "OPERATOR_KERNEL": "critical_path_operator",
        "DEPENDENCY": "critical_path_dependency",
        "KERNEL_LAUNCH_DELAY": "critical_path_kernel_launch_delay",
        "KERNEL_KERNEL_DELAY": "critical_path_kernel_kernel_delay",
        "SYNC_DEPENDENCY": "critical_path_sync_dependency",
        "HOST_GAP": "critical_path_host_gap",
        "THREAD_HAND_OFF": "critical_path_thread_hand_off",
    }


def test_the_trace_behind_the_graph(analyzer: TraceAnalysis, cp_graph: CPGraph, tmp_path: Path) -> None:
    """HTA-51: t, t_full, rank and the two frames, which are Ibis tables unless requested otherwise (test_frames.py)."""
    assert cp_graph.t_full is cp_graph.t is analyzer.t and cp_graph.rank == 0
    assert cp_graph.full_trace_df.count().to_pyarrow().as_py() == 1348
    assert cp_graph.trace_df.count().to_pyarrow().as_py() == 207
    assert "aten::conv2d" in cp_graph.symbol_table.get_sym_id_map()
    alone = restore_cpgraph(cp_graph.save(tmp_path / "a"))
    assert alone.t_full is None and alone.rank == 0
    with pytest.raises(ValueError, match="full_trace_df needs the trace"):
        alone.full_trace_df  # noqa: B018


@pytest.mark.parametrize("show", first_of([{"only_show_critical_events": False, "show_all_edges": True}, {}], 1))
def test_overlay(
    analyzer: TraceAnalysis, cp_graph: CPGraph, tmp_path: Path, show: dict[str, bool], monkeypatch: Any
) -> None:
    """HTA-21, HTA-30, HTA-49, LWC-7, LWC-8: the overlay creates its folder, under `~`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    drawn = analyzer.overlay_critical_path_analysis(0, cp_graph, output_dir="~/new/folder", **show)
    assert drawn == str(tmp_path / "new" / "folder" / "overlaid_critical_path_simple_add.json.gz")
    events = json.loads(gzip.decompress(Path(drawn).read_bytes()))["traceEvents"]
    arrows = [event for event in events if event["ph"] == "s" and event.get("cat") == "critical_path"]
    assert len(arrows) > (300 if show else 5)
    marked = [event for event in events if event["ph"] == "X" and event.get("args", {}).get("critical") == 1]
    assert len(marked) == len(cp_graph.critical_path_events_set)
    whole = CriticalPathAnalysis.overlay_critical_path_analysis(
        analyzer.t, 0, cp_graph, str(tmp_path / "b"), True, True
    )
    assert Path(whole).name == Path(drawn).name


def test_save_and_restore(analyzer: TraceAnalysis, cp_graph: CPGraph, tmp_path: Path, monkeypatch: Any) -> None:
    """HTA-22, HTA-23, HTA-28, HTA-34, HTA-35: folders are created, `~` is expanded, and a trailing `/` is removed."""
    monkeypatch.setenv("HOME", str(tmp_path))
    name = cp_graph.save(out_dir="~/some/new/my_saved_cp_graph/")
    assert name == str(tmp_path / "some" / "new" / "my_saved_cp_graph.zip")
    restored = restore_cpgraph(zip_filename="~/some/new/my_saved_cp_graph.zip", t_full=analyzer.t, rank=0)
    assert len(restored.critical_path_edges_set) == len(cp_graph.critical_path_edges_set) == 314
    assert len(restored.nodes) == len(cp_graph.nodes) == 414
    assert restored.critical_path_nodes == cp_graph.critical_path_nodes
    before = dict(restored.summary())
    assert restored.critical_path() is True
    assert dict(restored.summary()) == before == dict(cp_graph.summary())
    assert nx.utils.graphs_equal(restored, cp_graph)
    with pytest.raises(TypeError, match=r"t_full must be analyzer\.t"):
        restore_cpgraph(name, t_full="a trace", rank=0)  # type: ignore[arg-type]


@pytest.mark.slow  # 2 s; the methods are the same functions
def test_functions_of_the_module(analyzer: TraceAnalysis, cp_graph: CPGraph, shared: Path) -> None:
    """HTA-29, HTA-37: the class method, and the two ways to construct the graph."""
    graph, success = CriticalPathAnalysis.critical_path_analysis(analyzer.t, 0, ANNOTATION, 1)
    assert success and nx.utils.graphs_equal(graph, cp_graph)
    two, _ = analyzer.critical_path_analysis(0, ANNOTATION, (0, 1))
    assert two.answer.nodes == golden(shared, "simple_add__alexfwd_0-1")["n_nodes"]
    whole = CPGraph(None, analyzer.t, 0)
    assert whole.critical_path() and whole.answer.nodes == golden(shared, "simple_add__full")["n_nodes"]
    edited = cp_graph.copy()
    assert type(edited) is nx.DiGraph
    for *_, edge in edited.edges(data=True):
        edge["weight"] *= 2
    twice = CPGraph(t=None, t_full=analyzer.t, rank=0, G=edited)
    assert twice.answer.length_us == 2 * cp_graph.answer.length_us
    assert dict(twice.summary()) == pytest.approx(dict(cp_graph.summary()))


@pytest.mark.parametrize(
    "arguments",
    first_of([{"trace_files": ["~/run/a.json.gz"]}, {"trace_dir": "~/run"}], 1),
)
def test_trace_loads_as_htas(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    """HTA-41 to HTA-44: the files are a dict by rank, a list, or a folder. A second load warns."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "run").mkdir()
    file = tmp_path / "run" / "a.json.gz"
    file.write_bytes((shared / "traces" / "critical_path" / "simple_add.json.gz").read_bytes())
    t = Trace(**arguments)
    assert not t.is_parsed
    t.load_traces(include_last_profiler_step=False, use_multiprocessing=True, use_memory_profiling=True)
    assert t.is_parsed is True and t.trace_files == {0: str(file)}
    with pytest.warns(UserWarning, match="already parsed and loaded"):
        t.load_traces()
    assert t.find(0).path == str(file)
    t.close()


def test_names_of_files_are_relative_to_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of files are relative to the trace folder, as in HTA.

    The name of a file outside the folder is relative to the working folder.
    """
    monkeypatch.chdir(tmp_path)
    for path in ("run/a.json", "run/both.json", "both.json", "b.json"):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text("{}")
    for name, expected in (
        ("a.json", "run/a.json"),
        ("both.json", "run/both.json"),
        ("run/a.json", "run/a.json"),
        ("b.json", "b.json"),
        (tmp_path / "b.json", tmp_path / "b.json"),
    ):
        for files in ({0: name}, [name], name):
            t = Trace(files, trace_dir="run")
            paths = list(t._trace_files.values()) if isinstance(files, dict) else t._trace_files  # pyright: ignore
            assert paths == ([Path(expected)] if isinstance(files, dict | list) else Path(expected))
            t.close()
    with pytest.raises(TraceFilesInvalid, match=r"none\.json"):
        Trace({0: "none.json"}, trace_dir="run")


def test_methods_accept_htas_parameters(analyzer: TraceAnalysis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parameters of charts have no effect, and the others are in HTA's order."""
    for method in ("get_temporal_breakdown", "get_comm_comp_overlap", "get_gpu_kernel_breakdown"):
        monkeypatch.setattr(Ours, method, lambda self, *passed: passed)
    assert analyzer.get_temporal_breakdown(visualize=False) == analyzer.get_comm_comp_overlap(visualize=False) == ()
    assert analyzer.get_gpu_kernel_breakdown(False, 0.5, 2, False, "notebook") == (2, False)
    ibis = pytest.importorskip("ibis", reason="the extra notebook is not installed")
    names = ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"]
    monkeypatch.setattr(analyzer, "_ranked", lambda table, ranks: ibis.memtable(pa.table({"name": names})))
    for are_included, expected in ((True, names), (False, names[:1])):
        launches = analyzer.get_cuda_kernel_launch_stats([0], 50, 100, are_included, visualize=False)
        assert launches.to_pyarrow()["name"].to_pylist() == expected


def test_trace_refuses_what_htas_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "run").mkdir()
    for wrong, error, said in (
        ({"trace_files": 5}, ValueError, "Unsupported type for trace_files = 5, should be list or dict"),
        ({"trace_files": [5]}, ValueError, "Unsupported type for trace_files"),
        ({"trace_files": {0: "~/run/none.json"}}, ValueError, "Trace files validation failed"),
        ({"trace_files": {0: "~/run/none.json"}}, TraceFilesInvalid, "none.json"),
        ({"trace_dir": "~/run", "parser_config": 5}, ValueError, "parser_config"),
        ({"trace_dir": "~/run", "profile": "exact"}, ValueError, "default, hta"),
    ):
        with pytest.raises(error) as raised:
            Trace(**wrong)
        assert said in str(raised.value)


@pytest.mark.slow  # tests/critical_path/test_windows.py tests windows of steps
def test_the_last_profiler_step_comes_in_where_it_is_asked_for(shared: Path, tmp_path: Path) -> None:
    """HTA-44, `include_last_profiler_step`: the graphs equal HTA's with and without it.

    Ours include all steps by default.

    A step by its name and two steps by their numbers are separate windows (LWC-5, LWC-9).
    """
    file = shared / "traces" / "ranks" / "sampled_128" / "rank0.json.gz"
    answers = {}
    for include in (False, True):
        expected = golden(shared, f"sampled_128__{'incllast__' if include else ''}rank0__full")
        with TraceAnalysis({0: file}, "", include, lake=tmp_path) as analysis:
            answers[include] = analysis.critical_path_analysis(rank=0).answer
        assert (answers[include].nodes, answers[include].edges) == (expected["n_nodes"], expected["n_edges"])
    assert answers[True].nodes > answers[False].nodes
    with Ours(lake=tmp_path) as ours, Ours(lake=tmp_path, include_last_profiler_step=False) as without:
        whole = ours.critical_path_analysis().answer
        assert whole.window_us == answers[True].window_us
        assert without.critical_path_analysis().answer.nodes < whole.nodes
        asked, _ = without.critical_path_analysis(switches={"drop_last_step": False}, profile="default")
        assert asked.answer.nodes == whole.nodes  # the switch of one path takes precedence
        step, _ = ours.critical_path_analysis(annotation="ProfilerStep#551")
        steps, success = ours.critical_path_analysis(rank=0, annotation="ProfilerStep", instance_id=(0, 1))
    assert success and step.success and step.answer.nodes < steps.answer.nodes <= whole.nodes
