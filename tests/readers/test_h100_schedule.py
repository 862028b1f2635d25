"""Runs of small models on an H100, whose host could not keep up: what is said of them is true, though events count its gaps."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from pipelines.schedule.errors import PlanWarning
from pipelines.schedule.measurement.comparison import verdict
from pipelines.schedule.measurement.probe import Probe
from pipelines.schedule.measurement.settings import Settings
from pipelines.schedule.measurement.task_times import limit_by, warn_if_host_bound
from pipelines.schedule.plan.plan_file import load_plan

ITERATIONS = 30
RUNS = ("fused_sparse_dist-sw", "mlp-sw", "mlp-dataflow")


@pytest.fixture(scope="module")
def con(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    folder = shared / "traces" / "h100_schedule" / "small"
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    lake = Lake(tmp_path_factory.mktemp("h100") / "lake")
    ingest([path for path in folder.iterdir() if path.name.partition("-")[2].rpartition("-")[0] in RUNS], lake)
    materialize(lake, ["kernels", "backward_links"])
    return duckdb.connect(str(publish(lake)), read_only=True)


@pytest.mark.slow  # test_schedule_runs.py has the rules
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_waits_for_its_host_is_not_efficient(con: duckdb.DuckDBPyConnection, name: str) -> None:
    columns = "p.ideal_ns, p.work_ns, p.efficiency, r.iterations"
    query = (
        f"SELECT {columns} FROM schedule_periods p JOIN schedule_runs r USING (run_id) WHERE run_id LIKE '%-{name}-%'"
    )
    ((ideal_ns, work_ns, efficiency, iterations),) = con.execute(query).fetchall()
    trace = f"SELECT trace_id FROM schedule_spans WHERE run_id LIKE '%-{name}-%'"
    ((kernel_ns,),) = con.execute(f"SELECT sum(duration_ns) FROM kernels WHERE trace_id IN ({trace})").fetchall()
    assert iterations == ITERATIONS
    assert work_ns == pytest.approx(kernel_ns / ITERATIONS, rel=1e-3)
    assert ideal_ns <= work_ns and efficiency < 0.05


@pytest.mark.slow  # test_fake_gpu.py has the rules
@pytest.mark.parametrize("name", RUNS)
def test_its_warning_and_its_verdict_name_the_host(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """With the GPU work of its trace in place of a probe, which these runs lack."""
    of_run = f"WHERE run_id LIKE '%-{name}-%'"
    work = f"SELECT task, coalesce(kernel_ns, 0) // n_spans FROM schedule_traced_tasks {of_run} AND task IS NOT NULL"
    submit = f"SELECT task, min(end_ns - submit_ns) FROM schedule_task_timings {of_run} GROUP BY task"
    probe = Probe(dict(con.execute(work).fetchall()), dict(con.execute(submit).fetchall()))
    plan, _, engine = name.rpartition("-")
    run = Settings(load_plan(plan), engine, "cuda:0", iterations=ITERATIONS)
    with pytest.warns(PlanWarning, match="the host needs .* use larger batches or no pipeline"):
        warn_if_host_bound(run, probe)
    limit = limit_by(run, probe.device_ns, probe.submit_ns)
    assert limit.is_host_bound and limit.work_ns < 350_000
    ((period_ns,),) = con.execute(f"SELECT period_ns FROM schedule_periods {of_run}").fetchall()
    text = verdict([period_ns * 6 // 10], [period_ns], limit).text
    assert text.startswith("slower than serial (0.60 times as fast): the host needs ") and "the device works 0." in text
