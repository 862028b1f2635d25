"""The results of a run for Dagster: rows, seconds, pictures, and column lineage of its tables; and what they lack.

If a model failed on a trace, its tables lack that trace. Everything else is computed and stored first; then a check fails the run.
The check is upstream of nothing, so captures, overlays and pages of all other traces are still made. In a run without the check, the
step that computes tables fails at its end instead. Neither is retried: a model that failed on a trace would fail again.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NoReturn

import dagster as dg

from assets.lineage import column_lineage
from assets.metadata import LEFT_OUT_TAG, Span, markdown_table, shown
from assets.pictures import pictures
from pipelines.base.foreign_text import visible
from pipelines.lake import Batch, Lake
from pipelines.lake.commit.model_failures import LeftOut, sentences, ways_out
from pipelines.runs.left_out import left_out_at
from pipelines.runs.materialize.publishing import Materialized

NOTHING_LEFT_OUT = dg.AssetCheckSpec(
    "nothing_left_out",
    asset="quality",
    description="No table lacks a trace because a model failed on it; `model_failures` has those that do. Otherwise the run fails.",
)
CHECKS = "checks"
"""The step of all checks."""
_SHOWN = 50


def results(
    lake: Lake, tables: Iterable[str], span: Span, done: Iterable[Materialized]
) -> Iterator[dg.MaterializeResult]:
    """Returns one result per table, including those that were up to date."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for step in done:
        seconds[step.table] += step.seconds
    for name in tables:
        metadata = {
            **shown(lake, name, span),
            "seconds": seconds.get(name, 0.0),
            "computed": name in seconds,
            **pictures(lake, name),
        }
        lineage = column_lineage(name)
        yield dg.MaterializeResult(
            name, metadata={**metadata, **({"dagster/column_lineage": lineage} if lineage else {})}
        )


def left_out(address: str, span: Span, tables: Iterable[str] | None = None) -> list[LeftOut]:
    """Return the traces of a run that these tables (by default all) lack."""
    return [one for one in left_out_at(address, tables) if span.holds(Batch(one.batch_id))]


def result_of(left: Collection[LeftOut]) -> dg.AssetCheckResult:
    """Return the result of the check."""
    left = list(left)
    rows = [(one.trace_id, one.file, one.model, one.reason, ", ".join(one.tables)) for one in left]
    shown = dg.MetadataValue.md(
        markdown_table(["trace", "file", "model", "reason", "tables"], rows[:_SHOWN], width=4000)
    )
    return dg.AssetCheckResult(
        passed=not left,
        severity=dg.AssetCheckSeverity.ERROR,
        asset_key=NOTHING_LEFT_OUT.asset_key,
        check_name=NOTHING_LEFT_OUT.name,
        description=_lines(left) if left else None,
        metadata={"traces": len({one.trace_id for one in left}), **({"left_out": shown} if left else {})},
    )


def fail_checked(context: dg.AssetCheckExecutionContext, left: list[LeftOut], address: str) -> None:
    """Fail the run of the check if anything is left out, and note that to repeat it is of no use."""
    if left:
        context.instance.add_run_tags(context.run.run_id, {LEFT_OUT_TAG: str(len(left))})
        fail(left, address)


def is_checked(context: dg.AssetExecutionContext) -> bool:
    """Return whether the check is part of the run."""
    return NOTHING_LEFT_OUT.key in context.job_def.asset_layer.asset_graph.asset_check_keys


def fail(left: list[LeftOut], address: str) -> NoReturn:
    """Fail the step, with what `tracelake materialize` says."""
    raise dg.Failure("\n".join([_lines(left), *map(visible, ways_out(left, address))]), allow_retries=False)


def _lines(left: list[LeftOut]) -> str:
    return "\n".join(f"left out: {visible(line)}" for line in sentences(left))
