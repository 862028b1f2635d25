"""Asset checks declared in the models' headers (`-- check: unique(…)`), and checks of the findings in table `quality`.

The declared checks are joined into one check per group of tables. It reads only the files committed since it last passed,
because a check of every table and file would cost more than most runs.
"""

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.storage.asset_check_execution_record import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES

from assets.groups import group_of
from assets.metadata import Span, markdown_table
from assets.results import CHECKS, NOTHING_LEFT_OUT, fail_checked, left_out, result_of
from pipelines.base import database
from pipelines.base.foreign_text import visible
from pipelines.lake import Lake
from pipelines.lake.commit.manifest import entries
from pipelines.lake.layout import CAPTURE_MARK, KEYS, batch_of, mark_of, table_file
from pipelines.lake.publish.analyst_file import analyst
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import file_list

UNIQUE = "unique_keys"
_UNIQUE = re.compile(r"^unique\((.+)\)$")
_NAMED = 10  # rejected files that get an entry of type path, which the UI lets the user copy
_TICK_S = 0.02  # maximum lag of a file's timestamp behind the clock
_UNTIL, _DAYS = "read until", "days"
_FILES = "{files}"  # in a query; replaced as text, because a bound parameter makes DuckDB import pandas (0.3 s)
_FINDINGS = """
    SELECT check_name, severity, count(DISTINCT trace_id) AS traces, sum(n) AS n, min(detail) AS example
    FROM {files} WHERE severity = '{severity}' GROUP BY ALL ORDER BY n DESC
"""
_OF_CAPTURES = """
    SELECT check_name, severity, count(DISTINCT capture_id) AS captures, sum(n) AS n, min(detail) AS example
    FROM (FROM {files} QUALIFY batch_id = max(batch_id) OVER (PARTITION BY capture_id)) WHERE severity = '{severity}'
    GROUP BY ALL ORDER BY n DESC
"""
_LONE = "SELECT path, rank FROM execution_trace_matches WHERE trace_id IS NULL ORDER BY path"
_REJECTED = "SELECT path, byte_offset, reason FROM {files} ORDER BY seen_at DESC"


@dataclass(frozen=True)
class Stored:
    """Rows behind a connection instead of in files. `rows` follows FROM in a query of `con`."""

    con: Any
    rows: str


Evaluate = Callable[[list[str] | Stored], dg.AssetCheckResult]


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

    def evaluate(self, lake: Lake, span: Span, last: dg.AssetCheckEvaluation | None) -> dg.AssetCheckResult:
        """Check the files committed since the check last passed for the same days. Check all files of commit markers.

        A trace that was ingested twice is in two batches. The tables of commit markers reveal it, and they are small.
        """
        until, days = time.time() - _TICK_S, ", ".join(sorted(span.days))
        last_metadata = _said(last) if last and last.passed else {}
        since = float(last_metadata[_UNTIL]) if last_metadata.get(_DAYS) == days else 0.0
        n_files, duplicates = 0, list[tuple[str, str, str, int]]()
        old = _not_written_after(lake, since)
        for table, columns in self.of:
            files = span.files(lake, table)
            if table not in KEYS:
                candidates = (file for file in files if Path(file).stem not in old)
                files = [file for file in candidates if _committed_at(lake, table, Path(file)) > since]
            n_files += len(files)
            duplicates += [
                (table, ", ".join(columns), ", ".join(map(str, row)), n) for *row, n in _twice(columns, files)
            ]
        metadata = {"tables": len({table for table, _ in self.of}), "files": n_files, _DAYS: days, _UNTIL: until}
        return twice_result(duplicates, metadata)


def twice_result(twice: list[tuple[str, str, str, int]], about: dict[str, Any]) -> dg.AssetCheckResult:
    """Return the result of a key check. `twice`: (table, its key columns, a duplicate key, number of rows with that key)."""
    duplicates = {"found": dg.MetadataValue.md(markdown_table(["table", "key", "value", "rows"], twice, width=400))}
    return dg.AssetCheckResult(passed=not twice, metadata={**about, **(duplicates if twice else {})})


