"""`tracelake graphs`, its section of the report and its saved question, on captures whose operators are known."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from pipelines.faces.cli.trace import graph_inputs
from pipelines.faces.report.blocks import Section
from pipelines.faces.report.sections.graphs import graphs
from pipelines.faces.report.subject import Subject
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.kineto import TraceRejected
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import first_of
from tests.faces.cli.test_commands import tracelake
from tests.faces.report.read_page import report
from tests.harness import connect
from tests.modelling.graph_traces import eager, replay


def written(folder: Path, origin: str, seed: int = 0) -> Path:
    """Write a trace of 3 replays of 4 layers of 8 kernels, and return its path."""
    spec = CaptureSpec(ranks=1, steps=1, shape="inference_graph", tokens=3, layers=4, graph_origin=origin, seed=seed)
    return write_capture(spec, folder).paths[0]


@pytest.mark.slow  # tests/modelling/test_graph_owners.py tests the owners
@pytest.mark.parametrize(("origin", "source"), first_of([("capture", "capture"), ("warm_up", "eager")], 1))
def test_the_operators_come_from_another_trace(tmp_path: Path, origin: str, source: str) -> None:
    replays, startup = written(tmp_path / "a", "none"), written(tmp_path / "b", origin, seed=3)
    alone = json.loads(tracelake("graphs", replays, "--json").stdout)
    assert (alone["n_replays"], alone["n_kernels"], alone["known_ns"]) == (3, 96, 0)
    (caveat,) = alone["caveats"]  # the caveat names the inputs that would replace NULL
    assert "are unknown" in caveat["detail"] and "(--capture-trace), a few steps without graphs" in caveat["detail"]
    done = tracelake("graphs", replays, "--capture-trace", startup, "--json")
    both = json.loads(done.stdout)
    assert both["caveats"] == []
    assert both["known_ns"] == both["graph_ns"] == alone["graph_ns"] <= both["gpu_ns"] == alone["gpu_ns"]
    assert {row["source"] for row in both["kernels"]} == {source}
    assert sum(row["duration_ns"] for row in both["kernels"]) == both["graph_ns"]
    repeated = both["repetitions"]
    assert {(row["period"], row["repetition"], row["n"]) for row in repeated} == {(8, n, 24) for n in range(4)}
    assert sum(row["duration_ns"] for row in repeated) == both["graph_ns"]


@pytest.mark.slow
def test_traces_of_a_lake_are_found_by_id(tmp_path: Path) -> None:
    replays, startup = written(tmp_path / "a", "none"), written(tmp_path / "b", "warm_up", seed=3)
    lake = tmp_path / "lake"
    rows = json.loads(tracelake("ingest", replays, startup, "--job", "decode", "--lake", lake, "--json").stdout)
    ids = {Path(row["path"]): row["trace_id"] for row in rows}
    done = tracelake("graphs", ids[replays], "--capture-trace", ids[startup], "--lake", lake, "--json")
    answer = json.loads(done.stdout)
    assert answer["trace_id"] == ids[replays] and answer["known_ns"] == answer["graph_ns"] > 0
    asked = tracelake("ask", "graph-layers", "--trace", ids[replays], "--lake", lake, "--format", "json")
    layers = json.loads(asked.stdout)
    assert sorted(row["repetition"] for row in layers) == [0, 1, 2, 3]
    assert {(row["n_replays"], row["n_kernels"], row["known_percent"]) for row in layers} == {(3, 24, 0.0)}
    assert sum(row["gpu_ms"] for row in layers) == pytest.approx(answer["graph_ns"] / 1e6, abs=0.01)


@pytest.mark.slow
def test_a_lake_has_the_capture_of_the_same_job_and_rank(tmp_path: Path) -> None:
    """Of two traces that captured graphs, the command uses the one nearer in time.

    It does not use a warm-up trace or another job's capture.
    """
    made = {"own": ("none", 5), "near": ("capture", 4), "far": ("capture", 1), "warm": ("warm_up", 4)}
    lake, ids = tmp_path / "lake", {}
    for name, (origin, first) in made.items():
        path = written(tmp_path / name, origin, seed=first)
        shift(path, 3600.0 * first)
        (row,) = json.loads(tracelake("ingest", path, "--job", "decode", "--lake", lake, "--json").stdout)
        ids[name] = row["trace_id"]
    other = written(tmp_path / "other", "capture", seed=9)
    tracelake("ingest", other, "--job", "another", "--lake", lake)
    answer = json.loads(tracelake("graphs", ids["own"], "--lake", lake, "--json").stdout)
    assert answer["capture_trace_id"] == ids["near"] and answer["known_ns"] == answer["graph_ns"] > 0
    shown = tracelake("graphs", ids["own"], "--lake", lake).stdout
    assert f"looked up in trace {ids['near']}, too: the nearest of its job and rank that captured graphs" in shown
    alone = json.loads(tracelake("graphs", ids["own"], "--capture-trace", "none", "--lake", lake, "--json").stdout)
    assert (alone["capture_trace_id"], alone["known_ns"]) == (None, 0)


def shift(path: Path, seconds: float) -> None:
    """Move all events of a trace file `seconds` later."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    for event in document["traceEvents"]:
        if "ts" in event:
            event["ts"] += seconds * 1e6
    path.write_bytes(gzip.compress(json.dumps(document).encode()))


