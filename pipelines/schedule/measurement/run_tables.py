"""Tables of a run of a schedule, written as Parquet files, column by column.

A run is one folder, `<run_id>/`, with one file per table (`schedule_runs.parquet`, …), including tables without rows.
The folder is renamed into place once it is completely written. Times are integer nanoseconds, NULL if they were not
measured.

Clocks: "run time" is ns since the run's start, on `cpu` and `cuda` by the host's monotonic clock, on `simulated` in
virtual time. "Device time" is the GPU's clock, measured by CUDA events. Its zero is the run's start, to within the time
that an event takes to reach an idle GPU (about 10 us). Only `cuda` has device time, so these columns never contain a
CPU's time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Column:
    """One column: name, SQL type and documentation."""

    name: str
    type: str
    doc: str
    nullable: bool = False


_RUN = Column("run_id", "VARCHAR", "The run.")

TABLES: dict[str, tuple[Column, ...]] = {
    # One row per run.
    "schedule_runs": (
        _RUN,
        Column("plan_hash", "VARCHAR", "The plan, in schedule_plans."),
        Column("engine", "VARCHAR", "serial, sw or dataflow."),
        Column("device", "VARCHAR", "cuda:N, cpu or simulated."),
        Column("device_name", "VARCHAR", "Name of the GPU or processor.", nullable=True),
        Column("torch_version", "VARCHAR", "Version of torch; NULL if a simulation ran without it.", nullable=True),
        Column("python_version", "VARCHAR", "Version of Python."),
        Column("seed", "BIGINT", "Seed of data, weights and jitter."),
        Column("size", "VARCHAR", "Size of the workload."),
        Column("iterations", "BIGINT", "Measured iterations."),
        Column(
            "warmup",
            "BIGINT",
            "Warm-up iterations before the measured ones, by the same engine; no table contains them.",
        ),
        Column("wall_ns", "BIGINT", "Run time when the device's last work was done; virtual on simulated."),
        Column("throughput_per_s", "DOUBLE", "Measured iterations per second of wall_ns.", nullable=True),
        Column("host", "VARCHAR", "Host name."),
        Column("started_at", "TIMESTAMP", "Start of the measured iterations, UTC."),
        Column(
            "max_depth",
            "BIGINT",
            "Engine dataflow: iterations that may be in flight; NULL for other engines.",
            nullable=True,
        ),
        Column("jitter_ns", "BIGINT", "Mean of the delay added to jitter_task, exponentially distributed; 0: none."),
        Column("jitter_task", "VARCHAR", "The delayed task; NULL if none was delayed.", nullable=True),
        Column(
            "trace_file", "VARCHAR", "torch.profiler's trace of these iterations, next to the tables.", nullable=True
        ),
    ),
    # One row per task of the run's plan.
    "schedule_plans": (
        Column(
            "plan_hash",
            "VARCHAR",
            "Hash of everything that determines what the plan does: all columns except run_id and plan.",
        ),
        _RUN,
        Column("plan", "VARCHAR", "Name of the plan."),
        Column("workload", "VARCHAR", "The workload that the plan computes."),
        Column("position", "BIGINT", "Index of the task in the plan, from 0."),
        Column("task", "VARCHAR", "The task."),
        Column("stage", "BIGINT", "Engine sw: number of iterations by which the task is behind the newest one."),
        Column("stream", "VARCHAR", "Stream that the task runs on (serial: all run on default)."),
        Column("thread_group", "VARCHAR", "Host thread that submits the task."),
        Column("globally_ordered", "BOOLEAN", "Whether the task is submitted in the same order on every rank."),
        Column(
            "depends_on",
            "VARCHAR",
            "Tasks of the same iteration that the task waits for, separated by commas; may be empty.",
        ),
        Column("depends_on_last", "VARCHAR", "Tasks of the previous iteration that the task waits for, likewise."),
    ),
    # One row per task and measured iteration.
    "schedule_task_timings": (
        _RUN,
        Column("task", "VARCHAR", "The task."),
        Column("iteration", "BIGINT", "From 0."),
        Column("submit_ns", "BIGINT", "When the host began to submit the task to its stream, run time."),
        Column(
            "start_ns", "BIGINT", "When its function began, run time; on cuda the function only launches its kernels."
        ),
        Column("end_ns", "BIGINT", "When its function returned, run time."),
        Column("device_start_ns", "BIGINT", "When its stream reached the task, device time.", nullable=True),
        Column("device_end_ns", "BIGINT", "When its kernels ended, device time.", nullable=True),
        Column("stall_ns", "BIGINT", "How long its stream stalled before the task, on the clock of that stream."),
        Column(
            "stall_cause",
            "VARCHAR",
            "The longest part of the stall as `kind: task iN`; kinds: timeline.KINDS. NULL if it did not stall.",
            nullable=True,
        ),
    ),
    # One row per task that TaskProfiler measured (--profile).
    "schedule_exposed_times": (
        _RUN,
        Column("task", "VARCHAR", "The task."),
        Column("exposed_ns", "BIGINT", "Serial iteration minus the serial iteration without the task; at least 0."),
        Column("baseline_ns", "BIGINT", "The serial iteration."),
    ),
    # One row per task, and one row with task NULL for all tasks, from a simulation with this run's durations.
    "schedule_predictions": (
        _RUN,
        Column("task", "VARCHAR", "The task; NULL for all tasks.", nullable=True),
        Column(
            "duration_ns",
            "BIGINT",
            "Duration that the simulation used: the median, on cuda without gaps; NULL for all tasks.",
            nullable=True,
        ),
        Column(
            "period_ns",
            "BIGINT",
            "Time from the end of an iteration to the end of the next; NULL for single tasks.",
            nullable=True,
        ),
        Column(
            "ideal_ns",
            "BIGINT",
            "Lower bound of period_ns from streams and cycles; NULL for single tasks.",
            nullable=True,
        ),
        Column(
            "cycle_ns", "BIGINT", "Longest cycle of dependencies, per iteration; NULL if there is none.", nullable=True
        ),
        Column("cycle", "VARCHAR", "Tasks of that cycle, joined by ` -> `.", nullable=True),
        Column(
            "stall_ns",
            "BIGINT",
            "Mean stall of its stream before the task, per iteration; for all tasks, of all streams.",
        ),
    ),
    # One row per round of a comparison (--compare), in which the engines ran in turn.
    "schedule_rounds": (
        _RUN,
        Column("comparison_id", "VARCHAR", "The comparison; the same for the runs of all its engines."),
        Column("round", "BIGINT", "From 0."),
        Column("iterations", "BIGINT", "Number of iterations that the mean period is taken over."),
        Column(
            "period_ns",
            "BIGINT",
            "Time of an iteration without a profiler, from the difference of a long and a short run.",
        ),
    ),
    # One row for a pipelined engine's run of a comparison.
    "schedule_verdicts": (
        _RUN,
        Column("comparison_id", "VARCHAR", "The comparison."),
        Column("serial_run_id", "VARCHAR", "The serial run of the comparison."),
        Column("speedup", "DOUBLE", "Serial period divided by this engine's, median of the rounds."),
        Column("speedup_low", "DOUBLE", "Smallest speedup of the rounds."),
        Column("speedup_high", "DOUBLE", "Largest speedup of the rounds."),
        Column("verdict", "VARCHAR", "Verdict of the comparison, as text."),
    ),
}


def schema(table: str) -> pa.Schema:
    """Return the Arrow schema of a table, with every column's documentation as its metadata."""
    import pyarrow as pa

    types = {
        "VARCHAR": pa.string(),
        "BIGINT": pa.int64(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "TIMESTAMP": pa.timestamp("us"),
    }
    return pa.schema([pa.field(c.name, types[c.type], c.nullable, {"doc": c.doc}) for c in TABLES[table]])


def arrow_table(table: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows as an Arrow table.

    Raise ValueError if a column is missing or unknown, or if a column that is not nullable contains NULL.
    """
    import pyarrow as pa

    column_by_name = {column.name: column for column in TABLES[table]}
    for row in rows:
        if wrong := sorted(column_by_name.keys() ^ row.keys()):
            raise ValueError(f"{table}: a row lacks, or has too many: {', '.join(wrong)}")
        if empty := [n for n, value in row.items() if value is None and not column_by_name[n].nullable]:
            raise ValueError(f"{table}: NULL in {', '.join(empty)}, which must have a value")
    return pa.Table.from_pylist(rows, schema=schema(table))
