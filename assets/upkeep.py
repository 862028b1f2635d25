"""Retention and compaction as Dagster ops.

The run's metadata lists the changes, or in a dry run the changes it would make.
"""

from datetime import timedelta
from typing import Literal

import dagster as dg
from pydantic import Field

from assets.metadata import markdown_table
from pipelines.lake.read.damage import stays_damaged
from pipelines.lake.retain.compaction import SMALLER_THAN, compact
from pipelines.runs.store import Store

_STAY = ("damaged", "incomplete", "changed")
"""States of batches that are left unchanged."""


def _staying(context: dg.OpExecutionContext, states: list[str], store: Store) -> dict[str, int]:
    """Return the number of batches left unchanged, by state. Log a warning with the remedy if some are damaged."""
    if sentence := stays_damaged(states, store.address):
        context.log.warning(sentence)
    return {state: states.count(state) for state in _STAY if state in states}


class RetentionConfig(dg.Config):
    """The traces that are removed from the lake or reduced to digests.

    A dry run, the default, only reports the changes.
    """

    keep_days: int = Field(default=90, ge=1)
    keep: Literal["nothing", "digest"] = Field(default="nothing", description="What to keep of older traces.")
    grace_hours: float = Field(default=24.0, ge=0)
    dry_run: bool = True


@dg.op
def retire_batches(context: dg.OpExecutionContext, config: RetentionConfig, store: dg.ResourceParam[Store]) -> None:
    """Retire the traces that were ingested more than `keep_days` days ago, or keep only digests of them.

    In a folder, their batches are hidden, and batches hidden at least `grace_hours` ago are removed. In a DuckLake,
    their rows are deleted immediately, and their files after the grace period.
    """
    grace = timedelta(hours=config.grace_hours)
    batches = store.expire(config.keep_days, grace, config.dry_run, to_digests=config.keep == "digest")
    rows = [(batch.batch_id, batch.state, len(batch.traces), batch.n_files, batch.n_bytes) for batch in batches]
    leaving = [batch for batch in batches if batch.state not in _STAY]
    sizes = [batch.n_bytes for batch in leaving if batch.n_bytes is not None]
    context.add_output_metadata(
        {
            "dry_run": config.dry_run,
            "batches": len(leaving),
            "traces": sum(len(batch.traces) for batch in leaving),
            **({"bytes": sum(sizes)} if len(sizes) == len(leaving) else {}),  # a DuckLake does not report sizes
            **_staying(context, [batch.state for batch in batches], store),
            "list": dg.MetadataValue.md(markdown_table(["batch", "state", "traces", "files", "bytes"], rows)),
        }
    )


class CompactionConfig(dg.Config):
    """The batches that are merged. A dry run, the default, only reports the changes."""

    older_than_days: int = Field(default=1, ge=0)
    smaller_than_bytes: int = Field(default=SMALLER_THAN, ge=1)
    grace_hours: float = Field(default=24.0, ge=0)
    dry_run: bool = True


@dg.op
def merge_batches(context: dg.OpExecutionContext, config: CompactionConfig, store: dg.ResourceParam[Store]) -> None:
    """Merge small batches of past days.

    Delete the files of batches that were merged or hidden at least `grace_hours` ago. In a DuckLake, files of all days
    and sizes are merged, so `older_than_days` and `smaller_than_bytes` do not apply.
    """
    grace = timedelta(hours=config.grace_hours)
    if store.lake is None:
        tables = store.compact(config.dry_run, grace)
        swept = [] if config.dry_run else store.sweep()  # files that killed writers left
        context.add_output_metadata({"dry_run": config.dry_run, "tables": len(tables), "deleted_files": len(swept)})
        return
    report = compact(store.lake, config.older_than_days, config.smaller_than_bytes, grace, config.dry_run)
    rows = [
        (
            merge.day,
            merge.state,
            merge.into,
            len(merge.batches),
            merge.n_files,
            merge.n_files_after,
            merge.n_bytes,
            merge.n_bytes_after,
        )
        for merge in report.merges
    ]
    merges = [merge for merge in report.merges if merge.state not in _STAY]
    header = ["day", "state", "into", "batches", "files", "files after", "bytes", "bytes after"]
    context.add_output_metadata(
        {
            "dry_run": config.dry_run,
            "batches": sum(len(merge.batches) for merge in merges),
            "files": sum(merge.n_files for merge in merges),
            "bytes": sum(merge.n_bytes for merge in merges),
            **_staying(context, [merge.state for merge in report.merges], store),
            "deleted_files": sum(removed.n_files for removed in report.removed),
            "list": dg.MetadataValue.md(markdown_table(header, rows)),
        }
    )
