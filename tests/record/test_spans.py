"""Spans of modules on the CPU: modules that sleep for known times, the sampling rate, nesting, an unchanged model."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch")

from pipelines.record.spans import record_spans  # noqa: E402


class Sleep(torch.autograd.Function):
    """A function that sleeps 20 ms forward and 30 ms backward."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        time.sleep(0.02)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        time.sleep(0.03)
        return grads[0] * 2


class Sleeper(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return Sleep.apply(x)


class Residual(torch.nn.Module):
    """x + body(x), whose gradient for x is complete only after both terms."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Sleeper(), Sleeper()

    def forward(self, x: Any, scale: Any = None) -> Any:
        return x + self.second(self.first(x))


def model() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 4), Sleeper(), torch.nn.ReLU(inplace=True), torch.nn.Linear(4, 2))


def recorded(net: Any, folder: Path, n: int = 1, rate: float = 1.0, **more: Any) -> list[dict]:
    with record_spans(net, folder, rate, **more) as spans:
        for _ in range(n):
            with spans.step():
                net(torch.randn(3, 4)).sum().backward()
    return rows(folder)


def rows(folder: Path) -> list[dict]:
    return [row for path in sorted(folder.rglob("span_samples*")) for row in pq.read_table(path).to_pylist()]


def times(spans: list[dict]) -> dict[tuple[str, str], float]:
    """Return ms by (name, phase), as the minimum over steps, which other work on the machine lengthens least."""
    best: dict[tuple[str, str], float] = {}
    for span in spans:
        key = span["name"], span["phase"]
        best[key] = min(best.get(key, 1e9), span["duration_ns"] / 1e6)
    return best


def test_modules_that_sleep_take_what_they_sleep(tmp_path: Path) -> None:
    best = times(recorded(model(), tmp_path, n=15))  # a sleep is never shorter than requested
    assert 20 <= best["1", "forward"] < 25 and 30 <= best["1", "backward"] < 36
    assert 20 <= best["Sequential", "forward"] < 30 and 30 <= best["Sequential", "backward"] < 42
    assert 50 <= best["step", "step"] < 75
    for other in (("0", "forward"), ("0", "backward"), ("2", "forward"), ("3", "forward"), ("3", "backward")):
        assert best[other] < 8, other


def test_a_residual_does_not_lengthen_the_modules_inside(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), Residual())
    best = times(recorded(net, tmp_path, n=5))
    assert 30 <= best["1.second", "backward"] < 45 and 30 <= best["1.first", "backward"] < 45
    assert 60 <= best["1", "backward"] < 90


def test_spans_nest_and_have_what_went_in(tmp_path: Path) -> None:
    spans = recorded(model(), tmp_path, n=3)
    by_id = {(span["step"], span["span_id"]): span for span in spans}
    assert len(by_id) == len(spans) == 3 * (1 + 5 + 5)
    for span in spans:
        if span["phase"] == "step":
            assert span["parent_id"] is None and span["depth"] == 0
            continue
        outer = by_id[span["step"], span["parent_id"]]
        assert span["depth"] == outer["depth"] + 1
        assert outer["start_ns"] <= span["start_ns"]
        assert span["start_ns"] + span["duration_ns"] <= outer["start_ns"] + outer["duration_ns"]
        expected = ("step", "step") if span["name"] == "Sequential" else ("Sequential", span["phase"])
        assert (outer["name"], outer["phase"]) == expected
        if span["phase"] == "forward":
            assert json.loads(span["input_shapes"]) == [[3, 4]] and json.loads(span["input_dtypes"]) == ["float32"]
    assert {span["class"] for span in spans} == {"step", "Sequential", "Linear", "Sleeper", "ReLU"}
    assert all(abs(span["start_ns"] - time.time_ns()) < 3600e9 for span in spans)


@pytest.mark.slow  # 2 s; test_sampling.py checks the rate without a recorder
def test_as_many_steps_are_sampled_as_the_rate_says(tmp_path: Path) -> None:
    net = torch.nn.Linear(4, 2)
    spans = recorded(net, tmp_path / "a", n=2000, rate=0.05)
    steps = sorted({span["step"] for span in spans})
    assert abs(len(steps) - 100) < 4 * (2000 * 0.05 * 0.95) ** 0.5  # four standard deviations
    assert len(spans) == 3 * len(steps)
    (recording,) = pq.read_table(next((tmp_path / "a").rglob("recordings.parquet"))).to_pylist()
    others = sum(
        pq.read_metadata(path).num_rows
        for table in ("span_sample_operators", "span_sample_modules")
        for path in (tmp_path / "a").rglob(f"{table}-*")
    )
    columns = ("n_steps", "n_sampled_steps", "rate", "n_rows")
    assert [recording[column] for column in columns] == [2000, len(steps), 0.05, len(spans) + others]
    again = recorded(net, tmp_path / "b", n=2000, rate=0.05)  # another rank samples the same steps
    assert sorted({span["step"] for span in again}) == steps


def test_nothing_at_rate_0(tmp_path: Path) -> None:
    net = model()
    with record_spans(net, tmp_path, 0) as spans, spans.step():
        net(torch.randn(3, 4))
    assert list(tmp_path.iterdir()) == [] and spans.n_steps == 1
    with pytest.raises(ValueError, match="rate 5"):
        record_spans(net, tmp_path, 5)


def test_results_and_gradients_are_those_of_the_plain_loop(tmp_path: Path) -> None:
    results = []
    for rate in (0, 1):
        torch.manual_seed(0)
        net = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        data = torch.randn(2, 3, 8)
        with record_spans(net, tmp_path / str(rate), rate) as spans:
            for _ in range(3):
                with spans.step():
                    optimizer.zero_grad()
                    net(data).square().mean().backward()
                    optimizer.step()
        results.append([parameter.detach().clone() for parameter in net.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def hooks(net: Any) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in net.modules())


def test_an_exception_passes_through_and_leaves_no_hook(tmp_path: Path) -> None:
    class Breaks(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            raise RuntimeError("broken")

    net = torch.nn.Sequential(torch.nn.Linear(4, 4), Breaks())
    with record_spans(net, tmp_path, 1) as spans:
        with pytest.raises(RuntimeError, match="broken"), spans.step():
            net(torch.randn(3, 4))
        assert hooks(net) == 0
        with spans.step():
            net[0](torch.randn(3, 4)).sum().backward()
    written = [(span["step"], span["name"], span["phase"], span["is_failed"]) for span in rows(tmp_path)]
    assert written == [
        (0, "step", "step", True),
        (0, "Sequential", "forward", True),
        (0, "0", "forward", False),
        (0, "1", "forward", True),
        (1, "step", "step", False),
        (1, "0", "forward", False),
        (1, "0", "backward", False),
    ]
    assert hooks(net) == 0


def test_a_checkpointed_module_is_told_apart_when_it_runs_again(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    net = torch.nn.Sequential(torch.nn.Linear(4, 4), Sleeper(), torch.nn.Linear(4, 4))
    with record_spans(net, tmp_path, 1) as spans:
        for _ in range(4):
            with spans.step():
                checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum().backward()
    assert not any(span["is_failed"] for span in rows(tmp_path))  # PyTorch ends a recomputation with an exception
    best = times(rows(tmp_path))
    assert 20 <= best["1", "forward"] < 35 and 20 <= best["1", "recompute"] < 35
    assert 30 <= best["1", "backward"] < 75


def test_spans_are_written_as_they_come_and_once(tmp_path: Path) -> None:
    net = torch.nn.Linear(4, 2)
    spans = record_spans(net, tmp_path, 1, run_id="r", rank=2)
    for _ in range(3):
        with spans.step():
            net(torch.randn(1, 4)).sum().backward()
    folder = spans.close()
    assert folder is not None and spans.close() is None
    (recording,) = pq.read_table(folder / "recordings.parquet").to_pylist()
    assert (recording["kind"], recording["run_id"], recording["rank"], recording["source"], recording["device"]) == (
        "spans",
        "r",
        2,
        "host",
        "cpu",
    )
    assert [row["is_census"] for row in rows(tmp_path)] == 3 * [True] + 6 * [False]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_spans_are_the_gpu_s_and_no_step_waits(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4096, 4096, bias=False), torch.nn.Linear(4096, 4096, bias=False)).cuda()
    data = torch.randn(8192, 4096, device="cuda")
    for _ in range(3):
        net(data).sum().backward()
    torch.cuda.synchronize()
    with record_spans(net, tmp_path, 1) as spans:
        began = time.perf_counter()
        for _ in range(5):
            with spans.step():
                net(data).sum().backward()
        issued = time.perf_counter() - began
        torch.cuda.synchronize()
        elapsed = time.perf_counter() - began
    sampled = [span for span in rows(tmp_path) if span["step"] > 0]
    assert issued < elapsed / 2
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(5):
        net[1](data)
    last.record()
    torch.cuda.synchronize()
    direct = first.elapsed_time(last) / 5
    measured = [span["duration_ns"] / 1e6 for span in sampled if (span["name"], span["phase"]) == ("1", "forward")]
    assert all(direct * 0.8 < ms < direct * 1.3 for ms in measured)
    backward = [span["duration_ns"] / 1e6 for span in sampled if (span["name"], span["phase"]) == ("1", "backward")]
    assert all(1.5 * direct < ms < 2.6 * direct for ms in backward)  # backward has two products, forward has one
