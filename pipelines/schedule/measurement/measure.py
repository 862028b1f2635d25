"""One run of a plan, on a device or simulated, with the options of `run.py`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.record.peaks import device_name
from pipelines.schedule.measurement.delays import Late, delayed, delays, pause_on
from pipelines.schedule.measurement.probe import ITERATIONS, Probe, probe_of
from pipelines.schedule.measurement.settings import ENGINES, Measured, Settings
from pipelines.schedule.measurement.task_times import warn_if_host_bound
from pipelines.schedule.plan.plan import PipelineTask
from pipelines.schedule.simulation.durations import Duration
from pipelines.schedule.simulation.simulated import SimulatedDevice
from pipelines.schedule.workloads import WORKLOADS, build

if TYPE_CHECKING:
    from pipelines.schedule.devices import Device
    from pipelines.schedule.engine.pipeline import _PipelineBase
    from pipelines.schedule.measurement.profiler import ProfileResult
    from pipelines.schedule.measurement.recording import RecordingDevice
    from pipelines.schedule.workloads.base import Workload

TRACE_FILE = "trace.json.gz"
TRACE_KEY = "schedule_run_id"
"""The metadata key of the trace for the run's id."""


def measure(run: Settings, run_id: str, trace: Path | None) -> Measured:
    """Run the plan. `trace`: path for torch.profiler's trace of the measured iterations. Engine exceptions pass through."""
    if run.device == "simulated":
        return _on_paper(run)
    return _on_device(run, run_id, trace)


def torch_version() -> str | None:
    """Return the version of the imported or installed torch, or None if it is not installed."""
    if torch := sys.modules.get("torch"):
        return torch.__version__
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


# --- simulated


def nominal_durations(run: Settings) -> dict[str, Duration]:
    """Return the declared duration of each task of the workload, with the run's jitter."""
    return {
        name: Late(ns, run.jitter_us * 1e3 if name == run.jitter_task else 0.0)
        for name, ns in WORKLOADS[run.plan.workload].nominal_ns.items()
    }


def _on_paper(run: Settings) -> Measured:
    durations = nominal_durations(run)
    started_at = datetime.now(UTC).replace(tzinfo=None)
    timeline = run.simulated(durations, iterations=run.iterations, seed=run.seed)
    profile = None
    if run.profile:
        device = SimulatedDevice(durations, seed=run.seed)
        profile = _profile(engine_of(run, {n: PipelineTask(n, _nothing) for n in durations}, device), None)
    return Measured(timeline, None, timeline.end_ns, started_at, None, profile)


def _nothing(ctx: Any) -> None:
    """Do nothing. This is the function of each simulated task."""


# --- on a device


def set_up(run: Settings, n_delays: int) -> tuple[Device, Workload, dict[str, PipelineTask]]:
    """Return the device, the workload and its tasks. If the run has jitter, one task is delayed.

    `n_delays`: number of iterations for which delays are drawn. Raise RuntimeError if the device does not exist.
    """
    import torch

    from pipelines.schedule.devices import resolve_device

    device = torch.device(run.device)
    if device.type == "cuda":
        resolve_device(device)  # raises an error with a clear message if the device does not exist
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")  # TF32, as is usual in training
    else:
        torch.set_num_threads(1)  # streams are threads, so one stream must not use the cores of the others
    workload = build(run.plan.workload, run.size, device, run.seed)
    tasks = {task.name: task for task in workload.tasks()}
    if run.jitter_us and run.jitter_task:
        delays_ns = delays(run.jitter_task, run.jitter_us, n_delays, run.seed)
        tasks[run.jitter_task] = delayed(tasks[run.jitter_task], delays_ns, pause_on(device))
    return resolve_device(device), workload, tasks


