"""The job `retention`: a dry run changes nothing, a real one removes the old batch."""

from pathlib import Path

import dagster as dg
import pytest

from dagster_project.definitions import definitions
from pipelines.lake import Batch, Lake
from pipelines.readers.ingest import ingest
from tests.dagster.tiny import write_trace


def run(lake: Lake, **config: object) -> dict[str, dg.MetadataValue]:
    """Run the job in this process, and return its step's metadata."""
    job = definitions(str(lake.root)).resolve_job_def("retention")
    result = job.execute_in_process(run_config={"ops": {"retire_batches": {"config": config}}})
    assert result.success
    (output,) = [e for e in result.all_node_events if e.event_type == dg.DagsterEventType.STEP_OUTPUT]
    return dict(output.step_output_data.metadata)


@pytest.mark.slow  # tests/lake/test_retention.py tests it without Dagster
def test_dry_run_then_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, new = Lake(tmp_path / "lake"), Batch.new()
    old = Batch(f"20250101T{new.batch_id[9:]}")
    for shift, batch in enumerate((old, new)):
        with monkeypatch.context() as patch:
            patch.setattr(Batch, "new", lambda batch=batch: batch)
            ingest([write_trace(tmp_path / f"rank{shift}.json", shift)], lake)
    assert run(lake)["batches"].value == 1
    assert lake.batches() == [old, new]
    metadata = run(lake, keep_days=30, grace_hours=0.0, dry_run=False)
    assert (metadata["batches"].value, metadata["traces"].value) == (1, 1)
    assert lake.batches() == [new]
    assert not list(lake.root.glob(f"*/day=*/{old.batch_id}.parquet"))


@pytest.mark.slow  # tests/runs/test_digest.py tests it without Dagster
def test_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, old = Lake(tmp_path / "lake"), Batch(f"20250101T{Batch.new().batch_id[9:]}")
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "new", lambda: old)
        ingest([write_trace(tmp_path / "rank0.json", 0)], lake)
    assert run(lake, keep="digest", keep_days=14)["batches"].value == 1
    assert not lake.is_digest(old)
    run(lake, keep="digest", keep_days=14, grace_hours=0.0, dry_run=False)
    assert [lake.is_digest(batch) for batch in lake.batches()] == [True]
