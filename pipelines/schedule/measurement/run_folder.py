"""Output of a run's measurements as tables in a folder, which appears complete or not at all."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import Any

from pipelines.schedule.measurement.measure import torch_version
from pipelines.schedule.measurement.run_tables import TABLES, arrow_table
from pipelines.schedule.measurement.settings import Measured, Settings
from pipelines.schedule.measurement.task_times import median_durations, submit_times, work_durations
from pipelines.schedule.search.cycles import longest_cycle
from pipelines.schedule.search.predict import prediction_of, steady

Rows = list[dict[str, Any]]
_PREDICTED_ITERATIONS = 200


def tables_of(run: Settings, run_id: str, measured: Measured, trace_file: str | None) -> dict[str, Rows]:
    """Return the rows of every table of run_tables.py."""
    return {
        "schedule_runs": [_run(run, run_id, measured, trace_file)],
        "schedule_plans": _plan(run, run_id),
        "schedule_task_timings": _timings(run_id, measured),
        "schedule_exposed_times": _exposed(run_id, measured),
        "schedule_predictions": _predictions(run, run_id, measured),
        "schedule_rounds": [],
        "schedule_verdicts": [],
    }


def open_folder(out: Path, run_id: str) -> Path:
    """Create a hidden folder for the output, so that no reader mistakes it for a complete run."""
    folder = out / f".{run_id}.partial"
    folder.mkdir(parents=True)
    return folder


def close_folder(folder: Path, out: Path, run_id: str, tables: dict[str, Rows]) -> Path:
    """Write the tables and rename the folder into place."""
    from pyarrow import parquet

    for name in sorted(TABLES, key=lambda name: name == "schedule_runs"):  # schedule_runs last: it identifies the run
        parquet.write_table(arrow_table(name, tables[name]), folder / f"{name}.parquet", compression="zstd")
    os.rename(folder, out / run_id)
    return out / run_id


def discard_folder(folder: Path) -> None:
    """Remove the folder after a failure."""
    shutil.rmtree(folder, ignore_errors=True)


def _run(run: Settings, run_id: str, measured: Measured, trace_file: str | None) -> dict[str, Any]:
    seconds = measured.wall_ns / 1e9
    return {
        "run_id": run_id,
        "plan_hash": run.plan.plan_hash,
        **{name: getattr(run, name) for name in ("engine", "device", "seed", "size", "iterations")},
        "jitter_ns": int(1000 * run.jitter_us + 0.5),
        "device_name": measured.device_name,
        "torch_version": torch_version(),
        "python_version": platform.python_version(),
        "warmup": 0 if run.device == "simulated" else run.warmup,
        "wall_ns": measured.wall_ns,
        "throughput_per_s": run.iterations / seconds if seconds else None,
        "host": platform.node(),
        "started_at": measured.started_at,
        "max_depth": run.limit,
        "jitter_task": run.jitter_task if run.jitter_us else None,
        "trace_file": trace_file,
    }


def _plan(run: Settings, run_id: str) -> Rows:
    file = run.plan
    return [
        {
            "plan_hash": file.plan_hash,
            "run_id": run_id,
            "plan": file.name,
            "workload": file.workload,
            "position": position,
            "task": task.name,
            **{key: getattr(task, key) for key in ("stage", "stream", "thread_group", "globally_ordered")},
            "depends_on": ",".join(task.intra_iter_deps),
            "depends_on_last": ",".join(task.inter_iter_deps),
        }
        for position, task in enumerate(file.tasks)
    ]


def _timings(run_id: str, measured: Measured) -> Rows:
    rows = []
    for i, span in enumerate(measured.timeline.spans):
        launch = measured.launches[i] if measured.launches else None
        rows.append(
            {
                "run_id": run_id,
                "task": span.task,
                "iteration": span.iteration,
                "submit_ns": span.submit_ns,
                "start_ns": launch.start_ns if launch else span.start_ns,
                "end_ns": launch.end_ns if launch else span.end_ns,
                "device_start_ns": launch.device_start_ns if launch else None,
                "device_end_ns": launch.device_end_ns if launch else None,
                "stall_ns": span.stall_ns,
                "stall_cause": span.cause.short if span.cause else None,
            }
        )
    return rows


def _exposed(run_id: str, measured: Measured) -> Rows:
    if measured.profile is None:
        return []
    baseline_ns = round(measured.profile.baseline_s * 1e9)
    return [
        {"run_id": run_id, "task": task, "exposed_ns": round(seconds * 1e9), "baseline_ns": baseline_ns}
        for task, seconds in measured.profile.exposed_s.items()
    ]


def _predictions(run: Settings, run_id: str, measured: Measured) -> Rows:
    """Return predictions from a simulation with this run's median durations.

    If CUDA events measured the times, the host submits ahead (`retire` is "submitted") and each submission takes its
    shortest time.
    """
    names, durations = run.plan.checked.names, median_durations(run, measured)
    retire = "submitted" if measured.by_events else "finished"
    timeline = run.simulated(
        durations, iterations=_PREDICTED_ITERATIONS, submit_ns=submit_times(measured), retire=retire
    )
    prediction = prediction_of(timeline, run.plan.checked)
    first, past = steady(timeline.completions())
    stalls = dict.fromkeys(names, 0)
    for span in timeline.spans:
        if first < span.iteration <= past:
            stalls[span.task] += span.stall_ns
    cycle_ns, cycle = longest_cycle(run.plan.checked, work_durations(run, measured))
    whole = {
        "period_ns": round(prediction.period_ns),
        "ideal_ns": round(prediction.ideal_ns),
        "cycle_ns": round(cycle_ns) if cycle else None,
        "cycle": cycle or None,
    }
    empty = {"task": None, "duration_ns": None, **dict.fromkeys(whole)}
    stall_ns = round(sum(stalls.values()) / (past - first))
    rows = [{**empty, **whole, "stall_ns": stall_ns}]
    for name in names:
        stall_ns = round(stalls[name] / (past - first))
        rows.append({**empty, "task": name, "duration_ns": durations[name], "stall_ns": stall_ns})
    return [{"run_id": run_id, **row} for row in rows]
