"""Locked lakes: a query may read the lake's tables, within limits, and nothing else."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.faces.ibis_tables import open_tables
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.read.sandbox import LimitReached, Limits, LockedLake, QueryRefused, QueryStopped
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from tests.harness import DUCKDB_2
from tests.lake.world import capture

# {lake}: the lake's folder; {out}: a folder outside the lake, with canary.csv; {file}: a committed file of kernels.
REFUSED = """
COPY traces TO '{out}/new.csv'
COPY traces TO '{lake}/new.csv'
COPY (SELECT 1) TO '{lake}/kernels/new.parquet'
COPY FROM DATABASE analyst TO memory
EXPORT DATABASE '{out}/new'
EXPORT DATABASE '{lake}/kernels/new'
IMPORT DATABASE '{out}'
ATTACH '{out}/new.db'
ATTACH '{lake}/kernels/new.db'
ATTACH ':memory:' AS new
DETACH analyst
USE memory
INSTALL httpfs
LOAD httpfs
LOAD '{out}/canary.csv'
SET threads = 1
SET enable_external_access = true
SET VARIABLE new = 1
RESET threads
PRAGMA threads = 1
PRAGMA enable_profiling
PRAGMA table_info('traces')
; /* x */ PRAGMA table_info('traces')
PRAGMA import_database('{out}')
CALL pragma_version()
CALL enable_logging(storage = 'file', storage_path = '{out}/new')
CREATE TABLE new AS SELECT 1
CREATE TABLE memory.new AS SELECT 1
CREATE TEMP TABLE new AS SELECT 1
CREATE MACRO new(x) AS x
CREATE SECRET (TYPE s3)
INSERT INTO traces SELECT * FROM traces
WITH rows AS (SELECT 1) INSERT INTO memory.new SELECT * FROM rows
UPDATE traces SET rank = 1
DELETE FROM traces
DROP TABLE traces
ALTER TABLE traces ADD COLUMN new INT
COMMENT ON TABLE traces IS 'new'
CHECKPOINT
VACUUM
BEGIN
PREPARE new AS SELECT 1
EXECUTE new
SELECT 1; SELECT 2
SELECT 1; COPY traces TO '{out}/new.csv'
CREATE TYPE e AS ENUM ('a'); SELECT 1
EXPLAIN ANALYZE COPY traces TO '{lake}/kernels/new.csv'
EXPLAIN (FORMAT json) COPY traces TO '{lake}/kernels/new.csv'
EXPLAIN /* x */ ANALYZE -- y {newline}INSERT INTO memory.new SELECT 1
SELECT * FROM read_csv('{out}/canary.csv')
SELECT * FROM "read_csv" /* x */ ('{out}/canary.csv')
SELECT (SELECT count(*) FROM READ_TEXT('{out}/canary.csv'))
SELECT * FROM read_blob('{out}/*')
SELECT * FROM read_json('{out}/canary.csv')
SELECT * FROM read_parquet('{file}')
SELECT * FROM parquet_scan('{file}')
SELECT * FROM parquet_metadata('{file}')
SELECT * FROM parquet_kv_metadata('{file}')
SELECT * FROM sniff_csv('{out}/canary.csv')
SELECT * FROM read_duckdb('{lake}/analyst.duckdb', table_name = 'traces')
SELECT * FROM glob('{out}/*')
SELECT * FROM glob('{lake}/*')
SELECT * FROM enable_logging(storage = 'file', storage_path = '{lake}/kernels/new')
SELECT * FROM disable_logging()
SELECT * FROM checkpoint()
SELECT * FROM query('SELECT * FROM enable_log' || 'ging(storage_path = ''{lake}/kernels/new'')')
SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))
SELECT * FROM duckdb_secrets()
PIVOT (SELECT * FROM read_csv('{out}/canary.csv')) ON column0
SUMMARIZE SELECT * FROM read_csv('{out}/canary.csv')
FROM '{out}/canary.csv'
SELECT * FROM traces, '{out}/canary.csv'
DESCRIBE '{out}/canary.csv'
SELECT * FROM "{out}/canary.csv"
SELECT * FROM 'https://127.0.0.1:1/canary.csv'
SELECT * FROM 's3://canary/canary.csv'
FROM '{lake}/prices.csv'
FROM '{lake}/kernels/../prices.csv'
FROM '{lake}/kernels/link/canary.csv'
FROM '{lake}/link/canary.csv'
""".strip().splitlines()
# This DuckDB does not have these when called from Python, so it refuses them as unknown. That must not change.
UNKNOWN = """
SELECT getenv('HOME')
SELECT * FROM sqlite_scan('{out}/canary.csv', 'x')
SELECT * FROM canary
SELECT * FROM con
""".strip().splitlines()
READ = """
SELECT count(*) FROM traces
FROM kernels
TABLE traces
VALUES (1)
SELECT 1;
;SELECT ';' -- ; COPY
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT * FROM n
SELECT * FROM range(3), generate_series(1, 2), (SELECT unnest([1, 2]))
SELECT * FROM kernels SEMI JOIN traces USING (trace_id)
SELECT t.rank, k.name FROM kernels k JOIN traces t USING (trace_id)
PIVOT (SELECT rank, status FROM traces) ON rank IN (0, 1) USING count(*)
SUMMARIZE kernels
DESCRIBE kernels
DESCRIBE SELECT 1 AS a
SHOW TABLES
SHOW ALL TABLES
EXPLAIN SELECT * FROM kernels
EXPLAIN ANALYZE SELECT * FROM kernels
EXPLAIN ANALYZE (SELECT count(*) FROM kernels)
SELECT * FROM duckdb_columns()
SELECT table_name, comment FROM duckdb_tables()
SELECT * FROM json_each('[1]')
SELECT histogram(duration_ns), 'read_csv(''x'')', "range" FROM kernels, (SELECT 1 AS range) GROUP BY ALL
SELECT 'été' AS "核(", count(*) FROM traces -- read_csv('x')
""".strip().splitlines()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Yield a lake with three traces and links out of it, and a folder outside with a file that must stay unread."""
    folder = tmp_path_factory.mktemp("locked")
    lake, out = Lake(folder / "lake"), folder / "out"
    ingest(capture(folder / "in"), lake)
    materialize(lake, ["kernels"])
    out.mkdir()
    (out / "canary.csv").write_text("column0\ncanary\n")
    (lake.root / "prices.csv").write_text("device,usd_per_gpu_hour\ncanary,1\n")
    publish(lake)
    os.symlink(out, lake.root / "link")
    os.symlink(out, lake.root / "kernels" / "link")
    yield {"lake": lake.root, "out": out, "file": next((lake.root / "kernels").rglob("*.parquet"))}


