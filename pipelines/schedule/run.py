"""Run a plan and record what happened: `python -m pipelines.schedule.run --plan mlp --engine sw --out runs`.

The program needs only torch and pyarrow (for a simulation only pyarrow), so it runs where the lake's packages are not
installed. It writes one folder, <out>/<run_id>/, with the tables of run_tables.py. `tracelake ingest <out>` reads them.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import signal
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from pipelines.schedule.errors import PipelineError, PlanError
from pipelines.schedule.measurement.comparison import Comparison, periods_in_turn
from pipelines.schedule.measurement.measure import TRACE_FILE, measure
from pipelines.schedule.measurement.run_folder import Rows, close_folder, discard_folder, open_folder, tables_of
from pipelines.schedule.measurement.settings import ENGINES, Settings
from pipelines.schedule.plan.plan_file import load_plan, plan_names
from pipelines.schedule.workloads import SIZES

_MOST_JITTER_US = 1e9
_MOST_SEED = 10**12
"""Limits whose multiples (a delay in ns, the seed of an iteration) fit into 64 bits."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Return the exit status: 0, 1 if the run failed, or 2 if the plan is illegal or unknown."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.list:
        _list()
        return 0
    try:
        settings = _settings(parser, options)
    except (PlanError, LookupError) as error:
        print(error.args[0] if isinstance(error, LookupError) else error, file=sys.stderr)
        return 2
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out: {error}")
    try:
        if options.compare is not None:
            _compare(settings, options)
        else:
            _run(settings, options)
    except (PipelineError, RuntimeError, OSError) as error:
        print(f"the run failed: {error}", file=sys.stderr)
        return 1
    return 0


def _run(settings: Settings, options: argparse.Namespace, comparison: Comparison | None = None) -> None:
    """Measure one engine and write its folder, including its rows of the comparison."""
    run_id = comparison.run_ids[settings.engine] if comparison else _run_id(settings.plan.name, settings.engine)
    folder = open_folder(options.out, run_id)
    trace = folder / TRACE_FILE if options.trace else None
    try:
        measured = measure(settings, run_id, trace)
        tables = tables_of(settings, run_id, measured, TRACE_FILE if trace else None)
        if comparison:
            tables |= comparison.tables(settings, measured)
        written = close_folder(folder, options.out, run_id, tables)
    finally:
        discard_folder(folder)
    print(_line(settings, measured.wall_ns, tables["schedule_rounds"], tables["schedule_verdicts"]))
    print(written)


def _compare(settings: Settings, options: argparse.Namespace) -> None:
    """Compare the engines, then measure each of them in a separate run."""
    engines = list(dict.fromkeys(options.compare or ENGINES))
    run_ids = {engine: _run_id(settings.plan.name, engine) for engine in engines}
    periods = periods_in_turn(settings, engines, options.rounds)
    comparison = Comparison(uuid.uuid4().hex[:8], run_ids, periods, settings.iterations)
    for engine in engines:
        _run(replace(settings, engine=engine), options, comparison)


def _run_id(plan: str, engine: str) -> str:
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{plan}-{engine}-{uuid.uuid4().hex[:8]}"


