"""A small run of bench/scale_proof.py with a killed node.

Every unit runs twice, and all tables equal the tables of one process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.base.extras import need

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("store", [pytest.param("ducklake", marks=pytest.mark.ducklake("postgres")), "folder"])
def test_tables_are_those_of_one_process_though_a_worker_is_killed(tmp_path: Path, store: str) -> None:
    need("ray", "this test")
    command = [sys.executable, "-m", "bench.scale_proof", str(tmp_path / "proof")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--store", store, "--traces", "8"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal to one process" in done.stdout and "killed a node" in done.stdout
