"""Asset checks on a DuckLake, the same as on a folder. A key check covers the batches added since it last passed."""

from collections.abc import Iterator

import dagster as dg
import duckdb

from assets.checks import (
    BESIDE,
    UNIQUE,
    Stored,
    beside_a_profiler_trace,
    findings_checks,
    last_evaluation,
    passed_until,
    twice_result,
    unique_keys,
)
from assets.metadata import Span
from assets.regressions import judged
from assets.results import CHECKS, NOTHING_LEFT_OUT, fail_checked, left_out, result_of
from pipelines.lake.names import KEYS, RUN_MARK, mark_of
from pipelines.models.sqltext import quoted, row
from pipelines.runs.store import open_store
from pipelines.runs.store.ducklake.attach import LAKE
from pipelines.runs.store.ducklake.schema import lake_columns


def checks_of(address: str) -> list[dg.AssetChecksDefinition]:
    """Return the checks of the lake at an address."""

    of_keys = [keys for keys in unique_keys() if mark_of(keys.of[0][0]) != RUN_MARK]

    @dg.multi_asset_check(
        name=CHECKS,
        specs=[*(keys.spec for keys in of_keys), *(spec for spec, _ in findings_checks()), BESIDE, NOTHING_LEFT_OUT],
        can_subset=True,
    )
    def checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        """Evaluate the selected checks; fail the run where a table lacks a trace."""
        chosen, span = context.selected_asset_check_keys, Span.of(context)
        days = span.days
        with open_store(address).connect(locked=False) as con:
            tables = lake_columns(con)
            for keys in of_keys:
                if keys.spec.key in chosen:
                    since = passed_until(last_evaluation(context.instance, keys.spec.key), address)
                    present = [(table, columns) for table, columns in keys.of if table in tables]
                    duplicates = [
                        duplicate for table, columns in present for duplicate in _twice(con, table, columns, since)
                    ]
                    metadata = {
                        "tables": len({table for table, _ in present}),
                        "days": address,
                        "read until": _newest(con, present),
                    }
                    result = twice_result(duplicates, metadata)
                    yield result._replace(asset_key=keys.spec.asset_key, check_name=UNIQUE)
            for spec, evaluate in findings_checks():
                if spec.key in chosen:
                    table = spec.asset_key.to_user_string()
                    result = evaluate(Stored(con, _of_days(table, days)) if table in tables else [])
                    yield result._replace(asset_key=spec.asset_key, check_name=spec.name)
            if BESIDE.key in chosen:
                result = beside_a_profiler_trace(con if "execution_traces" in tables else None)
                yield result._replace(asset_key=BESIDE.asset_key, check_name=BESIDE.name)
        if NOTHING_LEFT_OUT.key in chosen:
            missing = left_out(address, span)
            yield result_of(missing)
            fail_checked(context, missing, address)

    @dg.asset_check(asset="capture_metrics", name="no_regression")
    def no_regression() -> dg.AssetCheckResult:
        """In a job's last five captures, no metric is worse than in the earlier ones by more than the noise."""
        with open_store(address).connect(locked=False) as con:
            return judged(con)

    return [checks, no_regression]


def _twice(con: duckdb.DuckDBPyConnection, table: str, columns: list[str], since: str) -> Iterator[tuple]:
    columns_sql = ", ".join(f'"{column}"' for column in columns)
    filter_sql = "" if table in KEYS else f" WHERE batch_id > {quoted(since)}"
    query = (
        f"SELECT {columns_sql}, count(*) AS n FROM {LAKE}.main.{table}{filter_sql} GROUP BY ALL HAVING n > 1 LIMIT 20"
    )
    for *key, n in con.execute(query).fetchall():
        yield table, ", ".join(columns), ", ".join(map(str, key)), n


def _newest(con: duckdb.DuckDBPyConnection, tables: list[tuple[str, list[str]]]) -> str:
    """Return the newest batch of these tables."""
    newest_batches = [
        con.execute(f"SELECT max(batch_id) FROM {LAKE}.main.{table}").fetchall()[0][0] for table, _ in tables
    ]
    return max((name for name in newest_batches if name), default="")


def _of_days(table: str, days: frozenset[str]) -> str:
    """Return a subquery of the rows ingested on these days, or of all rows if `days` is empty."""
    filter_sql = (
        f" WHERE substr(batch_id, 1, 8) IN {row([day.replace('-', '') for day in sorted(days)])}" if days else ""
    )
    return f"(FROM {LAKE}.main.{table}{filter_sql})"
