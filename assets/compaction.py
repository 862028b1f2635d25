"""Compaction as a Dagster step: the run's metadata lists what it merged and what it deleted."""

from datetime import timedelta

import dagster as dg
from pydantic import Field

from assets.metadata import markdown_table
from pipelines.lake import Lake
from pipelines.lake.retain.compaction import SMALLER_THAN, compact


class CompactionConfig(dg.Config):
    """Which batches are merged. A dry run, the default, only reports what a run would do."""

    older_than_days: int = Field(default=1, ge=0)
    smaller_than_bytes: int = Field(default=SMALLER_THAN, ge=1)
    grace_hours: float = Field(default=24.0, ge=0)
    dry_run: bool = True


@dg.op
def merge_batches(context: dg.OpExecutionContext, config: CompactionConfig, lake: dg.ResourceParam[Lake]) -> None:
    """Merge small batches of past days; delete the old files of those merged `grace_hours` ago."""
    grace = timedelta(hours=config.grace_hours)
    found = compact(lake, config.older_than_days, config.smaller_than_bytes, grace, config.dry_run)
    rows = [
        (one.day, one.state, one.into, len(one.batches), one.n_files, one.n_files_after, one.n_bytes, one.n_bytes_after)
        for one in found.merges
    ]
    header = ["day", "state", "into", "batches", "files", "files after", "bytes", "bytes after"]
    context.add_output_metadata(
        {
            "dry_run": config.dry_run,
            "batches": sum(len(one.batches) for one in found.merges),
            "files": sum(one.n_files for one in found.merges),
            "bytes": sum(one.n_bytes for one in found.merges),
            "deleted_files": sum(one.n_files for one in found.removed),
            "list": dg.MetadataValue.md(markdown_table(header, rows)),
        }
    )