def passed_until(last: dg.AssetCheckEvaluation | None, days: str) -> str:
    """Return the newest batch that a key check covered when it last passed for the same `days`, or '' if there is none."""
    last_metadata = _said(last) if last and last.passed else {}
    return str(last_metadata[_UNTIL]) if last_metadata.get(_DAYS) == days else ""


def _not_written_after(lake: Lake, since: float) -> set[str]:
    """Return the batches without a file written after `since` (seconds since 1970), according to the catalog.

    This avoids a stat of every file of a day.
    """
    logs = entries(lake.root).items() if lake.exists else ()
    return {name for name, entry in logs if entry.is_plain and entry.written_at_ns < since * 1e9}


def _committed_at(lake: Lake, table: str, file: Path) -> float:
    """Return when a file and its batch's commit marker were both in place (ctime, seconds since 1970). Writing ended earlier."""
    marker = table_file(lake.root, mark_of(table), batch_of(file))
    return max(path.stat().st_ctime for path in (file, marker) if path.exists())


def _twice(columns: list[str], files: list[str]) -> list[tuple]:
    columns_sql = ", ".join(f'"{column}"' for column in columns)
    return _fetch(f"SELECT {columns_sql}, count(*) AS n FROM {_FILES} GROUP BY ALL HAVING n > 1 LIMIT 20", files)


def _said(evaluation: dg.AssetCheckEvaluation) -> dict[str, Any]:
    return {name: value.value for name, value in evaluation.metadata.items()}


def unique_keys() -> list[Keys]:
    """Return the declared keys of the stored tables, by group."""
    groups: dict[str, Keys] = {}
    for name, model in load_catalog().models.items():
        if model.private or model.kind == "view":
            continue  # a view has no files
        for check in model.checks:
            # A capture that grew during the day is in several batches, of which the newest counts, so batch_id is part of the key.
            columns = unique_columns(check) + (["batch_id"] if mark_of(name) == CAPTURE_MARK else [])
            group = group_of(model)
            groups.setdefault(group, Keys(group, [])).of.append((name, columns))
    return list(groups.values())


def _no_findings(severity: str, shown_as: dg.AssetCheckSeverity, unit: str = "traces") -> Evaluate:
    def evaluate(files: list[str] | Stored) -> dg.AssetCheckResult:
        rows = _fetch(_FINDINGS if unit == "traces" else _OF_CAPTURES, files, severity)
        table = dg.MetadataValue.md(markdown_table(["check", "severity", unit, "n", "example"], rows))
        return dg.AssetCheckResult(
            passed=not rows, severity=shown_as, metadata={"kinds": len(rows), **({"found": table} if rows else {})}
        )

    return evaluate


def _nothing_rejected(files: list[str] | Stored) -> dg.AssetCheckResult:
    rows = _fetch(_REJECTED, files)
    table = dg.MetadataValue.md(markdown_table(["path", "byte offset", "reason"], rows[:50], width=4000))
    path_entries = {f"file {number}": dg.MetadataValue.path(row[0]) for number, row in enumerate(rows[:_NAMED], 1)}
    return dg.AssetCheckResult(
        passed=not rows,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{len(rows)} files were rejected, the newest: {visible(rows[0][0])}" if rows else None,
        metadata={"rejected": len(rows), **({"files": table} if rows else {}), **path_entries},
    )


BESIDE = dg.AssetCheckSpec(
    "beside_a_profiler_trace",
    asset="execution_traces",
    description="Each execution trace of the lake belongs to a profiler trace; `execution_trace_matches` says which.",
)


def _beside_a_profiler_trace(lake: Lake) -> dg.AssetCheckResult:
    """Check the whole lake, because either trace of a pair may be ingested first."""
    if not lake.committed_files("execution_traces"):
        return beside_a_profiler_trace(None)
    with analyst(lake) as con:
        return beside_a_profiler_trace(con)


