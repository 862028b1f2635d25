"""Caveats of a path's answer, which are printed with the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.faces.notebook import TraceAnalysis
from pipelines.synthetic import CaptureSpec, write_capture
from tests.faces.cli.test_limiting_findings import CAPTURES


@pytest.mark.slow  # 2 s; test_caveats.py tests each caveat
def test_caveats_stand_beside_the_summary(shared: Path, capsys: pytest.CaptureFixture) -> None:
    """Caveats are printed with the summary, but on stderr.

    The trace of AMD's GPUs has no cuda_sync events, about which HTA's summary would print nothing.
    """
    trace = shared / "traces" / "single" / "mi300_rccl_metadata.json.gz"
    with TraceAnalysis(trace_files={0: str(trace)}) as analyzer:
        path, success = analyzer.critical_path_analysis(0)
        assert success
        capsys.readouterr()
        path.summary()
        output = capsys.readouterr()
        assert "warning: the trace has no cuda_sync events" in output.err and "cuda_sync" not in output.out
        assert path.caveats == path.answer.as_json()["caveats"]
        assert {"no_sync_events", "inferred_waits"} <= {caveat["caveat"] for caveat in path.caveats}


@pytest.mark.slow  # 10 s; tests/faces/cli/test_limiting_findings.py tests each of them
def test_what_limits_a_capture_stands_beside_answers_about_captures(tmp_path: Path) -> None:
    write_capture(CaptureSpec(ranks=4, steps=3, straggler=2, seed=7), tmp_path / "ranks")
    write_capture(CaptureSpec(ranks=2, steps=3, seed=8), tmp_path / "whole")
    sentence = CAPTURES["missing_ranks"](tmp_path / "ranks")
    with TraceAnalysis(trace_dir=tmp_path / "whole", lake=tmp_path / "lake", job="whole") as whole:
        assert whole.ask("captures").caveats == []
    with TraceAnalysis(trace_dir=tmp_path / "ranks", lake=tmp_path / "lake", job="ranks") as analysis:
        for answer in (analysis.ask("captures"), analysis.sql("SELECT rank, marginal_ns FROM straggler_ranks")):
            assert [caveat for caveat in answer.caveats if sentence in caveat], answer.caveats
            assert sentence in repr(answer) and sentence in answer._repr_html_()
        assert analysis.sql("SELECT count(*) FROM kernels").caveats == []
    with TraceAnalysis(lake=tmp_path / "lake", job="whole") as whole:
        assert whole.ask("captures").caveats == []
