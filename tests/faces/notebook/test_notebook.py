"""The notebook's objects: equal to the command line, to networkx on their graph, and after a save and restore."""

from __future__ import annotations

import copy
import gzip
import json
import pickle
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import networkx as nx
import pytest
from typer.testing import CliRunner

from pipelines.critical_path.whatif.scenario import ScenarioError
from pipelines.critical_path.whatif.targets import NothingMatches
from pipelines.faces.cli.app import app
from pipelines.faces.notebook import (
    CPGraph,
    CriticalPath,
    NotASavedPath,
    TraceAnalysis,
    TraceNotFound,
    TraceRejected,
    WindowNotFound,
    restore_cpgraph,
)
from pipelines.faces.notebook.critical_path import PathAndSuccess
from pipelines.faces.notebook.sources import RankTrace
from pipelines.faces.notebook.trace import Trace
from pipelines.faces.why import Why
from pipelines.synthetic import Capture, CaptureSpec, write_capture
from tests.harness import x

WINDOW: dict[str, Any] = {"annotation": "ProfilerStep", "instance_id": (1, 2)}


def printed(*words: object) -> Any:
    """Return the JSON that a command prints."""
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return write_capture(CaptureSpec(ranks=2, steps=3, straggler=1, seed=5), tmp_path_factory.mktemp("capture"))


@pytest.fixture(scope="module")
def analysis(capture: Capture) -> Iterator[TraceAnalysis]:
    with TraceAnalysis(trace_dir=capture.ranks[0].path.parent) as opened:
        yield opened


@pytest.fixture(scope="module")
def asked(analysis: TraceAnalysis) -> tuple[CriticalPath, list[Any]]:
    """Return the critical path, and the calls of `nx.dag_longest_path` that computed it."""
    with patch.object(nx, "dag_longest_path", wraps=nx.dag_longest_path) as longest:
        path = analysis.critical_path_analysis(rank=0, **WINDOW)
    return path, longest.call_args_list


@pytest.fixture(scope="module")
def path(asked: tuple[CriticalPath, list[Any]]) -> CriticalPath:
    return asked[0]


