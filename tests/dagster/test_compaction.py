"""The job `compaction`: a dry run changes nothing, a real one merges the batches of a past day."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from dagster_project.definitions import definitions
from pipelines.lake import Batch, Lake
from pipelines.readers.ingest import ingest
from tests.dagster.tiny import write_trace


def run(lake: Lake, **config: object) -> dict[str, dg.MetadataValue]:
    """Run the job in this process; returns its step's metadata."""
    job = definitions(str(lake.root)).resolve_job_def("compaction")
    result = job.execute_in_process(run_config={"ops": {"merge_batches": {"config": config}}})
    assert result.success
    (output,) = [e for e in result.all_node_events if e.event_type == dg.DagsterEventType.STEP_OUTPUT]
    return dict(output.step_output_data.metadata)


@pytest.mark.slow  # tests/lake/test_compact.py has it without Dagster
def test_dry_run_then_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, new = Lake(tmp_path / "lake"), Batch.new()
    old = [Batch(f"20250101T{hour}{new.batch_id[11:]}") for hour in ("10", "11")]
    for shift, batch in enumerate((*old, new)):
        with monkeypatch.context() as patch:
            patch.setattr(Batch, "new", lambda batch=batch: batch)
            ingest([write_trace(tmp_path / f"rank{shift}.json", shift)], lake)
    assert run(lake)["batches"].value == 2
    assert lake.batches() == [*old, new]
    metadata = run(lake, dry_run=False)
    assert (metadata["batches"].value, metadata["deleted_files"].value) == (2, 0)
    assert len(lake.batches()) == 2 and len(lake.known_traces()) == 3
    assert run(lake, grace_hours=0.0, dry_run=False)["deleted_files"].value == metadata["files"].value
