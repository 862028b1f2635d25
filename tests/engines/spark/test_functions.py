"""Each function that a query may call on Spark, called on both engines."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from pipelines.engines.spark.rules import carried_over
from pipelines.engines.spark.same_functions import ALIKE, unlike

ROWS = """
    SELECT CAST(k AS BIGINT) AS k, CAST(a AS BIGINT) AS a, CAST(f AS DOUBLE) AS f, s, CAST(t AS TIMESTAMP) AS t,
        CAST(b AS BOOLEAN) AS b
    FROM (VALUES
        (1, 5, 2.5, ' Ab/c ', '2024-03-01 12:34:56.789', true), (2, -7, 3.5, 'xax/y/z', '1999-12-31 23:59:59', false),
        (3, NULL, NULL, NULL, NULL, NULL), (4, 0, -0.5, '', '2024-03-01 00:00:00', true),
        (5, 9007199254740993, 1e10, '{"x y": "v", "n": 12}', '2024-03-02 00:00:00', NULL), (6, 5, 2.5, 'é_%', NULL, false)
    ) AS v (k, a, f, s, t, b)
"""
# Every name in ALIKE is in one of these tuples.
ROW_BY_ROW = (
    *("a + 1", "a - 1", "a * 2", "f / 2", "a / 4", "a // 2", "a % 3", "a % 0", "a // 0", "-7 // 2", "s || 'x'"),
    *("s LIKE 'x%'", "s NOT LIKE '%_%'", "s ILIKE 'X%'", "s NOT ILIKE 'X%'", r"s LIKE '%\_%'"),
    *("abs(a)", "round(f)", "round(f, 1)", "floor(f)", "ceil(f)", "ceiling(f)", "sign(a)"),
    *("greatest(a, 3)", "least(f, 1.5)", "nullif(a, 5)", "coalesce(a, 1)", "ifnull(a, 2)"),
    *("sqrt(abs(f))", "ln(abs(f))", "exp(f / 1e10)", "pow(f, 2)", "power(f, 2)", "f ** 2", "f ^ 2"),
    *("lower(s)", "upper(s)", "length(s)", "trim(s)", "ltrim(s)", "rtrim(s)", "rtrim(s, 'z/')", "trim(s, ' {')"),
    *(
        "replace(s, 'a', 'b')",
        "substr(s, 2)",
        "substring(s, 2, 3)",
        "reverse(s)",
        "concat(s, 'x', NULL)",
        "concat_ws(':', s, NULL, 1)",
    ),
    *(
        "contains(s, 'a')",
        "starts_with(s, 'x')",
        "ends_with(s, 'z')",
    ),
    *("split_part(s, '/', 1)", "split_part(s, '/', 9)", "split_part(s, '/', -1)"),
    *("regexp_extract(s, '[a-z]')", "regexp_extract(s, '(a)(.)', 2)", "regexp_matches(s, '^x')"),
    *(
        "regexp_replace(s, '[a-z]', '-', 'g')",
        "regexp_replace(s, '.$', '')",
        "CASE k WHEN 5 THEN s ->> '$.\"x y\"' END",
        "CASE k WHEN 5 THEN s ->> '$.n' END",
    ),
    *(
        "CASE k WHEN 5 THEN json_extract_string(s, '$.n') END",
        "date_part('hour', t)",
        "date_trunc('day', t)",
        "epoch(t)",
    ),
    *(f"date_part('{unit}', t)" for unit in ("year", "quarter", "month", "week", "day", "doy", "minute")),
    *(f"date_trunc('{unit}', t)" for unit in ("year", "quarter", "month", "week", "hour", "minute", "second")),
    *("date_trunc('millisecond', t)", "date_trunc('microsecond', t)", "f // 2", "f // 0", "CAST(abs(f) AS BIGINT)"),
    *("CAST(f % 10 AS BIGINT)", "round(abs(f), 1)", "CAST((SELECT max(f) FROM v WHERE k = 2) AS BIGINT)"),
    *("extract(EPOCH FROM t)", "CAST(f AS BIGINT)", "CAST(a / 2 AS BIGINT)", "CAST(1.5 * k AS INTEGER)", "0.1 * k / 3"),
    *("CAST(a AS VARCHAR)", "TRY_CAST(s AS BIGINT)", "CAST(b AS VARCHAR)", "CAST(k AS HUGEINT) * 10000000000000000000"),
    *("a IS NOT DISTINCT FROM NULL", "CASE WHEN b THEN 'y' ELSE 'n' END", "a IN (5, 0)", "f BETWEEN 0 AND 3"),
)
OF_ALL = (
    *("count(a)", "count(*)", "count(DISTINCT a)", "sum(a)", "sum(f)", "avg(a)", "min(s)", "max(s)", "median(f)"),
    *("median(k)", "any_value(5)", "bool_and(b)", "bool_or(b)", "sum(a) FILTER (WHERE b)"),
    *("stddev(f)", "stddev_samp(k)", "stddev_pop(k)", "CAST(stddev(k) AS BIGINT)", "CAST(variance(k) AS BIGINT)"),
    *("variance(k)", "var_samp(k)", "string_agg(s, ',' ORDER BY k)"),
)
BESIDE = (
    *("row_number() OVER w", "rank() OVER (ORDER BY a DESC)", "dense_rank() OVER (ORDER BY a)", "lag(a) OVER w"),
    *("lead(a, 2, 7) OVER w", "first_value(s) OVER w", "last_value(f IGNORE NULLS) OVER (w ROWS UNBOUNDED PRECEDING)"),
    *(
        "ntile(2) OVER w",
        "percent_rank() OVER w",
        "CAST(percent_rank() OVER w * 10 AS BIGINT)",
        "sum(a) OVER (PARTITION BY b ORDER BY k)",
    ),
)


@pytest.fixture(scope="module")
def con() -> Any:
    with duckdb.connect() as made:
        made.execute(f"SET TimeZone = 'UTC'; CREATE TABLE v AS {ROWS}")
        yield made


def queries() -> list[str]:
    """Return few queries with many calls each, because a query takes a second on Spark."""
    listed = ", ".join(f"{called} AS c{at}" for at, called in enumerate(ROW_BY_ROW))
    beside = ", ".join(f"{called} AS c{at}" for at, called in enumerate(BESIDE))
    of_all = ", ".join(f"{called} AS c{at}" for at, called in enumerate(OF_ALL))
    return [
        f"SELECT {listed} FROM v ORDER BY k",
        f"SELECT {of_all} FROM v",
        f"SELECT b, {of_all} FROM v GROUP BY b ORDER BY b NULLS FIRST",
        f"SELECT {beside} FROM v WINDOW w AS (ORDER BY k) ORDER BY k",
        "SELECT s, f FROM v ORDER BY f DESC, s",
        "SELECT a, count(*) AS n FROM v GROUP BY ALL ORDER BY ALL",
        r"SELECT '\' AS q, 'it''s \n' AS r, '${user}' AS u FROM v LIMIT 1",
    ]


def test_every_function_is_called(con: Any) -> None:
    called = " ".join(queries())
    for name in ALIKE - {"count_star", "!~~", "~~", "~~*", "!~~*"}:
        assert name in called
    assert [reason for query in queries() if (reason := unlike(con, query))] == []


@pytest.mark.spark
@pytest.mark.slow(together="spark")
def test_functions_give_the_same_on_both_engines(spark: Any, con: Any) -> None:
    frame = spark._session.createDataFrame(con.table("v").to_arrow_table())
    frame.createOrReplaceTempView("v")
    different = []
    for query in queries():
        expected = con.sql(query)
        text = carried_over(query, ["f"])
        rows = spark.raw_sql(spark.compile(spark.sql(text, dialect="duckdb"))).toArrow()
        casts = ", ".join(
            f'CAST("{name}" AS {kind})' for name, kind in zip(expected.columns, expected.types, strict=True)
        )
        answer = con.from_arrow(rows).project(casts).fetchall()
        for want, have in zip(expected.fetchall(), answer, strict=True):
            pairs = zip(expected.columns, want, have, strict=True)
            different += [(query[:30], name, left, right) for name, left, right in pairs if not _alike(left, right)]
    assert different == []


def _alike(left: Any, right: Any) -> bool:
    return left == (pytest.approx(right, rel=1e-12) if isinstance(left, float) else right)
