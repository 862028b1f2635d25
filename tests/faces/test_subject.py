"""Names of traces from users. An id has the same answer as its file, from tables of the lake, or computed."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess

import pyarrow.parquet as pq
import pytest

import pipelines.models.run as running
from pipelines.critical_path.answer.saved_path import restore_path
from pipelines.critical_path.graph.stored_window import use_stored
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.critical_path.whatif.window import WINDOW_TABLES, load
from pipelines.faces.subject import NotATrace, process_of, subject
from pipelines.lake.commit.batch_rows import Failure
from pipelines.lake.lake import Lake, Staged
from pipelines.lake.names import table_file
from pipelines.lake.read.one_trace import NoSuchTrace, find_trace, stored_tables
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.models.run import run_models
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from tests.effort import SLOW, first_of
from tests.faces.cli.test_commands import tracelake
from tests.harness import connect, kernel, op, x
from tests.lake.world import kept

SMALL = ("critical_path/cuda_event_sync", "single/mi300_sglang_decode_graph", "single/mi250_minitoy")
MORE = (
    "single/cpu_only_rank34_of_300",
    "single/mi300_rccl_metadata",
    "single/a100_cuda_graphs_rank0_of_16",
    "dialects/v100_2021",
)
TABLES = (
    *(
        "critical_path_windows",
        "critical_path_edges",
        "critical_path",
        "critical_path_summary",
        "critical_path_caveats",
    ),
    *(
        "critical_path_by_owner",
        "critical_path_nodes",
        "critical_path_events",
        "longest_path",
        "temporal_breakdown",
        "graph_kernels",
        "kernels",
    ),
    *("queue_length", "memory_timeline", "collective_bandwidth"),
)
COMMANDS = (
    ("critical-path",),
    ("critical-path", "--json"),
    ("critical-path", "--alternatives", "3", "--top", "3"),
    ("breakdown",),
    ("breakdown", "--json"),
    ("graphs",),
    ("graphs", "--json"),
    ("what-if", "--scale", "cpu=0.5", "--json"),
    ("what-if", "--sensitivity", "--json"),
)
OTHERS = (
    ("critical-path", "--annotation", "ProfilerStep", "--json"),
    ("critical-path", "--profile", "hta", "--json"),
    ("critical-path", "--set", "kernel_gap_limit_ns=5000", "--json"),
    ("breakdown", "--profile", "hta", "--json"),
)
"""Answers with other switches, or about another window, than the stored tables."""

PRIVATE = (
    "_edges",
    "_path_bounds",
    "_refused_windows",
    "_stated_windows",
    "critical_path_windows",
    "critical_path_events",
)
_STEPS = "SELECT window_id FROM stored.critical_path_windows WHERE window_id <> 'full' ORDER BY start_ns"


@dataclass(frozen=True)
class Held:
    """A trace in a lake."""

    file: Path
    trace_id: str
    lake: Path


@pytest.fixture(scope="module")
def held(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Held]]:
    """Yield the small traces, in one lake whose tables are up to date."""
    yield _held(shared, SMALL, tmp_path_factory.mktemp("subject") / "lake")


def _held(shared: Path, names: tuple[str, ...], folder: Path) -> dict[str, Held]:
    files = {str(shared / "traces" / f"{name}.json.gz"): name for name in names}
    lake = Lake(folder)
    rows = ingest(list(files), lake).rows
    materialize(lake, TABLES)
    return {files[row.path]: Held(Path(row.path), row.trace_id or "", folder) for row in rows}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the models that ran. Rules are left out, because they are files of the program."""
    names: list[str] = []
    create = running._create

    def noted(con: object, model: running.Model, *args: object) -> None:
        if model.kind != "rules":
            names.append(model.name)
        create(con, model, *args)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(running, "_create", noted)
    return names


def _both(trace: Held, *words: str) -> None:
    """Compare the output about an id with the output about its file. They only differ in the trace's name."""
    name, *options = words
    of_id = tracelake(name, trace.trace_id, *options, "--lake", trace.lake)
    of_file = _of_file(trace.file, words)
    assert of_id.returncode == of_file.returncode
    for printed in ("stdout", "stderr"):
        assert _comparable(getattr(of_id, printed), trace) == _comparable(getattr(of_file, printed), trace)


@cache
def _of_file(file: Path, words: tuple[str, ...]) -> CompletedProcess[str]:
    return tracelake(words[0], file, *words[1:])


def _comparable(text: str, trace: Held) -> str:
    """Return a comparable output. A table is as wide as its title, which names the trace, so widths are removed."""
    return re.sub(
        r"[ \n━─]+",
        " ",
        text.replace(trace.trace_id, "TRACE").replace(str(trace.file), "TRACE").replace(trace.file.name, "TRACE"),
    )