def beside_a_profiler_trace(con: Any) -> dg.AssetCheckResult:
    """Return the result of the check `BESIDE`. `con` is None if there are no execution traces.

    An execution trace without its profiler trace is only a warning, because the profiler trace may still be ingested.
    """
    rows = con.execute(_LONE).fetchall() if con is not None else []
    table = dg.MetadataValue.md(markdown_table(["path", "rank in its name"], rows[:50], width=4000))
    return dg.AssetCheckResult(
        passed=not rows,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{len(rows)} execution traces have no profiler trace of their rank in their folder"
        if rows
        else None,
        metadata={"lone": len(rows), **({"files": table} if rows else {})},
    )


def _fetch(query: str, files: list[str] | Stored, severity: str = "") -> list[tuple]:
    if not files:
        return []
    if isinstance(files, Stored):
        return files.con.execute(query.replace(_FILES, files.rows).replace("{severity}", severity)).fetchall()
    with database.scratch() as con:
        rows_sql = f"read_parquet({file_list(map(Path, files))})"
        return con.execute(query.replace(_FILES, rows_sql).replace("{severity}", severity)).fetchall()


def findings_checks() -> list[tuple[dg.AssetCheckSpec, Evaluate]]:
    """Return the checks of findings in traces and captures and of rejected files, each with its evaluation."""
    spec_and_evaluation = []
    for severity, shown_as in (("error", dg.AssetCheckSeverity.ERROR), ("warning", dg.AssetCheckSeverity.WARN)):
        description = f"`quality` has no row of severity {severity}."
        spec = dg.AssetCheckSpec(f"no_{severity}", asset="quality", description=description)
        spec_and_evaluation.append((spec, _no_findings(severity, shown_as)))
    description = (
        "`capture_quality` has no row of severity warning: every file was used, every lane and clock is valid."
    )
    spec = dg.AssetCheckSpec("no_warning", asset="capture_quality", description=description)
    spec_and_evaluation.append((spec, _no_findings("warning", dg.AssetCheckSeverity.WARN, "captures")))
    spec = dg.AssetCheckSpec("nothing_rejected", asset="rejects", description="Every file of the day was ingested.")
    spec_and_evaluation.append((spec, _nothing_rejected))
    return spec_and_evaluation


@dg.multi_asset_check(
    name=CHECKS,
    specs=[*(keys.spec for keys in unique_keys()), *(spec for spec, _ in findings_checks()), BESIDE, NOTHING_LEFT_OUT],
    can_subset=True,
)
def checks(context: dg.AssetCheckExecutionContext, lake: dg.ResourceParam[Lake]) -> Iterator[dg.AssetCheckResult]:
    """Evaluate the selected checks on the tables' files of the run; fail it where a table lacks a trace."""
    span, chosen = Span.of(context), context.selected_asset_check_keys
    for keys in unique_keys():
        if keys.spec.key in chosen:
            result = keys.evaluate(lake, span, last_evaluation(context.instance, keys.spec.key))
            yield result._replace(asset_key=keys.spec.asset_key, check_name=UNIQUE)
    for spec, evaluate in findings_checks():
        if spec.key in chosen:
            result = evaluate(span.files(lake, spec.asset_key.to_user_string()))
            yield result._replace(asset_key=spec.asset_key, check_name=spec.name)
    if BESIDE.key in chosen:
        yield _beside_a_profiler_trace(lake)._replace(asset_key=BESIDE.asset_key, check_name=BESIDE.name)
    if NOTHING_LEFT_OUT.key in chosen:
        missing = left_out(str(lake.root), span)
        yield result_of(missing)
        fail_checked(context, missing, str(lake.root))


def last_evaluation(instance: dg.DagsterInstance, key: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    """Return the check's last evaluation, or None if it never ran."""
    completed = COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=1, status=completed)
    return records[0].evaluation if records else None
