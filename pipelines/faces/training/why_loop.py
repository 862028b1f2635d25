"""The answer to why a training loop takes as long as it does, from a few profiled steps, printed once, on one rank."""

from __future__ import annotations

import mmap
import re
import tempfile
import warnings
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pipelines.faces.training.trace_handler import rank_and_world_size

if TYPE_CHECKING:
    from pipelines.faces.why import Why

_PREFIX = "tracelake/"
_TRACE = "loop.json"
_DELETED = "TRACE"  # name of the loop's deleted trace in commands
_UNCUT = {
    "caveat": "uncut_loop",
    "severity": "warning",
    "detail": "the end of the last step was not found in this trace (another layout than torch's), so what follows it may count, too",
}
_ONLY_THE_LOOP = ": put only the loop into the block"
_UNUSUAL = re.compile(r"[^\w.-]+")
_LONGEST = 200  # characters; MLflow accepts 250
# Spans as Kineto writes them. Before torch 2.13, a line has several keys.
_THREAD = rb'"pid": %b,\s+"tid": %b,'
_TIMES = rb'\s+"ts": ([\d.]+),\s+"dur": ([\d.]+)'
_STEP = rb'\{\s+"ph": "X",\s+"cat": "(?:gpu_)?user_annotation",\s+"name": "ProfilerStep#%d",.*?\n  \},'
_STEPS = rb'"cat": "user_annotation",\s+"name": "ProfilerStep#\d+",\s+' + _THREAD % (b"([^,]+)", b"([^,]+)") + _TIMES


def why(steps: int = 5, *, rank: int = 0) -> LoopAnswer:
    """Profile `steps` steps of the loop in a `with` block, and print why they take as long as they do.

    A step ends with the loop's first optimizer, or with `answer.step()` if the loop calls it. Without either, the whole
    block is profiled. Only `rank` profiles and prints. Code after the last profiled step runs without the profiler. An
    error never stops training. It becomes a RuntimeWarning. Raise ValueError if `steps` is below 1.
    """
    if steps < 1:
        raise ValueError(f"steps={steps}: profile at least one")
    return LoopAnswer(steps, rank)


