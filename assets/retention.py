"""Retention as a Dagster step. The run's metadata lists the batches that it hid and removed."""

from datetime import timedelta

import dagster as dg
from pydantic import Field

from assets.metadata import markdown_table
from pipelines.lake import Lake
from pipelines.lake.retain.retention import retire


class RetentionConfig(dg.Config):
    """What leaves the lake. A dry run, the default, only reports what a run would do."""

    keep_days: int = Field(default=90, ge=1)
    grace_hours: float = Field(default=24.0, ge=0)
    dry_run: bool = True


@dg.op
def retire_batches(context: dg.OpExecutionContext, config: RetentionConfig, lake: dg.ResourceParam[Lake]) -> None:
    """Hide batches of traces that are older than `keep_days`; remove those hidden `grace_hours` ago."""
    batches = retire(lake, config.keep_days, timedelta(hours=config.grace_hours), config.dry_run)
    rows = [(batch.batch_id, batch.state, len(batch.traces), batch.n_files, batch.n_bytes) for batch in batches]
    context.add_output_metadata(
        {
            "dry_run": config.dry_run,
            "batches": len(rows),
            "traces": sum(len(batch.traces) for batch in batches),
            "bytes": sum(batch.n_bytes for batch in batches),
            "list": dg.MetadataValue.md(markdown_table(["batch", "state", "traces", "files", "bytes"], rows)),
        }
    )