def _steps(trace: Held) -> list[str]:
    with subject(trace.trace_id, trace.lake, ["critical_path_windows"]) as (con, _):
        return [step for (step,) in con.execute(_STEPS).fetchall()]


def _all(trace: Held, commands: tuple[tuple[str, ...], ...] = COMMANDS) -> None:
    for words in commands:
        _both(trace, *words)
    for step in _steps(trace)[:2]:
        _both(trace, "critical-path", "--annotation", step, "--json")


@pytest.mark.parametrize("words", first_of(((words,) for words in COMMANDS[1::2]), 2), ids=" ".join)
def test_an_id_answers_as_its_file_does(held: dict[str, Held], words: tuple[str, ...]) -> None:
    _both(held[SMALL[0]], *words)


@pytest.mark.slow  # the test above uses the first trace, in half of the ways
@pytest.mark.parametrize("name", SMALL)
def test_however_it_is_asked(held: dict[str, Held], name: str) -> None:
    _all(held[name], COMMANDS if name == SMALL[0] else COMMANDS[1::2])


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_ids_of_more_traces_do_too(shared: Path, tmp_path: Path, name: str) -> None:
    _all(_held(shared, (name,), tmp_path / "lake")[name], COMMANDS[1::2])


@pytest.mark.slow  # test_an_id_answers_as_its_file_does compares the answers
@pytest.mark.parametrize("words", first_of(((words,) for words in OTHERS), 1), ids=" ".join)
def test_what_is_not_stored_is_computed(held: dict[str, Held], ran: list[str], words: tuple[str, ...]) -> None:
    trace = held[SMALL[0]]
    tracelake(words[0], trace.trace_id, *words[1:], "--lake", trace.lake)
    assert "_profiles" in ran
    _both(trace, *words)


def test_no_model_runs_for_what_is_stored(held: dict[str, Held], ran: list[str]) -> None:
    """For an id, only two models run, which count edges and nodes. All other tables are stored."""
    for trace in [*held.values()][: None if SLOW else 1]:
        for words in COMMANDS[:7] if SLOW else COMMANDS[1:7:2]:
            tracelake(words[0], trace.trace_id, *words[1:], "--lake", trace.lake)
        for step in _steps(trace):
            tracelake("critical-path", trace.trace_id, "--annotation", step, "--json", "--lake", trace.lake)
    assert len(_steps(held[SMALL[0]])) == 1 and len(_steps(held[SMALL[2]])) == 2
    assert set(ran) == {"_edge_counts", "_node_counts"}


def test_a_scenario_takes_the_stored_graph(held: dict[str, Held], ran: list[str]) -> None:
    trace = held[SMALL[0]]
    for words in COMMANDS[7:]:
        tracelake(words[0], trace.trace_id, *words[1:], "--lake", trace.lake)
    assert set(ran) == {"_profiles"}


def test_whether_waits_are_recorded_is_told_by_what_is_stored(held: dict[str, Held], ran: list[str]) -> None:
    for trace in held.values():
        with subject(trace.trace_id, trace.lake, WINDOW_TABLES) as (con, trace_id):
            has_sync = load(con, load_catalog(), WindowRequest(trace_id)).states_waits
        assert has_sync == (b'"cuda_sync"' in gzip.decompress(trace.file.read_bytes()))
    assert "_stated_windows" not in ran


@pytest.mark.slow  # 2 s; the answers are compared above
def test_private_tables_are_made_from_what_is_stored(held: dict[str, Held]) -> None:
    """Edges and the path in numbers, made from stored tables, equal those of the models.

    For a capture's path only edges are stored, and these suffice.
    """
    catalog = load_catalog()
    for trace in held.values():
        request, made = WindowRequest(trace.trace_id), []
        for tables in (TABLES, ("critical_path_edges",), ()):
            with subject(trace.trace_id, trace.lake, tables) as (con, _):
                request_windows(con, [request])
                stored = use_stored(con, catalog, request)
                assert ({"_edges", "_refused_windows"} <= stored) == bool(tables)
                assert ("_path_bounds" in stored) == (tables == TABLES)
                run_models(con, catalog, PRIVATE, stored)
                made.append({name: con.execute(f"FROM {name} ORDER BY ALL").fetchall() for name in PRIVATE})
        assert made[0] == made[1] == made[2]


@pytest.mark.slow  # 3 s; the answers are compared above
def test_files_of_a_path_are_those_of_the_traces_file(held: dict[str, Held], tmp_path: Path) -> None:
    """An id's path is written to the same files as that of the trace's file.

    These are the edges, and a saved path with its graph, which restores to the same answer.
    """
    for trace in held.values():
        made = {}
        for what, where in ((trace.trace_id, "id"), (trace.file, "file")):
            edges, saved = tmp_path / f"{where}.parquet", tmp_path / f"{where}.zip"
            done = tracelake("critical-path", what, "--edges", edges, "--save", saved, "--lake", trace.lake, "--json")
            assert done.returncode == 0
            rows = pq.read_table(saved).replace_schema_metadata()  # without its digest
            made[where] = done.stdout, pq.read_table(edges), rows, restore_path(saved).meta
        assert made["id"] == made["file"]


