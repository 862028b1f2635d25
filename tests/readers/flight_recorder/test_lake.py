"""Sets of dumps in the lake: stored whole and once per content, with the expected verdicts.

Other files are left to other inputs.
"""

from __future__ import annotations

import json
import pickle
import shutil
import tracemalloc
from pathlib import Path

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.names import batch_of
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.table_files import table_files
from pipelines.readers.flight_recorder.dump import is_dump
from pipelines.readers.ingest import ingest
from tests.readers.flight_recorder.test_verdicts import CASES, as_pickle


def asked(lake: Lake, query: str) -> list[tuple]:
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        return con.execute(query).fetchall()


def test_the_made_cases_have_the_expected_verdicts(shared: Path, tmp_path: Path) -> None:
    source, lake = shared / "golden" / "modelling" / "fr", Lake(tmp_path / "lake")
    report = ingest([source / case for case in CASES], lake, job="hung")
    assert [(row.status, Path(row.path).name) for row in report.rows] == [("ok", case) for case in CASES]
    query = (
        "SELECT DISTINCT d.folder, v.group_name, v.group_ranks, v.kind, v.seq, v.culprits, v.confidence, v.is_root "
        "FROM flight_recorder_verdicts AS v JOIN flight_recorder_dumps AS d USING (set_id) WHERE d.job = 'hung'"
    )
    verdicts = {(Path(row[0]).name, row[1], row[2]): row[3:] for row in asked(lake, query)}
    expected = {}
    for case in CASES:
        verdict = json.loads((source / f"{case}__expected.json").read_text())
        for group in verdict["groups"]:
            f = group["finding"] or dict.fromkeys(("kind", "seq", "culprits"))
            is_root = bool(verdict["root"]) and verdict["root"]["pg"] == group["pg"]
            culprits = None if f["culprits"] is None else json.dumps(f["culprits"])
            key = case, group["pg"], json.dumps(group["ranks"])
            expected[key] = (f["kind"], f["seq"], culprits, group.get("confidence"), is_root)
    assert verdicts == expected


def test_entries_are_those_of_the_files(shared: Path, tmp_path: Path) -> None:
    folder, lake = shared / "golden" / "modelling" / "fr" / "two_groups", Lake(tmp_path / "lake")
    (row,) = ingest([folder], lake).rows
    expected = []
    for file in folder.iterdir():
        for entry in json.loads(file.read_text())["entries"]:
            times = [entry["time_created_ns"], entry["time_discovered_completed_ns"] or None]
            numbers = [entry["record_id"], entry["collective_seq_id"], entry["input_sizes"][0][0]]
            expected.append((int(file.stem[-1]), *numbers, entry["state"], *times))
    columns = "rank, record_id, seq, in_elements, state, created_ns, completed_ns"
    rows = asked(lake, f"SELECT {columns} FROM flight_recorder_entries ORDER BY rank, record_id")
    assert rows == sorted(expected)
    assert row.n_events == len(expected)


def test_a_set_comes_in_once_and_a_late_rank_makes_a_new_one(shared: Path, tmp_path: Path) -> None:
    source, lake = shared / "golden" / "modelling" / "fr" / "missing_rank", Lake(tmp_path / "lake")
    folder = tmp_path / "dumps"
    folder.mkdir()
    files = [as_pickle(file, folder) for file in sorted(source.iterdir())]  # named without a suffix, as PyTorch does
    last = files.pop().rename(tmp_path / "late")
    assert [row.status for row in ingest([files[0]], lake).rows] == ["ok"]  # brings in all dumps of its folder
    assert asked(lake, "SELECT rank FROM flight_recorder_dumps ORDER BY rank") == [(0,), (1,), (2,)]
    shutil.copytree(folder, tmp_path / "copy")
    before = sorted(lake.root.rglob("*.parquet"))
    assert [row.status for row in ingest([folder, tmp_path / "copy"], lake).rows] == ["known", "known"]
    assert sorted(lake.root.rglob("*.parquet")) == before
    last.rename(folder / "nccl_trace_rank_3")
    assert [row.status for row in ingest([folder], lake).rows] == ["ok"]
    query = "SELECT dump_missing, confidence FROM flight_recorder_verdicts ORDER BY dump_missing"
    assert asked(lake, query) == [("[3]", "low: dumps missing"), ("[]", "high")]


def test_a_set_without_its_mark_is_not_shown(shared: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([shared / "golden" / "modelling" / "fr" / "healthy"], lake)
    for mark in table_files(lake.root, "flight_recorder_dumps"):
        lake.take_away(batch_of(mark), ["flight_recorder_dumps"])
    for table in ("dumps", "entries", "verdicts"):
        assert asked(lake, f"SELECT count(*) FROM flight_recorder_{table}") == [(0,)]


def test_a_dump_that_cannot_be_read_is_a_row_and_the_others_go_in(shared: Path, tmp_path: Path) -> None:
    folder, lake = tmp_path / "dumps", Lake(tmp_path / "lake")
    shutil.copytree(shared / "golden" / "modelling" / "fr" / "healthy", folder)
    (folder / "nccl_trace_rank_7").write_bytes(b'{"version": "2.10", "pg_config": {}, "entries": [')
    (folder / "nccl_trace").write_text('{"version": "2.10", "pg_config": {}, "entries": []}')
    rows = {Path(row.path).name: row for row in ingest([folder], lake).rows}
    assert {name: row.status for name, row in rows.items()} == {
        "dumps": "ok",
        "nccl_trace": "rejected",
        "nccl_trace_rank_7": "rejected",
    }
    assert "broken JSON" in str(rows["nccl_trace_rank_7"].reason)
    assert asked(lake, "SELECT count(*) FROM rejects WHERE reason LIKE '%does not end in a rank%'") == [(1,)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"traceEvents": [], "pg_config": 1}', False),
        (b'{"schema": "1.0", "nodes": []}', False),
        (b'{"version": "3"}', False),
        (b' {\n "comm_lib_version": "2.27.3", "pg_config": {}, "version": "2.10"}', True),
        (pickle.dumps({"segments": [], "device_traces": []}), False),
        (pickle.dumps({"version": "2.10", "pg_config": {}}, protocol=2), True),
        (b"", False),
    ],
)
def test_dumps_are_told_by_what_is_in_them(tmp_path: Path, content: bytes, expected: bool) -> None:
    (path := tmp_path / "rank0.json").write_bytes(content)
    assert is_dump(path) == expected


@pytest.mark.parametrize("before", [4000, 4096 - len('"pg_config"'), 4090, 4096, (1 << 20) + 4090, (1 << 20) + 4096])
@pytest.mark.parametrize("key", ["pg_config", "collective_seq_id", "traceEvents"])
def test_a_key_of_dumps_is_found_wherever_it_is(tmp_path: Path, before: int, key: str) -> None:
    path = tmp_path / "dump_0"
    text = '{"version": "'.ljust(before, "2") + f'"{key}"'
    path.write_text(text.ljust(3 << 20))
    assert is_dump(path) == (key != "traceEvents")


def test_a_file_is_looked_at_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "dump_0"
    with path.open("wb") as file:
        file.write(b'{"version": "1", "traceEvents": [')
        file.truncate(64 << 20)
    tracemalloc.start()
    assert not is_dump(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
