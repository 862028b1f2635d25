"""Asset checks declared in the models' headers (`-- check: unique(…)`), and checks of the findings in table `quality`.

The declared checks are joined into one check per group of tables. Each of these reads only the rows committed since it
last passed, because a check of every table and row would cost more than most runs.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.storage.asset_check_execution_record import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES

from assets.groups import group_of
from assets.metadata import Span, markdown_table
from assets.results import CHECKS, NOTHING_LEFT_OUT, fail_checked, left_out, result_of
from pipelines.base.foreign_text import visible
from pipelines.lake.names import CAPTURE_MARK, KEYS, MARK, REJECTS, mark_of
from pipelines.models.catalog import load_catalog
from pipelines.models.questions import rejected_files
from pipelines.models.sqltext import quoted, row
from pipelines.runs.store import Store
from pipelines.runs.store.interface import CommittedRows

UNIQUE = "unique_keys"
_UNIQUE = re.compile(r"^unique\((.+)\)$")
_NAMED = 10  # rejected files that get an entry of type path, which the UI lets the user copy
_UNTIL, _DAYS, _LAKE = "read until", "days", "lake"
# Placeholders of queries. They are replaced as text, because a bound parameter makes DuckDB import pandas (0.3 s).
_ROWS, _CAPTURES, _HIDDEN = "{rows}", "{captures}", "{hidden}"
_FINDINGS = """
    SELECT check_name, severity, count(DISTINCT trace_id) AS traces, sum(n) AS n, min(detail) AS example
    FROM {rows} WHERE severity = '{severity}' AND trace_id NOT IN {hidden} GROUP BY ALL ORDER BY n DESC
"""
_OF_CAPTURES = """
    SELECT check_name, severity, count(DISTINCT capture_id) AS captures, sum(n) AS n, min(detail) AS example
    FROM {rows} SEMI JOIN (FROM {captures} QUALIFY batch_id = max(batch_id) OVER (PARTITION BY capture_id)) AS newest
        USING (capture_id, batch_id)
    WHERE severity = '{severity}' GROUP BY ALL ORDER BY n DESC
"""
_LONE = "SELECT path, rank FROM execution_trace_matches WHERE trace_id IS NULL ORDER BY path"
_REJECTED = f"SELECT DISTINCT path, seen_at FROM {_ROWS}"


Evaluate = Callable[[CommittedRows, Span, Store], dg.AssetCheckResult]


def unique_columns(check: str) -> list[str]:
    """Return the columns of `unique(a, b)`. Raise ValueError for any other kind of check."""
    match = _UNIQUE.match(check)
    if not match:
        raise ValueError(f"unknown check {check!r}: write `-- check: unique(column, column)`")
    return [column.strip() for column in match[1].split(",")]


@dataclass(frozen=True)
class Keys:
    """Declared keys of a group's tables, as (table, its key columns). The check belongs to the first table."""

    group: str
    of: list[tuple[str, list[str]]]

    @property
    def spec(self) -> dg.AssetCheckSpec:
        """Return the spec of the group's check."""
        first_table, *other_tables = dict.fromkeys(table for table, _ in self.of)
        keys_text = "; ".join(f"`{table}` ({', '.join(columns)})" for table, columns in self.of)
        description = f"In group {self.group}, no two rows of a batch have the same key: {keys_text}."
        return dg.AssetCheckSpec(UNIQUE, asset=first_table, description=description, additional_deps=other_tables)

    def evaluate(self, rows: CommittedRows, span: Span, last: dg.AssetCheckEvaluation | None) -> dg.AssetCheckResult:
        """Check the rows committed since the check last passed for the same days, and all rows of the marker tables.

        A trace that was ingested twice is in two batches, so a check of new rows alone would miss it. The marker tables
        are small.
        """
        days = ", ".join(sorted(span.days))
        passed = {name: value.value for name, value in last.metadata.items()} if last and last.passed else {}
        # The last evaluation may be of another lake, whose commits are numbered independently.
        is_same = (passed.get(_DAYS), passed.get(_LAKE)) == (days, rows.address)
        since: Any = passed[_UNTIL] if is_same else ""
        n_files: list[int | None] = []
        duplicates = list[tuple[str, str, str, int]]()
        for table, columns in self.of:
            if committed := rows.of(table, span, "" if table in KEYS else since):
                n_files.append(committed.n_files)
                names = ", ".join(f'"{column}"' for column in columns)
                query = f"SELECT {names}, count(*) AS n FROM {committed.sql} GROUP BY ALL HAVING n > 1 LIMIT 20"
                repeated = rows.con.execute(query).fetchall()
                duplicates += [(table, ", ".join(columns), ", ".join(map(str, key)), n) for *key, n in repeated]
        n_tables = len({table for table, _ in self.of})
        metadata: dict[str, Any] = {"tables": n_tables, _DAYS: days, _LAKE: rows.address, _UNTIL: rows.until}
        if None not in n_files:
            metadata["files"] = sum(n or 0 for n in n_files)
        if duplicates:
            table_of_keys = markdown_table(["table", "key", "value", "rows"], duplicates, width=400)
            metadata["found"] = dg.MetadataValue.md(table_of_keys)
        return dg.AssetCheckResult(passed=not duplicates, metadata=metadata)


