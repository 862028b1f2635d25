"""HTA's data frames: programs that read `trace_df` and `symbol_table` as HTA's own code does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pipelines.base.errors import WrongValue
from pipelines.faces.notebook import frames, restore_cpgraph
from pipelines.faces.notebook.frames import NoPandas, SymbolTable
from pipelines.faces.notebook.hta import CPGraph, TraceAnalysis
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture
from tests.faces.notebook.page import PAGE
from tests.faces.notebook.test_hta_numbers import golden

pd = pytest.importorskip("pandas", reason="data frames need pandas")
SIMPLE_ADD = "traces/critical_path/simple_add.json.gz"
ANNOTATION = "[param|pytorch.model.alex_net|0|0|0|measure|forward]"


def write(file: Path, events: list[dict[str, Any]]) -> Path:
    file.write_text(json.dumps({"traceEvents": events}))
    return file


def call(name: str, ts: float, correlation: int) -> dict[str, Any]:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "ts": ts, "dur": 1, "pid": 1, "tid": 1, "args": args}


def kernel(name: str, ts: float, correlation: int, stream: int) -> dict[str, Any]:
    args = {"correlation": correlation, "stream": stream, "device": 0}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": 3, "pid": 0, "tid": stream, "args": args}


@pytest.fixture(scope="module")
def analyzer(shared: Path) -> Iterator[TraceAnalysis]:
    with TraceAnalysis({0: shared / SIMPLE_ADD}, frames="pandas") as analysis:
        yield analysis


@pytest.fixture(scope="module")
def graph(analyzer: TraceAnalysis) -> CPGraph:
    """Return the path of the second ANNOTATION."""
    cp_graph, success = analyzer.critical_path_analysis(0, ANNOTATION, 1)
    assert success
    return cp_graph


def nodes_of(frame: Any, symbols: SymbolTable) -> set[int]:
    """Return the events that get nodes, as HTA's `create_event_nodes` does."""
    query = symbols.get_operator_or_cuda_runtime_query() + " or (stream != -1 and index_correlation >= 0)"
    return set(frame.query(query)["index"])


def test_htas_window_and_nodes_come_out_of_the_frames(shared: Path, analyzer: TraceAnalysis, graph: CPGraph) -> None:
    """HTA's own code finds HTA's window and nodes in the frames.

    The code is that of critical_path_analysis and create_event_nodes. The events are those of HTA's output.
    """
    expected = golden(shared, "simple_add__alexfwd_1")
    trace_df, symbols = analyzer.t.get_trace(0), analyzer.t.symbol_table
    annotations = trace_df[trace_df.name.isin(symbols.find_matches([ANNOTATION]))]
    start, end = annotations.iloc[1][["ts", "end"]]
    cpu, gpu = trace_df[trace_df["stream"].eq(-1)], trace_df[trace_df["stream"].ne(-1)]
    a = cpu[cpu["ts"].between(start, end) & (cpu["dur"] > 0)]
    is_wait = gpu["name"].eq(symbols.get_sym_id_map()["Stream Wait Event"])  # HTA keeps the waits of the whole trace
    b = gpu[gpu["index_correlation"].isin(a["index"]) | is_wait]
    clipped = trace_df.loc[a.index.union(b.index)]
    with_nodes = {event for event, *_ in expected["nodes"]}
    assert nodes_of(clipped, symbols) == with_nodes and len(with_nodes) == 229

    with_edges = {event for begin, _, end, *_ in expected["edges"] for event in (begin, end)}
    assert set(graph.trace_df["index"]) == with_edges < with_nodes
    assert nodes_of(graph.trace_df, graph.symbol_table) == with_edges
    assert graph.full_trace_df.equals(trace_df)
    starts = dict(zip(graph.trace_df["index"], graph.trace_df["ts"], strict=True))
    assert all(starts[node.ev_idx] == node.ts for node in graph.node_list if node.is_start)
    breakdown = graph.get_critical_path_breakdown()
    assert breakdown.groupby("bound_by")["duration"].sum().sum() == graph.answer.length_us and len(breakdown) == 314
    row = graph.trace_df.loc[987]
    table = graph.symbol_table.get_sym_table()
    assert (table[row["name"]], table[row["cat"]]) == (row["s_name"], row["s_cat"])


@pytest.mark.slow  # 5 s
def test_the_program_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    write_capture(CaptureSpec(ranks=2, steps=3, straggler=1, seed=5), "traces")
    (program,) = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    exec(program, {"TraceAnalysis": TraceAnalysis})
    of_graph, of_trace, synchronized_us, unit = capsys.readouterr().out.split()
    assert 0 < int(of_graph) < int(of_trace) and float(synchronized_us) > 0 and unit == "us"


@pytest.mark.slow  # 4 s; test_hta_numbers.py tests the expressions' numbers
def test_tables_are_frames_with_the_numbers_of_the_expressions(shared: Path, analyzer: TraceAnalysis) -> None:
    materialize_all(analyzer.lake, ["temporal_breakdown", "merged_intervals", "kernels", "queue_length", "launches"])
    queue = analyzer.get_queue_length_time_series()
    frames = [
        analyzer.get_temporal_breakdown(),
        analyzer.get_comm_comp_overlap(),
        *analyzer.get_gpu_kernel_breakdown(),
        queue,
        analyzer.get_queue_length_summary(),
        analyzer.get_time_spent_blocked_on_full_queue(queue, max_queue_length=1),
        analyzer.get_cuda_kernel_launch_stats(ranks=[0]),
    ]
    with TraceAnalysis({0: shared / SIMPLE_ADD}, lake=analyzer.lake) as plain:
        expressions = [
            plain.get_temporal_breakdown(),
            plain.get_comm_comp_overlap(),
            *plain.get_gpu_kernel_breakdown(),
            plain.get_queue_length_time_series(),
            plain.get_queue_length_summary(),
            plain.get_time_spent_blocked_on_full_queue(max_queue_length=1),
            plain.get_cuda_kernel_launch_stats(ranks=[0]),
        ]
        assert all(isinstance(frame, pd.DataFrame) and len(frame) for frame in frames)
        for frame, expression in zip(frames, expressions, strict=True):
            columns = list(frame.columns)
            both = (frame, expression.to_pyarrow().to_pandas())
            as_rows = [table[columns].sort_values(columns).to_dict("list") for table in both]
            assert str(as_rows[0]) == str(as_rows[1])  # text, because NaN is not equal to itself


