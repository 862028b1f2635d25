"""The top of the page for nearly empty traces, and its sentences about a window's causes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.faces.report import subject as subjects
from pipelines.faces.report.subject import Subject
from tests.faces.report.read_page import report
from tests.harness import call, kernel, op, x


def verdict(tmp_path: Path, *events: dict[str, Any]) -> str:
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return report(tmp_path, path).texts["verdict"]


def test_commands_find_the_shown_trace_in_its_lake_or_as_a_process_of_its_file() -> None:
    subject = Subject(duckdb.connect(), "c", [], {}, "", process="TP00")
    assert subject.options == ["--process", "TP00"]
    assert replace(subject, lake="/data/lake").options == ["--lake", "/data/lake"]
    assert replace(subject, process=None).options == []


def test_only_several_ranks_have_an_answer_of_their_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a subject of several ranks has an answer about its capture.

    test_page.py (slow) tests that the page shows this answer first, and that it equals the answer of `why`.
    """
    monkeypatch.setattr(subjects, "capture_why", lambda _, capture_id: f"why {capture_id}")
    con = duckdb.connect()
    assert Subject(con, "c", [{}, {}], {}, "").capture_answer == "why c"
    assert Subject(con, "c", [{}], {}, "").capture_answer is None
    assert Subject(con, None, [{}], {}, "").capture_answer is None


@pytest.mark.slow  # test_page.py tests the page of a CPU-only trace
def test_a_trace_without_a_path_has_a_page(tmp_path: Path) -> None:
    said = verdict(tmp_path, {"ph": "X", "name": "load", "pid": 1, "tid": 1, "ts": 0, "dur": 10})
    assert "no GPU work: 1 event in 10.0 us" in said
    assert "no critical path, so the savings of changes are unknown" in said
    said = verdict(tmp_path, kernel("gemm", 10, 0, 1))
    assert "no critical path, so the savings of changes are unknown" in said


@pytest.mark.slow  # 2 s; test_page.py compares the sentence with that of `why`
def test_the_sentence_is_that_of_why_and_a_wait_saves_nothing(tmp_path: Path) -> None:
    said = verdict(
        tmp_path,
        op("aten::mm", 0, 60),
        call("cudaLaunchKernel", 50, 2, 1),
        kernel("k", 70, 400, 1),
        call("cudaDeviceSynchronize", 60, 500, 2),
        x("user_annotation", "load_batch", 570, 600),
        op("aten::mm", 1180, 60),
        call("cudaLaunchKernel", 1190, 2, 3),
        kernel("k", 1200, 100, 3),
    )
    assert "Of 1.30 ms the GPU computes 500.0 us; 600.0 us it waits for data loading (load_batch)" in said
    assert "data loading, 600.0 us (46.2 %): load_batch (100 %)" in said
    assert "without it the trace would take 700.0 us instead of 1.30 ms (-46.2 %)" in said
    assert f"tracelake what-if {tmp_path / 'rank0.json'} --remove cause:data_loading" in said


@pytest.mark.slow  # 2 s; test_caveats.py tests the sentence of what-if
def test_a_gain_of_gaps_in_which_the_trace_may_lack_events_says_so(tmp_path: Path) -> None:
    calls = [call("cudaLaunchKernel", 10 * n, 5, n) for n in (1, 2)]
    said = verdict(tmp_path, op("aten::mm", 0, 60), *calls, kernel("gemm", 30, 100, 1), kernel("gemm", 5130, 100, 2))
    assert "GPU waiting between kernels, 5.00 ms" in said
    assert "instead of 5.23 ms (-95.6 %); but 5.0 ms of the path are gaps over 1 ms in which nothing ran" in said


@pytest.mark.slow  # 4 s
def test_what_would_help_has_the_commands_that_give_its_numbers(tmp_path: Path) -> None:
    """Each suggestion has the command that gives its number.

    Without the wait the second kernel follows the first after 1 us, so 20 + 1,000 + 1 + 1,000 us remain of 2,500.
    """
    said = verdict(
        tmp_path,
        op("aten::mm", 0, 40),
        call("cudaLaunchKernel", 10, 5, 1),
        kernel("k", 20, 1000, 1),
        op("aten::item", 50, 980),
        call("cudaDeviceSynchronize", 60, 965, 2),
        op("aten::mm", 1100, 400),
        call("cudaLaunchKernel", 1110, 5, 3),
        kernel("k", 1500, 1000, 3),
    )
    assert "What would help, each by itself, in the 2.50 ms" in said
    assert (
        "saves 479.0 us (19.2 %): do not wait for the GPU in aten::item: read its result later, or not at all" in said
    )
    assert f"tracelake what-if {tmp_path / 'rank0.json'} --remove wait:aten::item" in said
    assert said.index("Gain: ") < said.index("What would help")
