"""The results of a run for Dagster: rows, seconds, pictures and column lineage of its tables, and the traces missing from them.

If a model failed on a trace, its tables do not contain that trace. Everything else is computed and stored first. Then a
check fails the run. Nothing is downstream of the check, so captures, overlays and pages of all other traces are still
written. In a run without the check, the step that computes tables fails at its end instead. Neither is retried, because
the model would fail on the trace again.

A run of the sensor or of `daily` computes the tables that a fleet needs every day
(`tracelake materialize --for fleet`), or all tables. The metadata of the other assets states that the run omits them.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NoReturn

import dagster as dg

from assets.lineage import column_lineage
from assets.metadata import LEFT_OUT_TAG, Span, lake_address, markdown_table, shown
from assets.pictures import pictures
from pipelines.base.foreign_text import visible
from pipelines.faces.fleet_tables import daily_tables
from pipelines.lake import Batch, Lake
from pipelines.lake.commit.model_failures import LeftOut, sentences, ways_out
from pipelines.lake.names import MARK
from pipelines.runs.left_out import left_out_at
from pipelines.runs.materialize.publishing import Materialized
from pipelines.runs.store import is_folder_address

NOTHING_LEFT_OUT = dg.AssetCheckSpec(
    "nothing_left_out",
    asset="quality",
    description="No table is missing a trace because a model failed on it; `model_failures` lists the failures. Otherwise the run fails.",
)
CHECKS = "checks"
"""Name of the step that evaluates all checks."""
_SHOWN = 50
PURPOSE = "TRACELAKE_FOR"
"""Environment variable: `fleet`, the default, or `all`."""
NOTE = "first_use"
"""Metadata key of an asset that runs of the sensor and of `daily` omit. The value states how to compute the asset."""


def results(
    lake: Lake, tables: Iterable[str], span: Span, done: Iterable[Materialized]
) -> Iterator[dg.MaterializeResult]:
    """Yield one result per table, including tables that were up to date."""
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
    """Return the traces of a run that are missing from these tables (default: all tables)."""
    return [entry for entry in left_out_at(address, tables) if span.holds(Batch(entry.batch_id))]


def result_of(left: Collection[LeftOut]) -> dg.AssetCheckResult:
    """Return the result of the check `NOTHING_LEFT_OUT`."""
    left = list(left)
    rows = [(entry.trace_id, entry.file, entry.model, entry.reason, ", ".join(entry.tables)) for entry in left]
    table = dg.MetadataValue.md(
        markdown_table(["trace", "file", "model", "reason", "tables"], rows[:_SHOWN], width=4000)
    )
    return dg.AssetCheckResult(
        passed=not left,
        severity=dg.AssetCheckSeverity.ERROR,
        asset_key=NOTHING_LEFT_OUT.asset_key,
        check_name=NOTHING_LEFT_OUT.name,
        description=_lines(left) if left else None,
        metadata={"traces": len({entry.trace_id for entry in left}), **({"left_out": table} if left else {})},
    )


def fail_checked(context: dg.AssetCheckExecutionContext, left: list[LeftOut], address: str) -> None:
    """Fail the check's run if any trace is missing, and tag it so that the sensor does not repeat it."""
    if left:
        context.instance.add_run_tags(context.run.run_id, {LEFT_OUT_TAG: str(len(left))})
        fail(left, address)


def is_checked(context: dg.AssetExecutionContext) -> bool:
    """Return whether the check is part of the run."""
    return NOTHING_LEFT_OUT.key in context.job_def.asset_layer.asset_graph.asset_check_keys


def fail(left: list[LeftOut], address: str) -> NoReturn:
    """Fail the step with the message that `tracelake materialize` prints."""
    raise dg.Failure("\n".join([_lines(left), *map(visible, ways_out(left, address))]), allow_retries=False)


def _lines(missing: list[LeftOut]) -> str:
    return "\n".join(f"left out: {visible(line)}" for line in sentences(missing))


def run_tables(address: str = "") -> frozenset[str] | None:
    """Return the tables that a run of the sensor or of `daily` computes in the lake at `address`, or None for all.

    In a DuckLake, all tables of a trace are computed when it is ingested, and none on first use. Raises
    DagsterInvalidDefinitionError for an unknown purpose.
    """
    purpose = os.environ.get(PURPOSE) or "fleet"
    if purpose not in ("fleet", "all"):
        raise dg.DagsterInvalidDefinitionError(f"{PURPOSE} is {purpose!r}; set it to fleet, the default, or to all")
    if purpose == "all" or not is_folder_address(lake_address(address)):
        return None
    return daily_tables()


def note(asset: str, how: str) -> dict[str, str]:
    """Return metadata that states `how` to compute an asset, or {} if the sensor and `daily` compute it."""
    tables = run_tables()
    if tables is None or asset in tables:
        return {}
    return {NOTE: f"{how}, or materialize it here. The sensor and `daily` leave it out ({PURPOSE})."}


def with_note(spec: dg.AssetSpec) -> dg.AssetSpec:
    """Return the spec of a table with its `note`."""
    how = "A command that reads this table computes it first"
    return spec.merge_attributes(metadata=note(spec.key.to_user_string(), how))


def observe_left(
    context: dg.AssetExecutionContext, lake: Lake, names: Iterable[str], span: Span, batches: Sequence[Batch]
) -> None:
    """Report, for each table that a run omits, in how many of the run's batches the table is not computed.

    Otherwise, the rows shown by an earlier run would look like all rows of the day. Digests do not count, because no
    table is computed from them. A run that ingests nothing reports nothing.
    """
    in_run = context.job_def.asset_layer.executable_asset_keys
    batches = [batch for batch in batches if not lake.is_digest(batch)]
    if dg.AssetKey(MARK) not in in_run or not batches:
        return
    catalog = lake.catalog()
    day = next(iter(span.days)) if len(span.days) == 1 else None
    names = [name for name in names if dg.AssetKey(name) not in in_run]
    versions = lake.versions(batches, names)
    for name in names:
        current = catalog.version(name)
        n = sum(versions[batch].get(name) != current for batch in batches)
        rows = shown(lake, name, span) if n < len(batches) else {}
        metadata = {**rows, "not_computed": f"{n} of {len(batches)} batches"}
        context.log_event(dg.AssetObservation(name, partition=day, metadata=metadata))
