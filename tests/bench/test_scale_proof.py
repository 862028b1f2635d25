"""The proof of bench/scale_proof.py in small: every unit twice, a node killed, all tables as of one process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("engine", "package"), [pytest.param("ray", "ray", marks=pytest.mark.ducklake("postgres")), ("dask", "distributed")]
)
def test_tables_are_those_of_one_process_though_a_worker_is_killed(tmp_path: Path, engine: str, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'tracelake[{engine}]'")
    store = "ducklake" if engine == "ray" else "folder"
    command = [sys.executable, "-m", "bench.scale_proof", str(tmp_path / "proof"), "--engine", engine]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--store", store, "--traces", "16"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal to one process" in done.stdout and "killed a node" in done.stdout
