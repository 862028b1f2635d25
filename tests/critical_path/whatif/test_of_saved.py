"""Scenarios on a saved path, which are answered as for its trace; options that need the trace raise an error."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from pipelines.critical_path.answer.answer import critical_path
from pipelines.critical_path.answer.save_path import SOURCES
from pipelines.critical_path.answer.saved_path import restore_path
from pipelines.critical_path.graph.windows import PROFILES, WindowRequest, request_windows
from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.scenario import of_options
from pipelines.critical_path.whatif.window import NoGraph, load, of_saved
from pipelines.faces.cli.app import app
from pipelines.faces.notebook import CriticalPath
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.critical_path.test_inferred import blocked
from tests.harness import ANSWERED, call, connect, connect_all, kernel, only, op, sync, x

from .windows import OF_WINDOW, all_made, opened

WINDOW = ("--annotation", "ProfilerStep", "--instance", "1:2")
SCENARIOS = (
    ("--scale", "class:COMMUNICATION=0.5", "--remove", "launch_overhead"),
    ("--perfect-overlap", "--scale", "stream:20=3"),
    ("--sensitivity",),
)


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def answer(*words: object) -> Any:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = CaptureSpec(ranks=2, steps=3, straggler=1, seed=5)
    return write_capture(spec, tmp_path_factory.mktemp("capture")).ranks[0].path


@pytest.fixture(scope="module")
def saved(trace: Path) -> Path:
    """Save the path of two steps of the trace."""
    file = trace.with_name("saved.zip")
    assert run("critical-path", trace, *WINDOW, "--save", file).exit_code == 0
    return file


@pytest.mark.slow  # 2 s; another test compares the windows of both
def test_scenarios_are_answered_as_from_the_trace(trace: Path, saved: Path) -> None:
    """The command line answers from the file after the trace was moved away."""
    expected = [answer("what-if", trace, *WINDOW, *words) for words in SCENARIOS]
    away = trace.rename(trace.with_name("elsewhere"))
    assert [answer("what-if", saved, *words) for words in SCENARIOS] == expected
    away.rename(trace)
    assert expected[0]["after"] != expected[0]["before"]
    shown = run("what-if", saved, *SCENARIOS[0])
    assert "saved.zip: " in shown.stdout and shown.exit_code == 0


@pytest.mark.slow  # 4 s
@pytest.mark.parametrize("profile", PROFILES)
def test_ties_are_broken_as_for_the_trace(profile: str, tmp_path: Path) -> None:
    file = tmp_path / "saved.parquet"
    trace = [op("a", 0, 30), call("cudaLaunchKernel", 2, 5, 1), kernel("k", 50, 100, 1)]
    with opened(trace, profile) as (con, window):
        request = WindowRequest(window.trace_id, profile=profile)
        critical_path(con, load_catalog(), request, save_to=file)
    saved = restore_path(file)
    graphs = (window.graph, of_saved(saved).graph, saved.graph())
    assert [graph.first_edge_wins for graph in graphs] == [profile == "default"] * 3


def same(window: Any, other: Any) -> None:
    """Assert that two windows have equal arrays, except the names, which a saved window cannot look up in a trace."""
    for field in fields(window):
        if field.name == "named_stretches":
            continue
        a, b = getattr(window, field.name), getattr(other, field.name)
        if hasattr(a, "__dataclass_fields__"):
            same(a, b)
        else:
            assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b, field.name


# Work that begins before the previous work ended: HTA's summary counts the negative gap, but its path does not.
OVERLAPPING = [
    call("cudaLaunchKernel", 0, 2, 1),
    call("cudaLaunchKernel", 3, 2, 2),
    kernel("first", 10, 50, 1),
    kernel("second", 40, 50, 2),
]


TRACES: dict[str, str | list[dict]] = {
    "annotations": "ranks/sampled_128/rank0",  # with time that belongs to an annotation
    "overlapping": OVERLAPPING,
    "AMD": "single/mi250_minitoy",
    "inferred": "single/mi300_rccl_metadata",  # with inferred waits
}


@pytest.mark.slow  # 5 s each; test_cli.py checks the answers of a small path
@pytest.mark.parametrize(
    ("names", "profile"), [(["annotations", "overlapping"], "hta"), (["AMD", "inferred"], "default")]
)
def test_the_window_is_the_traces(shared: Path, names: list[str], profile: str, tmp_path: Path) -> None:
    traces = [TRACES[name] for name in names]
    con, trace_ids = connect_all(
        shared / "traces" / f"{trace}.json.gz" if isinstance(trace, str) else trace for trace in traces
    )
    requests = [WindowRequest(trace_id, profile=profile) for trace_id in trace_ids]
    request_windows(con, requests)
    run_models(con, load_catalog(), {*ANSWERED, *SOURCES, *OF_WINDOW})
    for name, request in zip(names, requests, strict=True):
        only(con, request.trace_id, {*ANSWERED, *SOURCES, *OF_WINDOW} - {"edge_types", "switches", "_path_rules"})
        file = tmp_path / f"{name}.zip"
        critical_path(con, all_made(), request, save_to=file)
        saved = restore_path(file)
        restored = of_saved(saved)
        same(restored, load(con, all_made(), request))
        assert restored.events.event_id.tolist() == sorted(set(saved.nodes["event_id"].to_pylist()))
        assert ((restored.attributed >= 0) & (restored.owner < 0)).any() == (name == "annotations")
        assert len(restored.edge_id) > 100 or (restored.duration < restored.graph.weight).any()


@pytest.mark.slow  # 4 s
def test_what_needs_the_trace_says_so(saved: Path, tmp_path: Path) -> None:
    for words, said in (
        (("--remove", "cpu", "--redraw", tmp_path / "drawn"), "--redraw draws the whole trace"),
        (("--remove", "cpu", *WINDOW), "its window, profile and switches cannot be changed"),
        (("--remove", "cpu", "--profile", "hta"), "its window, profile and switches cannot be changed"),
        (("--remove", "nothing of this"), "There are: class:COMMUNICATION"),
        ((), "nothing to change"),
    ):
        done = run("what-if", saved, *words)
        assert done.exit_code == 1 and said in done.stderr, words
    assert not (tmp_path / "drawn").exists()
    (tmp_path / "cut.zip").write_bytes(saved.read_bytes()[:-1])
    done = run("what-if", tmp_path / "cut.zip", "--remove", "cpu")
    assert done.exit_code == 1 and "cut.zip is damaged" in done.stderr


@pytest.mark.slow
def test_graphs_without_a_path(tmp_path: Path) -> None:
    """An empty graph and a graph that profile hta rejects raise the same error as from the trace."""
    own_stream = [
        call("cudaLaunchKernel", 0, 2, 1),
        kernel("a", 10, 20, 1),
        call("cudaEventRecord", 3, 1, 2),
        call("cudaStreamWaitEvent", 5, 1, 3),
        sync("Stream Wait Event", 5, 1, 3, 7, wait_on_stream=7, wait_on_cuda_event_record_corr_id=2),
        call("cudaLaunchKernel", 7, 2, 4),
        kernel("b", 40, 20, 4),
    ]
    for number, (events, said) in enumerate((([x("other", "neither", 0, 1)], "no edges"), (own_stream, "rejects"))):
        con, trace_id = connect(events)
        request = WindowRequest(trace_id, profile="hta")
        file = tmp_path / f"{number}.zip"
        assert not critical_path(con, load_catalog(), request, save_to=file).success
        with pytest.raises(NoGraph, match=said) as ours:
            of_saved(restore_path(file))
        with pytest.raises(NoGraph) as theirs:
            load(con, load_catalog(), request)
        assert str(ours.value) == str(theirs.value)


# The stream is busy until 60 with work from before the window, which is not a gap that a scenario could remove.
HELD_UP = [
    *(call("cudaLaunchKernel", 0, 2, 1), kernel("earlier", 5, 55, 1)),
    x("user_annotation", "ProfilerStep#1", 10, 30),
    *(op("aten::mm", 10, 12), call("cudaLaunchKernel", 20, 2, 2), kernel("gemm", 61, 30, 2)),
    *(op("aten::add", 24, 8), call("cudaLaunchKernel", 26, 2, 3), kernel("add", 95, 5, 3)),
]


@pytest.mark.slow
def test_work_from_before_the_window_stays_what_it_is(tmp_path: Path) -> None:
    """Work from before the window keeps its time in what-if from the trace, from the file, and after an edit.

    No scenario of gaps or operators removes this time.
    """
    con, trace_id = connect(HELD_UP)
    request = WindowRequest(trace_id, "w", annotation="ProfilerStep")
    answer = critical_path(con, load_catalog(), request, save_to=tmp_path / "a.zip")
    earlier = answer.length_us * answer.summary["gpu_earlier_work"] / 100
    assert earlier > 30
    saved = restore_path(tmp_path / "a.zip")
    same(of_saved(saved), load(con, load_catalog(), request))
    [compared] = what_if(of_saved(saved), [of_options([], ["kernel_gaps", "cpu"], False)])
    assert compared.before.summary == answer.summary
    assert compared.after.length_us * compared.after.summary["gpu_earlier_work"] / 100 == pytest.approx(earlier)
    assert compared.after.length_us < answer.length_us
    [without] = what_if(of_saved(saved), [of_options([], ["earlier_work"], False)])
    assert without.after.length_us == pytest.approx(answer.length_us - earlier)
    path = CriticalPath.of(saved)
    for *_, edge in path.edges(data=True):
        edge["weight"] *= 2
    assert path.critical_path() and path.answer.summary == pytest.approx(answer.summary)
    assert [step["name"] for step in path.answer.path] == [step["name"] for step in answer.path]


@pytest.mark.slow  # tests/critical_path/test_caveats.py tests caveats of inferred waits
def test_what_is_inferred_is_told_by_what_if_and_after_edits(tmp_path: Path) -> None:
    con, trace_id = connect(blocked("cudaStreamSynchronize"))
    answer = critical_path(con, load_catalog(), WindowRequest(trace_id), save_to=tmp_path / "a.zip")
    assert answer.inferred
    said = run("what-if", tmp_path / "a.zip", "--scale", "computation=0.5")
    assert "1 wait of this graph is inferred" in said.stdout
    window = of_saved(restore_path(tmp_path / "a.zip"))
    assert window.n_inferred >= len(answer.inferred)
    path = CriticalPath.of(restore_path(tmp_path / "a.zip"))
    path.edges[next(iter(path.edges))]["weight"] += 0.001
    assert path.critical_path() and path.answer.inferred == answer.inferred
    assert "no_sync_events" in {caveat["caveat"] for caveat in path.answer.caveats}
    assert "coverage" not in {caveat["caveat"] for caveat in path.answer.caveats}
