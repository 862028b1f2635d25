"""`why` in a training loop, which explains how long the loop takes."""

from __future__ import annotations

import json
import re
import tracemalloc
import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="it profiles torch")

from pipelines.faces.training import callbacks, why_loop  # noqa: E402
from tracelake.torch import why  # noqa: E402


def loop(n: int, answer: Any = None, optimizer: bool = True) -> None:
    model = torch.nn.Linear(8, 8)
    update = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(n):
        model(torch.randn(4, 8)).sum().backward()
        if optimizer:
            update.step()
        if answer is not None:
            answer.step()


@pytest.fixture
def steps_seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of steps of each written trace."""
    seen: list[int] = []

    def count(answer: Any, folder: str) -> None:
        text = (why_loop.Path(folder) / "loop.json").read_text()
        seen.append(len({part.split('"')[0] for part in text.split("ProfilerStep#")[1:]}))
        answer.why = SimpleNamespace(__str__=lambda: "")

    monkeypatch.setattr(why_loop.LoopAnswer, "_answer", count)
    return seen


@pytest.mark.slow  # 21 s
def test_the_answer_of_five_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with why(steps=5) as answer:
        loop(7)
    assert answer.why is not None and answer.why.steps == 5
    assert capsys.readouterr().out == f"{answer}\n" and answer.why.sentence in str(answer)
    numbers = answer.metrics()
    assert numbers["tracelake/step_ms"] > 0
    assert sum(share for name, share in numbers.items() if name.startswith("tracelake/cause/")) == pytest.approx(100)
    page = answer._repr_html_()
    assert answer.why.sentence.split(",")[0] in page and "background:#" in page


def test_mlflow_takes_the_names_of_all_metrics() -> None:
    """MLflow accepts letters, digits, `_-./ ` and 250 characters."""
    kernel = f"void at::native::f<(int)4, {'x' * 300}>"
    names = ["*", "aten::copy_", kernel, f"{kernel}, 2", ""]
    fixes = [{"fix": "do_not_wait", "name": name, "saves_percent": 9.0 - n} for n, name in enumerate(names)]
    window = {"length_ns": 10, "computing_ns": 5, "busy_ns": 6, "n_steps": 1}
    answer: Any = why(steps=1)
    answer.why = SimpleNamespace(window=window, length=10, steps=1, causes=[], fixes=fixes)
    numbers = {name: number for name, number in answer.metrics().items() if "fix/" in name}
    assert list(numbers.values()) == [9, 8, 7, 5]
    assert list(numbers)[:2] == [
        f"tracelake/fix/do_not_wait.{name}_saves_percent" for name in ("any_call", "aten_copy_")
    ]
    assert all(re.fullmatch(r"[/\w.\- ]{1,250}", name) for name in numbers)


def test_shares_of_a_gpu_without_work_are_not_measured() -> None:
    def names(busy_ns: int) -> list[str]:
        answer: Any = why(steps=1)
        window = {"length_ns": 10, "computing_ns": 0, "busy_ns": busy_ns, "n_steps": 1}
        answer.why = SimpleNamespace(window=window, length=10, steps=1, causes=[], fixes=[])
        return [name.removeprefix("tracelake/") for name in answer.metrics()]

    assert names(busy_ns=0) == ["step_ms"]
    assert names(busy_ns=1) == ["step_ms", "gpu_computing_percent", "gpu_busy_percent"]


@pytest.mark.parametrize("n_steps, steps, expected", [(5, 5, 2), (5, 1, 2), (1, 1, 10), (0, 1, 10)])
def test_the_time_of_a_step_is_that_of_a_step_also_where_the_sentence_is_of_the_window(
    n_steps: int, steps: int, expected: float
) -> None:
    """The length of a step is that of a step even if the sentence is about the window.

    The GPU may continue for long after the last step of the host.
    """
    answer: Any = why(steps=5)
    window = {"length_ns": 12_000_000, "computing_ns": 0, "busy_ns": 0, "n_steps": n_steps}
    answer.why = SimpleNamespace(window=window, length=10_000_000, steps=steps, causes=[], fixes=[])
    assert answer.metrics() == {"tracelake/step_ms": expected}


@pytest.mark.parametrize("ends", ["optimizer", "step", "both"])
def test_a_step_ends_with_the_optimizer_or_where_the_loop_says(ends: str, steps_seen: list[int]) -> None:
    with why(steps=3) as answer:
        loop(6, answer if ends != "optimizer" else None, optimizer=ends != "step")
    assert steps_seen == [3]


@pytest.mark.parametrize("ends", ["optimizer", "step", "both"])
@pytest.mark.parametrize("n", [1, 3])
def test_a_step_that_the_loop_does_not_complete_is_none(ends: str, n: int, steps_seen: list[int]) -> None:
    """A step that the loop does not complete does not count.

    After the last step of a shorter loop the profiler begins another step, and ends it with the block.
    """
    with why(steps=5) as answer:
        loop(n, answer if ends != "optimizer" else None, optimizer=ends != "step")
    assert steps_seen == [n]


@pytest.mark.parametrize("then", [" ", "\n    "])
def test_a_step_that_the_loop_does_not_complete_is_none_on_the_gpu_either(then: str, tmp_path: Any) -> None:
    rows = [
        ("user_annotation", "ProfilerStep#0", 1, "0", "50"),
        ("cpu_op", "goes on", 1, "40", "20"),
        ("user_annotation", "ProfilerStep#1", 1, "50", "9"),
        ("gpu_user_annotation", "ProfilerStep#1", 7, "60", "9"),
        ("user_annotation", "ProfilerStep#10", 1, "0", "50"),
        ("cpu_op", "ProfilerStep#1", 1, "0", "50"),
    ]
    path = tmp_path / "loop.json"
    path.write_text('{"traceEvents": [\n' + ",\n".join(kineto(*row, then) for row in rows) + "\n]}")
    assert why_loop._end_with_last_step(path, 1)
    events = [(e["cat"], e["name"], e["dur"]) for e in json.loads(path.read_text())["traceEvents"]]
    kept = [(cat, name, int(dur)) for cat, name, _, _, dur in rows]
    assert events == [kept[0], ("cpu_op", "goes on", 10), *kept[4:]]


def test_a_step_that_ends_after_its_optimizer_is_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    iterations: list[int] = []

    def count(answer: Any, folder: str) -> None:
        events = json.loads((why_loop.Path(folder) / "loop.json").read_text())["traceEvents"]
        iterations.append(sum(event.get("name") == "one" for event in events))
        answer.why = SimpleNamespace(__str__=lambda: "")

    monkeypatch.setattr(why_loop.LoopAnswer, "_answer", count)
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with why(steps=3) as answer:
        for _ in range(6):
            with torch.profiler.record_function("one"):
                weight.sum().backward()
                optimizer.step()
            answer.step()
    assert iterations == [3]


def test_what_is_open_when_the_profiler_stops_ends_with_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopping takes time, within the annotation of the optimizer and the annotations around it."""
    spans: list[Any] = []

    def read(answer: Any, folder: str) -> None:
        events = json.loads((why_loop.Path(folder) / "loop.json").read_text())["traceEvents"]
        spans.extend((e["name"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "user_annotation")
        answer.why = SimpleNamespace(__str__=lambda: "")

    monkeypatch.setattr(why_loop.LoopAnswer, "_answer", read)
    with why(steps=2), torch.profiler.record_function("epoch"):
        loop(3)
    last_step = dict(spans)["ProfilerStep#1"]
    last_optimizer = max(end for name, end in spans if name == "Optimizer.step#SGD.step")
    # us; times have a resolution of 1 ns
    assert last_optimizer == pytest.approx(last_step, abs=0.002) == dict(spans)["epoch"]


def kineto(cat: str, name: str, tid: int, ts: str, dur: str, then: str = "\n    ") -> str:
    """Return a span as Kineto writes it. `then`: the text between two keys, before torch 2.13 mostly a blank."""
    keys = ('"ph": "X"', f'"cat": "{cat}"', f'"name": "{name}"', '"pid": 4', f'"tid": {tid}')
    args = '"args": {\n      "External id": 3\n    }\n  }'
    return f'  {{\n    {f",{then}".join(keys)},\n    "ts": {ts},{then}"dur": {dur}\n    ,\n    {args}'


@pytest.mark.parametrize("then", [" ", "\n    "])
def test_only_spans_of_the_loops_thread_that_go_on_after_the_last_step_are_cut(then: str, tmp_path: Any) -> None:
    rows = [
        ("user_annotation", "ProfilerStep#8", 1, "0", "50", "50"),
        ("user_annotation", "ProfilerStep#9", 1, "50.000", "50.123", "50.123"),
        ("user_annotation", "Optimizer.step#SGD.step", 1, "90.100", "1030.000", "10.023"),
        ("user_annotation", "of whole us", 1, "90", "30", "10"),
        ("cpu_op", "ends with the step", 1, "90.123", "10.000", "10.000"),
        ("cpu_op", "goes on", 1, "90.123", "10.001", "10.000"),
        ("cuda_runtime", "begins with its end", 1, "100.123", "30", "30"),
        ("python_function", "another thread", 2, "90", "30", "30"),
        ("gpu_user_annotation", "ProfilerStep#9", 7, "60", "200", "200"),
        ("gpu_user_annotation", "Optimizer.step#SGD.step", 7, "90", "170", "170"),
    ]
    path = tmp_path / "loop.json"
    text = '{"traceEvents": [\n' + ",\n".join(kineto(*row[:-1], then) for row in rows) + "\n]}"
    path.write_text(text)
    why_loop._end_with_last_step(path, 2)
    cut = path.read_text()
    assert [str(number) for number in re.findall(r'"dur": ([\d.]+)', cut)] == [row[-1] for row in rows]
    assert len(cut) == len(text)
    assert [event["args"] for event in json.loads(cut)["traceEvents"]] == [{"External id": 3}] * len(rows)


def test_a_trace_without_steps_stays_as_it_is(tmp_path: Any) -> None:
    path = tmp_path / "loop.json"
    path.write_text(kineto("cpu_op", "aten::add", 1, "1", "2"))
    before = path.read_text()
    assert not why_loop._end_with_last_step(path, 2)
    assert path.read_text() == before


@pytest.mark.parametrize("is_cut, steps", [(True, 1), (False, 1), (False, 2)])
def test_the_answer_says_that_the_trace_could_not_be_cut(
    is_cut: bool, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After all steps the loop runs without the profiler, so the rest of the block does not count."""

    @dataclass(frozen=True)
    class Answered:
        caveats: list[dict[str, str]]

    def answer_it(answer: Any, _: str) -> None:
        answer.why = Answered([{"caveat": "of the trace"}])

    monkeypatch.setattr(why_loop, "_end_with_last_step", lambda *_: is_cut)
    monkeypatch.setattr(why_loop.LoopAnswer, "_answer", answer_it)
    with why(steps=steps) as answer:
        loop(1)
    caveats: Any = answer.why and answer.why.caveats
    assert [caveat["caveat"] for caveat in caveats] == ["of the trace", *(() if is_cut else ("uncut_loop",))]
    assert is_cut or caveats[1]["detail"].endswith("only the loop into the block") == (steps > 1)


def test_the_trace_is_changed_after_the_block_and_without_holding_it_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The trace is changed after the block, and without holding it in memory.

    Between two steps the other ranks wait, and training needs its memory.
    """
    changed: list[Any] = []
    monkeypatch.setattr(why_loop, "_end_with_last_step", lambda *call: changed.append(call))
    monkeypatch.setattr(why_loop.LoopAnswer, "_answer", lambda *_: None)
    with why(steps=1):
        loop(2)
        assert changed == []
    assert len(changed) == 1
    monkeypatch.undo()
    path = tmp_path / "loop.json"
    path.write_text(
        ",\n".join(
            [kineto("user_annotation", "ProfilerStep#0", 1, "0", "50")] + [kineto("kernel", "k", 7, "1", "2")] * 9_000
        )
    )
    tracemalloc.start()
    why_loop._end_with_last_step(path, 2)
    assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 10
    tracemalloc.stop()


def test_a_second_optimizer_ends_no_step(steps_seen: list[int]) -> None:
    weights = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    optimizers = [torch.optim.SGD([weight], lr=0.1) for weight in weights]
    with why(steps=4):
        for _ in range(6):
            sum(weights).backward()
            for optimizer in optimizers:
                optimizer.step()
    assert steps_seen == [4]


def test_a_block_without_steps_is_profiled_whole(steps_seen: list[int]) -> None:
    with why(steps=2):
        torch.ones(3).sum()
    assert steps_seen == [1]


def test_only_one_rank_profiles(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    with why() as answer:
        loop(2)
    assert (str(answer), answer._repr_html_(), answer.metrics()) == ("", "", {})
    assert capsys.readouterr().out == ""


def test_an_exception_of_the_loop_passes_and_leaves_no_hook(steps_seen: list[int]) -> None:
    with pytest.raises(ZeroDivisionError), why(steps=2):
        loop(1)
        _ = 1 / 0
    assert steps_seen == []
    from torch.optim.optimizer import _global_optimizer_post_hooks

    assert len(_global_optimizer_post_hooks) == 0


@pytest.mark.parametrize("ends", ["optimizer", "step"])
@pytest.mark.parametrize("where", ["_start", "_export", "_answer"])
def test_an_error_of_the_recorder_is_a_warning(where: str, ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(why_loop.LoopAnswer, where, fail)
    with pytest.warns(RuntimeWarning, match="is unknown: no space left") as caught, why(steps=2) as answer:
        loop(3, answer if ends == "step" else None, optimizer=ends == "optimizer")
    assert answer.metrics() == {} and answer._profiler is None
    assert sum("is unknown" in str(warning.message) for warning in caught) == 1
    assert not torch.autograd._profiler_enabled()


def test_a_folder_that_cannot_be_removed_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> None:
        raise OSError("Stale file handle")

    monkeypatch.setattr(why_loop.tempfile.TemporaryDirectory, "cleanup", fail)
    monkeypatch.setattr(why_loop.LoopAnswer, "_answer", lambda *_: None)
    with pytest.warns(RuntimeWarning, match="cannot be removed: Stale file handle"), why(steps=2):
        loop(2)


def test_a_profiler_that_runs_already_goes_on() -> None:
    traces: list[Any] = []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as running:
        with pytest.warns(RuntimeWarning, match="is unknown: another profiler is running"), why(steps=1) as answer:
            loop(1)
        profiled = callbacks._ProfiledLoop(traces.append, wait=0, warmup=0, active=1, repeat=1)
        with pytest.warns(RuntimeWarning, match="the profiler has stopped: another profiler is running"):
            profiled.begin()
        loop(1)
        profiled.step()
        profiled.end()
        assert torch.autograd._profiler_enabled()
    assert answer.metrics() == {} and traces == []
    assert sum(event.name == "aten::linear" for event in running.events()) == 2


@pytest.mark.parametrize("accelerator", ["CUDA", "XPU"])
def test_work_of_every_accelerator_that_torch_can_record_is_recorded(
    accelerator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = torch.profiler.ProfilerActivity
    supported = {kinds.CPU, getattr(kinds, accelerator)}
    monkeypatch.setattr(torch.profiler.profiler, "supported_activities", lambda: supported)
    monkeypatch.setattr(torch.profiler.profile, "start", lambda _: None)  # because this machine has no such device
    answer = why(steps=1)
    answer._start()
    profiled = callbacks._ProfiledLoop(print, wait=0, warmup=0, active=1, repeat=1)
    profiled.begin()
    assert answer._profiler.activities == profiled._profiler.activities == supported
    answer._remove_hook()
    answer._clean_up()


def test_a_training_after_an_interrupted_one_is_profiled() -> None:
    traces: list[Any] = []
    profiled = callbacks._ProfiledLoop(traces.append, wait=0, warmup=0, active=2, repeat=1)
    profiled.begin()
    profiled.step()  # then Ctrl-C: the callback is not notified that the training has ended
    profiled.begin()
    traces.clear()
    for _ in range(2):
        profiled.step()
    profiled.end()
    assert len(traces) == 1 and not torch.autograd._profiler_enabled()


def test_fewer_than_one_step() -> None:
    with pytest.raises(ValueError, match="at least one"):
        why(steps=0)


def test_the_profiled_loop_of_a_callback_follows_its_schedule() -> None:
    traces: list[Any] = []
    profiled = callbacks._ProfiledLoop(traces.append, wait=1, warmup=1, active=2, repeat=2)
    profiled.step()  # before the beginning, so nothing is recorded
    profiled.begin()
    for _ in range(9):
        profiled.step()
    profiled.end()
    profiled.end()
    assert len(traces) == 2


def test_an_error_of_a_callback_is_a_warning_and_stops_the_profiler() -> None:
    def fail(_: Any) -> None:
        raise OSError("no space left")

    profiled = callbacks._ProfiledLoop(fail, wait=0, warmup=0, active=1, repeat=0)
    profiled.begin()
    with pytest.warns(RuntimeWarning, match="the profiler has stopped: no space left"):
        profiled.step()
    assert not torch.autograd._profiler_enabled()
    profiled.step()
    profiled.end()


@pytest.mark.slow
def test_hugging_face(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any = None) -> Any:
            out = self.layer(x)
            return {"loss": torch.nn.functional.mse_loss(out[:, 0], labels), "logits": out}

    data = [{"x": torch.randn(4), "labels": torch.randn(())} for _ in range(32)]
    traces: list[Any] = []
    callback = callbacks.hugging_face_callback(traces.append, wait=1, warmup=1, active=2)
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=6, per_device_train_batch_size=4, report_to=[], use_cpu=True, save_strategy="no"
    )
    transformers.Trainer(Model(), arguments, train_dataset=data, callbacks=[callback]).train()
    assert len(traces) == 1


@pytest.mark.slow
def test_lightning(tmp_path: Any) -> None:
    lightning = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.layer(batch).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    traces: list[Any] = []
    callback = callbacks.lightning_callback(traces.append, wait=1, warmup=1, active=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            max_steps=6,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            default_root_dir=str(tmp_path),
            callbacks=[callback],
        )
        trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=4))
    assert len(traces) == 1