@pytest.fixture(scope="module")
def locked(world: dict[str, Path]) -> Iterator[LockedLake]:
    with LockedLake(world["lake"]) as opened:
        yield opened


def _ask(world: dict[str, Path], query: str, **options: object) -> list[tuple]:
    with LockedLake(world["lake"], **options) as locked:  # pyright: ignore[reportArgumentType]
        return _asked(locked, query)


def _asked(locked: LockedLake, query: str) -> list[tuple]:
    with locked.asked(query) as answer:
        return answer.rows() if answer else []


def _state(world: dict[str, Path]) -> dict[str, tuple[int, int]]:
    """Return size and modification time of every file and folder inside the two folders.

    The lake's folder itself is skipped, because SQLite creates and removes a file in it even during reads.
    """
    paths = [p for root in (world["lake"], world["out"]) for p in root.rglob("*")]
    return {str(p): (p.lstat().st_size, p.lstat().st_mtime_ns) for p in paths}


def test_only_the_tables_are_read_and_nothing_is_written(world: dict[str, Path]) -> None:
    """Run all queries on one connection. None of the refused queries changes any file."""
    before = _state(world)
    canary = world["out"] / "canary.csv"
    assert os.stat(canary).st_size == 15
    with LockedLake(world["lake"]) as locked:
        for template in REFUSED:
            query = template.format(**world, newline="\n")
            with pytest.raises((QueryRefused, duckdb.Error)) as refused:
                _asked(locked, query)
            message = str(refused.value)
            assert "canary\n" not in message and len(message) < 600, query
            assert isinstance(refused.value, QueryRefused), (query, message)
        for template in UNKNOWN:
            with pytest.raises(duckdb.Error):
                _asked(locked, template.format(**world, newline="\n"))
        assert _asked(locked, "SELECT count(*) FROM traces") == [(3,)]
    assert _state(world) == before


