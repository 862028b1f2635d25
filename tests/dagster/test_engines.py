"""The job `ingest_on_engine`, which submits units, follows them, and fails if a unit failed."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from assets.engines import _tell
from assets.traces import REJECTED_TAG
from dagster_project.definitions import definitions
from pipelines.engines import unit_work
from pipelines.engines.run import Followed, materialize_on
from pipelines.lake import Lake
from pipelines.lake.commit.model_failures import LeftOut
from pipelines.readers.inputs import TraceRow
from pipelines.runs.materialize.per_trace import materialize
from tests.dagster.tiny import write_trace


def run(lake: Lake, files: list[Path]) -> dg.ExecuteInProcessResult:
    job = definitions(str(lake.root)).resolve_job_def("ingest_on_engine")
    config = {"ops": {"ingest_units": {"config": {"files": [str(file) for file in files]}}}}
    return job.execute_in_process(run_config=config, raise_on_error=False)


@pytest.mark.parametrize("statuses", [["ok"], ["ok", "rejected", "rejected"]])
def test_a_run_that_rejects_files_is_marked(statuses: list[str]) -> None:
    tags: dict[str, str] = {}
    instance = SimpleNamespace(add_run_tags=lambda _, new: tags.update(new))
    context: Any = SimpleNamespace(instance=instance, run_id="r", add_output_metadata=lambda _: None)
    _tell(context, Followed(rows=[TraceRow("rank0.json", status) for status in statuses]))
    assert tags == ({REJECTED_TAG: "2"} if "rejected" in statuses else {})


@pytest.mark.slow  # tests/engines/test_cli.py tests it without Dagster
def test_files_become_tables_and_a_failed_unit_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.runs.materialize.per_trace.materialize", partial(materialize, tables=["kernels"]))
    monkeypatch.setattr("assets.engines.materialize_on", partial(materialize_on, tables=["capture_ranks"]))
    lake, file = Lake(tmp_path / "lake"), write_trace(tmp_path / "rank0.json")
    assert run(lake, [file]).success
    with lake.connect(["kernels", "capture_ranks"]) as con:
        assert con.execute("SELECT name FROM kernels").fetchall() == [("gemm",)]
        assert con.execute("SELECT rank FROM capture_ranks").fetchall() == [(0,)]

    left = LeftOut("t", "odd.json", "b", "kernels", "ValueError: odd", ("kernels",))
    with monkeypatch.context() as patch:
        patch.setattr("assets.engines.left_out_at", lambda address: [left])
        lacking = run(lake, [file])
    (step,) = [e for e in lacking.all_node_events if e.event_type == dg.DagsterEventType.STEP_FAILURE]
    assert step.step_key == "capture_units" and left.sentence in str(step.step_failure_data.error)

    monkeypatch.setattr(unit_work, "ingest_unit", lambda how, unit: 1 / 0)
    failed = run(lake, [file])
    assert not failed.success
    (step,) = [e for e in failed.all_node_events if e.event_type == dg.DagsterEventType.STEP_FAILURE]
    assert "failed units: 1, the first: ZeroDivisionError" in str(step.step_failure_data.error)
    assert not failed.filter_events(lambda e: e.is_step_success and e.step_key == "capture_units")