def _on_device(run: Settings, run_id: str, trace: Path | None) -> Measured:
    device, workload, tasks = set_up(run, n_delays=max(run.iterations, run.warmup))
    probe = probed(run, device, workload, tasks)
    recorder = recorder_of(run, device)
    pipeline = engine_of(run, tasks, recorder)
    if run.warmup:
        _go(run, pipeline, workload.batches(run.warmup), recorder)
        pipeline.drain()
    with _profiled(trace, run_id, run.device.partition(":")[0]) if trace else nullcontext():
        measured = _recorded(run, pipeline, workload.batches(run.iterations), recorder)
    pipeline.drain()
    profile = _profile(pipeline, next(iter(workload.batches(1)))) if run.profile else None
    name = device_name(run.device).removeprefix("cpu:")
    return replace(measured, device_name=name, profile=profile, probe=probe)


def recorder_of(run: Settings, device: Device) -> RecordingDevice:
    """Return a recorder of the launches on a device."""
    from pipelines.schedule.measurement.recording import RecordingDevice

    return RecordingDevice(device, events=run.device.startswith("cuda"))


def probed(run: Settings, device: Device, workload: Workload, tasks: dict[str, PipelineTask]) -> Probe | None:
    """Return the tasks' times on a GPU before a run, or None on a CPU.

    Warn with PlanWarning if the host will be the bottleneck.
    """
    import torch

    if not run.device.startswith("cuda"):
        return None
    recorder = recorder_of(run, device)
    pipeline = engine_of(replace(run, engine="serial"), tasks, recorder)
    probe = probe_of(pipeline, recorder, workload.batches(ITERATIONS), pause_on(torch.device(run.device)))
    warn_if_host_bound(run, probe)
    if run.jitter_us and run.jitter_task:
        del probe.device_ns[run.jitter_task]  # a few delays have another median than those of the run
    return probe


def _recorded(run: Settings, pipeline: _PipelineBase, batches: Iterable[Any], recorder: RecordingDevice) -> Measured:
    """Run all batches and return the recorded measurements."""
    from pipelines.schedule.measurement.recording import recorded_timeline

    started_at = datetime.now(UTC).replace(tzinfo=None)
    recorder.start()
    retired = _go(run, pipeline, batches, recorder)
    wall_ns = recorder.now_ns()
    launches = recorder.stop()
    timeline = recorded_timeline(launches, run.plan.checked, ENGINES[run.engine], retired, run.depth)
    return Measured(timeline, launches, wall_ns, started_at, None, None)


def engine_of(run: Settings, tasks: dict[str, PipelineTask], device: Any) -> _PipelineBase:
    """Return the run's engine. A serial run uses SWPipeline."""
    from pipelines.schedule import DataFlowPipeline, SWPipeline

    plan = run.plan.plan(tasks)
    return DataFlowPipeline(plan, run.depth, device) if run.engine == "dataflow" else SWPipeline(plan, device)


def _go(run: Settings, pipeline: _PipelineBase, batches: Iterable[Any], recorder: RecordingDevice) -> list[int]:
    """Run all batches. Return the time at which progress() returned each iteration, ns since the recorder's start."""
    retired: list[int] = []
    if run.engine == "serial":
        pipeline.run_serial(batches)
        return retired
    data = pipeline.fill_pipeline(batches)
    while True:
        try:
            pipeline.progress(data)
        except StopIteration:
            return retired
        retired.append(recorder.now_ns())


def _profile(pipeline: _PipelineBase, batch: Any) -> ProfileResult:
    from pipelines.schedule.measurement.profiler import TaskProfiler

    return TaskProfiler(pipeline).profile(batch, num_warmup=2, num_measure=5, num_rounds=3)


@contextmanager
def _profiled(trace: Path, run_id: str, device: str) -> Iterator[None]:
    """Profile the block with torch.profiler. Export the trace if the block succeeds."""
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity, profile

    gpu = [ProfilerActivity.CUDA] if device == "cuda" else []
    # The tasks run in threads of the engine, not in this thread.
    threads = _ExperimentalConfig(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU, *gpu], experimental_config=threads, acc_events=True) as profiler:
        profiler.add_metadata_json(TRACE_KEY, json.dumps(run_id))
        yield
    profiler.export_chrome_trace(str(trace))
