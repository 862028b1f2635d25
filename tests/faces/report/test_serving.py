"""The section about a server's steps, for three traces with known times, rendered as on a page."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.faces.report.page import render
from pipelines.faces.report.sections.serving import serving
from pipelines.faces.report.subject import Subject
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.faces.report.read_page import Page
from tests.harness import call, connect_all, kernel, x


def step(name: str, ts: float, dur: float, number: int = 0) -> list[dict[str, Any]]:
    """Return the events of a step. If `number` is set, a kernel runs during the first half of the step."""
    gpu = [call("cudaLaunchKernel", ts, 1, number), kernel("gemm", ts, dur / 2, number)] if number else []
    return [x("user_annotation", name, ts, dur), *gpu]


@pytest.mark.slow  # 5 s
def test_the_section_has_the_rates_of_the_shown_trace_only() -> None:
    decode = [e for n in (1, 2, 3) for e in step("step[DECODE bs=4]", 10_000 * n, 1000 * n, n)]
    other = step("step[DRAFT_EXTEND_V2 bs=4]", 50_000, 5000)
    con, (shown, elsewhere, none) = connect_all(
        [[*decode, *other], step("step[DECODE bs=4]", 0, 9), [x("cpu_op", "a", 0, 1)]]
    )
    run_models(con, load_catalog(), ["serving_steps"])

    def section(trace_id: str) -> Any:
        trace = {"trace_id": trace_id, "rank": 0, "path": "a.json"}
        return serving(Subject(con, None, [trace], trace, ""))

    assert section(none) is None
    page = Page(render({"title": "t", "kind": "k", "facts": {}}, [section(shown)]))
    rows = page.rows("serving_steps")
    keys = ("n_requests", "n_steps", "p50_ns", "p99_ns", "steps_per_s", "tokens_per_s", "gpu_busy_percent")
    assert [tuple(row[key] for key in keys) for row in rows] == [
        ("4", "3", "2000000.0", "3000000.0", "500.0", "2000.0", "50.0"),
        ("4", "1", "5000000.0", "5000000.0", "200.0", None, "0.0"),
    ]
    _, _, cells = page.texts["serving"].rpartition("GPU busy")
    assert cells.index("decode") < cells.index("unknown")
    assert "4 steps of a server. The phase of 1 is unknown" in page.texts["serving"]
    assert (
        "1 step of a server."
        in Page(render({"title": "t", "kind": "k", "facts": {}}, [section(elsewhere)])).texts["serving"]
    )
