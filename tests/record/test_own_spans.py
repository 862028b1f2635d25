"""Spans of the user's code: nested, in threads and tasks, sampled with their steps.

Rare spans are recorded at any rate.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from pipelines.record.clocks import HostClock  # noqa: E402
from pipelines.record.spans import SpanRecorder, record_spans  # noqa: E402
from pipelines.record.step import SampledStep  # noqa: E402
from tests.record.test_spans import model, rows  # noqa: E402


def tree(spans: list[dict[str, Any]]) -> dict[str, tuple[str | None, int]]:
    """Return the name of the span around each own span, and its depth."""
    names = {(row["step"], row["span_id"]): row["name"] for row in spans}
    own = [row for row in spans if row["phase"] == "own"]
    return {row["name"]: (names.get((row["step"], row["parent_id"])), row["depth"]) for row in own}


def test_own_code_lies_in_what_is_around_it(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4))
    with record_spans(net, tmp_path, 1.0) as spans:

        @spans.span("decorated")
        def work() -> None:
            with spans.span("inner", n=3, what=Path("x")):
                time.sleep(0.02)

        with spans.step():
            with spans.span("outer"):
                net(torch.randn(3, 4)).sum().backward()
                work()
            with pytest.raises(ZeroDivisionError), spans.span("fails"):
                1 / 0  # noqa: B018
        with spans.span("between steps"):  # no step is sampled here
            pass
    recorded = rows(tmp_path)
    assert tree(recorded) == {
        "outer": ("step", 1),
        "decorated": ("outer", 2),
        "inner": ("decorated", 3),
        "fails": ("step", 1),
    }
    of = {row["name"]: row for row in recorded}
    forward = {row["name"]: row["parent_id"] for row in recorded if row["phase"] == "forward"}
    assert forward["Sequential"] == of["outer"]["span_id"]
    assert json.loads(of["inner"]["metadata"]) == {"n": 3, "what": "x"} and of["outer"]["metadata"] is None
    assert 20e6 < of["inner"]["duration_ns"] <= of["decorated"]["duration_ns"] <= of["outer"]["duration_ns"]
    assert [name for name, row in of.items() if row["is_failed"]] == ["fails"]


def test_threads_and_tasks_have_their_own(tmp_path: Path) -> None:
    with record_spans(model(), tmp_path, 1.0) as spans:

        async def task(name: str, seconds: float) -> None:
            with spans.span(name):
                await asyncio.sleep(seconds)
                with spans.span(f"in {name}"):
                    await asyncio.sleep(seconds)

        async def both() -> None:
            with spans.span("around"):
                await asyncio.gather(task("a", 0.02), task("b", 0.03))

        def in_thread() -> None:
            with spans.span("thread"), spans.span("in thread"):
                pass

        with spans.step():
            asyncio.run(both())
            with spans.span("main"):
                other = threading.Thread(target=in_thread)
                other.start()
                other.join()
    assert tree(rows(tmp_path)) == {
        "around": ("step", 1), "a": ("around", 2), "b": ("around", 2), "in a": ("a", 3), "in b": ("b", 3),
        "main": ("step", 1), "thread": ("step", 1), "in thread": ("thread", 2),
    }  # fmt: skip


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_rare_work_is_recorded_whatever_the_rate(rate: float, tmp_path: Path) -> None:
    """Rare spans are recorded at any sampling rate.

    They occur between steps, within one, in two threads, and still open when the recorder closes.
    """
    with record_spans(model(), tmp_path, rate) as spans:
        for _ in range(2):
            with spans.step(), spans.span("usual"), spans.span("checkpoint", always=True, step=1):
                pass
            with spans.span("evaluation", always=True), spans.span("part", always=True):
                other = threading.Thread(target=spans.span("beside", always=True)(lambda: None))
                other.start()
                other.join()
        open_until_the_end = spans.span("shuffle", always=True)
        open_until_the_end.__enter__()
    recorded = [row for row in rows(tmp_path) if row["phase"] == "own"]
    always = [row["name"] for row in recorded if row["is_always"]]
    assert sorted(always) == ["beside"] * 2 + ["checkpoint"] * 2 + ["evaluation"] * 2 + ["part"] * 2 + ["shuffle"]
    assert sum(row["name"] == "usual" for row in recorded) == 2 * rate
    assert len({(row["step"], row["span_id"]) for row in recorded}) == len(recorded)
    assert tree(recorded)["part"] == ("evaluation", 1) and tree(recorded)["evaluation"] == (None, 0)
    open_until_the_end.__exit__(None, None, None)


def test_a_step_has_the_inputs_of_its_first_module_also_within_own_code(tmp_path: Path) -> None:
    """A step has the input shapes of its first module, even if own spans enclose the module.

    The shapes connect a step to the census that counted the work of these shapes.
    """
    net = torch.nn.Linear(4, 4)
    with record_spans(net, tmp_path, 1.0) as spans:
        for n in (3, 5):
            with spans.step(), spans.span("loop"), spans.span("forward"):
                net(torch.randn(n, 4)).sum().backward()
    input_shapes = {(row["step"], row["name"], row["phase"]): row["input_shapes"] for row in rows(tmp_path)}
    for step, shapes in ((0, "[[3, 4]]"), (1, "[[5, 4]]")):
        names = [("step", "step"), ("loop", "own"), ("forward", "own"), ("Linear", "forward"), ("Linear", "backward")]
        assert [input_shapes[step, *name] for name in names] == [shapes] * 5


def test_nothing_rare_leaves_no_folder_at_rate_0(tmp_path: Path) -> None:
    with record_spans(model(), tmp_path / "out", 0.0) as spans, spans.step(), spans.span("usual"):
        pass
    assert not (tmp_path / "out").exists()


def test_a_thread_s_rare_span_may_outlast_the_step_in_which_it_began(tmp_path: Path) -> None:
    """A rare span that outlasts the step in which it began keeps its own end. It does not count as failed."""
    has_begun = threading.Event()

    def save() -> None:
        with spans.span("checkpoint", always=True):
            has_begun.set()
            time.sleep(0.1)

    with record_spans(model(), tmp_path, 1.0) as spans:
        saving = threading.Thread(target=save)
        with spans.step():
            saving.start()
            assert has_begun.wait(10)
        saving.join()
        with spans.step():
            pass
    (row,) = (row for row in rows(tmp_path) if row["name"] == "checkpoint")
    assert row["is_always"] and not row["is_failed"] and row["duration_ns"] >= 100_000_000


def test_a_generator_that_another_thread_ends_goes_on(tmp_path: Path) -> None:
    """A generator's span ends when another thread exhausts the generator.

    A data loader may begin in one thread and continue in another.
    """
    with record_spans(model(), tmp_path, 1.0) as spans:

        def batches() -> Iterator[int]:
            with spans.span("load", always=True):
                yield 1
                yield 2

        loader = batches()
        first = threading.Thread(target=lambda: next(loader))
        first.start()
        first.join()
        assert list(loader) == [2]
        with spans.span("after", always=True):
            pass
    by_name = {row["name"]: row for row in rows(tmp_path)}
    assert not by_name["load"]["is_failed"] and by_name["after"]["parent_id"] is None


def test_a_rare_span_of_another_thread_may_end_while_the_next_begins(tmp_path: Path) -> None:
    """A rare span may end in another thread while the next one begins.

    Its end does not close the collection to which the next span is added.
    """

    class Source:
        def __str__(self) -> str:  # runs after the collection was chosen, and before the span begins
            other = threading.Thread(target=spans.span("other", always=True)(lambda: None))
            other.start()
            other.join()
            return "disk"

    with record_spans(model(), tmp_path, 0.5) as spans, spans.span("load", always=True, source=Source()):
        pass
    by_name = {row["name"]: row for row in rows(tmp_path)}
    assert set(by_name) == {"load", "other"} and by_name["load"]["span_id"] != by_name["other"]["span_id"]


def test_no_rare_span_begins_after_the_recorder_closed(tmp_path: Path) -> None:
    """No rare span begins after the recorder closed.

    At rate 0 the span would begin another recording, which would never be completed.
    """
    with record_spans(model(), tmp_path, 0.0) as spans:
        pass
    with spans.span("late", always=True):
        pass
    assert not list(tmp_path.iterdir())


def test_rare_spans_that_end_at_the_same_time_are_each_written_once(tmp_path: Path) -> None:
    with record_spans(model(), tmp_path, 0.5) as spans:
        threads = [
            threading.Thread(target=lambda: [spans.span("rare", always=True)(lambda: None)() for _ in range(50)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for _ in range(50):
            with spans.step():
                pass
        for thread in threads:
            thread.join()
        assert not spans.unhooked
    rare = [row for row in rows(tmp_path) if row["name"] == "rare"]
    assert len(rare) == 200 == len({(row["step"], row["span_id"]) for row in rare})


def test_a_rare_span_that_ends_while_the_recorder_closes_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_ending, may_end = threading.Event(), threading.Event()
    rows_of = SampledStep.rows

    def rows_later(step: SampledStep) -> list[dict[str, Any]]:
        if threading.current_thread() is saving:
            is_ending.set()
            may_end.wait(10)
        return rows_of(step)

    monkeypatch.setattr(SampledStep, "rows", rows_later)
    spans = record_spans(model(), tmp_path, 0.5)
    saving = threading.Thread(target=spans.span("checkpoint", always=True)(lambda: None))
    closing = threading.Thread(target=spans.close)
    saving.start()
    assert is_ending.wait(10)
    closing.start()
    closing.join(0.2)  # close waits for the span
    may_end.set()
    for thread in (saving, closing):
        thread.join()
    assert [row["name"] for row in rows(tmp_path)] == ["checkpoint"]


def test_a_thread_whose_span_ends_while_the_recorder_closes_writes_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as device:
        device.setattr(HostClock, "is_done", lambda *_: False)
        spans = record_spans(model(), tmp_path, 1.0, count_operators=False)
        for _ in range(3):
            with spans.step():
                pass
    ending = threading.Thread(target=spans._write_finished)  # what a thread runs at the end of its span
    rows_of = SampledStep.rows

    def rows_beside(step: SampledStep) -> list[dict[str, Any]]:
        if not ending.ident:
            ending.start()
            ending.join(0.2)  # the thread waits for this one
        return rows_of(step)

    monkeypatch.setattr(SampledStep, "rows", rows_beside)
    spans.close()
    ending.join()
    assert [row["step"] for row in rows(tmp_path)] == [0, 1, 2]


def test_a_generator_whose_span_the_garbage_collector_ends_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator's span that the garbage collector ends does not block the thread.

    The garbage collector may run while rows are created, in the same thread.
    """
    spans = record_spans(model(), tmp_path, 0.0)

    def batches() -> Generator[int, None, None]:
        with spans.span("load", always=True):
            yield 1

    loaders = [batches()]
    rows_of = SampledStep.rows

    def rows_after(step: SampledStep) -> list[dict[str, Any]]:
        if loaders:
            loaders.pop().close()
        return rows_of(step)

    monkeypatch.setattr(SampledStep, "rows", rows_after)

    def train() -> None:
        with spans.span("checkpoint", always=True):
            next(loaders[0])
        spans.close()

    training = threading.Thread(target=train, daemon=True)
    training.start()
    training.join(10)
    assert not training.is_alive()
    assert sorted(row["name"] for row in rows(tmp_path)) == ["checkpoint", "load"]


