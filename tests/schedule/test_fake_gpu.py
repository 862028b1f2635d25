"""The code of the schedules that runs only on CUDA, on a fake GPU. test_cuda.py tests the device itself."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the engines need torch")

from pipelines.schedule.devices import Work  # noqa: E402
from pipelines.schedule.measurement.delays import pause_on  # noqa: E402
from pipelines.schedule.measurement.measure import recorder_of, set_up  # noqa: E402
from pipelines.schedule.measurement.settings import Settings  # noqa: E402
from pipelines.schedule.plan.plan import IterContext, PipelineTask  # noqa: E402
from pipelines.schedule.plan.plan_file import load_plan  # noqa: E402
from pipelines.schedule.workloads import build  # noqa: E402
from tests.fake_gpu import FakeGpu, gpu  # noqa: E402

__all__ = ["gpu"]
CUDA = torch.device("cuda:0")
ON_CUDA = Settings(load_plan("mlp"), "sw", "cuda:0", iterations=4, size="tiny")


def test_a_pause_is_a_spinning_kernel_of_that_time(gpu: FakeGpu) -> None:
    """The fastest of several measurements calibrates it, because an idle GPU lowers its clock."""
    pause = pause_on(CUDA)
    began_ms, n_sleeps = gpu.now_ms, gpu.n_sleeps
    pause(3_000_000)
    assert gpu.now_ms - began_ms == pytest.approx(3)
    pause(0)
    assert gpu.n_sleeps == n_sleeps + 1, "none is launched for no time"


def test_launches_have_the_times_of_their_events(gpu: FakeGpu) -> None:
    inner = SimpleNamespace(
        name="0",
        runs_later=True,
        synchronize=gpu.wait,
        stream_name=lambda stream: stream,
        launch=lambda stream, body, work: body(),
    )
    recorder = recorder_of(ON_CUDA, inner)  # pyright: ignore[reportArgumentType]
    gpu.now_ms = 7
    recorder.start()
    gpu.now_ms = 9
    recorder.launch("copy", lambda: gpu.sleep(3_000_000), Work("CopyBatch", 0))
    (launch,) = recorder.stop()
    assert (launch.device_start_ns, launch.device_end_ns, launch.marks) == (2_000_000, 5_000_000, None)
    assert (launch.began_ns, launch.ended_ns, launch.stream) == (2_000_000, 5_000_000, "copy")
    assert not recorder_of(replace(ON_CUDA, device="cpu"), inner)._events  # pyright: ignore[reportArgumentType]


def test_a_run_is_set_up_on_its_gpu(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    precisions: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", precisions.append)
    tasks = [PipelineTask("CopyBatch", lambda ctx: None)]
    built: list[Any] = []
    monkeypatch.setattr(
        "pipelines.schedule.measurement.measure.build",
        lambda *arguments: built.append(arguments) or SimpleNamespace(tasks=lambda: tasks),
    )
    run = replace(ON_CUDA, jitter_us=1000.0, jitter_task="CopyBatch", seed=3)
    device, _, delayed = set_up(run, n_delays=4)
    assert (device.name, gpu.current, precisions, built) == ("0", CUDA, ["high"], [("mlp", "tiny", CUDA, 3)])
    began_ms = gpu.now_ms
    delayed["CopyBatch"].fn(IterContext(None, 0))
    assert gpu.now_ms > began_ms, "the delay is on the stream"


def test_a_lookup_s_update_ends_before_the_backward_that_made_it(gpu: FakeGpu) -> None:
    """autograd runs the update on the lookup's stream."""
    work = build("fused_sparse_dist", "tiny")
    ctx, streams = IterContext(next(iter(work.batches(1))), 0), []
    for task in work.tasks():
        work.device = torch.device("cuda:0" if task.name in ("EmbLookup", "Backward") else "cpu")
        streams.append(gpu.stream)
        task.fn(ctx)
        gpu.stream = type(gpu.stream)()  # each task has its own stream
    names = [task.name for task in work.tasks()]
    lookup, backward = streams[names.index("EmbLookup")], streams[names.index("Backward")]
    assert [stream.waited_for for stream in streams] == [[lookup] if s is backward else [] for s in streams]


def test_batches_for_a_gpu_are_in_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 1)
    work, tensor = build("mlp", "tiny"), torch.zeros(1)
    assert work._pinned(tensor) is tensor
    work.device = CUDA
    assert work._pinned(tensor).item() == 1
