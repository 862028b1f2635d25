"""Execution traces in an ingested folder.

They have their own rows, do not count as rejected files, and are matched with profiler traces.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.fleet.trends.findings import findings
from pipelines.fleet.trends.fleet_today import fleet_today
from pipelines.fleet.trends.openmetrics import families_of
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import analyst
from pipelines.lake.status import status
from pipelines.models.questions import load_questions
from pipelines.readers.execution.neighbor_files import NoExecutionTrace, begins_execution_trace, execution_trace_beside
from pipelines.readers.ingest import ingest
from pipelines.readers.origin import rank_from_name
from tests.effort import first_of
from tests.harness import x
from tests.readers.execution.make import Op, write


def trace(path: Path, start: int = 0) -> Path:
    """Write a profiler trace of one operator; traces with different starts have different contents."""
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [x("cpu_op", "a", start, 10)]}))
    return path


def nodes(path: Path, number: int = 0) -> Path:
    return write(path, [Op(f"op{number}", [1], [2]), Op("b", [2])])


def rows(lake: Lake, query: str) -> list[tuple[Any, ...]]:
    with analyst(lake, ["execution_traces", "traces"]) as con:
        return con.execute(query).fetchall()


def test_they_are_rows_of_their_own_and_no_rejects(tmp_path: Path) -> None:
    folder, lake = tmp_path / "in", Lake(tmp_path / "lake")
    folder.mkdir()
    trace(folder / "rank0.json")
    nodes(folder / "rank0_et.json")
    packed = folder / "execution_trace_7.json.gz"
    packed.write_bytes(gzip.compress(nodes(tmp_path / "et.json", 7).read_bytes()))
    report = {Path(row.path).name: row for row in ingest([folder], lake, job="j").rows}
    assert {name: row.status for name, row in report.items()} == dict.fromkeys(
        ("rank0.json", "rank0_et.json", "execution_trace_7.json.gz"), "ok"
    )
    assert "--dependencies data" in (report["rank0_et.json"].reason or "")
    query = "SELECT file, folder, rank, job, pid, schema_version, n_nodes, n_operators, unpacked_bytes FROM execution_traces"
    assert rows(lake, f"{query} ORDER BY file") == [
        (packed.name, str(folder), 7, "j", 100, "1.0.1", 3, 2, (tmp_path / "et.json").stat().st_size),
        ("rank0_et.json", str(folder), 0, "j", 100, "1.0.1", 3, 2, (folder / "rank0_et.json").stat().st_size),
    ]
    answered = rows(lake, load_questions()["execution-traces"].sql)
    trace_id = report["rank0.json"].trace_id
    assert answered == [
        (str(packed), 7, 2, None, None, None, None),
        (str(folder / "rank0_et.json"), 0, 2, "j", trace_id, "rank0.json", "rank"),
    ]
    # No count of rejected files includes them.
    assert rows(lake, "SELECT * FROM rejects") == []
    assert status(lake, folder).wrong == [] and status(lake, folder).backlog == 0
    with analyst(lake) as con:
        fleet = fleet_today(con)
    assert list(findings(fleet)) == []
    assert [family.samples for family in families_of(fleet) if family.name == "rejected_files"] == [[({}, 0)]]
    assert {row.status for row in ingest([folder], lake, job="j").rows} == {"known"}
    assert rows(lake, "SELECT count(*) FROM execution_traces") == [(2,)]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    first_of(
        [
            (lambda text: text[: len(text) // 2], "cannot be read"),
            (lambda text: text[:30], "not an execution trace|is truncated"),
            (lambda text: text.replace('"id": 102', '"id": "x"', 1), "has no id"),
            (lambda text: text.replace('"rf_id"', '"gone"'), "its schema is unknown"),
        ],
        2,
    ),
)
def test_a_broken_one_is_rejected_by_name_and_the_others_go_in(
    tmp_path: Path, spoil: Callable[[str], str], reason: str
) -> None:
    folder, lake = tmp_path / "in", Lake(tmp_path / "lake")
    folder.mkdir()
    trace(folder / "rank0.json")
    nodes(folder / "rank0_et.json")
    broken = folder / "rank1_et.json"
    broken.write_text(spoil(nodes(tmp_path / "whole.json", 1).read_text()))
    statuses = {Path(row.path).name: row.status for row in ingest([folder], lake).rows}
    assert statuses == {"rank0.json": "ok", "rank0_et.json": "ok", "rank1_et.json": "rejected"}
    ((path, why),) = rows(lake, "SELECT path, reason FROM rejects")
    assert path == str(broken)
    assert rows(lake, f"SELECT regexp_matches(reason, '^an execution trace that.*({reason})') FROM rejects") == [
        (True,)
    ], why


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"schema": "1.0.1", "pid": 1, "nodes": [{"id": 1', True),
        ('\n{ "nodes": [{"id": 1, "name": "a", "ctrl_deps": 2}], "schema": "1.1.1"}', True),
        ('{"schema": "1.0.1", "pid"', True),  # truncated: a broken execution trace
        ('{"schemaVersion": 1, "schema": "x", "nodes": [{"rf_id": 1}], "traceEvents": []}', False),
        ('{"nodes": ["host1", "host2"], "traceEvents": []}', False),
        ('{"schema": "v2", "nodes": ["host1"], "traceEvents": []}', False),
        ('{"metadata": {"schema": "1", "nodes": [{"rf_id": 1}]}, "traceEvents": []}', False),
        ('[{"ph": "X", "args": {"schema": "1.0.1", "nodes": [{"rf_id": 1}]}}]', False),
        ('{"schema": {"type": "object"}, "title": "a JSON schema"}', False),
        ('{"nodes": [{"id": 1}], "edges": []}', False),  # a graph of another kind
        ('{"schema"', False),
        ("", False),
        ("no JSON", False),
    ],
)
def test_how_one_begins(text: str, expected: bool) -> None:
    assert begins_execution_trace(text) is expected


def test_a_profiler_trace_that_mentions_nodes_stays_one(tmp_path: Path) -> None:
    events = [x("cpu_op", "a", 0, 10, schema="1.0.1", nodes=[{"rf_id": 1}])]
    (tmp_path / "a.json").write_text(json.dumps({"nodes": ["host1"], "schema": 1, "traceEvents": events}))
    (tmp_path / "b.json").write_text(json.dumps(events))
    lake = Lake(tmp_path / "lake")
    assert [row.status for row in ingest([tmp_path / "a.json", tmp_path / "b.json"], lake).rows] == ["ok", "ok"]
    assert rows(lake, "SELECT count(*) FROM execution_traces") == [(0,)]


@pytest.mark.slow  # 4 s
def test_of_all_shared_files_those_that_are_one(shared: Path) -> None:
    """The first 64 KiB of a file show whether it is an execution trace.

    The expected result comes from the whole file, parsed by the standard library.
    """
    n = Counter()
    for path in sorted(shared.joinpath("traces").glob("**/*.json*")):
        if path.stat().st_size > 300_000:
            continue
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        whole = json.loads(raw.decode("utf-8", "replace"), strict=False)
        is_execution_trace = isinstance(whole, dict) and "nodes" in whole and "traceEvents" not in whole
        assert begins_execution_trace(raw[:65536].decode("utf-8", "replace")) is is_execution_trace, path
        n[is_execution_trace] += 1
    assert n[True] == 8 and n[False] > 10


NAMES = ("rank0", "rank1", "worker_1", "x_7", "x_12", "plain", "2")
OTHERS = ("rank0_et", "et_1", "execution_trace_7", "et", "et_plain", "12", "rank1_et_99")


@pytest.mark.slow  # test_join.py and test_beside.py check the command
def test_the_view_finds_what_the_command_finds(tmp_path: Path) -> None:
    """The view and the command agree for every profiler trace in folders of random files.

    The view is sql/ingest/execution/execution_trace_matches.sql, and the command's search is neighbor_files.py.
    """
    chance, number = random.Random(1), iter(range(10**6))
    for at in range(40):
        folder = tmp_path / "in" / f"f{at}"
        folder.mkdir(parents=True)
        for name in chance.sample(NAMES, chance.randint(0, 3)):
            trace(folder / f"{name}.json", next(number))
        for name in chance.sample(OTHERS, chance.randint(0, 4)):
            nodes(folder / f"{name}.pt.json", next(number))
    lake = Lake(tmp_path / "lake")
    assert {row.status for row in ingest([tmp_path / "in"], lake).rows} == {"ok"}
    by_view = dict(
        rows(
            lake, "SELECT t.path, m.path FROM execution_trace_matches AS m JOIN traces AS t ON t.trace_id = m.trace_id"
        )
    )
    by_command = {}
    for path in (Path(path) for (path,) in rows(lake, "SELECT path FROM traces")):
        try:
            by_command[str(path)] = str(execution_trace_beside(path, rank_from_name(path.name)))
        except NoExecutionTrace:
            continue
    assert by_view == by_command
    assert len(by_view) > 20
    (counts,) = rows(
        lake,
        "SELECT count(*) FILTER (WHERE matched_by = 'rank') > 3, count(*) FILTER (WHERE matched_by = 'no_rank') > 3, "
        "count(*) FILTER (WHERE matched_by = 'only_one') > 0, count(*) FILTER (WHERE trace_id IS NULL) > 3, "
        "count(DISTINCT execution_trace_id) = (SELECT count(*) FROM execution_traces) FROM execution_trace_matches",
    )
    assert counts == (True,) * 5


@pytest.mark.slow  # test_join.py checks the join
def test_the_eight_of_dlrm(tmp_path: Path, shared: Path) -> None:
    folder, lake = tmp_path / "dlrm", Lake(tmp_path / "lake")
    shutil.copytree(shared / "traces" / "ranks" / "dlrm_8", folder)
    report = ingest([folder], lake)
    assert report.rejected == [] and len(report.rows) == 16
    pairs = (
        "SELECT m.rank, t.file FROM execution_trace_matches AS m JOIN traces AS t ON t.trace_id = m.trace_id ORDER BY 1"
    )
    assert rows(lake, pairs) == [(rank, f"worker{rank}.json.gz") for rank in range(8)]
    counted = {}
    for path in folder.glob("execution_trace_*"):
        names = [node["name"] for node in json.loads(gzip.decompress(path.read_bytes()))["nodes"]]
        counted[path.name] = len(names), sum("execution_" not in name for name in names)
    records = rows(lake, "SELECT file, n_nodes, n_operators FROM execution_traces")
    assert {file: tuple(counts) for file, *counts in records} == counted and len(counted) == 8
