"""Rules that rewrite a query for Spark, each tested on a query's text. Neither Spark nor a lake is needed."""

from __future__ import annotations

import duckdb
import pytest
import sqlglot

from pipelines.engines.spark.rules import carried_over
from pipelines.engines.spark.same_functions import ONLY_SELECT, unlike
from pipelines.models.catalog import load_catalog
from pipelines.models.questions import load_questions
from tests.engines.spark.models import compared_models, text_of

# For each rule a query, and the query that Spark receives.
CARRIED = {
    "a window that inherits": (
        "SELECT sum(a) OVER (w ROWS UNBOUNDED PRECEDING), lag(a) OVER w FROM t WINDOW w AS (PARTITION BY b ORDER BY c)",
        "SELECT SUM(a) OVER (PARTITION BY b ORDER BY c NULLS LAST ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW), "
        "LAG(a) OVER (PARTITION BY b ORDER BY c NULLS LAST) FROM t",
    ),
    "a window of the same name in a subquery": (
        "SELECT x FROM (SELECT max(a) OVER w AS x FROM t WINDOW w AS (ORDER BY b)) WINDOW w AS (ORDER BY c)",
        "SELECT x FROM (SELECT MAX(a) OVER (ORDER BY b NULLS LAST) AS x FROM t)",
    ),
    "decimal literals": ("SELECT 1.5 * a, 2 * b, 3e0, '1.5' FROM t", "SELECT 1.5e0 * a, 2 * b, 3e0, '1.5' FROM t"),
    "materialized tables": (
        "WITH t AS MATERIALIZED (SELECT 1 AS a) SELECT a FROM t",
        "WITH t AS (SELECT 1 AS a) SELECT a FROM t",
    ),
    "wide integers": ("SELECT CAST(a AS HUGEINT) FROM t", "SELECT CAST(a AS DECIMAL(38, 0)) FROM t"),
    "division by zero": (
        "SELECT a % b, a // b, a % 7 FROM t",
        "SELECT a % NULLIF(b, 0), a DIV NULLIF(b, 0), a % 7 FROM t",
    ),
    "seconds of a time": (
        "SELECT epoch(a), extract(EPOCH FROM a) FROM t",
        "SELECT CAST(CAST(a AS TIMESTAMP) AS DOUBLE), CAST(CAST(a AS TIMESTAMP) AS DOUBLE) FROM t",
    ),
    "digits of a DOUBLE": (
        "SELECT round(a / 1e3, 2), round(a, 2), round(f) FROM t",
        "SELECT (ROUND((a / 1e3) * 1e2) / 1e2), ROUND(a, 2), ROUND(f) FROM t",
    ),
    "an order by an aggregate beside a window": (
        "SELECT t.a, sum(b) / sum(sum(b)) OVER () AS part FROM t GROUP BY t.a ORDER BY sum(b) DESC, t.a, 2 LIMIT 3",
        "SELECT `a`, `part` FROM (SELECT t.a, SUM(b) / SUM(SUM(b)) OVER () AS part, SUM(b) AS `_order_0` FROM t GROUP BY t.a) "
        "AS _groups ORDER BY `_order_0` DESC, `a` NULLS LAST, 2 NULLS LAST LIMIT 3",
    ),
    "a backslash in LIKE": (
        r"SELECT a LIKE 'x\_', a NOT LIKE 'x\_', a LIKE 'x!_' ESCAPE '!' FROM t",
        r"SELECT a LIKE 'x\\\\_', a NOT LIKE 'x\\\\_', a LIKE 'x!_' ESCAPE '!' FROM t",
    ),
    "casts that round": (
        "SELECT CAST(a / 2 AS BIGINT), CAST(h AS INT), CAST(ns AS BIGINT), CAST(round(f) AS BIGINT), "
        "CAST(f + 1 AS BIGINT), CAST(1.5 * a AS INT) FROM (SELECT a, ns, f, avg(a) AS h FROM t)",
        "SELECT CAST(RINT(a / 2) AS BIGINT), CAST(RINT(h) AS INT), CAST(ns AS BIGINT), CAST(ROUND(f) AS BIGINT), "
        "CAST(RINT(f + 1) AS BIGINT), CAST(ROUND(1.5e0 * a) AS INT) FROM (SELECT a, ns, f, AVG(a) AS h FROM t)",
    ),
    "casts of functions that return doubles": (
        "SELECT CAST(abs(f) AS INT), CAST(stddev(k) AS INT), CAST(var_samp(k) AS INT), CAST(f % 10 AS INT), "
        "CAST((SELECT max(f) AS m FROM t) AS INT), CAST(percent_rank() OVER (ORDER BY k) * 9 AS INT), "
        "CAST(if(b, f, 1) AS INT), CAST(abs(k) AS INT), CAST((SELECT max(k) FROM t) AS INT) FROM t",
        "SELECT CAST(RINT(ABS(f)) AS INT), CAST(RINT(STDDEV(k)) AS INT), CAST(RINT(VARIANCE(k)) AS INT), "
        "CAST(RINT(f % 10) AS INT), CAST(RINT((SELECT MAX(f) AS m FROM t)) AS INT), "
        "CAST(RINT(PERCENT_RANK() OVER (ORDER BY k NULLS LAST) * 9) AS INT), "
        "CAST(RINT(CASE WHEN b THEN f ELSE 1 END) AS INT), CAST(ABS(k) AS INT), CAST((SELECT MAX(k) FROM t) AS INT) FROM t",
    ),
    "whole divisions of a DOUBLE": (
        "SELECT f // 2, CAST(f // a AS INT), a // 2, 1.5 // a, round(abs(f), 1) FROM t",
        "SELECT (f / NULLIF(2, 0)), CAST(RINT((f / NULLIF(a, 0))) AS INT), a DIV 2, (1.5e0 / NULLIF(a, 0)), "
        "(ROUND((ABS(f)) * 1e1) / 1e1) FROM t",
    ),
}


