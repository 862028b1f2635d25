"""The code of the recorders that runs only on CUDA, on a fake GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pipelines.record import bench, peaks  # noqa: E402
from pipelines.record.clocks import CudaClock  # noqa: E402
from pipelines.record.profiler.cost import profiler_cost  # noqa: E402
from pipelines.record.spans import record_spans  # noqa: E402
from tests.fake_gpu import FakeGpu, gpu  # noqa: E402
from tests.record.test_spans import rows  # noqa: E402

__all__ = ["gpu"]
CUDA = torch.device("cuda:0")


def test_the_clock_is_the_streams(gpu: FakeGpu) -> None:
    clock = CudaClock(CUDA)
    first = clock.mark()
    gpu.now_ms += 1.5
    last = clock.mark()
    assert clock.between(first, last) == 1_500_000
    assert clock.is_done(last) and clock.can_mark()
    gpu.is_idle, gpu.is_capturing = False, True
    assert not clock.is_done(last) and not clock.can_mark()
    clock.wait()
    assert gpu.n_waits == 1


def test_a_step_takes_the_time_of_its_stream_and_no_step_waits(gpu: FakeGpu, tmp_path: Path) -> None:
    class OnGpu(torch.nn.Linear):
        def parameters(self, recurse: bool = True) -> Iterator[Any]:
            yield SimpleNamespace(device=CUDA)

    gpu.is_idle = False
    with record_spans(OnGpu(4, 4), tmp_path, 1.0, count_operators=False) as spans:
        for is_capturing in (False, True):
            gpu.is_capturing = is_capturing  # while a graph is captured, no step is sampled
            with spans.step():
                gpu.now_ms += 5
        gpu.is_capturing = False
        assert gpu.n_waits == 0
    assert gpu.n_waits == 1, "the recorder waits once, when it closes"
    (step,) = rows(tmp_path)
    assert (step["name"], step["clock"], step["duration_ns"]) == ("step", "cuda", 5_000_000)
    assert spans._described == {
        "source": "cuda",
        "device": "cuda:0",
        "device_name": "NVIDIA H100 80GB HBM3",
        "device_memory_bytes": 80 << 30,
        "device_sms": 132,
    }


def test_the_profilers_cost_of_a_call(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, profile, ones = torch.profiler.ProfilerActivity, torch.profiler.profile, torch.ones
    asked: list[Any] = []

    def on_cpu(activities: Any, with_stack: bool = False) -> Any:
        asked.append(activities)
        return profile(activities=[kinds.CPU], with_stack=with_stack)

    monkeypatch.setattr(torch.profiler, "profile", on_cpu)
    monkeypatch.setattr(torch, "ones", lambda *shape, device=None: ones(*shape))
    cost = profiler_cost(repeats=1)  # a GPU is the default device
    assert set(cost) == {"operator_ns", "cheap_operator_ns", "call_ns", "frame_ns", "annotation_ns"}
    assert asked == [[kinds.CPU, kinds.CUDA]] * 4 and gpu.n_waits == 8


@pytest.mark.parametrize(("hip", "has_tf32"), [(None, True), ("6.4", False)])
def test_peaks_of_a_gpu(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, hip: str | None, has_tf32: bool) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)
    types = {name: (dtype, is_tf32) for name, dtype, is_tf32 in peaks._types(torch, "cuda:0")}
    assert [*types] == ["fp32", *(["tf32"] if has_tf32 else []), "bf16", "fp16"]
    assert types["fp32"] == (torch.float32, False)
    assert types.get("tf32") == ((torch.float32, True) if has_tf32 else None)
    assert peaks.device_name("cuda:0") == "NVIDIA H100 80GB HBM3"
    runs: list[int] = []
    peaks._best(lambda: runs.append(gpu.n_waits), torch, "cuda:0", 1e-3)
    assert runs == list(range(len(runs))) and gpu.n_waits == len(runs), "each run's end is waited for"


def test_the_benchmark_waits_for_its_gpu(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    moved_to, randn = [], torch.randn
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, device: moved_to.append(device) or module)
    monkeypatch.setattr(torch, "randn", lambda *shape, device=None: randn(*shape))
    bench._loop(CUDA)
    assert (moved_to, gpu.current, gpu.n_waits) == ([CUDA], CUDA, 1)
