"""The `default` profile on synthetic captures: the path's length and what bounds it are known by construction."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from pipelines.critical_path.answer import critical_path
from pipelines.critical_path.windows import WindowNotFound, WindowRequest
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.harness import connect
from tests.synthetic.textbook import TEXTBOOK, textbook


@pytest.mark.parametrize("name", TEXTBOOK)
def test_textbook_cases(name: str, tmp_path: Path) -> None:
    case = textbook(name)
    con, trace_id = connect(case.write(tmp_path))
    critical_path(con, load_catalog(), WindowRequest(trace_id))
    rows = con.execute("SELECT bound_by, duration_ns FROM critical_path_summary WHERE duration_ns > 0").fetchall()
    assert dict(rows) == dict(case.expected.bound_by)
    assert sum(n for _, n in rows) == case.expected.length_ns


@pytest.mark.parametrize(
    "spec",
    [
        CaptureSpec(ranks=2, steps=2, straggler=1, seed=3),
        CaptureSpec(ranks=1, steps=2, shape="inference", tokens=3, layers=2, op_ns=6000, kernel_ns=4000, seed=4),
        CaptureSpec(ranks=1, steps=2, shape="inference_graph", tokens=3, layers=2, kernel_ns=4000, seed=5),
    ],
    ids=lambda spec: spec.shape,
)
def test_a_general_capture_in_full_and_step_by_step(spec: CaptureSpec, tmp_path: Path) -> None:
    capture = write_capture(spec, tmp_path)
    for rank in capture.ranks:
        con, trace_id = connect(rank.path)
        answer = critical_path(con, load_catalog(), WindowRequest(trace_id))
        assert round(1000 * answer.length_us) == rank.truth.full.length_ns
        for number, step in enumerate(rank.truth.steps):
            request = WindowRequest(trace_id, "step", "default", "ProfilerStep", number, number)
            answer = critical_path(con, load_catalog(), request, with_path=False)
            assert round(1000 * answer.length_us) == step.length_ns
        run_models(con, load_catalog(), ["temporal_breakdown"])
        truth = asdict(rank.truth.breakdown)
        names = list(truth)
        (row,) = con.execute(f"SELECT {', '.join(names)} FROM temporal_breakdown").fetchall()
        assert dict(zip(names, row, strict=True)) == truth


def test_a_window_that_is_not_there_lists_what_is(tmp_path: Path) -> None:
    capture = write_capture(CaptureSpec(ranks=1, steps=2, seed=3), tmp_path)
    con, trace_id = connect(capture.ranks[0].path)
    for request in (
        WindowRequest(trace_id, "w", "default", "Nonsense"),
        WindowRequest(trace_id, "w", "default", "ProfilerStep", 9, 9),
    ):
        with pytest.raises(WindowNotFound, match="ProfilerStep#"):
            critical_path(con, load_catalog(), request)
