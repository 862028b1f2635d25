"""How DuckDB runs the models of a path: what it costs must grow with the trace, not with its square."""

from __future__ import annotations

import pytest

from pipelines.critical_path.graph.windows import PROFILES, WindowRequest, request_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import call, connect, kernel, op

# Every row with every row; the names of a trace with the few rules of classes are meant so.
EVERY_PAIR = ("BLOCKWISE_NL_JOIN", "NESTED_LOOP_JOIN", "PIECEWISE_MERGE_JOIN", "IE_JOIN")
_MEANT = {"_kernel_class"}


@pytest.mark.parametrize("profile", PROFILES)
def test_no_model_of_a_path_compares_every_row_with_every_row(profile: str) -> None:
    con, trace_id = connect([op("a", 0, 100), call("cudaLaunchKernel", 10, 5, 1), kernel("gemm", 20, 50, 1)])
    request_windows(con, [WindowRequest(trace_id, profile=profile)])
    catalog = load_catalog()
    names = catalog.closure(["critical_path", "critical_path_summary", "critical_path_caveats"])
    run_models(con, catalog, names)
    models = [model for name in names if (model := catalog.models[name]).kind == "sql" and name not in _MEANT]
    assert len(models) > 30
    for model in models:
        plan = con.execute(f"EXPLAIN {model.sql}").fetchall()[0][1]
        assert not [join for join in EVERY_PAIR if join in plan], model.name
