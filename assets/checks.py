"""Asset checks: what the models' headers declare (`-- check: unique(…)`), and what the table `quality` found."""

import re
from collections.abc import Callable, Iterator

import dagster as dg

from assets.common import Span, markdown_table
from pipelines import database
from pipelines.lake import Lake
from pipelines.lake.layout import CAPTURE_MARK, mark_of
from pipelines.models.catalog import load_catalog

_UNIQUE = re.compile(r"^unique\((.+)\)$")
_FINDINGS = """
    SELECT "check", severity, count(DISTINCT trace_id) AS traces, sum(n) AS n, min(detail) AS example
    FROM read_parquet(?) WHERE severity = ? GROUP BY ALL ORDER BY n DESC
"""
_OF_CAPTURES = """
    SELECT "check", severity, count(DISTINCT capture_id) AS captures, sum(n) AS n, min(detail) AS example
    FROM (FROM read_parquet(?) QUALIFY batch_id = max(batch_id) OVER (PARTITION BY capture_id)) WHERE severity = ?
    GROUP BY ALL ORDER BY n DESC
"""
_REJECTED = "SELECT path, byte_offset, reason FROM read_parquet(?) ORDER BY seen_at DESC"

Evaluate = Callable[[list[str]], dg.AssetCheckResult]


def unique_columns(check: str) -> list[str]:
    """Returns the columns of `unique(a, b)`. Raises ValueError for a check of another kind."""
    match = _UNIQUE.match(check)
    if not match:
        raise ValueError(f"unknown check {check!r}: write `-- check: unique(column, column)`")
    return [column.strip() for column in match[1].split(",")]


def _is_unique(columns: list[str]) -> Evaluate:
    named = ", ".join(f'"{column}"' for column in columns)

    def evaluate(files: list[str]) -> dg.AssetCheckResult:
        query = f"SELECT {named}, count(*) AS rows FROM read_parquet(?) GROUP BY ALL HAVING count(*) > 1 LIMIT 20"
        rows = _fetch(query, files)
        shown = dg.MetadataValue.md(markdown_table([*columns, "rows"], rows))
        return dg.AssetCheckResult(passed=not rows, metadata={"twice": shown} if rows else {})

    return evaluate


def _no_findings(severity: str, shown_as: dg.AssetCheckSeverity, of: str = "traces") -> Evaluate:
    def evaluate(files: list[str]) -> dg.AssetCheckResult:
        rows = _fetch(_FINDINGS if of == "traces" else _OF_CAPTURES, files, severity)
        shown = dg.MetadataValue.md(markdown_table(["check", "severity", of, "n", "example"], rows))
        return dg.AssetCheckResult(
            passed=not rows, severity=shown_as, metadata={"kinds": len(rows), **({"found": shown} if rows else {})}
        )

    return evaluate


def _nothing_rejected(files: list[str]) -> dg.AssetCheckResult:
    rows = _fetch(_REJECTED, files)
    shown = dg.MetadataValue.md(markdown_table(["path", "byte offset", "reason"], rows[:50], width=400))
    return dg.AssetCheckResult(
        passed=not rows,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"rejected": len(rows), **({"files": shown} if rows else {})},
    )


def _fetch(query: str, files: list[str], *more: str) -> list[tuple]:
    if not files:
        return []
    # A cursor of the process's shared database: a new database per check would take longer than the check.
    with database.cursor() as con:
        return con.execute(query, [files, *more]).fetchall()


def all_checks() -> dict[tuple[str, str], tuple[dg.AssetCheckSpec, Evaluate]]:
    """Returns every check by (table, name), with the function that evaluates it on the table's files."""
    made = []
    for name, model in load_catalog().models.items():
        if model.private:
            continue
        for check in model.checks:
            # A capture that grew during the day is in several batches; the newest counts.
            columns = unique_columns(check) + (["batch_id"] if mark_of(name) == CAPTURE_MARK else [])
            about = f"No two rows of a batch have the same {', '.join(columns)}."
            named = "unique_" + "_".join(unique_columns(check))
            spec = dg.AssetCheckSpec(named, asset=name, description=about)
            made.append((spec, _is_unique(columns)))
    for severity, shown_as in (("error", dg.AssetCheckSeverity.ERROR), ("warning", dg.AssetCheckSeverity.WARN)):
        about = f"`quality` has no row of severity {severity}."
        spec = dg.AssetCheckSpec(f"no_{severity}", asset="quality", description=about)
        made.append((spec, _no_findings(severity, shown_as)))
    about = "`capture_quality` has no row of severity warning: every file was used, every lane and clock is valid."
    spec = dg.AssetCheckSpec("no_warning", asset="capture_quality", description=about)
    made.append((spec, _no_findings("warning", dg.AssetCheckSeverity.WARN, "captures")))
    spec = dg.AssetCheckSpec("nothing_rejected", asset="rejects", description="Every file of the day was ingested.")
    made.append((spec, _nothing_rejected))
    return {(spec.asset_key.to_user_string(), spec.name): (spec, evaluate) for spec, evaluate in made}


@dg.multi_asset_check(
    name="checks",
    specs=[spec for spec, _ in all_checks().values()],
    can_subset=True,
)
def checks(context: dg.AssetCheckExecutionContext, lake: dg.ResourceParam[Lake]) -> Iterator[dg.AssetCheckResult]:
    """Evaluate the selected checks on the tables' files of the run."""
    span = Span.of(context)
    for (table, name), (spec, evaluate) in all_checks().items():
        if spec.key in context.selected_asset_check_keys:
            result = evaluate(span.files(lake, table))
            yield result._replace(asset_key=spec.asset_key, check_name=name)
