"""`tracelake sql --engine spark`, which returns DuckDB's answer from committed batches, and reads only tables."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.engines.spark.query import Asker, answer_on_spark, spark_size
from pipelines.engines.spark.tables import NotOnSpark, Tables
from pipelines.lake import Lake
from pipelines.lake.commit.batch_rows import merged_away
from pipelines.lake.commit.catalog_file import writing
from pipelines.lake.names import table_file
from pipelines.lake.read.sandbox import LimitReached, Limits, LockedLake, QueryRefused
from pipelines.models.catalog import load_catalog
from pipelines.models.questions import load_questions

pytestmark = [pytest.mark.spark, pytest.mark.slow(together="spark")]
QUERIES = (
    "SELECT class, count(*), sum(duration_ns) AS ns, CAST(avg(duration_ns) AS BIGINT) AS mean FROM kernels GROUP BY class ORDER BY 1",
    "SELECT * FROM captures ORDER BY capture_id",
    "SELECT trace_id, capture_id, rank, ingested_at FROM traces ORDER BY trace_id",
    "SELECT capture_id, count(*) AS n, sum(wait_ns) AS w FROM collective_ranks GROUP BY 1 ORDER BY 1",
    "SELECT * FROM schedule_periods ORDER BY ALL",
    "WITH e AS (SELECT cat, duration_ns FROM events WHERE name LIKE '%gemm%') SELECT cat, max(duration_ns) FROM e GROUP BY cat ORDER BY 1",
)
COMPUTED = ("rank_steps", "straggler_ranks", "gpu_time_by_cause", "capture_metrics", "capture_roles", "step_exposure")


def both(spark: Any, lake: Lake, query: str, computed: tuple[str, ...] = ()) -> tuple[Any, Any]:
    """Return (columns, types, rows) of DuckDB and of Spark."""
    answers = []
    with LockedLake(lake) as locked:
        for asked in (locked.asked(query), answer_on_spark(Tables(spark, locked.con, lake, computed), locked, query)):
            with asked as answer:
                assert answer is not None
                answers.append((answer.columns, answer.types, answer.rows()))
    return answers[0], answers[1]


@pytest.mark.parametrize("query", QUERIES)
def test_answers_are_duckdbs(spark: Any, everything: Lake, query: str) -> None:
    duck, other = both(spark, everything, query)
    assert duck[2] and other == duck


@pytest.mark.parametrize("name", load_questions())
def test_a_saved_question_has_the_same_answer(spark: Any, everything: Lake, name: str) -> None:
    duck, other = both(spark, everything, load_questions()[name].asked(0))
    assert duck[:2] == other[:2] and len(duck[2]) == len(other[2])
    for row, same in zip(sorted(duck[2], key=str), sorted(other[2], key=str), strict=True):
        assert same == tuple(pytest.approx(value, rel=1e-9) if isinstance(value, float) else value for value in row)


def test_tables_of_captures_are_computed_as_they_are_stored(spark: Any, everything: Lake) -> None:
    for table in COMPUTED:
        columns = ", ".join(f'"{column.name}"' for column in load_catalog().models[table].columns)
        duck, other = both(spark, everything, f"SELECT {columns} FROM {table} ORDER BY ALL", COMPUTED)
        assert duck[2] and len(duck[2]) == len(other[2]), table
        for row, same in zip(duck[2], other[2], strict=True):
            near = tuple(pytest.approx(value, rel=1e-9) if isinstance(value, float) else value for value in row)
            assert same == near, table


def test_only_committed_batches_are_read(spark: Any, everything: Lake, tmp_path: Path) -> None:
    """A file without its commit marker and a file of a hidden batch are in the folders, but in no answer."""
    lake = Lake(tmp_path / "lake")
    shutil.copytree(everything.root, lake.root)
    first, *_, last = sorted(lake.batches(), key=lambda batch: batch.batch_id)
    there = table_file(lake.root, "events", last)
    shutil.copy(there, there.with_name(f"{last.batch_id[:-8]}00000000.parquet"))
    with writing(lake.root) as catalog:
        catalog.notice(first.batch_id, merged_away("another"))
    duck, other = both(spark, lake, "SELECT batch_id, count(*) AS n FROM events GROUP BY 1 ORDER BY 1")
    assert other == duck and first.batch_id not in {row[0] for row in other[2]}


def on_spark(spark: Any, lake: Lake, locked: LockedLake, query: str) -> list[tuple]:
    with answer_on_spark(Tables(spark, locked.con, lake), locked, query) as answer:
        return answer.rows()


REFUSED = {
    "DROP TABLE kernels": QueryRefused,
    "SELECT 1; SELECT 2": QueryRefused,
    "SELECT * FROM read_parquet('/etc/x')": QueryRefused,
    "SELECT * FROM '/etc/passwd'": (QueryRefused, duckdb.Error),
    'SELECT * FROM "parquet"."/tmp/x"': duckdb.Error,
    "SELECT reflect('java.lang.System', 'exit', 0) FROM traces": duckdb.Error,
    "SELECT nothing FROM traces": duckdb.Error,
    "SHOW TABLES": NotOnSpark,
    "SELECT * FROM range(3)": NotOnSpark,
    "SELECT log(n_events) FROM traces": NotOnSpark,
    "SELECT rank, rank FROM traces": NotOnSpark,
    "SELECT 1 / n FROM (SELECT 0 AS n FROM traces)": NotOnSpark,
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_is_refused(spark: Any, everything: Lake, query: str) -> None:
    with LockedLake(everything) as locked, pytest.raises(REFUSED[query]) as refused:
        on_spark(spark, everything, locked, query)
    assert "JVM" not in str(refused.value) and "py4j" not in str(refused.value).lower()


def test_limits_hold(spark: Any, everything: Lake) -> None:
    crossed = "SELECT sum(a.duration_ns * b.duration_ns % 7) AS s FROM events AS a JOIN events AS b ON a.name < b.name"
    for limits, query in ((Limits(rows=3), "SELECT * FROM traces"), (Limits(seconds=2), crossed)):
        with LockedLake(everything, limits) as locked, pytest.raises(LimitReached):
            on_spark(spark, everything, locked, query)


def test_sizes_and_what_is_read() -> None:
    assert (spark_size("4GB"), spark_size("512 MiB")) == ("4g", "512m")
    with pytest.raises(ValueError, match="write it like"):
        spark_size("much")
    read = Asker(computed=("straggler_groups",)).read_for(["straggler_groups"])
    assert {"capture_roles", "straggler_ranks"} <= set(read) and "straggler_groups" not in read
    with pytest.raises(NotOnSpark, match="made by Python"):
        Asker(computed=("collective_ranks",))


def test_the_command_prints_the_same(everything: Lake) -> None:
    """Each command runs in its own process, as a user starts it. Spark's log is not part of the answer."""
    outputs = []
    for engine in ("duckdb", "spark"):
        words = ["sql", QUERIES[0], "--lake", str(everything.root), "--engine", engine, "--master", "local[1]"]
        done = subprocess.run([sys.executable, "-m", "pipelines.faces.cli.app", *words], capture_output=True, text=True)
        outputs.append((done.returncode, done.stdout, done.stderr))
    assert outputs[0] == outputs[1] and outputs[0][0] == 0 and "COMPUTATION" in outputs[0][1]
