"""Runs of the benchmarks and of the scripts of the docs on the CPU, each at its smallest size."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bench import engine_torchrec, growth_of_models, hta, hta_side
from bench.growth import seed_lake

ROOT = Path(__file__).parents[2]
HERE = "tests/bench/test_programs.py"
RUN_BY = {
    "bench/attack/__main__.py": "tests/bench/attack/test_tools.py",
    "bench/attack/files.py": "tests/bench/attack/test_short.py",
    "bench/daily.py": HERE,
    "bench/digest_small.py": "tests/bench/test_digest_small.py",
    "bench/digest_year.py": "tests/bench/test_digest_year.py",
    "bench/engine.py": HERE,
    "bench/engine_cuda.py": HERE,
    "bench/growth.py": HERE,
    "bench/growth_of_models.py": HERE,
    "bench/hta_side.py": HERE,
    "bench/longest_path.py": HERE,
    "bench/pairs/record.py": "tests/bench/test_pairs.py",
    "bench/scale.py": HERE,
    "bench/scale_engines.py": HERE,
    "bench/scale_proof.py": "tests/bench/test_scale_proof.py",
    "bench/scale_ranks.py": HERE,
    "bench/scale_sizing.py": HERE,
    "bench/soak/analyst.py": "bench/soak/soak.py",
    "bench/soak/soak.py": "tests/bench/test_soak.py",
    "bench/soak/worker.py": "bench/soak/soak.py",
    "bench/trace_handler.py": HERE,
    "docs/images/critical-path/draw.py": "tests/critical_path/test_page.py",
    "docs/images/first_screen.py": HERE,
}
"""The test, or the program, that runs each program or its parts."""
NOT_RUN = {"bench/hta.py": "it installs HTA into an environment of its own, which takes a network and minutes"}


def run(folder: Path, module: str, *words: str) -> str:
    """Run `python -m bench.MODULE` with the words, in which `{}` stands for the folder, and return its output."""
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
        ("trace_handler", "--rounds 1 --steps 9", "torch"),
        ("scale_sizing", "{} --mb 0.1", "duckdb"),
        ("scale_ranks", "{} --ranks 8", "duckdb"),
        ("scale", "{} --quick --only scale_sizing", "duckdb"),
        ("growth_of_models", "--axes waits --events 60 --times 1 --one", "duckdb"),
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
    shutil.copytree(tmp_path / "seed", tmp_path / "seed1")  # both benchmarks use the same seed lake
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


def test_every_program_is_run_or_says_why_not() -> None:
    programs = {
        str(path.relative_to(ROOT))
        for folder in ("bench", "docs")
        for path in (ROOT / folder).rglob("*.py")
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    }
    assert programs == RUN_BY.keys() | NOT_RUN.keys()
    for program, runner in RUN_BY.items():
        before, _, after = (ROOT / runner).read_text(encoding="utf-8").partition("\nNOT_RUN = ")
        text = after or before  # in this file, without RUN_BY itself
        assert re.search(rf"\b{Path(program).stem}\b", text), f"{runner} does not run {program}"


@pytest.mark.parametrize(
    ("axis", "growth", "is_error"),
    [("waits", 1.3, False), ("waits", 1.31, True), ("nested annotations", 2.0, False)],  # the last is known to grow
)
def test_an_axis_on_which_models_grow_is_an_error(
    axis: str, growth: float, is_error: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = {100: 1.0, 1600: 16 * growth}
    measured: list[tuple[int, int]] = []

    def in_a_process(axis: str, n: int, times: int) -> tuple[int, dict[str, float]]:
        measured.append((n, times))
        return n, {"model": seconds.get(n, 0.0)}

    monkeypatch.setattr(growth_of_models, "in_a_process", in_a_process)
    monkeypatch.setattr(sys, "argv", ["growth_of_models", "--axes", axis, "--events", "100", "1600"])
    if is_error:
        with pytest.raises(SystemExit, match=f"per event: {axis}"):
            growth_of_models.main()
    else:
        growth_of_models.main()
    assert measured == [(60, 2), (100, 2), (1600, 1)]
    assert f"| {axis} | 1,600 | {16 * growth:.1f} | {growth:.2f} |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ImportError("no torchrec"), "torchrec is not installed here: its train pipeline was not measured"),
        (OSError("symbol"), "torchrec does not import here (OSError): its train pipeline was not measured"),
        (None, None),
    ],
)
def test_what_keeps_torchrec_from_being_measured(
    error: Exception | None, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def imported(name: str) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(engine_torchrec, "importlib", SimpleNamespace(import_module=imported))
    assert engine_torchrec.missing() == reason


def test_htas_side_says_what_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins replace the functions of HTA that are called, because HTA is installed in another environment."""
    graph = SimpleNamespace(nodes=[1, 2, 3], edges=[1, 2], summary=lambda: {"gpu": 75})
    analyzer = SimpleNamespace(
        t=SimpleNamespace(get_trace=lambda rank: [0] * 7), critical_path_analysis=lambda **_: (graph, True)
    )
    analysis: Any = ModuleType("hta.trace_analysis")
    analysis.TraceAnalysis = lambda trace_files, trace_dir: analyzer
    monkeypatch.setitem(sys.modules, "hta", ModuleType("hta"))
    monkeypatch.setitem(sys.modules, "hta.trace_analysis", analysis)
    monkeypatch.setattr(logging, "disable", lambda level: None)
    loaded, path = hta_side.main("load", "a.json"), hta_side.main("path", "a.json")
    assert loaded["rows"] == 7 and set(loaded["seconds"]) == {"import", "load"}
    assert set(path["seconds"]) == {"import", "load", "path", "summary"}
    assert (path["nodes"], path["edges"], path["success"], path["summary"]) == (3, 2, True, {"gpu": 75.0})


def test_htas_side_imports_hta_and_not_the_benchmark_of_that_name(tmp_path: Path) -> None:
    package = tmp_path / "hta"
    package.mkdir()
    (package / "__init__.py").touch()
    analyzer = "SimpleNamespace(t=SimpleNamespace(get_trace=lambda rank: [0] * 7))"
    (package / "trace_analysis.py").write_text(
        f"from types import SimpleNamespace\nTraceAnalysis = lambda **_: {analyzer}\n"
    )
    command = hta.hta_side(Path(sys.executable), "load", tmp_path / "a.json")
    run = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["rows"] == 7


def first_screen() -> Any:
    spec = importlib.util.spec_from_file_location("first_screen", ROOT / "docs/images/first_screen.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_browser_there_are_no_pictures_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="chromium or chrome is not on the PATH"):
        first_screen().main()


@pytest.mark.slow
def test_the_pages_of_the_docs_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each picture is replaced with the HTML page that the browser would photograph."""
    screen = first_screen()
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(shutil, "which", lambda name: name)
    monkeypatch.setattr(screen, "HERE", tmp_path)
    monkeypatch.setattr(screen, "photograph", lambda browser, work, page, target, *size: shutil.copy(page, target))
    screen.main()
    timeline = (tmp_path / "timeline.png").read_text(encoding="utf-8")
    assert all(f"rank {rank}, stream" in timeline for rank in range(4)) and 'class="arrow"' in timeline
    assert "job42" in (tmp_path / "report.png").read_text(encoding="utf-8")
