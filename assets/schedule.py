"""Assets that run schedules of software pipelines, ingest their timings into the lake and show the results."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import duckdb
from pydantic import Field

from assets.metadata import markdown_table, shown_files, table_spec
from assets.pictures import image
from pipelines.faces.schedule_picture import picture_of_run
from pipelines.lake import Lake
from pipelines.lake.names import RUN_MARK
from pipelines.lake.publish.analyst_file import analyst
from pipelines.models.catalog import load_catalog
from pipelines.models.questions import rows_of_question
from pipelines.readers.ingest import ingest
from pipelines.readers.schedule_runs import RUN_TABLES
from pipelines.schedule.errors import PlanError
from pipelines.schedule.plan.plan_file import load_plan

POOL = "schedule_device"
LEGAL_PLAN = "legal_plan"


class ScheduleConfig(dg.Config):
    """The schedules that a run measures, one plan after the other. The engines of a plan are compared with serial."""

    plans: list[str] = Field(default=["mlp"], min_length=1)
    engines: list[str] = Field(default=["serial", "sw", "dataflow"], min_length=1)
    device: str = "auto"  # cuda if available, else cpu; or cuda:N, cpu, simulated
    iterations: int = 50
    warmup: int = 5
    rounds: int = Field(default=5, description="Rounds in which the engines take turns; the spread is over them.")
    size: str | None = Field(default=None, description="tiny, small or large; default: large on cuda, else small.")
    jitter_us: float = Field(default=0.0, description="Mean of a random delay of one task, us.")
    jitter_task: str | None = Field(default=None, description="The task to delay; default: the plan's first.")
    seed: int = 0
    max_depth: int | None = Field(default=None, description="Iterations in flight with engine dataflow.")
    trace: bool = Field(
        default=False,
        description="Record and ingest a profiler trace of each run, for schedule_spans. Not on device simulated.",
    )
    profile: bool = Field(default=False, description="Measure each task's exposed time, for schedule_exposed_times.")
    timeout_s: float = Field(default=3600.0, description="A plan that takes longer is stopped, and the run fails.")


def view_assets() -> list[dg.AssetSpec]:
    """Return the specs of the views over runs, or over the batches of a capture.

    A view is evaluated on every query, so Dagster shows views but does not compute them.
    """
    return [table_spec(name, {"sql", "duckdb"}) for name, m in load_catalog().models.items() if m.kind == "view"]


_CHECKS = {
    "no_lost_iteration": ("Every task of every iteration of the plan has a timing.", "n_lost IS NULL OR n_lost <> 0"),
    "efficiency_not_worse": ("Not less efficient than the previous run by more than the noise of both.", "is_worse"),
}


@dg.multi_asset(
    name="schedules",
    # Without "torch", because runs are also ingested from folders, and runs on the device `simulated` do not import it.
    specs=[table_spec(name, {"duckdb", "parquet"}) for name in RUN_TABLES],
    check_specs=[
        dg.AssetCheckSpec(
            LEGAL_PLAN, asset="schedule_plans", description="The validator accepts every requested plan."
        ),
        *(dg.AssetCheckSpec(name, asset="schedule_runs", description=about) for name, (about, _) in _CHECKS.items()),
    ],
    pool=POOL,  # one run at a time on the device
)
def schedule_runs(
    context: dg.AssetExecutionContext, config: ScheduleConfig, lake: dg.ResourceParam[Lake]
) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    """Run every plan with every engine in a separate process and write the timings back as tables.

    An illegal plan fails its check and the run, before anything runs.
    """
    refused = _refused(config.plans)
    yield dg.AssetCheckResult(
        passed=not refused,
        asset_key="schedule_plans",
        check_name=LEGAL_PLAN,
        metadata={plan: dg.MetadataValue.text(reason) for plan, reason in refused.items()},
    )
    if refused:
        raise dg.Failure("\n".join(refused.values()))
    warned: dict[str, None] = {}  # without duplicates, in the order of the runs
    with tempfile.TemporaryDirectory() as folder:
        try:
            for plan in config.plans:
                for engines in _turns(config):
                    process = _run(plan, engines, config, Path(folder))
                    context.log.info(process.stdout)
                    if warning := process.stderr.strip():
                        context.log.warning(warning)
                        warned[warning] = None
        finally:  # if a plan fails, keep the measurements of the earlier plans
            report = ingest([folder], lake)
    failed = [f"{Path(row.path).name}: {row.reason}" for row in report.rejected]
    if failed:
        raise dg.Failure(f"a run's tables could not be ingested: {'; '.join(failed)}")
    known_runs = lake.known(RUN_MARK)  # the report also lists the runs' profiler traces
    runs = [row.trace_id for row in report.rows if row.trace_id in known_runs]
    with analyst(lake, RUN_TABLES) as con:
        compared = _compared(con, runs)
        pictures = {f"timeline {run}": image("timeline", picture_of_run(con, run)) for run in runs}
        checked = {name: _check(con, name, bad, runs) for name, (_, bad) in _CHECKS.items()}
    for table in RUN_TABLES:
        more = {"compared": dg.MetadataValue.md(compared), **pictures} if table == "schedule_runs" else {}
        if more and warned:
            more["warnings"] = dg.MetadataValue.text("\n".join(warned))
        files = [str(path) for path in lake.committed_files(table)]
        results = list(checked.values()) if table == "schedule_runs" else []
        yield dg.MaterializeResult(
            table, metadata={**shown_files(table, files), "runs": len(runs), **more}, check_results=results
        )


def _compared(con: duckdb.DuckDBPyConnection, runs: list[str]) -> str:
    """Return a Markdown table of the runs that are the latest of their plan, engine, device, size and jitter."""
    rows = [row for row in rows_of_question(con, "schedule-runs") if row["run_id"] in runs]
    if not rows:
        return "The lake has a later run of each plan, engine, device, size and jitter."
    return markdown_table(list(rows[0]), [tuple(row.values()) for row in rows], width=400)


def _refused(plans: list[str]) -> dict[str, str]:
    """Return the plans that cannot run, each with the error message."""
    refused = {}
    for plan in plans:
        try:
            load_plan(plan)
        except (PlanError, LookupError) as error:
            refused[plan] = str(error.args[0])
    return refused


def _check(con: duckdb.DuckDBPyConnection, name: str, bad: str, runs: list[str]) -> dg.AssetCheckResult:
    cursor = con.execute(
        f"SELECT * FROM schedule_run_checks WHERE run_id IN (SELECT unnest($runs)) AND ({bad})", {"runs": runs}
    )
    rows = cursor.fetchall()
    table = markdown_table([column[0] for column in cursor.description or ()], rows)
    return dg.AssetCheckResult(
        passed=not rows,
        asset_key="schedule_runs",
        check_name=name,
        severity=dg.AssetCheckSeverity.ERROR if name == "no_lost_iteration" else dg.AssetCheckSeverity.WARN,
        metadata={"found": dg.MetadataValue.md(table)} if rows else {},
    )


def _turns(config: ScheduleConfig) -> list[list[str]]:
    """Return the options that choose engines, one list per process: a comparison with serial, or single engines."""
    if len(config.engines) > 1 and "serial" in config.engines:
        return [["--compare", *config.engines, "--rounds", str(config.rounds)]]
    return [["--engine", engine] for engine in config.engines]


def _run(plan: str, engines: list[str], config: ScheduleConfig, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a plan in its own process. Return the process with its output. Raise dg.Failure if it fails or takes too long."""
    command = [sys.executable, "-m", "pipelines.schedule.run", "--plan", plan, *engines, "--out", str(folder)]
    options = {
        **{name: getattr(config, name) for name in ("iterations", "warmup", "size", "seed")},
        "jitter-us": config.jitter_us,
        "jitter-task": config.jitter_task,
        "device": None if config.device == "auto" else config.device,
        "max-depth": config.max_depth if {"--compare", "dataflow"} & set(engines) else None,
    }
    command += [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    command += [f"--{name}" for name in ("trace", "profile") if getattr(config, name)]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=config.timeout_s)
    except subprocess.TimeoutExpired as error:
        raise dg.Failure(f"plan {plan} was stopped after timeout_s = {config.timeout_s:g} s") from error
    if process.returncode:
        raise dg.Failure(f"plan {plan}: {(process.stderr or process.stdout).strip()[-2000:]}")
    return process