@pytest.mark.parametrize("query", READ)
def test_reading_queries_run(locked: LockedLake, query: str) -> None:
    assert _asked(locked, query)


def test_a_pivot_that_looks_up_its_values(locked: LockedLake) -> None:
    """A PIVOT that looks up its values runs in DuckDB 1 and is refused in DuckDB 2.

    DuckDB 2 shows no tree of this statement, as of a PIVOT whose rows are inserted.
    """
    query = "PIVOT (SELECT rank, status FROM traces) ON rank USING count(*)"
    if not DUCKDB_2:
        assert _asked(locked, query)
        return
    for statement in (query, f"CREATE TABLE t AS ({query})", f"INSERT INTO t ({query})", f"FROM ({query})"):
        with pytest.raises(QueryRefused, match=r"DuckDB 2\.\S+ does not show .* PIVOT … ON column IN \(…\)"):
            _asked(locked, statement)


@pytest.mark.slow  # 4 s
def test_every_table_and_view_can_be_read(world: dict[str, Path]) -> None:
    with LockedLake(world["lake"]) as locked:
        for name in load_catalog().public:
            with locked.asked(f"SELECT * FROM {name} LIMIT 1") as answer:
                assert answer is not None and answer.columns and len(answer.rows()) <= 1, name


def test_the_locks_are_duckdbs_own(world: dict[str, Path]) -> None:
    """Even if our own refusals are bypassed, DuckDB refuses files outside the lake and changes of its configuration."""
    with LockedLake(world["lake"]) as locked:
        for query in REFUSED:
            if any(
                word in query
                for word in ("SET enable", "read_csv('{out}", "READ_TEXT", "INSTALL", "TO '{out}", "{out}/new.db")
            ):
                for statement in query.format(**world, newline="\n").split(";"):
                    if statement.strip().startswith("SELECT 1"):
                        continue
                    with pytest.raises(duckdb.Error):
                        locked.con.execute(statement).fetchall()
        with pytest.raises(duckdb.Error, match="locked"):
            locked.con.execute("SET lock_configuration = false")
    assert sorted(os.listdir(world["out"])) == ["canary.csv"]


def test_allow_files_opens_it(world: dict[str, Path], tmp_path: Path) -> None:
    assert _ask(world, f"FROM '{world['out']}/canary.csv'", allow_files=True) == [("canary",)]
    assert _ask(world, f"COPY (SELECT 1 AS a) TO '{tmp_path}/a.csv'; SELECT 2", allow_files=True) == [(2,)]
    assert (tmp_path / "a.csv").read_text() == "a\n1\n"
    with pytest.raises(duckdb.Error, match="read-only"):
        _ask(world, "DELETE FROM traces", allow_files=True)


