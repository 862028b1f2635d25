"""Reading time grows linearly with the file, and errors for oversized input name the limit."""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.base import database
from pipelines.critical_path.answer import save_path, saved_path
from pipelines.critical_path.answer.saved_path import NotASavedPath, restore_path
from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.readers.kineto import ReadRequest, TraceRejected, limits
from pipelines.readers.kineto.events_file import load_events
from pipelines.readers.kineto.limits import Limits, WrongLimit
from tests.effort import SLOW, first_of
from tests.readers.counters import test_rocprof
from tests.readers.execution import make as make_execution
from tests.readers.memory_snapshots import make as make_snapshots
from tests.readers.nccl_inspector import make_logs
from tests.readers.provenance import make as make_provenance

EVENT = b'{"ph":"X","name":"a","cat":"cpu_op","pid":1,"tid":1,"ts":5,"dur":1,"args":{"v":1.5}}'
GROWING: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "a string before the events": (8 << 20, lambda n: b'{"m":"' + b"n" * n + b'","traceEvents":[' + EVENT + b"]}"),
    "a string behind the events": (8 << 20, lambda n: b'{"traceEvents":[' + EVENT + b'],"m":"' + b"n" * n + b'"}'),
    "NaNs": (
        1 << 19 if SLOW else 1 << 18,
        lambda n: b'{"traceEvents":[' + b",".join([EVENT.replace(b"1.5", b"NaN")] * (n // 86)) + b"]}",
    ),
    "NaNs without phases": (
        1 << 17 if SLOW else 1 << 16,
        lambda n: b'{"traceEvents":[' + EVENT + b',{"a":NaN}' * (n // 10) + b"]}",
    ),
    "brackets that may end the array": (
        1 << 19,
        lambda n: b'{"traceEvents":[' + EVENT + b',{"a":[' + b'{}],"b":[{}],' * (n // 13) + b'"c":[]}],"z":NaN x',
    ),
    "brackets that do not close": (1 << 19, lambda n: b'{"a":' + b"[" * n),
    "surplus brackets": (2 << 20, lambda n: b'{"traceEvents":[' + EVENT + b"]" * n),
}


def seconds(folder: Path, text: bytes) -> float:
    path = folder / f"{len(text)}.json"
    path.write_bytes(text)
    began = time.process_time()
    with contextlib.suppress(TraceRejected):
        load_events(ReadRequest(path, folder))
    return time.process_time() - began


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of(GROWING, 3))
def test_time_grows_with_the_file_and_no_faster(tmp_path: Path, name: str) -> None:
    size, make = GROWING[name]
    seconds(tmp_path, make(1000))  # warm up
    once = min(seconds(tmp_path, make(size)) for _ in range(2))
    assert seconds(tmp_path, make(2 * size)) < 3 * once + 0.3


@pytest.mark.slow  # 5 s
def test_each_limit_refuses_by_its_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = b",".join([EVENT] * 400_000)
    whole = b'{"traceEvents":[' + many + b"]}"
    large = b'{"traceEvents":[{"ph":"X","args":"' + b"x" * (18 << 20) + b'"}]}'
    files = {
        "max_metadata_mib": b'{"m":"' + b"n" * (3 << 20) + b'","traceEvents":[]}',
        "max_event_mib": large,
        "max_ratio": gzip.compress(b'{"traceEvents":[' + EVENT + b" " * (4 << 20) + b"]}"),
    }
    monkeypatch.setattr(limits, "RATIO_FROM", 1 << 20)
    for name, content in files.items():
        path = tmp_path / f"{name}.json"
        path.write_bytes(content)
        option = f"--{name.replace('_', '-')}"
        with pytest.raises(TraceRejected, match=option):
            load_events(ReadRequest(path, tmp_path, limits=Limits(**{name: 1})))
    monkeypatch.setenv("TRACELAKE_MAX_METADATA_MIB", "1")
    with pytest.raises(TraceRejected, match="TRACELAKE_MAX_METADATA_MIB"):
        load_events(ReadRequest(tmp_path / "max_metadata_mib.json", tmp_path))
    assert Limits(max_unpacked_gib=1).unpacked(1 << 30, (1 << 30) + 1) == (
        "more than 1 GiB decompressed; TRACELAKE_MAX_UNPACKED_GIB (of `tracelake ingest` also --max-unpacked-gib) raises the limit"
    )
    assert Limits().unpacked(1 << 30, 5 << 30) is None
    assert Limits(max_ratio=7).unpacked(1 << 20, 7 << 20) is None
    assert "--max-ratio" in (Limits(max_ratio=7).unpacked(1 << 20, (7 << 20) + 1) or "")
    (tmp_path / "good.json").write_bytes(whole)
    load_events(ReadRequest(tmp_path / "good.json", tmp_path, limits=Limits(1, 1, 1, 1)))  # 34 MB of small events pass


def test_a_rejection_names_five_keys(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({f"key_{n}": n for n in range(12)}))
    with pytest.raises(TraceRejected, match=r"\(keys: key_0, key_1, key_2, key_3, key_4 and 7 more\)"):
        load_events(ReadRequest(path, tmp_path))


def test_a_limit_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACELAKE_MAX_RATIO", "many")
    with pytest.raises(WrongLimit, match="TRACELAKE_MAX_RATIO=many"):
        Limits.from_environment()


def test_limits_are_options_with_the_same_defaults() -> None:
    shown = CliRunner().invoke(app, ["ingest", "--help"], env={"COLUMNS": "200"}).output
    for field in fields(Limits):
        assert f"--{field.name.replace('_', '-')}" in shown and f"TRACELAKE_{field.name.upper()}" in shown
        assert str(field.default) in shown


def write_sets(folder: Path) -> None:
    """Write a compressed file of every kind that is not a trace and may be compressed."""
    graph = {f"k{number}:1": {"mm": []} for number in range(99)}
    make_logs.write(folder / "log.log", make_logs.lines(0, [(1, 8, 3)] * 2))
    test_rocprof.write(folder / "counter_collection.csv", test_rocprof.line(1, "X", 2))
    make_snapshots.write(folder / "snapshot.pickle", make_snapshots.snapshot(make_snapshots.training()))
    make_provenance.written(folder / "torch.log", make_provenance.graph_lines(graph))
    make_provenance.folder_file(folder, graph)
    make_execution.write(folder / "execution.json", [make_execution.Op("aten::mm")])
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()


def test_limits_apply_to_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_sets(tmp_path / "in")
    monkeypatch.setattr(limits, "RATIO_FROM", 0)
    rows = ingest([tmp_path / "in"], Lake(tmp_path / "lake"), limits=Limits(max_ratio=1)).rows
    assert [row.status for row in rows] == ["rejected"] * 6
    assert [row.reason for row in rows if "over 1 to 1; TRACELAKE_MAX_RATIO" not in str(row.reason)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows",
    [
        "SELECT range AS node_id, repeat('x', 100_000) AS name FROM range(400)",
        "FROM range(3_000_000) AS t (node_id)",
    ],
)
def test_a_saved_path_that_unpacks_to_too_much(rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small saved path that decompresses to long texts or to many rows is rejected before decompression."""
    monkeypatch.setenv("TRACELAKE_MAX_SAVED_MIB", "16")
    file, none = tmp_path / "bomb.parquet", "SELECT 1 AS {} WHERE false"
    with database.connect() as con:
        queries = {part: rows if part == "nodes" else none.format(key) for part, key in saved_path.PARTS.items()}
        save_path._write(con, file, {"version": saved_path.VERSION}, queries)
    assert file.stat().st_size < 30 << 20
    with pytest.raises(NotASavedPath, match="too large") as error:
        restore_path(file)
    assert "TRACELAKE_MAX_SAVED_MIB" in error.value.hint