class LoopAnswer:
    """The answer of `why`. Its text and its HTML are empty until the block has ended, and on other ranks.

    `why`: the answer as TraceAnalysis.why returns it, or None. Commands in `why.as_json()` name TRACE, because the trace of
    the loop is deleted. To run them, pass a trace of the same loop that you recorded separately.
    """

    def __init__(self, steps: int, rank: int) -> None:
        self.why: Why | None = None
        self._steps, self._rank = steps, rank
        self._profiler: Any = None
        self._hook: Any = None
        self._optimizer: int | None = None
        self._n_done = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> LoopAnswer:
        try:
            if rank_and_world_size()[0] == self._rank:
                self._start()
        except Exception as error:
            self._give_up(error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._stop()
            if kind is None and self._folder is not None:
                is_cut = True
                with suppress(ValueError):  # an empty file cannot be mapped; the reader rejects it
                    is_cut = _end_with_last_step(Path(self._folder.name) / _TRACE, self._n_done)
                self._answer(self._folder.name)
                if self.why is not None and not is_cut:
                    self.why = replace(self.why, caveats=[*self.why.caveats, self._uncut()])
                print(self, flush=True)
        except Exception as failure:
            self._give_up(failure)
        finally:
            self._clean_up()

    def step(self) -> None:
        """End a step. Call it after each step of a loop whose steps do not end with its first optimizer."""
        is_ended = self._hook is not None and self._optimizer is not None  # the optimizer ended the first step already
        self._remove_hook()
        if not is_ended:
            self._end_step()

    def metrics(self) -> dict[str, float]:
        """Return the answer as numbers by name, for W&B, MLflow or TensorBoard. Empty without an answer.

        Times are ms per step, without the profiler if its cost is known. Shares are percent. Shares of GPU time are of
        the steps with the profiler, and missing without GPU work. Names are changed and cut, because MLflow does not
        accept every character or length of a kernel's name.
        """
        if self.why is None:
            return {}
        answer, window = self.why, self.why.window
        # The window consists of the steps, because the profiler starts with the first and stops with the last. The
        # sentence is about the window if the GPU works long after the host's last step. A metric is per step in every
        # run.
        numbers = {"step_ms": answer.length / (window["n_steps"] or 1) / 1e6}
        if window["busy_ns"]:  # else the GPU work may only be unrecorded
            numbers["gpu_computing_percent"] = 100 * window["computing_ns"] / window["length_ns"]
            numbers["gpu_busy_percent"] = 100 * window["busy_ns"] / window["length_ns"]
        numbers |= {f"cause/{cause.kind['cause']}_percent": cause.share for cause in answer.causes}
        for row in answer.fixes:  # largest first, so the largest is kept if cut names are equal
            what = "any call" if row["name"] == "*" else row["name"]
            name = _UNUSUAL.sub("_", f"{row['fix']}.{what}" if what else row["fix"])[:_LONGEST]
            numbers.setdefault(f"fix/{name}_saves_percent", row["saves_percent"])
        return {_PREFIX + name: float(number) for name, number in numbers.items()}

    def __str__(self) -> str:
        return str(self.why) if self.why else ""

    def _repr_html_(self) -> str:
        return self.why._repr_html_() if self.why else ""

    def _start(self) -> None:
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.profiler import ProfilerAction, profile

        def action(step: int) -> ProfilerAction:
            if step >= self._steps:
                return ProfilerAction.NONE
            return ProfilerAction.RECORD_AND_SAVE if step == self._steps - 1 else ProfilerAction.RECORD

        if torch.autograd._profiler_enabled():  # pyright: ignore[reportPrivateImportUsage]
            raise RuntimeError("another profiler is running")  # a second profiler would end it
        self._folder = tempfile.TemporaryDirectory(prefix="tracelake-")
        # By default, profile records the CPU and the accelerators that torch supports on this machine.
        self._profiler = profile(schedule=action, on_trace_ready=self._export, record_shapes=True)
        self._profiler.start()
        self._hook = register_optimizer_step_post_hook(self._on_optimizer)

    def _export(self, profiler: Any) -> None:
        assert self._folder is not None
        profiler.export_chrome_trace(str(Path(self._folder.name) / _TRACE))

    def _on_optimizer(self, optimizer: Any, *_: Any) -> None:
        if self._optimizer is None:
            self._optimizer = id(optimizer)
        if self._optimizer == id(optimizer):
            self._end_step()

    def _end_step(self) -> None:
        try:
            self._advance()
        except Exception as error:
            self._give_up(error)

    def _advance(self) -> None:
        if self._profiler is None:
            return
        self._n_done += 1
        self._profiler.step()
        if self._n_done >= self._steps:
            self._stop()

    def _stop(self) -> None:
        self._remove_hook()
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop()

    def _remove_hook(self) -> None:
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.remove()

    def _clean_up(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            try:
                folder.cleanup()
            except OSError as error:
                warnings.warn(f"{folder.name} cannot be removed: {error}", RuntimeWarning, stacklevel=3)

    def _answer(self, folder: str) -> None:
        from pipelines.faces.notebook import TraceAnalysis

        with TraceAnalysis(str(Path(folder) / _TRACE)) as analysis:
            self.why = replace(analysis.why(), subject=_DELETED)

    def _uncut(self) -> dict[str, str]:
        # If all steps are complete, only the end of the profiler follows them, so the block needs no change.
        advice = _ONLY_THE_LOOP if self._n_done < self._steps else ""
        return {**_UNCUT, "detail": _UNCUT["detail"] + advice}

    def _give_up(self, error: Exception) -> None:
        with suppress(Exception):  # otherwise the profiler would continue to record
            self._stop()
        self._clean_up()
        warnings.warn(f"why the loop takes as long as it does is unknown: {error}", RuntimeWarning, stacklevel=3)


def _end_with_last_step(path: Path, n_complete: int) -> bool:
    """Remove the step that the loop did not complete, and shorten the events that last beyond the end of the last step.

    After each step the profiler begins another, even if the loop has ended. If no step is complete, the block is one step.
    Open events of the loop's thread last until the profiler has stopped. A step that ends with its optimizer ends inside
    the optimizer's annotation. The file may have gigabytes, so it is edited in place, and blanks replace removed text.

    Return False for a file without steps in Kineto's layout, and leave the file unchanged.
    """
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as text:
        for begun in re.finditer(_STEP % n_complete, text, re.DOTALL) if n_complete else ():
            text[begun.start() : begun.end()] = b" " * len(begun[0])
        steps = [step.groups() for step in re.finditer(_STEPS, text)]
        if not steps:
            return False
        pid, tid, start, duration = max(steps, key=lambda step: _us(step[2]))
        end = _us(start) + _us(duration)
        for span in re.finditer(_THREAD % (re.escape(pid), re.escape(tid)) + _TIMES, text):
            start, duration = _us(span[1]), span[2]
            if start < end < start + _us(duration):
                shorter = str(end - start).encode()[: len(duration)].rstrip(b".")
                text[span.start(2) : span.end(2)] = shorter.ljust(len(duration))
    return True


def _us(text: bytes) -> Decimal:
    """Return a time of a trace (us) as a Decimal, because a float of that magnitude is not exact to 1 ns."""
    return Decimal(text.decode())
