"""The benchmarks run on the CPU, each at its smallest size; bench/hta.py needs HTA, and is left out."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.growth import seed_lake

ROOT = Path(__file__).parents[2]


def run(folder: Path, module: str, *words: str) -> str:
    """Run `python -m bench.MODULE` with the words, of which `{}` is the folder; returns what it printed."""
    command = [sys.executable, "-m", f"bench.{module}", *(word.format(folder) for word in words)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "words", "needs"),
    [
        ("engine", "--iterations 10 --rounds 1", "torch"),
        ("engine_cuda", "--device cpu --scale 0.01 --iterations 1 --rounds 1", "torch"),
        ("scale_sizing", "{} --mb 0.1", "duckdb"),
        ("scale_ranks", "{} --ranks 8", "duckdb"),
        pytest.param("scale_engines", "spark --quick --only kernel_c --traces {}", "pyspark", marks=pytest.mark.spark),
    ],
)
def test_a_program_prints_its_numbers(tmp_path: Path, module: str, words: str, needs: str) -> None:
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    assert run(tmp_path / "work", module, *words.split())


@pytest.mark.slow  # tests/models/test_plans.py runs models on the same traces
def test_growth_of_a_lake_and_of_a_day(tmp_path: Path) -> None:
    seed_lake(tmp_path / "seed", ranks=1)
    shutil.copytree(tmp_path / "seed", tmp_path / "seed1")  # the same for both
    for module in ("growth", "daily"):
        assert run(tmp_path, module, "{}", "--sizes", "1")


@pytest.mark.slow  # 4 s
def test_both_graphs_have_the_same_longest_path(tmp_path: Path) -> None:
    run(tmp_path, "longest_path", "make", "200", "{}/edges.npy")
    plain, ours = (
        json.loads(run(tmp_path, "longest_path", kind, "{}/edges.npy")) for kind in ("networkx", "tracelake")
    )
    compared = ("nodes", "edges", "path", "hash")
    assert [plain[name] for name in compared] == [ours[name] for name in compared]
