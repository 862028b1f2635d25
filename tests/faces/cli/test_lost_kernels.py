"""A trace without the GPU work of some launches.

Every interface prints a caveat with its numbers, as for a truncated file.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from pipelines.faces.notebook import TraceAnalysis, restore_cpgraph
from tests.harness import call, kernel, op, x

from .test_early_ends import run

SENTENCE = (
    "lost.json: 4 of 6 launches have no GPU work: the profiler lost it (PyTorch issue 192021), so GPU times are too small "
    "and the GPU seems idle; steps without any: ProfilerStep#1"
)


def steps(lost: tuple[int, ...]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for i in range(6):
        at = 100.0 * i
        if i % 2 == 0:
            events.append(x("user_annotation", f"ProfilerStep#{i // 2}", at, 199))
        events += [op("aten::mm", at + 1, 20), call("cudaLaunchKernel", at + 5, 10, i + 1)]
        events += [] if i in lost else [kernel("gemm", at + 30, 40, i + 1)]
    return [*events, call("cudaDeviceSynchronize", 610, 10, 99)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a trace, and a trace without the work of four of six launches."""
    folder = tmp_path_factory.mktemp("lost")
    for name, lost in (("whole", ()), ("lost", (1, 2, 3, 5))):
        (folder / f"{name}.json").write_text(json.dumps({"traceEvents": steps(lost)}))
    return folder / "whole.json", folder / "lost.json"


def test_a_command_says_so_beside_its_numbers(files: tuple[Path, Path]) -> None:
    """`breakdown` prints the caveat with its numbers. test_limiting_findings.py tests the other commands."""
    for file, n in zip(files, (0, 1), strict=True):
        assert run("breakdown", file).stdout.count(f"caveat: {SENTENCE}") == n
    (answer,) = json.loads(run("breakdown", files[1], "--json").stdout)
    (caveat,) = [caveat for caveat in answer["caveats"] if "have no GPU work" in caveat["detail"]]
    assert caveat["severity"] == "error" and "4 of 6 launches have no GPU work" in caveat["detail"]


@pytest.mark.slow  # commands print it, see above
def test_a_saved_path_and_a_notebook_say_it(files: tuple[Path, Path], tmp_path: Path) -> None:
    saved = tmp_path / "path.zip"
    run("critical-path", files[1], "--save", saved)
    assert run("critical-path", saved).stdout.count(SENTENCE) == 1
    with pytest.warns(UserWarning, match="4 of 6 launches have no GPU work"):
        restore_cpgraph(saved)
    with pytest.warns(UserWarning, match="4 of 6 launches have no GPU work"), TraceAnalysis(str(files[1])) as analysis:
        assert repr(analysis.sql("SELECT count(*) AS n FROM traces")).startswith(f"caveat: {SENTENCE}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with TraceAnalysis(str(files[0])):
            pass


@pytest.mark.slow  # 4 s
def test_a_saved_path_says_how_bad_it_is_as_its_file_does(tmp_path: Path) -> None:
    """A saved path has the same caveats, with the same severities, as its file.

    One launch of 201 has no GPU work, which is a warning.
    """
    events = [
        e for i in range(201) for e in (call("cudaLaunchKernel", 20 * i, 5, i + 1), kernel("k", 20 * i + 9, 5, i + 1))
    ]
    file, saved = tmp_path / "few.json", tmp_path / "path.zip"
    file.write_text(
        json.dumps({"traceEvents": [e for e in events if e["name"] != "k" or e["args"]["correlation"] != 7]})
    )
    run("critical-path", file, "--save", saved)
    of_file, of_saved = (
        json.loads(run("what-if", path, "--remove", "launch_overhead", "--json").stdout)["caveats"]
        for path in (file, saved)
    )
    assert [caveat["severity"] for caveat in of_file] == ["warning"] and of_saved == of_file


@pytest.mark.slow  # a lake
def test_a_lake_says_it_and_quality_has_it(files: tuple[Path, Path], tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run("ingest", files[1], "--lake", lake)
    run("materialize", "--lake", lake)
    (row,) = json.loads(
        run("sql", "FROM quality WHERE check_name = 'lost_kernels'", "--lake", lake, "--format", "json").stdout
    )
    assert (row["n"], row["severity"]) == (4, "error") and row["detail"].endswith("ProfilerStep#1")
    assert run("why", row["trace_id"], "--lake", lake).stdout.count(SENTENCE) == 1