def test_rare_spans_are_written_while_another_is_open(tmp_path: Path) -> None:
    """Rare spans are written while another rare span is open, such as one around the whole loop.

    Each inner span has the latest step, and memory does not grow with their number.
    """
    with record_spans(model(), tmp_path, 0.0, flush_seconds=60) as spans, spans.span("epoch", always=True):
        for _ in range(3):
            with spans.step():
                pass
            with spans.span("checkpoint", always=True), spans.span("write", always=True):
                pass
        assert spans._aside is not None and spans._recording is not None
        assert [span.name for span in spans._aside._spans] == ["step", "epoch"]
        spans._recording.flush()
        written = rows(tmp_path)
    assert [(row["name"], row["step"]) for row in written] == [
        (name, step) for step in range(3) for name in ("write", "checkpoint")
    ]
    recorded = rows(tmp_path)
    assert tree(recorded)["write"] == ("checkpoint", 2)
    assert len({row["span_id"] for row in recorded}) == len(recorded) == 7
    (epoch,) = (row for row in recorded if row["name"] == "epoch")
    assert {row["parent_id"] for row in recorded if row["name"] == "checkpoint"} == {epoch["span_id"]}
    assert epoch["step"] == 0


@pytest.mark.parametrize("first_id", [0, 1_000_000])
def test_what_lies_in_a_span_around_the_loop_starts_at_the_hosts_time(first_id: int) -> None:
    """Outside steps, spans start at the host's time, because the device's clock would drift over hours.

    Within a step, start times count from the step's begin on the device's clock.
    """

    class Faster(HostClock):
        def between(self, first: int, last: int) -> int:
            return 2 * (last - first)

    step = SampledStep(0, (), Faster(), lambda *_: None, first_id=first_id)
    step.begin()
    with step.span("checkpoint", None, True):
        pass
    step.end()
    (root, span), row = step._spans, step.rows()[-1]
    assert row["name"] == "checkpoint" and root.begin and span.begin and span.end
    since_root = 2 * (span.begin[0] - root.begin[0])  # in the clock's time, which runs twice as fast
    start_ns = span.begin[1] if first_id else root.begin[1] + since_root
    assert (row["start_ns"], row["duration_ns"]) == (start_ns + step._offset, 2 * (span.end[0] - span.begin[0]))


