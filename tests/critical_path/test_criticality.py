"""Critical kernels and operators over the steps and ranks of a capture that was ingested in two batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.names import ANALYST
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from tests.harness import kernel, x


def _rank(folder: Path, rank: int, *events: dict[str, Any]) -> Path:
    path = folder / f"rank{rank}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"distributedInfo": {"rank": rank}, "traceEvents": list(events)}))
    return path


def _step(number: int, start: float, dur: float) -> dict[str, Any]:
    return x("user_annotation", f"ProfilerStep#{number}", start, dur)


@pytest.mark.slow  # 2 s
def test_windows_and_shares_over_ranks_and_batches(tmp_path: Path) -> None:
    lake, folder = Lake(tmp_path / "lake"), tmp_path / "in"
    steps = (_step(1, 0, 100), _step(2, 100, 100))
    long_then_short = (
        kernel("gemm", 10, 130, 1),
        kernel("copy", 12, 8, 2, stream=8),
        kernel("copy", 110, 95, 3, stream=8),
    )
    ingest([_rank(folder, 0, *steps, *long_then_short)], lake)
    ingest([_rank(folder, 1, kernel("gemm", 10, 2, 1), kernel("copy", 9, 62, 2, stream=8))], lake)
    ingest([_rank(tmp_path / "other", 0, kernel("gemm", 10, 5, 1))], lake)
    materialize(lake, ["critical_path_windows", "critical_path_summary", "critical_path_by_name"])
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        rows = con.execute(
            "SELECT name, n_windows_on_path, n_windows, n_ranks_on_path, n_ranks, n_events, duration_ns, "
            "percent_of_windows, percent_of_path FROM kernel_criticality ORDER BY n_windows DESC, name"
        ).fetchall()
    # On rank 0, gemm is critical in step 1 and copy in step 2, each from 10 us after the step's start. Rank 1 has no
    # steps, so its whole trace counts as a window, in which copy is critical.
    assert rows == [
        ("copy", 2, 3, 2, 2, 2, 157_000, 100 * 2 / 3, 100 * 157 / 307),
        ("gemm", 1, 3, 1, 2, 1, 130_000, 100 / 3, 100 * 130 / 307),
        ("gemm", 1, 1, 1, 1, 1, 5_000, 100.0, 100.0),
    ]
