"""What limits a path's answer is told where the answer is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.faces.notebook import TraceAnalysis


@pytest.mark.slow  # 2 s: which there are is in test_caveats.py
def test_caveats_stand_beside_the_summary(shared: Path, capsys: pytest.CaptureFixture) -> None:
    """The trace of AMD's GPUs has no cuda_sync events: HTA's summary would say nothing of it."""
    trace = shared / "traces" / "single" / "mi300_rccl_metadata.json.gz"
    with TraceAnalysis(trace_files={0: str(trace)}) as analyzer:
        path, success = analyzer.critical_path_analysis(0)
        assert success
        capsys.readouterr()
        path.summary()
        told = capsys.readouterr()
        assert "warning: the trace has no cuda_sync events" in told.err and "cuda_sync" not in told.out
        assert path.caveats == path.answer.as_json()["caveats"]
        assert {"no_sync_events", "inferred_waits"} <= {caveat["caveat"] for caveat in path.caveats}