def unique_keys() -> list[Keys]:
    """Return the declared keys of the stored tables, by group."""
    groups: dict[str, Keys] = {}
    for name, model in load_catalog().models.items():
        if model.private or model.kind == "view":
            continue  # a view has no files
        for check in model.checks:
            # A capture that grew during the day is in several batches. Only the newest counts, so batch_id is part of
            # the key.
            columns = unique_columns(check) + (["batch_id"] if mark_of(name) == CAPTURE_MARK else [])
            group = group_of(model)
            groups.setdefault(group, Keys(group, [])).of.append((name, columns))
    return list(groups.values())


def _no_findings(query: str, table: str, severity: str, shown_as: dg.AssetCheckSeverity, unit: str) -> Evaluate:
    def evaluate(rows: CommittedRows, span: Span, store: Store) -> dg.AssetCheckResult:
        of_severity = query.replace("{severity}", severity)
        findings = _fetch(rows, table, span, of_severity.replace(_HIDDEN, row([""])))
        if findings and _HIDDEN in query:  # only then, because the query for hidden traces reads the whole lake
            traces = f"SELECT DISTINCT trace_id FROM {_ROWS} WHERE severity = {quoted(severity)}"
            hidden = _hidden(store, {trace for (trace,) in _fetch(rows, table, span, traces)})
            findings = _fetch(rows, table, span, of_severity.replace(_HIDDEN, row(["", *sorted(hidden)])))
        listed = dg.MetadataValue.md(markdown_table(["check", "severity", unit, "n", "example"], findings))
        return dg.AssetCheckResult(
            passed=not findings,
            severity=shown_as,
            metadata={"kinds": len(findings), **({"found": listed} if findings else {})},
        )

    return evaluate


def _hidden(store: Store, trace_ids: set[str]) -> set[str]:
    """Return which of these traces no table shows, for example because a better trace superseded them."""
    with store.look([MARK]) as con:
        shown = con.execute(f"SELECT trace_id FROM {MARK} WHERE trace_id IN {row(sorted(trace_ids))}").fetchall()
    return trace_ids - {trace for (trace,) in shown}


def _nothing_rejected(rows: CommittedRows, span: Span, store: Store) -> dg.AssetCheckResult:
    rejects = []
    if of_span := set(_fetch(rows, REJECTS, span, _REJECTED)):
        with store.look([REJECTS, MARK]) as con:
            still_rejected = con.execute(
                f"SELECT path, byte_offset, reason, seen_at FROM {rejected_files(con)}"
            ).fetchall()
        rejects = [(*reject, reason) for *reject, reason, seen_at in still_rejected if (reject[0], seen_at) in of_span]
    table = dg.MetadataValue.md(markdown_table(["path", "byte offset", "reason"], rejects[:50], width=4000))
    path_entries = {f"file {number}": dg.MetadataValue.path(row[0]) for number, row in enumerate(rejects[:_NAMED], 1)}
    return dg.AssetCheckResult(
        passed=not rejects,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{len(rejects)} files were rejected, the newest: {visible(rejects[0][0])}" if rejects else None,
        metadata={"rejected": len(rejects), **({"files": table} if rejects else {}), **path_entries},
    )