@pytest.mark.slow  # the tests of the overlay draw it from a file and from stored tables
def test_the_overlay_is_that_of_the_traces_file(held: dict[str, Held], tmp_path: Path) -> None:
    """The overlay drawn from stored tables equals the one drawn from the file, including all edges and counters."""
    trace = held[SMALL[0]]
    for options in (("--all-edges",), ("--only-critical", "--annotation", _steps(trace)[0])):
        drawn = []
        for what in (trace.trace_id, trace.file):
            done = tracelake("overlay", what, *options, "--out", tmp_path, "--lake", trace.lake, "--json")
            drawn.append(gzip.decompress(Path(json.loads(done.stdout)["path"]).read_bytes()))
        assert drawn[0] == drawn[1]


@pytest.mark.parametrize("broken", first_of(["older", "cut off", "missing", "failed"], 1))
def test_a_table_that_is_not_up_to_date_is_computed(
    held: dict[str, Held], monkeypatch: pytest.MonkeyPatch, ran: list[str], broken: str
) -> None:
    """A stored table that cannot be used is recomputed.

    It is of an older model, missing, damaged, or without a trace on which its model failed.
    """
    trace = held[SMALL[0]]
    with kept(trace.lake.parent) as lake:
        _make_old(lake, trace, monkeypatch, broken)
        ran.clear()
        with subject(trace.trace_id, trace.lake, TABLES) as (con, _):
            assert stored_tables(con) == set(TABLES) - {"critical_path"}
        _both(trace, "critical-path", "--json")
        assert "critical_path" in ran or "_longest_path" in ran


def _make_old(lake: Lake, trace: Held, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    batch = lake.known_traces()[trace.trace_id]
    file = table_file(lake.root, "critical_path", batch)
    if broken == "older":
        version = Catalog.version
        monkeypatch.setattr(
            Catalog, "version", lambda self, name: "newer" if name == "critical_path" else version(self, name)
        )
    elif broken == "missing":
        lake.take_away(batch, ["critical_path"])
    elif broken == "failed":
        empty = lake.staging(batch) / "critical_path.parquet"
        failure = Failure(trace.trace_id, "_clip", "OutOfMemoryException: …")
        pq.write_table(pq.ParquetFile(file).read().slice(0, 0), empty)
        version = Lake(trace.lake).catalog().version("critical_path")
        lake.put_all(batch, {"critical_path": Staged(empty, 0, (failure,), version)})
    else:
        file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.slow  # tables that are not stored are computed, see above
def test_a_lake_without_tables_answers(shared: Path, tmp_path: Path) -> None:
    file = shared / "traces" / f"{SMALL[0]}.json.gz"
    (row,) = ingest([file], Lake(tmp_path / "lake")).rows
    for words in COMMANDS[1:7:2]:
        _both(Held(file, row.trace_id or "", tmp_path / "lake"), *words)


def test_a_folder_is_refused_with_a_command_that_takes_it(tmp_path: Path) -> None:
    folder = tmp_path / "my run"
    folder.mkdir()
    with pytest.raises(NotATrace, match="is a folder") as refused, subject(folder, tmp_path):
        pass
    assert refused.value.hint.endswith(f"tracelake capture-path '{folder}'")


def test_names_that_are_no_trace(held: dict[str, Held], tmp_path: Path) -> None:
    lake = held[SMALL[0]].lake
    with pytest.raises(NoSuchTrace, match="no trace id starts with it"), subject("nothing", lake):
        pass
    with pytest.raises(NoSuchTrace, match="is a prefix of 3 trace ids") as error:
        find_trace(Lake(lake), "")
    assert all(trace.trace_id in error.value.hint for trace in held.values())
    with pytest.raises(NotATrace, match="is a folder"), subject(tmp_path, lake):
        pass
    with pytest.raises(NotATrace, match="--process is only for files"), subject("ab", lake, process="1"):
        pass


def test_the_process_of_a_trace_is_that_of_its_host_events() -> None:
    """GPU work has its device's number, which may be the number of another process of the file."""
    on_gpu = [kernel("gemm", 20, 30, 1, device=3), x("gpu_user_annotation", "step", 20, 30, 7, 3)]
    label = {"distributedInfo": {"label": "TP01"}}
    for document, process in (
        ({"traceEvents": [*on_gpu, op("aten::mm", 0, 10)]}, "100"),
        ({"traceEvents": on_gpu, **label}, "TP01"),
        ({"traceEvents": on_gpu}, None),
    ):
        con, trace_id = connect(document)
        with con:
            assert process_of(con, trace_id, ["3", "100", "TP00", "TP01"]) == process
            assert process_of(con, trace_id, []) is None
