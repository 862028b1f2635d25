"""The GPU benchmark of the engines, on a fake GPU."""

from __future__ import annotations

import json
import sys
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="the engines need torch")

from bench import engine, engine_cuda, engine_loops, engine_work  # noqa: E402
from tests.fake_gpu import FakeGpu, gpu  # noqa: E402

__all__ = ["gpu"]


@pytest.mark.slow  # 5 s
def test_the_gpu_benchmark_measures_and_writes_its_numbers(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_cpu = partial(engine_work.Recommender, "cpu")
    monkeypatch.setattr(engine_cuda, "Recommender", lambda device, scale: on_cpu(scale))
    monkeypatch.setattr(engine_cuda, "_same_losses", partial(engine_cuda._same_losses, iterations=5))
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(allow_tf32=False))
    file = tmp_path / "numbers.json"
    with warnings.catch_warnings():
        engine_cuda.main(["--iterations", "1", "--rounds", "1", "--scale", "0.001", "--json", str(file)])
    printed, numbers = capsys.readouterr().out, json.loads(file.read_text())
    assert torch.backends.cuda.matmul.allow_tf32
    assert numbers["device"] == "NVIDIA H100 80GB HBM3" and printed.startswith(numbers["device"])
    for scale in (1, 0.1):
        tasks_ms = numbers[f"spinning kernels x {scale:g}"]["tasks_ms"]
        assert tasks_ms == pytest.approx({name: us * scale / 1000 for name, us in engine_work.SPIN_US.items()})
    assert numbers["spinning kernels x 1"]["bottleneck_ms"] == pytest.approx(10)
    assert numbers["losses"].startswith("the same losses as the serial run")
    named = {
        f"{kind}, {groups}"
        for kind in ("SWPipeline", "DataFlowPipeline")
        for groups in ("1 thread group", "3 thread groups")
    }
    costs = numbers["empty tasks, us a task"]
    assert {"by hand", *named} <= set(costs)
    assert sum("at most" in line for line in printed.splitlines() if "us a task" in line) == len(named)


@pytest.mark.parametrize(("groups", "bound"), [(1, 1.2), (3, 2.0)])
def test_the_bounds_of_an_empty_task(groups: int, bound: float) -> None:
    assert engine_loops.AT_MOST[groups] == bound
    assert engine_cuda._mark(bound, bound) == f"  holds at most {bound:g}x"
    assert engine_cuda._mark(bound + 0.01, bound) == f"  MISSES at most {bound:g}x"
    assert engine_cuda._mark(9, None) == ""
    plan = engine_loops.fused_plan(groups=groups)
    assert len({place.thread_group for place in plan.schedule.values()}) == groups


@pytest.mark.parametrize("has_gpu", [True, False])
def test_the_benchmark_goes_on_with_the_gpu_if_there_is_one(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], has_gpu: bool
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(engine_cuda, "main", calls.append)
    monkeypatch.setattr(engine, "_overhead", lambda iterations, rounds: calls.append((iterations, rounds)))
    monkeypatch.setattr(sys, "argv", ["engine", "--iterations", "10", "--rounds", "1"])
    with warnings.catch_warnings():
        engine.main()
    assert calls == ([(10, 1), []] if has_gpu else [(10, 1)])
    assert ("torch sees no CUDA device" in capsys.readouterr().out) != has_gpu