CALLS: list[dict[str, Any]] = [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "ts": 0, "dur": 100, "pid": 1, "tid": 1},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#8", "ts": 100, "dur": 50, "pid": 1, "tid": 1},
    call("cudaGraphLaunch", 90, 1),
    call("cudaLaunchKernel", 149, 2),
    call("cudaLaunchKernel", 150, 3),
    kernel("first", 110, 1, stream=7),
    kernel("second", 115, 1, stream=0),
    kernel("orphan", 120, 99, stream=7),
    kernel("late", 200, 3, stream=7),
    {"ph": "i", "cat": "Trace", "name": "no duration", "ts": 5, "pid": "Spans", "tid": "main"},
    {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "ts": 0, "dur": 300, "pid": "Spans", "tid": "main"},
]
FRACTIONS = [call("a", 1.25, 1), call("b", 2, 2)]
LOST_TIME = [call("a", 1, 1), call("lost", 1e19, 1), call("b", 2, 2)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TraceAnalysis]:
    """Yield an analysis of the three traces above, as ranks 0, 1 and 2."""
    folder = tmp_path_factory.mktemp("made")
    files = {rank: write(folder / f"{rank}.json", events) for rank, events in enumerate((CALLS, FRACTIONS, LOST_TIME))}
    with TraceAnalysis(files, frames="pandas") as analysis:
        yield analysis


def test_calls_and_their_work_steps_and_times(made: TraceAnalysis) -> None:
    """The frame links calls with their work, and has steps and times as HTA's.

    There are two kernels of one call, a call without work, work without a call, stream 0, and a late launch.
    """
    frame = made.t.get_trace(0)
    assert list(frame["s_name"]) == [event["name"] for event in CALLS[:9]]
    assert list(frame["index_correlation"]) == [-1, -1, 6, 0, 8, 2, 2, 0, 4]
    assert list(frame["iteration"]) == [7, 8, 7, 8, -1, 7, 7, -1, -1]
    assert list(frame["stream"]) == [-1] * 5 + [7, 0, 7, 7]
    assert frame["ts"].dtype.kind == "i" and list(frame["end"] - frame["ts"]) == list(frame["dur"])
    assert list(frame["pid"]) == [1] * 5 + [0] * 4


def test_fractions_of_a_microsecond_stay(made: TraceAnalysis) -> None:
    assert list(made.t.get_trace(1)["ts"]) == [1.25, 2]


def test_an_event_whose_time_is_lost_has_no_row(made: TraceAnalysis) -> None:
    """An event whose time is lost has no row.

    Its NaN would turn the times of all other events into floats, which cannot represent ns since 1970 exactly.
    """
    frame = made.t.get_trace(2)
    assert list(frame["s_name"]) == ["a", "b"] and frame["ts"].dtype.kind == "i"


def test_a_symbol_table() -> None:
    symbols = SymbolTable(["b", "a.b", "axb", "b", "cudaLaunchKernel", "cpu_op"])
    assert symbols.get_sym_table() == ["a.b", "axb", "b", "cpu_op", "cudaLaunchKernel"]
    assert symbols.get_sym_id_map()["b"] == 2
    assert symbols.find_matches(["a.b"]) == [0]  # HTA does not read them as regular expressions, either
    assert symbols.find_matched_symbols(["b", "x"]) == ["a.b", "axb", "b"]
    assert "cat == 3" in symbols.get_operator_or_cuda_runtime_query()
    assert "name == 4" in symbols.get_runtime_launch_events_query()
    frame = pd.DataFrame({"cat": [3, 3, 0], "name": [4, 1, 4], "index_correlation": [5, 5, 0]})
    assert list(frame.query(symbols.get_runtime_launch_events_query()).index) == [0]
    assert list(frame.query(symbols.get_operator_or_cuda_runtime_query()).index) == [0, 1]


def test_unknown_frames_and_those_of_a_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "t.json", [call("a", 1, 1)])
    with pytest.raises(WrongValue, match="unknown frames 'polars'; choose one of ibis, pandas"):
        TraceAnalysis([file], frames="polars")
    monkeypatch.setattr(frames, "find_spec", lambda name: None if name == "pandas" else find_spec(name))
    with pytest.raises(NoPandas, match="pandas"):
        TraceAnalysis([file], frames="pandas")


@pytest.mark.slow  # 3 s; test_as_hta.py tests tables
def test_who_asks_for_no_frames(graph: CPGraph, tmp_path: Path) -> None:
    file = write(tmp_path / "t.json", [call("a", 1, 1)])
    with TraceAnalysis([file]) as analysis:
        assert not isinstance(analysis.t.get_trace(), pd.DataFrame)
        assert analysis.t.symbol_table.sym_table == ["a", "cuda_runtime"]
    alone = restore_cpgraph(graph.save(tmp_path / "saved"))
    with pytest.raises(ValueError, match="symbol_table needs the trace"):
        alone.symbol_table  # noqa: B018
