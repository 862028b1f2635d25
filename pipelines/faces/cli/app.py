"""The command line `tracelake`. The module of a command is imported when the command is called."""

from __future__ import annotations

import atexit
import gc
import os
from typing import Annotated

import typer

from pipelines import __version__
from pipelines.faces.cli.commands import Commands, Later

# OpenBLAS, which numpy uses, would start one thread per core, each of which busy-waits at first. No command needs them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Skip the last search for reference cycles, which takes 0.1 s: the memory is freed with the process.
atexit.register(gc.freeze)
# The default, a collection after every 700 new objects, took 2 % of the time of `report`.
gc.set_threshold(50_000, 10, 10)

app = typer.Typer(
    name="tracelake", cls=Commands, no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"tracelake {__version__}")
        raise typer.Exit


_COMMANDS = """\
ingest          lake.ingest:ingest                    Put traces into the lake and print one row per trace. Content that is already there is skipped.
sql             lake.query:sql                        Query the lake in SQL. Tables that are not computed yet are computed first.
ask             lake.ask:ask                          Ask one of the saved questions, such as "which kernels take the most GPU time?".
tables          lake.tables:tables                    List the tables and what a row of each is, or one table's columns with types and meanings.
why             trace.why:why_command                 Why a trace takes as long as it does: one sentence, then its causes, with what to do about each.
compare         fleet.compare:compare                 What one capture or trace does more, less or slower than another, by operator, category, module, shape or kernel.
baseline        fleet.baseline:baseline               Name a trace or a capture as a baseline, for `tracelake compare --baseline NAME TEST`.
breakdown       trace.breakdown:breakdown             How GPU time divides into compute, other work and idle, one row per trace and device.
graphs          trace.graphs:graphs                   What ran in replays of CUDA and HIP graphs, by operator, module and layer, as far as the trace shows it.
critical-path   trace.path:critical_path              The longest chain of dependent work in a trace, and what bounds it.
overlay         trace.overlay:overlay                 Write a trace for Perfetto (ui.perfetto.dev) that shows the critical path as its own track, with arrows.
what-if         trace.whatif:what_if                  The critical path if something were faster, slower, removed or overlapped with the rest, compared with the actual path.
capture-path    fleet.capture_path:capture_path       What held the whole job up: the path through all ranks, which moves to the last rank at every collective.
timeline        fleet.timeline:timeline               Write one trace for Perfetto with all ranks of a capture on one clock; arrows tie each collective together.
slice           trace.slice:slice_                    Write a step of a trace, or the rows of a query, as a trace for Perfetto (ui.perfetto.dev).
stragglers      fleet.stragglers:stragglers           Which rank the others wait for, and what it costs: by rank, group of ranks and step.
op-job          fleet.op_job:op_job                   How long a pipeline-parallel job's steps would take if no rank, stage or kind of op were slower than the others.
report          report:report                         Write one self-contained page: breakdown, critical path, spans, utilization, memory, collectives, stragglers, hangs.
gantt           trace.gantt:gantt                     Draw a run of a schedule: one lane per stream, one box per task, hatched while the stream is idle.
flight-recorder fleet.flight_recorder:flight_recorder Compare the Flight Recorder dumps of a job's ranks: which rank is the job stuck on, and in which collective?
memory          trace.memory:memory                   What held GPU memory at its peak, from a memory snapshot of PyTorch: by stack, with fragmentation and failures.
flame           trace.flame:flame                     Draw where a Python program spent its time: the stacks sampled by `python -m pipelines.record.stacks`.
materialize     lake.materialize:materialize          Compute the model tables of the lake that are missing or out of date.
fleet           fleet.fleet:fleet                     What the fleet is doing: each job's newest capture, what got worse, stragglers, files that were not read.
metrics         fleet.fleet:metrics                   Print the fleet as metrics in OpenMetrics text, for Prometheus.
regressions     fleet.regressions:regressions         Test the newest captures of each job against the earlier ones, with an exact test that allows for noise.
compact         lake.compact:compact                  Merge the small batches of each past day into few large ones: fewer files, quicker queries and publishing.
retention       lake.retention:retention              Remove old batches of traces from the lake, or all but a digest: hide them now, delete their files after a grace period.
status          lake.status:status                    Report the lake's health: last commit, waiting files, rejected files, failed runs, disk. For cron and probes.
check           lake.check:check                      Read every file of the lake and compare it with the size and checksum recorded when it was written.
forget          lake.forget:forget                    Remove one trace from every table; its capture is recomputed.
demo            lake.demo:demo                        Ingest traces (or a small synthetic capture), materialize every asset, and show what a perf engineer wants to see.
serve           lake.serve:serve                      Open the lake in a browser: tables, saved questions, SQL, downloads, reports. Read-only, on this machine only.
mcp             lake.serve:mcp                        Serve the lake to a language model over MCP (stdio): tables, saved questions, SQL, what-if.
skill           lake.skill:skill                      Print a skill for language models: how to ask why, how to prove a fix, what not to conclude.
ui              lake.demo:ui                          Open the Dagster UI for a lake: lineage, runs, checks, the inbox sensor.
"""
"""One command per line: name, module and function in pipelines/faces/cli, first line of the function's docstring."""
COMMANDS = {name: (target, text) for name, target, text in (line.split(None, 2) for line in _COMMANDS.splitlines())}


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """A columnar lakehouse for PyTorch/Kineto GPU traces: query everything in SQL."""


def _add(name: str, target: str, help_text: str) -> None:
    class Named(Later):
        where = target

    app.command(name, cls=Named, help=help_text)(lambda: None)


for _name, (_target, _help_text) in COMMANDS.items():
    _add(_name, _target, _help_text)


if __name__ == "__main__":
    app()