def on_spark(query: str, doubles: tuple[str, ...] = ()) -> str:
    """Return the SQL that Ibis sends to Spark."""
    return sqlglot.transpile(carried_over(query, doubles), read="duckdb", write="spark")[0]


@pytest.mark.parametrize("rule", CARRIED)
def test_what_sqlglot_leaves_is_carried_over(rule: str) -> None:
    query, expected = CARRIED[rule]
    assert on_spark(query, doubles=("f",)) == expected
    assert sqlglot.transpile(query, read="duckdb", write="spark")[0] != expected, "sqlglot does it alone"


def test_an_order_outside_is_the_same_order() -> None:
    """The outer order is the same in a subquery, and for a column with the name of another column of the answer."""
    query = (
        "SELECT t.a + 1 AS a, sum(b) AS s, rank() OVER (ORDER BY sum(b)) AS r FROM t GROUP BY t.a "
        "ORDER BY max(b) % 3, s % 2, t.a DESC, a LIMIT 7 OFFSET 1"
    )
    rows = "WITH t AS (SELECT i % 11 AS a, i * 7 % 13 AS b FROM range(50) AS r (i))"
    with duckdb.connect() as con:
        for text in (f"{rows} {query}", f"{rows} SELECT * FROM ({query}) AS q"):
            carried = carried_over(text)
            assert "_order_" in carried
            assert con.execute(carried).fetchall() == con.execute(text).fetchall() != []


def test_a_text_ends_where_it_ends_in_duckdb() -> None:
    """In DuckDB a backslash is an ordinary character.

    In Spark it would escape the quote, and the string would continue into the SQL.
    """
    assert on_spark(r"SELECT '\' AS a, ' UNION SELECT 1 --' AS b") == r"SELECT '\\' AS a, ' UNION SELECT 1 --' AS b"


UNLIKE = {
    "log(a)": "log()",
    "quantile_cont(a, 0.5)": "quantile_cont()",
    "hash(a)": "hash()",
    "arg_max(s, a)": "arg_max()",  # NULLs are treated differently
    "count_if(a > 1)": "count_if()",
    "reflect('java.lang.System', 'exit', 0)": "reflect()",
    "regexp_replace(s, 'x', 'y')": "regexp_replace() without 'g'",
    "substr(s, 0, 2)": "substr()",
    "substr(s, a)": "substr()",
    "CAST(f AS VARCHAR)": None,
    **{f"date_part('{unit}', t)": "date_part()" for unit in ("dow", "isodow", "second", "millisecond", "era")},
    "extract(DOW FROM t)": "date_part()",
    "date_part(s, t)": "date_part()",
    **{f"date_part('{unit}', t)": None for unit in ("hour", "HOUR", "doy", "epoch")},
    "extract(MINUTE FROM t)": None,
    **{f"date_trunc('{unit}', t)": "date_trunc()" for unit in ("decade", "century", "millennium")},
    **{f"date_trunc('{unit}', t)": None for unit in ("year", "Week", "second", "microsecond")},
}


@pytest.mark.parametrize("called", UNLIKE)
def test_functions_that_may_differ_are_refused(called: str) -> None:
    with duckdb.connect() as con:
        reason = unlike(con, f"SELECT {called} FROM t")
    assert reason is None if UNLIKE[called] is None else str(reason).startswith(UNLIKE[called])


def test_samples_and_other_statements_are_refused() -> None:
    with duckdb.connect() as con:
        assert "sample" in str(unlike(con, "SELECT a FROM t USING SAMPLE 3"))
        for query in (
            "SHOW TABLES",
            "DESCRIBE t",
            "SUMMARIZE t",
            "INSERT INTO t VALUES (1)",
            "PIVOT t ON a USING sum(b)",
        ):
            assert unlike(con, query) == ONLY_SELECT
        assert "DISTINCT ON" in str(unlike(con, "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b"))


def test_models_and_questions_call_what_both_engines_compute_alike() -> None:
    """A new model with another function fails here, even without Spark. Add the function to ALIKE and its test."""
    texts = {model.name: text_of(model) for model in compared_models(load_catalog())}
    texts |= {f"ask {name}": question.asked(20) for name, question in load_questions().items()}
    with duckdb.connect() as con:
        assert {name: reason for name, text in texts.items() if (reason := unlike(con, text))} == {}


@pytest.mark.slow  # each rule is tested above
def test_the_rules_leave_nothing_to_do_twice() -> None:
    models = compared_models(load_catalog())
    assert len(models) > 50
    for model in models:
        once = carried_over(text_of(model))
        assert carried_over(once) == once, model.name