def test_commands_find_the_trace_by_its_file_or_in_its_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Printed commands name the trace by its file, or by its id if the user opened a lake.

    The lake of an analysis of files is temporary, so a command cannot open it.
    """
    (tmp_path / "rank0.json").touch()
    monkeypatch.chdir(tmp_path)
    of_file, of_lake = Trace("rank0.json"), Trace("rank0.json", lake="lake")
    trace = RankTrace("3f2a", 0, str(tmp_path / "rank0.json"))
    assert of_file.in_commands(trace) == (trace.path, ())
    assert of_lake.in_commands(trace) == ("3f2a", ("--lake", str(tmp_path / "lake")))
    monkeypatch.setattr(of_file, "_store", "ducklake:postgres:x")
    assert of_file.in_commands(trace) == ("3f2a", ("--lake", "ducklake:postgres:x"))
    for opened in (of_file, of_lake):
        opened.close()


@pytest.mark.parametrize(
    ("window", "words", "named"),
    [
        ("full", {}, "rank0.json {} --lake /data/lake"),
        ("ProfilerStep#2", {}, "rank0.json {} --annotation 'ProfilerStep#2' --lake /data/lake"),
        ("full", {"subject": "3f2a", "options": ["--lake", "other"]}, "3f2a {} --lake other"),
    ],
)
def test_an_answer_has_commands_that_find_its_trace(window: str, words: dict[str, Any], named: str) -> None:
    numbers = dict.fromkeys(("length_ns", "busy_ns", "computing_ns", "n_steps", "steps_ns"), 0)
    fix = defaultdict(int, options="--remove cpu", name="")
    answer = Why("", {"trace_id": "3f2a", "window_id": window, **numbers}, [], [], fixes=(fix,))
    (of_id,) = answer.as_json()["fixes"]
    assert of_id["command"].startswith("tracelake what-if 3f2a --remove cpu")
    (shown,) = replace(answer, subject="rank0.json", of_lake=("--lake", "/data/lake")).as_json(**words)["fixes"]
    assert shown["command"] == f"tracelake what-if {named.format('--remove cpu')}"


@pytest.mark.slow  # tests/faces/test_subject.py tests the files
def test_equal_to_the_command_line(analysis: TraceAnalysis, capture: Capture) -> None:
    path = analysis.critical_path_analysis(rank=0, **WINDOW)
    file = capture.ranks[0].path
    window = ("--annotation", "ProfilerStep", "--instance", "1:2")
    expected = printed("critical-path", file, *window, "--alternatives", 2)
    assert path.alternatives(2) == expected.pop("alternatives") != []
    answer = path.answer.as_json()
    assert answer.pop("alternatives") == []
    assert answer == expected
    scenario = ("--scale", "class:COMMUNICATION=0.5", "--remove", "launch_overhead")
    compared = path.what_if({"class:COMMUNICATION": 0.5}, remove="launch_overhead")
    shown = printed("what-if", file, *window, *scenario)
    assert [caveat["caveat"] for caveat in shown["caveats"]] == ["overlapping_streams"]
    assert json.loads(json.dumps(compared.as_json())) == shown
    families = printed("what-if", file, *window, "--sensitivity")["families"]
    ours = path.sensitivity().to_pylist()
    assert [(row["name"], row["on_path_us"]) for row in ours] == [(row["name"], row["on_path_us"]) for row in families]
    assert [row["change_50_percent_us"] for row in ours] == [row["change_us"]["-50%"] for row in families]


@pytest.mark.slow
def test_length_is_that_of_the_machine(analysis: TraceAnalysis, capture: Capture) -> None:
    for rank in capture.ranks:
        cp_graph, success = analysis.critical_path_analysis(rank=rank.rank)
        assert success and round(1000 * cp_graph.answer.length_us) == rank.truth.full.length_ns


def test_the_path_is_asked_of_networkx(asked: tuple[CriticalPath, list[Any]]) -> None:
    assert [call.kwargs for call in asked[1]] == [{"backend": "tracelake"}]


def test_the_digraph_can_be_edited(analysis: TraceAnalysis, path: CriticalPath) -> None:
    """networkx finds the same path in the exported graph.

    After an edit it computes the length that the same scenario has.
    """
    graph = path.to_networkx()
    steps = path.table("critical_path").order_by("seq").to_pyarrow().to_pylist()
    chosen = [2 * s["src_event_id"] + (not s["src_is_start"]) for s in steps]
    last = 2 * steps[-1]["dst_event_id"] + (not steps[-1]["dst_is_start"])
    assert nx.dag_longest_path(graph) == nx.dag_longest_path(path.arrays) == [*chosen, last] == path.critical_path_nodes
    assert (len(graph), graph.number_of_edges()) == (path.answer.nodes, path.answer.edges)
    assert {data["name"] for _, data in graph.nodes(data=True)} >= {s["name"] for s in steps if s["name"]}
    kernels = analysis.table("kernels").to_pyarrow().to_pylist()
    communication = {k["event_id"] for k in kernels if k["class"] == "COMMUNICATION" and k["trace_id"] == path.trace_id}
    changed = 0
    for _, _, edge in graph.edges(data=True):
        if edge["type"] == "critical_path_operator" and edge["event_id"] in communication:
            edge["weight"], changed = 0, changed + edge["weight"]
    assert changed > 0
    compared = path.what_if(remove=["class:COMMUNICATION"])
    assert nx.dag_longest_path_length(graph) == round(1000 * compared.after.length_us) < 1000 * path.answer.length_us


@pytest.mark.slow  # tests/critical_path/test_edited.py tests edits
def test_an_edited_graph_is_drawn_saved_and_asked(
    analysis: TraceAnalysis, path: CriticalPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTA-37, HTA-71: passed back in any way, the graph has the same path. Its new edge is an arrow."""
    cp_graph, _ = analysis.critical_path_analysis(rank=0, **WINDOW)
    order = list(nx.topological_sort(cp_graph))
    first, last = next(n for n in order if n % 2 == 0), order[-1]
    cp_graph.add_edge(first, last, weight=10**6)
    copied, plain = cp_graph.copy(), cp_graph.to_networkx()
    plain.add_edge(first, last, weight=10**9)  # in ns
    assert cp_graph.critical_path() and cp_graph.answer.length_us >= 10**6
    for graph in (copied, plain, cp_graph):
        assert CPGraph(None, analysis.t, 0, G=graph).answer == path.with_graph(graph).answer == cp_graph.answer
    drawn = events_of(analysis.overlay_critical_path_analysis(0, cp_graph, tmp_path))
    arrows = [event for event in drawn if event.get("cat") == "critical_path" and event["ph"] == "s"]
    assert 10**6 in [arrow["args"]["weight"] for arrow in arrows]
    assert sum(e["dur"] for e in drawn if e["ph"] == "X" and e.get("cat") == "critical_path") >= 10**6
    restored = restore_cpgraph(cp_graph.save(tmp_path / "edited"))
    assert restored.answer == cp_graph.answer and repr(restored) == repr(cp_graph) != repr(path)
    assert "1 edges added" in repr(restored)
    assert printed("critical-path", tmp_path / "edited.zip")["edited"]["edges added"] == 1
    assert restored.slack().to_pylist() == cp_graph.slack().to_pylist() != path.slack().to_pylist()
    assert cp_graph.what_if(remove=["cpu"]).before.length_us == cp_graph.answer.length_us
    unsaved = path.with_graph(path.copy())
    unsaved.add_edge(first, last, weight=10**6)
    assert restore_cpgraph(unsaved.save(tmp_path / "b")).answer == cp_graph.answer  # save includes the edits
    n = cp_graph.saved.meta["trace"]["n_events"]
    cp_graph.add_edge(last, 2 * n, weight=5)
    assert cp_graph.critical_path()
    with pytest.warns(UserWarning, match="1 edges of the path are not drawn"):
        analysis.overlay_critical_path_analysis(0, cp_graph, tmp_path)
    with pytest.raises(ValueError, match="does not record its origin"):
        CPGraph(None, analysis, 0, G=nx.DiGraph([(0, 1)]))
    for graph in (copied, cp_graph):
        with pytest.raises(ValueError, match="not to rank 1"):
            CPGraph(None, analysis, 1, G=graph)


