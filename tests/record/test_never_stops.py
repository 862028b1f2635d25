"""The span recorder never stops training: odd modules and outputs are counted and named instead of measured.

The cases are modules that accept no hooks, outputs that cannot be described, and copies created within a step. Other
tests check which clock a time comes from if the work runs on another device.
"""

from __future__ import annotations

import copy
import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.readers.ingest import ingest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from pipelines.record.clocks import HostClock  # noqa: E402
from pipelines.record.spans import record_spans  # noqa: E402
from tests.effort import first_of  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
]
Step = Callable[[], Any]


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.linear(x)


class NoHooks(Inner):
    def register_forward_hook(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("takes no hooks")


class Unhashable(Inner):
    __hash__ = None  # pyright: ignore[reportAssignmentType]


class AllEqual(Inner):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class Doubling(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2


class Returns(nn.Module):
    """A module that returns the function's result for its input."""

    def __init__(self, made: Callable[[Any], Any]) -> None:
        super().__init__()
        self.made = made

    def forward(self, x: Any) -> Any:
        return self.made(x)


class NoShape(torch.Tensor):
    @property
    def shape(self) -> Any:
        raise RuntimeError("no shape")


def holds_itself(x: Any) -> Any:
    values: list[Any] = [x]
    values.append(values)
    return values


def train(net: Any) -> Step:
    return lambda: net(torch.randn(2, 4)).sum().backward()


def in_threads(net: Any) -> None:
    threads = [threading.Thread(target=train(net)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def between(inner: Any) -> Any:
    return nn.Sequential(nn.Linear(4, 4), inner, nn.Linear(4, 2))


CASES: dict[str, Callable[[], tuple[Any, Step]]] = {
    "unhashable": lambda: (net := between(Unhashable()), train(net)),
    "all_equal": lambda: (net := nn.Sequential(AllEqual(), AllEqual()), train(net)),
    "holds_itself": lambda: (net := Returns(holds_itself), lambda: net(torch.randn(2, requires_grad=True))[0].sum().backward()),
    "nested": lambda: (net := Doubling(), lambda: net(torch.nested.nested_tensor([torch.randn(2), torch.randn(3)]))),
    "no_shape": lambda: (net := Returns(lambda x: x), lambda: net(torch.randn(2).as_subclass(NoShape))),
    "threads": lambda: (net := between(Inner()), lambda: in_threads(net)),
    # Two tests below check the records of the first cases here.
    "script": lambda: (net := between(torch.jit.script(nn.Linear(4, 4))), train(net)),
    "script_root": lambda: (net := torch.jit.script(between(nn.Linear(4, 4))), train(net)),
    "no_hooks": lambda: (net := between(NoHooks()), train(net)),
    "bad_output": lambda: (net := Returns(lambda x: _BadMapping()), lambda: net(torch.randn(2))),
    "copied": lambda: (net := between(Inner()), lambda: train(copy.deepcopy(net))()),
    "saved": lambda: (net := between(Inner()), lambda: torch.save(net, io.BytesIO())),
    "traced": lambda: (net := between(torch.jit.trace(Inner(), torch.randn(2, 4))), train(net)),
    "traced_within": lambda: (net := between(Inner()), lambda: torch.jit.trace(net, torch.randn(2, 4))),
    "jagged": lambda: (net := Doubling(), lambda: net(torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(3, 3)], layout=torch.jagged))),
    "whole_step_compiled": lambda: (net := between(Inner()), _compiled(net)),
}  # fmt: skip


class _BadMapping(dict):
    def values(self) -> Any:
        raise ValueError("no values")


def _compiled(net: Any) -> Step:
    loss = torch.compile(lambda x: net(x).sum(), backend="eager", fullgraph=True)
    return lambda: loss(torch.randn(2, 4)).backward()


def recording(folder: Path) -> dict[str, Any]:
    (row,) = pq.read_table(next(folder.rglob("recordings.parquet"))).to_pylist()
    return row


def rows(folder: Path) -> list[dict]:
    return [row for path in sorted(folder.rglob("span_samples*")) for row in pq.read_table(path).to_pylist()]


@pytest.mark.parametrize("case", first_of(CASES, 6))
def test_training_goes_on(case: str, tmp_path: Path) -> None:
    torch._dynamo.reset()
    net, step = CASES[case]()
    step()  # works without the recorder
    with record_spans(net, tmp_path, 1) as spans:
        for _ in range(3):
            with spans.step():
                step()
    assert spans.n_sampled == 3
    assert {row["step"] for row in rows(tmp_path)} == {0, 1, 2}
    left = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net._modules.values() if m is not None)
    assert left == 0


@pytest.mark.parametrize(
    ("case", "name", "kind", "why"),
    [
        ("script", "1", "RecursiveScriptModule", "not supported on ScriptModules"),
        ("script_root", "RecursiveScriptModule", "RecursiveScriptModule", "not supported on ScriptModules"),
        ("no_hooks", "1", "NoHooks", "TypeError: takes no hooks"),
        ("bad_output", "Returns", "Returns", "ValueError: no values"),
    ],
)
def test_what_is_not_measured_is_counted_and_named(case: str, name: str, kind: str, why: str, tmp_path: Path) -> None:
    net, step = CASES[case]()
    with record_spans(net, tmp_path, 1) as spans, spans.step():
        step()
    (unhooked,) = json.loads(recording(tmp_path)["unhooked"])
    assert (unhooked["module"], unhooked["class"]) == (name, kind) and why in unhooked["why"]
    measured = {row["name"] for row in rows(tmp_path)}
    assert measured >= ({"step", "Sequential", "0", "2"} if isinstance(net, nn.Sequential) else {"step"}) - {name}
    assert (name in measured) == (case == "bad_output")  # the forward was measured before reading the output failed


def test_what_can_be_measured_is_not_named(tmp_path: Path) -> None:
    net = between(Inner())
    with record_spans(net, tmp_path, 1) as spans, spans.step():
        train(net)()
    assert (recording(tmp_path)["n_unhooked"], recording(tmp_path)["unhooked"]) == (0, "[]")


def test_a_copy_made_within_a_step_has_no_part_of_the_recorder(tmp_path: Path) -> None:
    net, kept = between(Inner()), []
    with record_spans(net, tmp_path, 1, count_operators=False) as spans:
        with spans.step():
            kept.append(copy.deepcopy(net))
            torch.save(net, file := io.BytesIO())
            train(kept[0])()
        assert b"pipelines" not in file.getvalue() and b"tracelake" not in file.getvalue()
        file.seek(0)
        kept.append(torch.load(file, weights_only=False))
        with spans.step():
            for copied in kept:
                train(copied)()
    assert {row["name"] for row in rows(tmp_path)} == {"step"}


def test_an_error_of_the_loop_s_own_passes(tmp_path: Path) -> None:
    net = between(NoHooks())
    with record_spans(net, tmp_path, 1) as spans, pytest.raises(KeyError, match="mine"), spans.step():
        raise KeyError("mine")


def test_a_disk_that_takes_nothing_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = between(Inner())
    spans = record_spans(net, tmp_path, 1, flush_seconds=0.01)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pipelines.record.folder.pq.write_table", full)
    for _ in range(5):
        with spans.step():
            train(net)()
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        spans.close()


def test_a_clock_that_must_not_be_asked_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step has no spans of modules while the device's clock must not be used.

    This is so while a CUDA graph is captured.
    """
    net = between(Inner())
    with record_spans(net, tmp_path, 1) as spans:
        with spans.step():
            monkeypatch.setattr(HostClock, "can_mark", lambda self: False)
            net(torch.randn(2, 4))
        monkeypatch.undo()
        with spans.step():
            net(torch.randn(2, 4))
    assert [row["name"] for row in rows(tmp_path) if row["step"] == 0] == ["step"]
    assert len([row for row in rows(tmp_path) if row["step"] == 1]) == 6


def test_nor_by_own_code_outside_a_sampled_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks: list[int] = []
    monkeypatch.setattr(HostClock, "mark", lambda self: marks.append(1) or 0)
    monkeypatch.setattr(HostClock, "is_done", lambda self, mark: bool(marks.append(1)))
    with record_spans(between(Inner()), tmp_path / "out", 0) as spans:
        with monkeypatch.context() as captures:
            captures.setattr(HostClock, "can_mark", lambda self: False)
            with spans.span("captured", always=True):
                pass
        assert not marks
        with spans.span("after", always=True):
            pass
    assert marks and [row["name"] for row in rows(tmp_path)] == ["after"]


def test_nor_by_a_step_within_the_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(HostClock, "is_done", lambda self, mark: bool(calls.append("is_done")))
    with record_spans(between(Inner()), tmp_path, 1, count_operators=False) as spans:
        with spans.step():
            pass
        calls.clear()
        with monkeypatch.context() as captures:
            captures.setattr(HostClock, "can_mark", lambda self: False)
            captures.setattr(HostClock, "mark", lambda self: calls.append("mark"))
            with spans.step():
                pass
        assert not calls
        with spans.step():
            pass
    assert {row["step"] for row in rows(tmp_path)} == {0, 2} and not spans.unhooked


def test_a_step_is_done_when_all_streams_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is complete only when all its streams are. A span on a side stream ends after the step."""
    stream, behind = ["main"], {"side"}

    class Streams(HostClock):
        def mark(self) -> Any:
            return stream[0], super().mark()

        def is_done(self, mark: Any) -> bool:
            return mark[0] not in behind

        def between(self, first: Any, last: Any) -> int:
            if not (self.is_done(first) and self.is_done(last)):
                raise RuntimeError("both events must be completed")
            return last[1] - first[1]

    monkeypatch.setattr("pipelines.record.spans.HostClock", Streams)
    with record_spans(nn.Identity(), tmp_path, 1, count_operators=False) as spans:
        for begins, ends in (("side", "main"), ("side", "side")):
            with spans.step():
                stream[0] = begins
                with spans.span("copy"):
                    stream[0] = ends
                stream[0] = "main"
        behind.clear()
    assert [(row["step"], row["name"]) for row in rows(tmp_path)] == [
        (0, "step"),
        (0, "copy"),
        (1, "step"),
        (1, "copy"),
    ]
    assert not spans.unhooked


class Clocked(HostClock):
    """A clock for the device `meta`, like CUDA events for a GPU."""

    name = "cuda"
    device = torch.device("meta")

    def mark(self) -> Any:
        return super().mark() * 2  # makes its times differ from the host's


class Moves(nn.Module):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device

    def forward(self, x: Any) -> Any:
        return x.to(self.device)


def clocks(folder: Path) -> dict[tuple[str, str], str]:
    return {(row["name"], row["phase"]): row["clock"] for row in rows(folder)}


def test_work_on_a_device_that_no_clock_follows_has_the_time_of_the_host_s_calls(tmp_path: Path) -> None:
    net = nn.Linear(64, 64)
    spans = record_spans(net, tmp_path / "in", 1)
    spans.unhooked["odd"] = {"module": "odd", "class": "Odd", "why": "for the table"}
    net.to("meta")  # after the recorder was created
    for _ in range(2):
        with spans.step():
            net(torch.randn(3, 64, device="meta")).sum().backward()
    spans.close()
    assert set(clocks(tmp_path / "in").values()) == {"host_calls"}
    assert recording(tmp_path / "in")["device"] == "meta"
    lake = Lake(tmp_path / "lake")
    ingest([tmp_path / "in"], lake)
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        query = """
            SELECT DISTINCT not_modelled, not_measured, coalesce(mfu_wall, hfu_wall, tflops, gigabytes_per_s, bandwidth_utilization, roofline_utilization)
            FROM span_sample_utilization"""
        assert con.execute(query).fetchall() == [(None, "host_calls", None)]
        assert con.execute("SELECT n_unhooked, unhooked ->> '$[0].module' FROM recordings").fetchall() == [(1, "odd")]
        ask = "SELECT max(flops_matrix) FROM span_sample_utilization WHERE phase = 'forward'"
        assert con.execute(ask).fetchall() == [(2 * 3 * 64 * 64,)]


def test_on_the_device_of_the_clock_the_times_are_the_device_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.record.spans.HostClock", Clocked)
    net = nn.Sequential(nn.Linear(4, 4, device="meta"), Moves("cpu"), nn.Linear(4, 4), Moves("meta"), nn.Linear(4, 4, device="meta"))  # fmt: skip
    with record_spans(net, tmp_path, 1, count_operators=False) as spans, spans.step(), torch.no_grad():
        # Data on meta cannot be copied back, so the module on the CPU gets its own input.
        net[0](x := torch.randn(2, 4, device="meta"))
        net[2](torch.randn(2, 4))
        net[3](torch.randn(2, 4))
        net[4](x)
    assert clocks(tmp_path) == {
        ("step", "step"): "cuda",
        ("0", "forward"): "cuda",
        ("2", "forward"): "host",  # CPU work has ended when the call returns
        ("3", "forward"): "cuda",  # from the CPU to the device
        ("4", "forward"): "cuda",
    }
    for row in rows(tmp_path):
        doubled = row["duration_ns"] / row["host_duration_ns"]
        assert doubled == pytest.approx(1 if row["clock"] == "host" else 2, rel=0.5)


def test_a_second_device_spoils_the_time_of_all_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Clocked):
        device = torch.device("cuda", 0)  # no part of the model is on this device

    monkeypatch.setattr("pipelines.record.spans.HostClock", Other)
    net = nn.Sequential(nn.Identity(), Moves("meta"), nn.Linear(4, 4, device="meta"))
    with record_spans(net, tmp_path, 1, count_operators=False) as spans, spans.step():
        net(torch.randn(2, 4))
    clock_of = clocks(tmp_path)
    assert clock_of["0", "forward"] == "host"
    assert {clock_of[name, "forward"] for name in ("Sequential", "1", "2")} == {"host_calls"}
    assert clock_of["step", "step"] == "host_calls"