@pytest.mark.slow  # 4 s
def test_names_of_annotation_files(tmp_path: Path) -> None:
    """The file is next to the trace and named by its rank, or is passed as an option.

    A file of another kind ends the command with an error.
    """
    trace = tmp_path / "trace_rank0.json"
    trace.write_text(
        json.dumps({"traceEvents": replay(["a", "b"], 0, 1, nodes=[0, 1]), "distributedInfo": {"rank": 0}})
    )
    file = tmp_path / "kernel_annotations_rank0_fwd.pkl"
    file.write_bytes(pickle.dumps({5 << 32: [{"str": "layers.0"}]}))
    answer = json.loads(tracelake("graphs", trace, "--json").stdout)
    assert answer["annotations"] == str(file) and answer["known_ns"] == 3000
    assert [(row["name"], row["module"], row["source"]) for row in answer["kernels"]] == [
        ("a", "layers.0", "annotation"), ("b", None, None),
    ]  # fmt: skip
    file.rename(other := tmp_path / "elsewhere.pkl")
    assert json.loads(tracelake("graphs", trace, "--json").stdout)["annotations"] is None
    shown = tracelake("graphs", trace, "--annotations", other).stdout
    assert f"names of graph nodes are from {other}" in shown.replace("\n", "")
    done = tracelake("graphs", trace, "--annotations", trace)
    assert done.returncode == 1 and "is not the id of a node" in " ".join(done.stderr.split())
    done = tracelake("graphs", trace, "--annotations", tmp_path / "nowhere.pkl")
    assert done.returncode == 1 and "nowhere.pkl" in done.stderr


@pytest.mark.slow  # 4 s
def test_what_people_are_shown(tmp_path: Path) -> None:
    shown = tracelake("graphs", written(tmp_path, "both"), "--top", 2).stdout
    assert "ran in 3 replays; the operator or module of 100.0 % of that is known" in shown
    assert "more rows: --top 0" in shown and "aten::addmm" in shown and "would be known from" not in shown
    shown = tracelake("graphs", written(tmp_path / "replays", "none")).stdout
    assert "the rest would be known from a trace of the program's start, in which the graphs are captured" in shown
    (tmp_path / "none.json").write_text(json.dumps({"traceEvents": eager([(None, "gemm")], 0, 1)}))
    done = tracelake("graphs", tmp_path / "none.json")
    assert (done.returncode, done.stdout.strip()) == (
        0,
        f"{tmp_path / 'none.json'} has no replays of CUDA or HIP graphs",
    )


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    path = written(tmp_path, "none")
    done = tracelake("graphs", path, "--capture-trace", path)
    assert done.returncode == 1 and "is the trace itself" in done.stderr
    done = tracelake("graphs", path, "--capture-trace", tmp_path / "nothing.json", "--lake", tmp_path / "lake")
    assert done.returncode == 1 and "nothing.json" in done.stderr


def test_a_file_of_several_processes_is_refused_as_the_trace_that_captured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of several processes is refused as the trace that captured.

    The reader's remedy, --process, is not printed, because that option refers to the other trace.
    """

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[None]:
        raise TraceRejected(Path("a.json"), None, "name one (--process PID)")
        yield

    monkeypatch.setattr(graph_inputs, "opened", opened)
    for processes, message in (([], "name one"), (["TP00", "TP01"], "a.json has 2 processes")):
        monkeypatch.setattr("pipelines.faces.cli.fleet.opened_capture.processes_of", lambda _, p=processes: p)
        with pytest.raises((TraceRejected, typer.Exit)) as refused:
            graph_inputs._add_capture(None, "b", "a.json", "lake", Path())
        text = capsys.readouterr().err if processes else str(refused.value)
        assert message in text and ("--process" in text) == (not processes)


BLOCKS = "the same 8 kernels follow one another 4 times, probably once per layer"


def section_of(trace: list[dict[str, Any]] | Path) -> Section | None:
    """Return the section about graphs of the report on one trace."""
    con, trace_id = connect(trace)
    run_models(con, load_catalog(), ["graph_kernels", "kernels", "critical_path_by_operator"])
    row = {"trace_id": trace_id, "rank": 0, "path": "rank0.json"}
    return graphs(Subject(con, None, [row], row, ""))


@pytest.mark.slow  # tests/modelling has real graphs
def test_the_section_is_there_where_graphs_are_most_of_the_time(tmp_path: Path) -> None:
    section = section_of(written(tmp_path, "both"))
    assert section is not None
    assert "replays of CUDA or HIP graphs. The operator or module of 100.0 % of it is known" in section.body
    assert BLOCKS in section.body
    work = [(None, name) for name in "ab"]
    assert section_of(eager(work, 0, 1) + replay("ab", 90, 50)) is None  # half is not most
    assert section_of(eager(work, 0, 1) + replay("abc", 90, 50)) is not None
    assert section_of(eager(work, 0, 1)) is None


@pytest.mark.slow
def test_the_section_on_the_page(tmp_path: Path) -> None:
    page = report(tmp_path, written(tmp_path, "both"))
    assert BLOCKS in page.texts["graphs"]
    rows = page.rows("graph_kernels")
    assert sum(float(row["n"] or 0) for row in rows) == 96
    assert sum(float(row["percent"] or 0) for row in rows) == pytest.approx(100)
