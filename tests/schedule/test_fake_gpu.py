"""The code of the schedules that runs only on CUDA, on a fake GPU. test_cuda.py tests the device itself."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the engines need torch")

from pipelines.schedule.devices import Work  # noqa: E402
from pipelines.schedule.devices.cuda import CudaDevice  # noqa: E402
from pipelines.schedule.errors import PlanWarning  # noqa: E402
from pipelines.schedule.measurement.comparison import periods_in_turn, verdict  # noqa: E402
from pipelines.schedule.measurement.delays import pause_on  # noqa: E402
from pipelines.schedule.measurement.measure import measure, recorder_of, set_up  # noqa: E402
from pipelines.schedule.measurement.run_folder import tables_of  # noqa: E402
from pipelines.schedule.measurement.settings import Settings  # noqa: E402
from pipelines.schedule.measurement.task_times import limit_of  # noqa: E402
from pipelines.schedule.plan.plan import IterContext, PipelineTask  # noqa: E402
from pipelines.schedule.plan.plan_file import load_plan  # noqa: E402
from pipelines.schedule.workloads import build, fitting, mlp  # noqa: E402
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


@pytest.mark.parametrize(("size", "device", "is_fitted"), [("large", CUDA, True), ("tiny", CUDA, False)])
def test_a_large_workload_has_the_largest_shape_that_fits_its_gpu(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, size: str, device: Any, is_fitted: bool
) -> None:
    made: list[Any] = []

    class OnGpu(mlp.Mlp):
        def __init__(self, *arguments: Any) -> None:
            made.append(arguments)

    def halved_once(make: Any, shape: Any, where: Any) -> Any:
        make(shape)
        assert where == device
        return shape.halved()

    monkeypatch.setattr(mlp, "Mlp", OnGpu)
    monkeypatch.setattr(fitting, "fitting_shape", halved_once)
    assert isinstance(build("mlp", size, device, seed=5), OnGpu)
    shape = mlp.SIZES[size]
    assert made == [(each, device, 5) for each in ((shape, shape.halved()) if is_fitted else (shape,))]


KERNELS = 10
"""What each task launches."""


def launching(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, host_ms: float, takes_ms: float) -> Settings:
    """A run with one submitting thread, whose tasks launch kernels that take the host and the device that long each."""
    run = replace(ON_CUDA, plan=load_plan("copy_heavy_mlp"))

    def kernels(ctx: IterContext) -> None:
        for _ in range(KERNELS):
            gpu.launch(host_ms, takes_ms)

    tasks = {name: PipelineTask(name, kernels) for name in run.plan.checked.names}
    workload = SimpleNamespace(batches=lambda n: iter(range(n)))
    for module in ("measure", "comparison"):
        set_up = f"pipelines.schedule.measurement.{module}.set_up"
        monkeypatch.setattr(set_up, lambda run, n_delays: (CudaDevice(0), workload, tasks))
    monkeypatch.setattr("pipelines.schedule.measurement.measure.device_name", lambda device: "H200")
    clock = SimpleNamespace(perf_counter_ns=lambda: round(gpu.host_ms * 1e6))
    monkeypatch.setattr("pipelines.schedule.measurement.recording.time", clock)
    return run


@pytest.mark.parametrize("warmup", [0, 2])
@pytest.mark.parametrize(
    ("host_ms", "is_warned"),
    [(0.1, True), (0.0075, False)],  # 40 launches need 0.3 ms, as long as the 30 kernels of the default stream
)
def test_gaps_in_which_the_host_is_late_are_no_work_of_the_device(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, host_ms: float, is_warned: bool, warmup: int
) -> None:
    run = replace(launching(gpu, monkeypatch, host_ms, 0.01), warmup=warmup)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PlanWarning)
        measured = measure(run, "r", None)
    limit = limit_of(run, measured)
    assert (limit.bound_by, limit.ideal_ns, limit.work_ns) == ("default", 300_000, 400_000)
    assert limit.host_ns == pytest.approx(4 * KERNELS * host_ms * 1e6) and limit.is_host_bound == is_warned
    spans = [span.duration_ns for span in measured.timeline.of("Forward")]
    assert min(spans) > 900_000 if is_warned else min(spans) == 100_000
    texts = [str(warning.message) for warning in caught if warning.category is PlanWarning]
    said = "copy_heavy_mlp, size tiny: the host needs 4 ms per iteration to submit, and the device could do one in 0.3 ms (default)"
    assert texts == ([f"{said}: use larger batches or no pipeline"] if is_warned else [])
    assert verdict([4_000_000], [4_100_000], limit).text.endswith(
        ": the host needs 4 ms per iteration to submit, and the device works 0.4 ms of 4.1 ms; use larger batches or no pipeline"
        if is_warned
        else "; the limit is 13.33 (stream default)"
    )
    rows = tables_of(run, "r", measured, None)["schedule_predictions"]
    assert {row["duration_ns"] for row in rows} == {None, 100_000}


def test_the_warning_comes_before_the_warm_up(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(launching(gpu, monkeypatch, 0.1, 0.01), warmup=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlanWarning)
        with pytest.raises(PlanWarning, match="the host needs 4 ms"):
            measure(run, "r", None)
        assert gpu.now_ms < 60, "the probe alone"
        with pytest.raises(PlanWarning, match="the host needs 4 ms"):
            periods_in_turn(run, ["serial", "sw"], 3)


def test_the_delays_of_a_run_are_not_those_of_its_probe(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(launching(gpu, monkeypatch, 0.001, 0.01), jitter_us=5.0, jitter_task="Forward")
    probe = measure(run, "r", None).probe
    assert probe and "Forward" not in probe.device_ns and "Backward" in probe.device_ns
