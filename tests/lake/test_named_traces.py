"""Queries that name their traces: they read only the files of these traces, and their answers are those of all files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.cli.lake import query as cli_query
from pipelines.faces.cli.named_traces_query import open_named_traces
from pipelines.lake import Lake
from pipelines.lake.names import ANALYST, VERSION_KEY
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.read import damage as broken
from pipelines.lake.read.named_traces import NamedTraces, condition_in
from pipelines.lake.read.query_tables import tables_read
from pipelines.lake.read.sandbox import Limits, connect_parser
from pipelines.lake.read.snapshot import look
from pipelines.lake.table_files import table_files
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from tests.effort import first_of
from tests.lake.test_incremental import look_anew
from tests.lake.world import PROCESSES, kept, write_trace

N = 4
NEWEST = "(SELECT max(trace_id) FROM traces)"
OF_ALL = "SELECT count(*) AS n FROM kernels"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Publish a lake of N batches with one trace each, of ranks 0 to N - 1, with `kernels`."""
    folder = tmp_path_factory.mktemp("named")
    lake = Lake(folder / "lake")
    for rank in range(N):
        top = {"distributedInfo": {"rank": rank}}
        ingest([write_trace(folder / "in" / f"rank{rank}.json", rank, 2 + rank, **top)], lake)
    materialize(lake, ["kernels"])
    return folder


@pytest.fixture(scope="module")
def read_only(whole: Path) -> Lake:
    """Return the lake of `whole` for tests that only read."""
    return Lake(whole / "lake")


@pytest.fixture
def lake(whole: Path) -> Iterator[Lake]:
    """Yield the lake of `whole`, and restore it afterwards."""
    with kept(whole) as lake:
        yield lake


def asked_at_once(lake: Lake, query: str) -> list[tuple] | None:
    """Return the answer without scanning the whole lake, or None if the query needs a scan."""
    with connect_parser() as parser:
        opened = open_named_traces(lake.root, query, tables_read(query, parser), parser, Limits())
    if opened is None:
        return None
    with opened[0] as locked, locked.asked(opened[1]) as answer:
        assert answer is not None
        return answer.rows()


def asked_of_all(lake: Lake, query: str) -> list[tuple]:
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        return con.execute(query).fetchall()


IDS = "(SELECT list(trace_id ORDER BY trace_id) FROM traces)"
NAMED = [
    f"SELECT count(*), sum(duration_ns) FROM kernels WHERE trace_id = {NEWEST}",
    "SELECT trace_id, count(*) FROM kernels WHERE trace_id IN (SELECT trace_id FROM traces WHERE rank > 1) GROUP BY ALL ORDER BY ALL",
    f"SELECT DISTINCT k.trace_id, event_id FROM kernels k JOIN events e USING (trace_id, event_id) WHERE e.trace_id = {NEWEST} ORDER BY ALL",
    "FROM kernels SELECT count(*) WHERE trace_id IN ('ID', 'none', 'ID')",
    f"SELECT count(*) FROM kernels AS k WHERE {NEWEST} = k.trace_id AND duration_ns > 0 AND (duration_ns > 0 OR k.trace_id <> 'x')",
    "SELECT count(*) FROM kernels WHERE trace_id = (SELECT trace_id FROM traces ORDER BY random() LIMIT 1) HAVING count(*) = 0",
    f"SELECT rank, sum(duration_ns) FROM kernels JOIN traces USING (trace_id) WHERE trace_id = {NEWEST} GROUP BY rank",
    "SELECT count(*) FROM kernels WHERE trace_id = 'ID'",
    "SELECT name, count(*) OVER () FROM kernels WHERE 'ID' = trace_id ORDER BY ALL",
]
OTHERS = [
    f"{OF_ALL} WHERE trace_id = 'ID' OR duration_ns > 0",
    f"{OF_ALL} WHERE trace_id IN (SELECT trace_id FROM traces WHERE rank = 99)",
    f"{OF_ALL} WHERE trace_id = 'ID' AND duration_ns <= (SELECT max(duration_ns) FROM kernels)",
    f"WITH traces AS (SELECT 'ID' AS trace_id) {OF_ALL} WHERE trace_id = {NEWEST}",
    OF_ALL,
    f"{OF_ALL} WHERE trace_id <> 'ID'",
    f"{OF_ALL} WHERE trace_id = (SELECT trace_id FROM traces WHERE rank = 99)",
    f"{OF_ALL} WHERE trace_id = 'none'",
    f"{OF_ALL} k WHERE trace_id = (SELECT trace_id FROM traces t WHERE t.trace_id = k.trace_id)",
    f"{OF_ALL} k LEFT JOIN traces t USING (trace_id) WHERE trace_id = 'ID'",
    f"{OF_ALL} k JOIN traces t ON true WHERE t.trace_id = 'ID'",
    f"{OF_ALL} k, traces t WHERE t.trace_id = 'ID'",
    "SELECT (SELECT count(*) FROM kernels) AS n FROM traces WHERE trace_id = 'ID'",
    f"{OF_ALL} WHERE trace_id = 'ID' UNION ALL {OF_ALL}",
    "SELECT count(*) AS n FROM (SELECT * FROM kernels) WHERE trace_id = 'ID'",
    "SELECT count(*) AS n FROM kernels AS k JOIN kernels AS l USING (trace_id) JOIN events AS e ON true WHERE k.trace_id = 'ID'",
]