@pytest.mark.slow  # 3 s; test_publish.py has tests of links
def test_a_lake_behind_a_link_and_a_table_on_another_disk_are_read(world: dict[str, Path], tmp_path: Path) -> None:
    os.symlink(world["lake"], tmp_path / "lake")
    assert _ask({**world, "lake": tmp_path / "lake"}, "SELECT count(*) > 0 FROM kernels") == [(True,)]
    lake = Lake(tmp_path / "own")
    ingest(capture(tmp_path / "in"), lake)
    os.rename(lake.root / "events", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", lake.root / "events")
    publish(lake)
    assert _ask({"lake": lake.root}, "SELECT count(*) > 0 FROM events") == [(True,)]


def test_limits_are_told(world: dict[str, Path]) -> None:
    with LockedLake(world["lake"], Limits(seconds=0.3)) as locked:
        with pytest.raises(LimitReached, match=r"stopped after 0\.3 s.*--timeout"):
            _asked(locked, "SELECT count(*) FROM range(1000000000000) AS t(i) WHERE hash(i) = 1")
        assert _asked(locked, "SELECT 1") == [(1,)]  # the connection still works
    with LockedLake(world["lake"], Limits(rows=10)) as locked:
        assert len(_asked(locked, "FROM range(10)")) == 10
        with pytest.raises(LimitReached, match="more than 10 rows"):
            _asked(locked, "FROM range(11)")
        with pytest.raises(LimitReached, match="more than 10 rows"), locked.asked("FROM range(11)") as answer:
            assert answer
            answer.arrow()
        with locked.asked("FROM range(10)") as answer:
            assert answer and answer.arrow().num_rows == 10
        for first in (5, 10, 11):
            with locked.asked("FROM range(10)") as answer:
                assert answer and len(answer.rows(first)) == min(first, 10)
            with pytest.raises(LimitReached, match="more than 10 rows"), locked.asked("FROM range(11)") as answer:
                assert answer
                answer.rows(first)
    big = "SELECT * FROM range(20000000) AS t(i) ORDER BY hash(i)"
    with pytest.raises(LimitReached, match="5MB of disk"):
        _ask(world, big, limits=Limits(memory="60MB", spill="5MB"))
    with pytest.raises(ValueError, match="is not a size"):
        LockedLake(world["lake"], Limits(memory="much"))


def test_ibis_tables_may_be_locked(world: dict[str, Path]) -> None:
    backend = open_tables(world["lake"], "kernels", locked=True)
    try:
        assert backend.table("kernels").count().to_pyarrow().as_py() > 0
        with pytest.raises(duckdb.Error):
            backend.raw_sql(f"SELECT * FROM '{world['out']}/canary.csv'")
        with pytest.raises(duckdb.Error):
            backend.raw_sql("SET enable_external_access = true")
    finally:
        backend.disconnect()


def test_a_query_is_stopped_from_another_thread(world: dict[str, Path]) -> None:
    forever = "SELECT count(*) FROM range(10000000000) a, range(1000000) b WHERE a.range % 7 = b.range % 11"
    with LockedLake(world["lake"]) as locked:
        threading.Timer(0.3, locked.stop).start()
        with pytest.raises(QueryStopped):
            _asked(locked, forever)
        with pytest.raises(QueryStopped):
            _asked(locked, forever)  # every later query is stopped, too


@pytest.mark.slow
def test_the_query_after_one_that_was_stopped_is_answered(world: dict[str, Path]) -> None:
    """A late interrupt of the previous query does not stop the next one."""

    class Late:
        def __init__(self, con: Any) -> None:
            self.con = con

        def interrupt(self) -> None:
            self.con.interrupt()
            time.sleep(0.2)
            self.con.interrupt()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.con, name)

    long = "SELECT count(*) FROM range({}) WHERE hash(range) % 7 = 8"
    with LockedLake(world["lake"], Limits(seconds=0.1)) as locked:
        locked.con = Late(locked.con)  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(LimitReached):
            _asked(locked, long.format(10**12))
        locked.limits = Limits(seconds=60)
        assert _asked(locked, long.format(10**8)) == [(0,)]


def test_arrow_in_parts_has_the_same_errors(world: dict[str, Path]) -> None:
    def read(locked: LockedLake, query: str) -> int:
        with locked.asked(query) as answer:
            assert answer is not None
            return sum(batch.num_rows for batch in answer.arrow_parts(1000))

    endless = "SELECT range FROM range(100000000000)"
    with LockedLake(world["lake"], Limits(seconds=0.3)) as locked:
        assert read(locked, "SELECT range FROM range(2500)") == 2500
        with pytest.raises(LimitReached, match=r"stopped after 0\.3 s"):
            read(locked, endless)
        with pytest.raises(duckdb.Error, match="late"):
            read(locked, "SELECT CASE WHEN range = 200000 THEN error('late') END FROM range(300000)")
    with LockedLake(world["lake"]) as locked:
        threading.Timer(0.3, locked.stop).start()
        with pytest.raises(QueryStopped):
            read(locked, endless)
