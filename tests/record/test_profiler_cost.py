"""The recording cost on this machine: measured, written into a trace, and used instead of the rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import connect
from tracelake.record import note_profiler_cost, profiler_cost

torch = pytest.importorskip("torch")


def test_it_is_measured() -> None:
    cost = profiler_cost("cpu", repeats=5)
    assert set(cost) == {"operator_ns", "cheap_operator_ns", "frame_ns", "annotation_ns"}
    # The machine may be busy, so only the order of magnitude is checked.
    assert 10 < cost["cheap_operator_ns"] < 100_000 and all(0 <= ns < 1_000_000 for ns in cost.values())


def test_a_trace_that_has_it_is_read_with_it(tmp_path: Path) -> None:
    path, x = tmp_path / "trace.json", torch.ones(2, 2)
    cost = {
        "operator_ns": 1000.0,
        "frame_ns": 7.0,
        "cheap_operator_ns": 0.001,
    }  # faster than any host, so slowness is 1
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    note_profiler_cost(profile, cost)
    with profile:
        for _ in range(20):
            x.t()
    profile.export_chrome_trace(str(path))
    con, _ = connect(path)
    with con:
        run_models(con, load_catalog(), ["profiler_cost"])
        columns = "n_operators, operators_ns, slowness, without_profiler_ns < length_ns"
        assert con.execute(f"SELECT {columns} FROM profiler_cost").fetchall() == [(60, 60_000, 1.0, True)]
