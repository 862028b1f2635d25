"""The job `compaction`: a dry run changes nothing, a real one merges the batches of a past day."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from assets.upkeep import CompactionConfig, RetentionConfig, merge_batches, retire_batches
from dagster_project.definitions import definitions
from pipelines.lake import Batch, Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.store import open_store
from pipelines.runs.store.interface import Expired
from tests.dagster.tiny import write_trace
from tests.lake.world import rot


def run(lake: Lake, **config: object) -> dict[str, dg.MetadataValue]:
    """Run the job in this process, and return its step's metadata."""
    job = definitions(str(lake.root)).resolve_job_def("compaction")
    result = job.execute_in_process(run_config={"ops": {"merge_batches": {"config": config}}})
    assert result.success
    (output,) = [e for e in result.all_node_events if e.event_type == dg.DagsterEventType.STEP_OUTPUT]
    return dict(output.step_output_data.metadata)


def metadata_of(op: dg.OpDefinition, config: dg.Config, store: Any) -> dict[str, Any]:
    context = dg.build_op_context()
    op(context, config, store=store)
    return dict(context.get_output_metadata("result") or {})


def test_batches_that_stay_are_counted_apart(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lake, address = Lake(tmp_path / "lake"), str(tmp_path / "lake")
    for shift in range(3):
        ingest([write_trace(tmp_path / f"rank{shift}.json", shift)], lake)
    rot(lake, "events", lake.batches()[0], b"gemm", b"hemm")
    merged = metadata_of(merge_batches, CompactionConfig(older_than_days=0, dry_run=False), open_store(address))
    assert (merged["batches"], merged["files"], merged["damaged"]) == (2, 6, 1)
    assert f"1 batch has a damaged file and stays as before: tracelake check --repair --lake {address}" in capfd.readouterr().err  # fmt: skip


def test_of_an_address_what_is_unknown_is_left_out_and_what_killed_writers_left_is_deleted() -> None:
    store = SimpleNamespace(
        lake=None,
        address="ducklake:x",
        expire=lambda *_, **__: [Expired("b", "2026-01-01", "removed", ("t",))],
        compact=lambda *_: [],
        sweep=lambda: ["a.parquet"],
    )
    retired = metadata_of(retire_batches, RetentionConfig(dry_run=False), store)
    assert "bytes" not in retired and (retired["batches"], retired["traces"]) == (1, 1)
    for is_dry, n_deleted in ((True, 0), (False, 1)):
        merged = metadata_of(merge_batches, CompactionConfig(dry_run=is_dry), store)
        assert merged["deleted_files"] == n_deleted


@pytest.mark.slow  # tests/lake/test_compact.py tests it without Dagster
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