BESIDE = dg.AssetCheckSpec(
    "beside_a_profiler_trace",
    asset="execution_traces",
    description="Each execution trace of the lake belongs to a profiler trace; `execution_trace_matches` records which.",
)


def _beside_a_profiler_trace(store: Store, rows: CommittedRows) -> dg.AssetCheckResult:
    """Return the result of the check that each execution trace of the lake belongs to a profiler trace.

    The check covers the whole lake, because either trace of a pair may be ingested first. An execution trace without
    its profiler trace is only a warning, because the profiler trace may still be ingested.
    """
    lone = []
    if rows.of("execution_traces", Span(frozenset(), "")):
        with store.analyst() as con:
            lone = con.execute(_LONE).fetchall()
    table = dg.MetadataValue.md(markdown_table(["path", "rank in its name"], lone[:50], width=4000))
    return dg.AssetCheckResult(
        passed=not lone,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{len(lone)} execution traces have no profiler trace of their rank in their folder"
        if lone
        else None,
        metadata={"lone": len(lone), **({"files": table} if lone else {})},
    )


def _fetch(rows: CommittedRows, table: str, span: Span, query: str) -> list[tuple]:
    committed = rows.of(table, span)
    if _CAPTURES in query and (captures := rows.of(CAPTURE_MARK, span)):
        query = query.replace(_CAPTURES, captures.sql)
    return rows.con.execute(query.replace(_ROWS, committed.sql)).fetchall() if committed else []


def findings_checks() -> list[tuple[dg.AssetCheckSpec, Evaluate]]:
    """Return the checks of findings in traces and captures and of rejected files, each with its evaluation."""
    spec_and_evaluation = []
    for severity, shown_as in (("error", dg.AssetCheckSeverity.ERROR), ("warning", dg.AssetCheckSeverity.WARN)):
        description = f"`quality` has no row of severity {severity}."
        spec = dg.AssetCheckSpec(f"no_{severity}", asset="quality", description=description)
        spec_and_evaluation.append((spec, _no_findings(_FINDINGS, "quality", severity, shown_as, "traces")))
    description = (
        "`capture_quality` has no row of severity warning: every file was used, every lane and clock is valid."
    )
    spec = dg.AssetCheckSpec("no_warning", asset="capture_quality", description=description)
    evaluate = _no_findings(_OF_CAPTURES, "capture_quality", "warning", dg.AssetCheckSeverity.WARN, "captures")
    spec_and_evaluation.append((spec, evaluate))
    description = "Every file of the day was ingested, then or since."
    spec = dg.AssetCheckSpec("nothing_rejected", asset="rejects", description=description)
    spec_and_evaluation.append((spec, _nothing_rejected))
    return spec_and_evaluation


@dg.multi_asset_check(
    name=CHECKS,
    specs=[*(keys.spec for keys in unique_keys()), *(spec for spec, _ in findings_checks()), BESIDE, NOTHING_LEFT_OUT],
    can_subset=True,
)
def checks(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Store]) -> Iterator[dg.AssetCheckResult]:
    """Evaluate the selected checks on the rows of the run, and fail the run if a trace is missing from a table."""
    span, chosen = Span.of(context), context.selected_asset_check_keys
    with store.rows() as rows:
        for keys in unique_keys():
            if keys.spec.key in chosen:
                result = keys.evaluate(rows, span, last_evaluation(context.instance, keys.spec.key))
                yield result._replace(asset_key=keys.spec.asset_key, check_name=UNIQUE)
        for spec, evaluate in findings_checks():
            if spec.key in chosen:
                yield evaluate(rows, span, store)._replace(asset_key=spec.asset_key, check_name=spec.name)
        if BESIDE.key in chosen:
            result = _beside_a_profiler_trace(store, rows)
            yield result._replace(asset_key=BESIDE.asset_key, check_name=BESIDE.name)
    if NOTHING_LEFT_OUT.key in chosen:
        missing = left_out(store.address, span)
        yield result_of(missing)
        fail_checked(context, missing, store.address)


def last_evaluation(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    """Return the check's last evaluation, or None if it never ran."""
    completed = COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=1, status=completed)
    return records[0].evaluation if records else None
