"""The `default` profile on synthetic captures whose path length and bounds are known by construction."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.harness import ANSWERED, answer_in, answers, connect_all
from tests.synthetic.textbook import TEXTBOOK, textbook


@pytest.mark.slow  # 4 s
def test_textbook_cases(tmp_path: Path) -> None:
    cases = [textbook(name) for name in TEXTBOOK]
    files = [case.write(tmp_path / name) for name, case in zip(TEXTBOOK, cases, strict=True)]
    for case, (con, _) in zip(cases, answers(files), strict=True):
        rows = con.execute("SELECT bound_by, duration_ns FROM critical_path_summary WHERE duration_ns > 0").fetchall()
        assert dict(rows) == dict(case.expected.bound_by), case
        assert sum(n for _, n in rows) == case.expected.length_ns


CAPTURES = [
    CaptureSpec(ranks=2, steps=2, straggler=1, seed=3),
    CaptureSpec(ranks=1, steps=2, shape="inference", tokens=3, layers=2, op_ns=6000, kernel_ns=4000, seed=4),
    CaptureSpec(ranks=1, steps=2, shape="polling", tokens=4, layers=1, watchdog=True, seed=6),
    CaptureSpec(ranks=1, steps=2, shape="full_queue", tokens=100, ops_per_layer=2, op_ns=4000, queue_limit=110),
    CaptureSpec(ranks=1, steps=2, shape="inference_graph", tokens=3, layers=2, kernel_ns=4000, seed=5),
]


@pytest.mark.slow
def test_general_captures_in_full_and_step_by_step(tmp_path: Path) -> None:
    ranks = [rank for spec in CAPTURES for rank in write_capture(spec, tmp_path / spec.shape).ranks]
    con, traces = connect_all(rank.path for rank in ranks)
    windows = {
        trace_id: [
            WindowRequest(trace_id),
            *(WindowRequest(trace_id, f"step {n}", "default", "ProfilerStep", n, n) for n in range(2)),
        ]
        for trace_id in traces
    }
    request_windows(con, [window for of_trace in windows.values() for window in of_trace])
    run_models(con, load_catalog(), [*ANSWERED, "temporal_breakdown"])
    for rank, (trace_id, asked) in zip(ranks, windows.items(), strict=True):
        lengths = [round(1000 * answer_in(con, window).length_us) for window in asked]
        assert lengths == [part.length_ns for part in (rank.truth.full, *rank.truth.steps)], rank.path
        truth = asdict(rank.truth.breakdown)
        query = f"SELECT {', '.join(truth)} FROM temporal_breakdown WHERE trace_id = '{trace_id}'"
        (row,) = con.execute(query).fetchall()
        assert dict(zip(truth, row, strict=True)) == truth