def test_networkxs_own_ways_with_a_graph(path: CriticalPath) -> None:
    """Copies, views and reversals are ordinary graphs.

    Reading the answer of a graph does not build its dictionaries.
    """
    graph = restore_cpgraph(path.save(path.t_full.scratch / "again"))
    assert graph.answer == path.answer and graph.critical_path() and not graph.is_filled
    assert graph.number_of_nodes() == path.answer.nodes == len(graph) and graph.is_filled
    nodes = path.critical_path_nodes[:50]
    for made in (
        graph.copy(),
        graph.reverse(),
        graph.subgraph(nodes).copy(),
        nx.DiGraph(graph),
        graph.__class__(graph),
    ):
        assert type(made) is nx.DiGraph and made.graph == graph.graph
    assert (
        nx.is_directed_acyclic_graph(graph) and nodes[0] in graph and nx.descendants(graph, nodes[0]) >= set(nodes[1:])
    )
    assert json.loads(json.dumps(graph.graph))["path_of"]["trace_id"] == path.trace_id
    first = next(iter(graph.edges))
    graph.edges[first]["weight"] = 12345
    assert graph[first[0]][first[1]]["weight"] == graph.pred[first[1]][first[0]]["weight"] == 12345
    graph.clear()
    assert len(graph.edges) == len(graph.nodes) == 0 and not graph.critical_path()


