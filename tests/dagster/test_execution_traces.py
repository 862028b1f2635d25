"""Execution traces in the watched folder.

A run that ingests them rejects none, and one without a profiler trace causes a warning.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from assets.checks import BESIDE
from assets.traces import REJECTED_TAG
from dagster_project.sensors import trace_file_sensor
from tests.dagster.tiny import age, write_trace
from tests.readers.execution.make import Op, write


def checked(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


@pytest.mark.slow  # two runs; tests/readers/execution/test_lake.py tests the same without Dagster
def test_beside_a_trace_alone_and_broken(
    run: Callable[..., dg.ExecuteInProcessResult], inbox: Path, tmp_path: Path
) -> None:
    age(write_trace(inbox / "rank0.json"))
    age(write(inbox / "rank0_et.json", [Op("a", [1], [2])]))
    result = run(only=())
    assert result.success and REJECTED_TAG not in result.dagster_run.tags
    checks = checked(result)
    assert checks["nothing_rejected"].passed and checks[BESIDE.name].passed
    (event,) = (
        e for e in result.asset_materializations_for_node("ingest") if e.asset_key == dg.AssetKey("execution_traces")
    )
    assert (event.metadata["dagster/row_count"].value, event.metadata["files_rejected"].value) == (1, 0)
    sensor = trace_file_sensor(str(tmp_path / "lake"))
    answer = sensor(dg.build_sensor_context())
    assert isinstance(answer, dg.SensorResult) and not answer.run_requests
    assert "no new files" in str(answer.skip_reason)

    age(write(inbox / "rank7_et.json", [Op("b", [1], [2])]))
    broken = age(write(inbox / "rank8_et.json", [Op("c", [1], [2])]))
    broken.write_text(broken.read_text()[:-90])
    checks = checked(run(only=()))
    lone = checks[BESIDE.name]
    assert not lone.passed and lone.severity == dg.AssetCheckSeverity.WARN
    assert lone.metadata["lone"].value == 1 and "rank7_et.json" in str(lone.metadata["files"].value)
    assert not checks["nothing_rejected"].passed
    assert "an execution trace that cannot be read" in json.dumps(
        str(checks["nothing_rejected"].metadata["files"].value)
    )
