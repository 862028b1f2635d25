"""A Spark query during which an executor is killed. The answer stays the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pipelines.lake import Lake


@pytest.mark.spark
@pytest.mark.slow(together="spark")
def test_an_executor_killed_at_work_changes_nothing(everything: Lake) -> None:
    command = [sys.executable, "-m", "tests.engines.spark.killed", str(everything.root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env={**os.environ, "PYTHONPATH": "."})
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert len(report["alive"]) == 2 and set(report["killed"]) < set(report["alive"])
    assert report["killed"][0] not in report["left"]
    assert report["before"] == report["after"] != []