def test_a_name_may_be_anything(tmp_path: Path) -> None:
    class Phase(Enum):
        LOAD = 1

    names = ["load", 7, Phase.LOAD, Path("a/b")]
    with record_spans(torch.nn.Identity(), tmp_path, 1.0) as spans, spans.step():
        for name in names:
            with spans.span(name):  # pyright: ignore[reportArgumentType]
                pass
    assert [row["name"] for row in rows(tmp_path)] == ["step", "load", "7", "Phase.LOAD", "a/b"]
    assert not spans.unhooked


def test_a_step_may_end_while_another_thread_s_span_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with record_spans(model(), tmp_path, 1.0) as spans:
        with spans.step():
            steps = [spans._sampled]
        first_read = property(lambda _: steps.pop() if steps else None, lambda *_: None)
        monkeypatch.setattr(SpanRecorder, "_sampled", first_read, raising=False)
        other = threading.Thread(target=spans.span("checkpoint", always=True)(lambda: None))
        other.start()
        other.join()
    assert "checkpoint" in {row["name"] for row in rows(tmp_path)}


def in_fork(child: Any) -> int:
    """Return the exit status of a forked process, which is 0 if `child` returns true."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(20)  # ends a process that waits for a lock forever
            status = 0 if child() else 1
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def test_a_forked_process_begins_no_recording(tmp_path: Path) -> None:
    """A forked process begins no recording. The workers of a DataLoader are forked processes."""
    spans = record_spans(model(), tmp_path, 0.0)

    def work() -> bool:
        with spans.span("decode", always=True):
            pass
        return spans._recording is None

    assert in_fork(work) == 0
    assert spans.close() is None and list(tmp_path.iterdir()) == []


def test_a_process_forked_within_a_step_keeps_no_spans(tmp_path: Path) -> None:
    with record_spans(model(), tmp_path, 1.0) as spans, spans.step():

        def work() -> bool:
            with spans.span("decode"):
                pass
            return spans._sampled is not None and spans._sampled.n_spans == 1

        assert in_fork(work) == 0
    assert [row["name"] for row in rows(tmp_path)] == ["step"]


def test_a_forked_process_waits_for_no_lock(tmp_path: Path) -> None:
    """A forked process does not wait for a lock that another thread held.

    That thread does not exist in the forked process.
    """
    spans = record_spans(model(), tmp_path, 1.0, count_operators=False)
    with spans.step():
        pass
    is_held, may_release = threading.Event(), threading.Event()

    def hold() -> None:
        with spans._lock:
            is_held.set()
            may_release.wait(30)

    around = spans.span("epoch", always=True)
    around.__enter__()
    holding = threading.Thread(target=hold)
    holding.start()
    assert is_held.wait(10)

    def work() -> bool:
        around.__exit__(None, None, None)
        with spans.step(), spans.span("decode", always=True):
            pass
        return spans.close() is None

    status = in_fork(work)
    may_release.set()
    holding.join()
    around.__exit__(None, None, None)
    spans.close()
    assert status == 0