@pytest.mark.parametrize("query", first_of(NAMED, 4))
def test_an_answer_of_named_traces_is_that_of_all_files(read_only: Lake, query: str) -> None:
    lake = read_only
    query = query.replace("ID", max(lake.known_traces()))
    answer = asked_at_once(lake, query)
    assert answer is not None and answer == asked_of_all(lake, query)


@pytest.mark.parametrize("query", first_of(OTHERS, 4))
def test_what_may_need_other_traces_is_not_answered_at_once(read_only: Lake, query: str) -> None:
    lake = read_only
    query = query.replace("ID", max(lake.known_traces()))
    assert asked_at_once(lake, query) is None
    status, out = sql(lake, query)
    assert (status, out) == (0, '"n"\n' + "".join(f"{n}\n" for (n,) in asked_of_all(lake, query)))


def sql(lake: Lake, query: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["sql", query, "--lake", str(lake.root), "--format", "csv"])
    return done.exit_code, done.stdout


def test_only_the_files_of_a_named_trace_are_looked_at(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that names a trace scans only this trace's files, even in a process that has not read the lake yet."""
    look_anew(lake)
    with monkeypatch.context() as patched:
        patched.setattr(broken, "_listing", lambda *_: pytest.fail("all files were looked at"))
        assert asked_at_once(lake, NAMED[0]) == asked_of_all(lake, NAMED[0])


def test_the_files_of_other_traces_are_not_opened(read_only: Lake) -> None:
    with connect_parser() as parser:
        said = condition_in(parser, NAMED[0])
    with duckdb.connect(str(read_only.root / ANALYST), read_only=True) as con:
        assert said
        named = said.known(con)
        assert isinstance(named, NamedTraces) and len(named.ids) == 1
        plan = con.execute(f"EXPLAIN ANALYZE {named.query}").fetchall()[0][1]
    assert re.search(r"Total Files Read:\s*1\b", plan), plan


def _ingest_and_compute(root: Path, file: Path) -> None:
    ingest([file], Lake(root))
    materialize(Lake(root), ["kernels"])


@pytest.mark.slow  # starts a process; test_incremental.py checks which parts are re-read
def test_a_commit_of_another_process_is_seen_by_the_next_query(lake: Lake, whole: Path) -> None:
    query = f"{OF_ALL} WHERE trace_id IN (SELECT trace_id FROM traces)"
    before = asked_at_once(lake, query)
    file = write_trace(whole / "late" / "rank9.json", 9, 7)
    other = PROCESSES.Process(target=_ingest_and_compute, args=(lake.root, file))
    other.start()
    other.join()
    assert other.exitcode == 0
    after = asked_at_once(lake, query)
    assert before and after and after[0][0] > before[0][0]
    assert after == asked_of_all(lake, query)


@pytest.mark.parametrize("fault", first_of(["cut", "not published", "gone", "another one"], 1))
def test_damage_of_a_named_trace_is_noticed(lake: Lake, whole: Path, fault: str) -> None:
    query = f"{OF_ALL} WHERE trace_id = {NEWEST}"
    expected = asked_at_once(lake, query)
    assert expected
    trace = max(lake.known_traces())
    (path,) = (path for path in table_files(lake.root, "kernels") if path.stem == lake.known_traces()[trace].batch_id)
    if fault == "cut":
        os.truncate(path, path.stat().st_size - 1)
    elif fault == "gone":
        path.unlink()
    elif fault == "another one":
        rows = f"SELECT * FROM read_parquet('{path}', hive_partitioning = false) LIMIT 1"
        said = f"{VERSION_KEY}: '{load_catalog().version('kernels')}'"
        duckdb.execute(f"COPY ({rows}) TO '{whole}/other.parquet' (FORMAT parquet, KV_METADATA {{{said}}})")
        path.write_bytes((whole / "other.parquet").read_bytes())  # the folder's time does not change
    else:
        ingest([write_trace(whole / "late" / "rank9.json", 9, 7)], lake)
        assert asked_at_once(lake, query) is None
    if fault != "not published":
        assert asked_at_once(lake, query) is None
    if fault != "not published":
        assert sql(lake, query) == (0, f'"n"\n{expected[0][0]}\n')  # recomputed
    assert sql(lake, OF_ALL)[0] == 0
    publish(lake)
    assert look(lake.root) == look_anew(lake)


def test_the_command_answers_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = asked_of_all(lake, NAMED[0])
    monkeypatch.setattr(cli_query, "refresh_tables", lambda *_, **__: pytest.fail("the lake was looked at"))
    status, out = sql(lake, NAMED[0])
    assert status == 0 and out.splitlines()[1] == ",".join(map(str, expected[0]))