def test_copies_and_pickles_are_paths(asked: tuple[Any, list[Any]]) -> None:
    """Copies and pickles of a path are paths with the same answer.

    They are copied before and after networkx's dictionaries are built, and with an edit not yet searched.
    """
    pair, (path, _) = asked[0], asked[0]
    own = copy.copy(path)
    for _ in ("empty", "filled"):
        for twin in (copy.copy(own), pickle.loads(pickle.dumps(own))):
            assert isinstance(twin, CriticalPath) and repr(twin) == repr(own) and twin.answer == own.answer
            assert len(twin) == len(path.node_list) > 0
        assert own.number_of_nodes() > 0  # builds the dictionaries
    edge = next((u, v) for u, v, data in own.edges(data=True) if data["weight"] > 0)
    own.edges[edge]["weight"] = 12345.0
    for twin in (copy.copy(own), pickle.loads(pickle.dumps(own))):
        assert twin.critical_path() and twin.edges[edge]["weight"] == 12345.0 != path.edges[edge]["weight"]
        assert twin.answer.length_us > path.answer.length_us
    for twin in (copy.copy(pair), copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        graph, success = twin
        assert (
            isinstance(twin, PathAndSuccess)
            and isinstance(graph, CriticalPath)
            and success is True
            and graph.answer == path.answer
        )


def test_slack_is_what_an_event_may_take_longer(path: CriticalPath) -> None:
    rows = path.slack().to_pylist()
    length = round(1000 * path.answer.length_us)
    assert rows[0]["slack_ns"] == 0 < rows[0]["drag_ns"]
    free = [row for row in rows if row["slack_ns"] and row["name"]][:10]
    assert len(free) == 10
    for row in (rows[0], *free):
        graph = path.to_networkx()
        own = [(u, v) for u, v, edge in graph.edges(data=True) if edge["event_id"] == row["event_id"]]
        lengths = set()
        for edge in own:
            graph.edges[edge]["weight"] += row["slack_ns"]
            assert nx.dag_longest_path_length(graph) == length
            graph.edges[edge]["weight"] += 1
            lengths.add(nx.dag_longest_path_length(graph))
            graph.edges[edge]["weight"] -= row["slack_ns"] + 1
        assert max(lengths) == length + 1
        graph.add_weighted_edges_from((u, v, 0) for u, v in own)
        assert nx.dag_longest_path_length(graph) == length - row["drag_ns"]


@pytest.mark.slow  # 3 s; test_as_hta.py tests it on HTA's trace
def test_saved_and_restored(analysis: TraceAnalysis, path: CriticalPath, tmp_path: Path) -> None:
    name = path.save(tmp_path / "my_graph")
    assert name == str(tmp_path / "my_graph.zip") == path.save(name)
    restored = restore_cpgraph(zip_filename=name)
    assert restored.answer == path.answer and repr(restored) == repr(path)
    for table in ("critical_path", "critical_path_edges", "critical_path_nodes", "critical_path_summary"):
        assert restored.arrow(table) == path.arrow(table)
    assert restored.get_critical_path_breakdown() == path.get_critical_path_breakdown()
    assert nx.utils.graphs_equal(restored.to_networkx(), path.to_networkx())
    assert (restored.slack(), restored.alternatives(2)) == (path.slack(), path.alternatives(2))
    compared = restored.what_if(remove=["cpu"])
    assert compared.as_json() == path.what_if(remove=["cpu"]).as_json()
    assert restored.sensitivity() == path.sensitivity()
    with pytest.raises(ValueError, match="redrawing the trace needs the trace"):
        restored.redraw(compared, tmp_path)
    again = restore_cpgraph(name, analysis, rank=0)
    assert events_of(again.redraw(compared, tmp_path)) == events_of(path.redraw(compared, tmp_path / "b"))
    with pytest.raises(ValueError, match="not to rank 1"):
        restore_cpgraph(name, analysis, rank=1)
    Path(name).write_bytes(Path(name).read_bytes()[:-1])
    with pytest.raises(NotASavedPath, match="damaged"):
        restore_cpgraph(name)
    Path(name).write_bytes(b"something else")
    with pytest.raises(FileExistsError, match="not a saved path"):
        path.save(name)


def events_of(file: str) -> list[dict]:
    with gzip.open(file) as drawn:
        return json.load(drawn)["traceEvents"]


@pytest.mark.slow  # tests/faces/drawings tests overlays
def test_overlay(analysis: TraceAnalysis, capture: Capture, path: CriticalPath, tmp_path: Path) -> None:
    """The notebook's overlay equals the command's, also for a restored path. The path of another rank is refused."""
    restored = restore_cpgraph(path.save(tmp_path / "a"))
    drawn = analysis.overlay_critical_path_analysis(0, restored, str(tmp_path / "ours"))
    flags = ("--no-counters", "--only-critical")
    window = ("--annotation", "ProfilerStep", "--instance", "1:2")
    theirs = printed("overlay", capture.ranks[0].path, "--out", tmp_path / "theirs", *window, *flags)["path"]
    assert Path(drawn).name == Path(theirs).name == f"overlaid_critical_path_{capture.ranks[0].path.name}"
    assert events_of(drawn) == events_of(theirs)
    with pytest.raises(ValueError, match="not to rank 1"):
        analysis.overlay_critical_path_analysis(1, restored, tmp_path)


def test_redrawn_trace(path: CriticalPath, tmp_path: Path) -> None:
    compared = path.what_if({"communication": 0.5})
    drawn = events_of(path.redraw(compared, tmp_path))
    track = [e for e in drawn if e["ph"] == "X" and e.get("cat") == "critical_path"]
    assert sum(e["dur"] for e in track) == pytest.approx(compared.after.length_us, abs=0.01)
    times: Counter[str] = Counter()
    for e in track:
        times[e["args"]["bound_by"]] += e["args"].get("weight", e["dur"])
    shares = {label: 100 * us / compared.after.length_us for label, us in times.items()}
    assert shares == pytest.approx({label: percent for label, percent in compared.after.summary.items() if percent})


def test_show_critical_path(path: CriticalPath, capsys: pytest.CaptureFixture) -> None:
    path.show_critical_path()
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == len(path.answer.path)
    assert sum(float(line.split()[0]) for line in shown) == pytest.approx(path.answer.length_us)


@pytest.mark.slow  # 4 s
def test_errors_say_what_there_is(analysis: TraceAnalysis, path: CriticalPath) -> None:
    for wrong, error, said in (
        ({"rank": 7}, TraceNotFound, "rank 7 matches no trace. Available: rank 0: "),
        ({}, TraceNotFound, "rank None matches several traces"),
        ({"rank": 0, "annotation": "nope"}, WindowNotFound, "'ProfilerStep#0' (1)"),
        ({"rank": 0, "annotation": "ProfilerStep", "instance_id": 3}, WindowNotFound, "instance 3:3"),
        ({"rank": 0, "annotation": "ProfilerStep", "instance_id": -1}, ValueError, "count from 0"),
        ({"rank": 0, "annotation": "ProfilerStep", "instance_id": "x"}, ValueError, "neither N nor N:M"),
        ({"rank": 0, "profile": "exact"}, ValueError, "default, hta"),
        ({"rank": 0, "switches": {"nope": True}}, ValueError, "zero_weight_launch"),
    ):
        with pytest.raises(error) as raised:
            analysis.critical_path_analysis(**wrong)
        assert said in str(raised.value)
    with pytest.raises(NothingMatches):
        path.what_if({"no such kernel": 0.5})
    with pytest.raises(ScenarioError):
        path.what_if({"cpu": -1})


@pytest.mark.slow  # the same window and profile are tested above
def test_switches_are_those_of_the_command_line(analysis: TraceAnalysis, capture: Capture) -> None:
    path = analysis.critical_path_analysis(rank=0, profile="hta", switches={"zero_weight_launch": True})
    command = ("critical-path", capture.ranks[0].path, "--profile", "hta", "--set", "zero_weight_launch=true")
    assert path.answer.as_json() == printed(*command)
    assert path.answer.edges > analysis.critical_path_analysis(rank=0, profile="hta").answer.edges


@pytest.mark.slow  # tests/critical_path/test_data_dependencies.py tests the dependencies
def test_operators_follow_their_data(shared: Path, tmp_path: Path) -> None:
    """With an execution trace, operators depend on the operators that produce their data.

    The execution trace is next to the file, and is detected or passed, as on the command line.
    """
    folder = shared / "traces" / "ranks" / "dlrm_8"
    file, beside = folder / "worker0.json.gz", folder / "execution_trace_0.json.gz"
    with TraceAnalysis({0: file}) as analysis:
        path = analysis.critical_path_analysis(0, dependencies="data")
        assert path.answer.as_json() == printed("critical-path", file, "--dependencies", "data")
        explicit = analysis.critical_path_analysis(0, dependencies="data", execution_trace=beside)
        assert explicit.answer == path.answer
        compared = path.what_if(remove=["cpu"])
        assert compared.before.length_us == path.answer.length_us > compared.after.length_us
        restored = restore_cpgraph(path.save(tmp_path / "a"))
        assert restored.what_if(remove=["cpu"]).as_json() == compared.as_json()
        graph = restored.to_networkx()
        nx.set_edge_attributes(graph, 0, "weight")
        assert CPGraph(None, analysis, 0, G=graph).answer.length_us == 0
        for wrong, said in (
            (lambda: analysis.critical_path_analysis(0, dependencies="flow"), "serial, data"),
            (lambda: analysis.critical_path_analysis(0, execution_trace=beside), 'dependencies="data"'),
        ):
            with pytest.raises(ValueError, match=said):
                wrong()


@pytest.mark.slow  # 4 s
def test_a_trace_without_a_path(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": [x("other", "neither", 0, 1)]}))
    with TraceAnalysis(tmp_path / "a.json") as analysis:
        # its only trace has no rank, so it counts as rank 0
        cp_graph, success = analysis.critical_path_analysis(rank=0)
        assert not success and "no path" in repr(cp_graph)
        assert dict(cp_graph.summary()) == {} and cp_graph.alternatives() == []
        assert not cp_graph.critical_path() and cp_graph.critical_path_nodes == []
        assert cp_graph.get_critical_path_breakdown().num_rows == cp_graph.slack().num_rows == len(cp_graph.arrays) == 0
        assert cp_graph.table("critical_path_summary").count().to_pyarrow().as_py() == 0


@pytest.mark.slow  # 3 s; faces/test_subject.py tests names from users
def test_traces_by_rank_by_folder_and_kept_in_a_lake(capture: Capture, tmp_path: Path) -> None:
    first, second = (rank.path for rank in capture.ranks)
    swapped = TraceAnalysis({5: first, 3: second})
    assert [(trace.rank, Path(trace.path)) for trace in swapped.traces] == [(3, second), (5, first)]
    assert swapped.get_temporal_breakdown().to_pyarrow()["rank"].to_pylist() == [3, 5]
    scratch = swapped.scratch
    swapped.close()
    assert not scratch.exists()

    folder = tmp_path / "in"
    folder.mkdir()
    shutil.copy(first, folder)
    (folder / "notes.txt").write_text("not a trace")
    with pytest.warns(UserWarning, match=r"left out: .*notes\.txt"):
        kept = TraceAnalysis(trace_dir=folder, lake=tmp_path / "lake", job="a")
    kept.close()
    shutil.rmtree(folder)
    TraceAnalysis(second, lake=tmp_path / "lake", job="b").close()
    with TraceAnalysis(lake=tmp_path / "lake") as both, TraceAnalysis(lake=tmp_path / "lake", job="b") as only_b:
        assert [trace.rank for trace in both.traces] == [0, 1]
        length = both.critical_path_analysis(both.traces[1].trace_id[:6]).answer.length_us
        assert length == only_b.critical_path_analysis().answer.length_us
        assert only_b.table("traces").count().to_pyarrow().as_py() == 1
        kernels, traces = both.tables("kernels", "traces")
        joined = kernels.join(traces, "trace_id").count().to_pyarrow().as_py()
        assert joined == kernels.count().to_pyarrow().as_py() > only_b.table("kernels").count().to_pyarrow().as_py()
    with pytest.raises(TraceNotFound, match="its jobs: a, b"):
        TraceAnalysis(lake=tmp_path / "lake", job="c")


def test_a_file_of_several_ranks_has_all_their_traces(tmp_path: Path) -> None:
    file = tmp_path / "merged.json"
    events = [x("cpu_op", f"op {rank}", 0, 5, pid=f"[TP0{rank}] 100") for rank in range(2)]
    file.write_text(json.dumps({"traceEvents": events}))
    with TraceAnalysis(trace_dir=tmp_path) as analysis:
        assert [trace.rank for trace in analysis.traces] == [0, 1]
        several = r"merged\.json contains 2 traces, so it cannot be rank 3: pass .*rank 0: .*rank 1: "
        with pytest.raises(TraceNotFound, match=several):
            TraceAnalysis({3: file}, lake=analysis.lake)


def test_profiler_steps_may_be_operators(tmp_path: Path) -> None:
    """Profiler steps may be recorded as operators, as by PyTorch 1.8."""
    steps = [x("cpu_op", "ProfilerStep#3", 0, 5), x("user_annotation", "ProfilerStep#2", 5, 5)]
    others = [x("gpu_user_annotation", "ProfilerStep#4", 0, 5), x("cpu_op", "ProfilerStep#x", 0, 5)]
    (tmp_path / "a.json").write_text(json.dumps({"traceEvents": [*steps, *others]}))
    with TraceAnalysis(tmp_path / "a.json") as analysis:
        assert analysis.get_profiler_steps() == [2, 3]


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a trace")
    (tmp_path / "empty").mkdir()
    for arguments, error, said in (
        ({}, ValueError, "give trace_files"),
        ({"trace_files": tmp_path / "notes.txt"}, TraceRejected, "notes.txt"),
        ({"trace_files": {0: tmp_path / "none.json"}}, TraceRejected, "none.json"),
        ({"trace_dir": tmp_path}, TraceRejected, "notes.txt"),
        ({"trace_dir": tmp_path / "empty"}, TraceNotFound, "no trace files"),
        ({"trace_dir": tmp_path / "none"}, FileNotFoundError, "no folder"),
        ({"lake": tmp_path / "none"}, FileNotFoundError, "no traces in the lake"),
    ):
        with pytest.raises(error) as raised:
            TraceAnalysis(**arguments)
        assert said in str(raised.value)
