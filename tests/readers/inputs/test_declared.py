"""The declarations of inputs, which are read without running code.

The tests also check which input accepts a file, and that a failing input stops no other file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

import pipelines.readers.kineto.events_file
import pipelines.readers.schedule_runs
from pipelines.lake import Lake
from pipelines.models.catalog import load_catalog
from pipelines.models.errors import CatalogError
from pipelines.models.header import FILE, TRACE
from pipelines.models.sources import DeclaredInput, read_code
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs import EventInput, Read, Reading, SetInput, find
from pipelines.readers.kineto import ReadRequest, ReadTrace, TraceRejected
from pipelines.readers.kineto.limits import Limits
from tests.lake.world import capture, write_trace
from tests.readers.test_schedule_runs import write_run


def test_every_scope_that_comes_in_has_one_input() -> None:
    scopes = {model.scope for model in load_catalog().models.values() if model.kind == "lake"} - {TRACE, FILE}
    assert sorted(declared.scope for declared in read_code().inputs if declared.kind == "SetInput") == sorted(scopes)
    modules = [declared.module for declared in read_code().inputs if declared.kind == "EventInput"]
    read = ("nsys.read", "perfetto.read", "rocm.read", "rocm.read_csv", "rocm.read_json", "xplane.read")
    assert modules == ["pipelines.readers.kineto.events_file", *(f"pipelines.readers.{name}" for name in read)]
    assert pipelines.readers.kineto.events_file.INPUT.recognise is None


@pytest.mark.parametrize(
    "value",
    [
        "EventInput(suffixes=SUFFIXES, read=read)",
        "EventInput(read=read)",
        "SetInput(scope=RUN, suffixes=('.x',), recognise=recognise, read=read)",
        "Other(suffixes=('.x',))",
        "7",
    ],
)
def test_a_declaration_that_cannot_be_read_is_told(tmp_path: Path, value: str) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "new.py").write_text(f"import sys\nINPUT = {value}\n")
    with pytest.raises(CatalogError, match=r"new\.py:2: the declaration of an input cannot be read"):
        read_code(tmp_path / "pkg")


def test_an_annotated_declaration_counts(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    text = "import sys\n\nINPUT: SetInput = SetInput(scope='a', suffixes=('.b', '.c'), read=sys.exit)\n"
    (tmp_path / "pkg" / "new.py").write_text(text)
    assert read_code(tmp_path / "pkg").inputs == [DeclaredInput("pkg.new", "SetInput", [".b", ".c"], "a")]


def test_inputs_are_asked_in_turn_and_only_for_their_suffixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "r", "r", "sw", 40)
    trace = write_trace(tmp_path / "t.json", 1)
    asked: dict[str, list[str]] = {}
    imported = find.import_module

    def imported_once(module: str) -> object:
        asked.setdefault(module, [])
        return imported(module)

    monkeypatch.setattr(find, "import_module", imported_once)
    files = [*sorted((tmp_path / "r").iterdir()), trace]
    sets, left, _ = find.classify_files(files)
    assert [(kind.scope, [*folders]) for kind, folders in sets] == [("run", [tmp_path / "r"])]
    assert left == [trace]
    # Dumps may have any name, and execution traces may be named like traces.
    assert asked.keys() == {
        "pipelines.readers.schedule_runs",
        "pipelines.readers.flight_recorder.lake",
        "pipelines.readers.execution.lake",
        "pipelines.readers.nccl_inspector.lake",
        "pipelines.readers.provenance.lake",
    }
    (tmp_path / "r" / "schedule_runs.parquet").unlink()  # without its commit marker, the folder is not a run
    assert find.classify_files([trace, *files[1:3]]) == ([], [trace, *files[1:3]], {})


@pytest.mark.slow  # a test below covers an input that fails at a set of files
def test_an_input_is_asked_once_and_if_it_fails_rejects_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def recognise(path: Path) -> bool:
        asked.append(path.name)
        if path.name == "rank1.json":
            raise ZeroDivisionError("in recognise")
        return False

    odd = DeclaredInput("tests.readers.inputs.odd", "EventInput", [".json"])
    real, imported = find._declared, find.import_module
    monkeypatch.setattr(find, "_declared", lambda kind: [*real(kind), *([odd] if kind == "EventInput" else [])])

    class Odd:
        INPUT = EventInput(
            suffixes=(".json",), recognise=recognise, read=pipelines.readers.kineto.events_file.load_events
        )

    monkeypatch.setattr(find, "import_module", lambda name: Odd if name == odd.module else imported(name))
    lake = Lake(tmp_path / "lake")
    report = ingest(capture(tmp_path / "in"), lake)
    assert [row.status for row in report.rows] == ["ok", "rejected", "ok", "rejected"]
    assert "ZeroDivisionError" in str(report.rows[1].reason)
    assert sorted(asked) == sorted(Path(row.path).name for row in report.rows)
    with lake.connect(["traces", "rejects"]) as con:
        assert con.execute("SELECT count(*) FROM rejects").fetchall() == [(2,)]


@pytest.mark.slow  # tests/readers/test_ingest.py checks the bytes of traces
def test_bytes_of_every_kind_are_progress(tmp_path: Path) -> None:
    run = write_run(tmp_path / "in" / "r", "r", "sw", 40)
    trace = write_trace(tmp_path / "in" / "t.json", 1)
    read: list[int] = []
    ingest([tmp_path / "in"], Lake(tmp_path / "lake"), on_bytes=read.append)
    runs = sum(path.stat().st_size for path in run.iterdir())
    assert sum(read) >= runs + trace.stat().st_size
    assert isinstance(find.classify_files([*run.iterdir()])[0][0][0], SetInput)


def test_a_file_at_which_an_input_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "in" / "r", "r", "sw", 40)
    write_run(tmp_path / "in" / "s", "s", "sw", 40)
    bad = tmp_path / "in" / "r" / "schedule_plans.parquet"

    def recognise(files: Iterable[Path]) -> Mapping[Path, Collection[Path]]:
        if bad in (paths := list(files)):
            raise ZeroDivisionError("in recognise")
        return pipelines.readers.schedule_runs.run_folders(paths)

    monkeypatch.setattr(
        pipelines.readers.schedule_runs, "INPUT", replace(pipelines.readers.schedule_runs.INPUT, recognise=recognise)
    )
    report = ingest([tmp_path / "in"], Lake(tmp_path / "lake"))
    assert {Path(row.path).name: row.status for row in report.rows} == {bad.name: "rejected", "r": "ok", "s": "ok"}


def test_the_traces_of_a_file_are_searched_within_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(request: ReadRequest) -> ReadTrace:
        raise TraceRejected(request.path, None, f"trace {request.part}")

    odd = EventInput(suffixes=(), read=read, parts=lambda _, limits: [str(limits.max_event_mib)])
    monkeypatch.setattr(find, "events_input", lambda _: odd)
    path = write_trace(tmp_path / "t.json", 1)
    (row,) = ingest([path], Lake(tmp_path / "lake"), limits=Limits(max_event_mib=7)).rows
    assert row.reason == "trace 7"


def test_a_set_that_would_never_be_seen_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "in" / "r", "r", "sw", 40)
    monkeypatch.setattr(
        pipelines.readers.schedule_runs,
        "INPUT",
        replace(pipelines.readers.schedule_runs.INPUT, read=lambda *_: Read("r", 40)),
    )
    (row,) = ingest([tmp_path / "in"], Lake(tmp_path / "lake")).rows
    assert (row.status, "no rows in schedule_runs" in str(row.reason)) == ("rejected", True)


def test_the_time_of_ingestion_is_utc_in_every_zone() -> None:
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'Asia/Tokyo'")
        reading = Reading(con, load_catalog(), "inspector", {}, None)
        columns = reading.file_columns(Path("a.log"))
        reading.add_rows("inspector_logs", [columns])
        ((ingested_at,),) = con.execute("SELECT ingested_at FROM one.inspector_logs").fetchall()
    assert ingested_at == columns["ingested_at"] and columns["ingested_at"].tzinfo is None