def _line(settings: Settings, wall_ns: int, rounds: Rows, verdicts: Rows) -> str:
    unit = "virtual " if settings.device == "simulated" else ""
    name = f"{settings.plan.name}, {settings.engine} on {settings.device}"
    if not rounds:
        return f"{name}: {settings.iterations} iterations in {wall_ns / 1e9:.3f} {unit}s"
    periods = sorted(row["period_ns"] / 1e6 for row in rounds)
    spread = f"{median(periods):.3f} {unit}ms an iteration ({periods[0]:.3f} to {periods[-1]:.3f})"
    return ": ".join([name, spread, *(row["verdict"] for row in verdicts)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m pipelines.schedule.run", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--list", action="store_true", help="name the plans and stop")
    add("--plan", help="name of a plan, or path of a .toml file")
    add("--engine", choices=list(ENGINES), default="sw", help="default: sw; --compare runs all")
    add(
        "--compare",
        nargs="*",
        choices=list(ENGINES),
        metavar="ENGINE",
        help="run these engines (default: all) in turn, without a profiler, and say how they compare with serial",
    )
    add("--rounds", type=_count(1), default=5, help="rounds of --compare (default 5; on a device at least 3)")
    add("--device", default="auto", help="cuda, cuda:N, cpu or simulated; default: cuda if available, else cpu")
    add("--iterations", type=_count(1), default=50, help="measured iterations (default 50)")
    add("--warmup", type=_count(0), default=5, help="iterations before them, with the same engine (default 5)")
    add("--out", type=_folder, help="where to create the run's folder")
    add("--trace", action="store_true", help=f"torch.profiler's trace of the measured iterations, as {TRACE_FILE}")
    add("--profile", action="store_true", help="measure each task's exposed time afterward (TaskProfiler)")
    add("--seed", type=int, default=0, help="seed of weights, data and jitter (default 0)")
    add(
        "--size",
        choices=SIZES,
        help="size of the workload; default: large (fills the GPU) on cuda, else small. On a CPU, small shows what "
        "threads of the host gain (decoding, copies), but not what a copy engine or a second GPU stream would",
    )
    add("--max-depth", type=_count(1), help="dataflow: iterations in flight (default: the plan's depth + 2)")
    add(
        "--jitter-us",
        type=float,
        default=0.0,
        metavar="MEAN",
        help="delay a task by an exponentially distributed time, mean in us",
    )
    add("--jitter-task", metavar="TASK", help="the task to delay (default: the plan's first, the copy to the device)")
    return parser


def _folder(text: str) -> Path:
    if re.match(r"[A-Za-z][\w+.-]+:/", text):  # a URL; otherwise a local folder of that name would be created
        raise argparse.ArgumentTypeError(f"{text} is not a folder on this machine; write locally and copy it")
    return Path(text)


def _count(minimum: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{value} is less than {minimum}")
        return value

    return number


def _settings(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Settings:
    if not options.plan or not options.out:
        parser.error("--plan and --out are needed (or --list)")
    if options.compare and "serial" not in options.compare:
        parser.error("--compare: serial is needed, because the others are compared with it")
    if options.compare is not None and options.rounds < 3 and options.device != "simulated":
        parser.error("--rounds: fewer than 3 do not show how much a device's times spread")
    if options.max_depth and options.engine != "dataflow" and options.compare is None:
        parser.error("--max-depth is for --engine dataflow: the plan's stages give the depth of the others")
    if options.trace and options.device == "simulated":
        parser.error("--trace: a simulation has no trace")
    if not 0 <= options.jitter_us <= _MOST_JITTER_US:  # False for nan
        parser.error(f"--jitter-us must be 0 or more, and at most {_MOST_JITTER_US:g}")
    if abs(options.seed) > _MOST_SEED:
        parser.error(f"--seed must be between -{_MOST_SEED} and {_MOST_SEED}")
    plan = load_plan(options.plan)
    names = [task.name for task in plan.tasks]
    if options.jitter_task and options.jitter_task not in names:
        parser.error(f"--jitter-task {options.jitter_task}: use one of {', '.join(names)}")
    device = _device(parser, options.device)
    size = options.size or ("large" if device.startswith("cuda") else "small")
    names_kept = ("engine", "iterations", "warmup", "seed", "max_depth", "jitter_us", "profile")
    settings = {name: getattr(options, name) for name in names_kept}
    return Settings(plan=plan, device=device, size=size, jitter_task=options.jitter_task or names[0], **settings)


def _device(parser: argparse.ArgumentParser, device: str) -> str:
    """Return the device: cuda:N, cpu or simulated. Exit with an error if a required package is missing."""
    _need(parser, "pyarrow", "or pyarrow alone: it writes the run's tables")
    if device != "simulated":
        _need(parser, "torch", "or use --device simulated, which needs no torch")
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cpu":
            print("torch sees no CUDA device: running on the CPU", file=sys.stderr)
    device = "cuda:0" if device == "cuda" else device
    if device not in ("cpu", "simulated") and not (device.startswith("cuda:") and device[5:].isdigit()):
        parser.error(f"--device {device}: use cuda, cuda:N, cpu or simulated")
    return device


def _need(parser: argparse.ArgumentParser, module: str, alternative: str) -> None:
    if find_spec(module) is None:
        parser.error(f"{module} is not installed: pip install 'tracelake[torch]', {alternative}")


def _list() -> None:
    for name in plan_names():
        plan = load_plan(name)
        streams = len({task.stream for task in plan.tasks})
        shape = f"{len(plan.tasks)} tasks, {plan.checked.depth} stages, {streams} streams"
        print(f"{name:<20} {shape:<31} workload {plan.workload}, hash {plan.plan_hash}")


def _until_nobody_reads(run: Callable[[], int]) -> int:
    """Call `run` and return its status.

    If the reader of stdout stops early (`| head -1`), exit by SIGPIPE, as Unix tools do.
    """
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        poll = select.poll()
        poll.register(sys.stdout, 0)
        if not poll.poll(0):
            raise  # the error concerns another pipe
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
        raise


if __name__ == "__main__":
    sys.exit(_until_nobody_reads(main))
