"""Tables of captures through Dagster: ranks that arrive later on the same day, and the results of the checks."""

import json
from pathlib import Path

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_capture import materialize_captures
from tests.dagster.tiny import write_trace


def as_rank(path: Path, rank: int) -> Path:
    content = json.loads(path.read_text())
    content["distributedInfo"] = {"rank": rank, "world_size": 2}
    path.write_text(json.dumps(content))
    return path


def checks_of(result) -> dict[str, bool]:
    return {
        f"{evaluation.asset_key.to_user_string()}.{evaluation.check_name}": evaluation.passed
        for evaluation in result.get_asset_check_evaluations()
    }


@pytest.mark.slow  # tests/fleet/test_growth.py has late ranks without Dagster
def test_late_ranks_within_a_day_and_a_rank_that_comes_twice(run, inbox: Path, tmp_path: Path) -> None:
    early = Lake(tmp_path / "lake")
    ingest([as_rank(write_trace(inbox / "rank0.json"), 0)], early)
    materialize_captures(early, ["captures"])
    as_rank(write_trace(inbox / "rank1.json", 3), 1)
    tables = [name for name in load_catalog().of_captures if name.startswith("capture") and "path" not in name]
    checks = checks_of(run(only=tables))
    of_captures = {name: ok for name, ok in checks.items() if name.startswith("capture")}
    # with one capture the check compares nothing, and warns
    assert not of_captures.pop("capture_metrics.no_regression")
    assert of_captures["capture_ranks.unique_keys"] and all(of_captures.values())
    with duckdb.connect(str(tmp_path / "lake" / "analyst.duckdb"), read_only=True) as con:
        assert con.execute("SELECT n_ranks, n_traces FROM captures").fetchall() == [(2, 2)]
        assert con.execute("SELECT rank FROM capture_ranks ORDER BY rank").fetchall() == [(0,), (1,)]
    as_rank(write_trace(inbox / "again.rank1.json", 5), 1)
    checks = checks_of(run(only=tables))
    assert not checks["capture_quality.no_warning"] and checks["capture_ranks.unique_keys"]
    with duckdb.connect(str(tmp_path / "lake" / "analyst.duckdb"), read_only=True) as con:
        assert con.execute("SELECT n_ranks, n_traces FROM captures").fetchall() == [(2, 3)]
