"""Times of a model's modules, sampled on some steps of a training loop:

    spans = record_spans(model, "recordings/")  # budget=0.01: as many steps as cost one percent of the time
    for batch in loader:
        with spans.step():
            ...  # forward, backward, optimizer, as before

User code can be a span, too: `with spans.span("load", source="disk"):`, or `@spans.span("load")`. `always=True` is for
rare long work, which is recorded at any rate.

Steps that are not sampled run the plain model, because hooks are installed only during a sampled step. If a budget does
not allow all modules in a sampled step, modules take turns, and the others have no hooks. The first sampled step is a
census, which measures all modules. While new inputs appear, later sampled steps are censuses, too, less and less often.
A census also counts operators, so that the lake has the work of all steps with such inputs. Its times are marked.

On CUDA, times come from events on the stream, read when they are done, so no step waits for the GPU. On other devices,
times come from the host's clock. `close()`, or interpreter exit, writes the remaining rows. If the process is killed,
the last seconds are lost. Modules that cannot be measured (a ScriptModule accepts no hooks) are skipped and named in
the recording. The recorder never raises an error in the loop.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pipelines.record.clocks import Clock, CudaClock, HostClock
from pipelines.record.folder import Recording
from pipelines.record.modules.graph import modules_of
from pipelines.record.modules.hooks import why
from pipelines.record.modules.turns import Turns
from pipelines.record.peaks import device_name
from pipelines.record.perf_event.thread_counters import ThreadCounters
from pipelines.record.sampling import Sampling
from pipelines.record.span import Inputs
from pipelines.record.step import SampledStep

_ASIDE = 1_000_000  # id of the first span outside sampled steps
_NAMED = 100  # maximum number of unmeasured modules that the recording names; further ones are only counted


def record_spans(
    model: torch.nn.Module,
    out: str | Path,
    rate: float | None = None,
    *,
    budget: float = 0.01,
    run_id: str | None = None,
    rank: int | None = None,
    seed: int = 0,
    count_operators: bool = True,
    flush_seconds: float | None = None,
    cpu_counters: bool = False,
) -> SpanRecorder:
    """Return a recorder for a training loop.

    `budget`: share of the loop's time that sampling may take. The recorder compares sampled steps with the others and
    samples more or fewer steps, at most one in 20. If the budget allows less than one in 100, each sampled step
    measures only some modules, in turn (see `Sampling`). `rate`: sample this share of the steps instead, 0 to 1,
    whatever it costs. Ranks with the same seed and rate sample the same steps. With a budget, a rank may skip some of
    the steps that other ranks sample. `count_operators`: make censuses. Without them, the lake has times, but no work
    to compare them with. A census runs a compiled model uncompiled, which may take more memory. A compiled module is
    one span, without the modules inside. A module compiled in place (`module.compile()`) has no span. `flush_seconds`:
    time for which rows are only in memory, as for `Recording`. `cpu_counters`: also count cycles, instructions,
    branches and cache misses of the span's thread (Linux). If the privilege or the hardware is missing,
    `recordings.cpu_source` states the reason.

    Raises ValueError if rate or budget is outside 0 to 1, and OSError if the folder cannot be written.
    """
    sampling = Sampling(rate, budget, seed)
    return SpanRecorder(model, out, sampling, run_id, rank, count_operators, flush_seconds, cpu_counters)


class SpanRecorder:
    """Recorder of spans, see `record_spans`. Only `span` and the backward pass may be used in other threads.

    A forked process records nothing. `unhooked`: modules that are not measured, or whose measurement failed, with the
    reason, by name.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        out: str | Path,
        sampling: Sampling,
        run_id: str | None,
        rank: int | None,
        count_operators: bool,
        flush_seconds: float | None,
        cpu_counters: bool,
    ) -> None:
        self.n_steps, self.n_sampled, self.n_censuses = 0, 0, 0
        self._sampling, self._turns = sampling, Turns()
        self.unhooked: dict[str, dict[str, str]] = {}
        self._model = model
        self._clock: Clock = HostClock()
        self._device: torch.device | None = None
        self._described: dict[str, Any] = {}
        self._open: list[SampledStep] = []  # steps measured on the host but not finished on the GPU yet
        self._counted: set[Inputs] = set()  # inputs whose operators a census has counted
        self._untimed: set[tuple[str, bool]] = set()  # spans whose work no clock followed (SampledStep.untimed)
        self._is_new = True  # whether a span had inputs not yet counted
        self._count_operators = count_operators
        self._counters = ThreadCounters() if cpu_counters else None
        self._safely(self._follow_model)
        self._sampled: SampledStep | None = None  # the sampled step in progress, if any
        self._aside: SampledStep | None = None  # collects spans with always=True outside sampled steps
        # Reentrant, because a signal handler may close the recorder, and the garbage collector end a generator's span.
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._is_closed, self._n_aside, self._n_open_aside = False, 0, 0
        self._make = partial(Recording, out, "spans", run_id, os.getpid(), rank, self._own_columns, flush_seconds)
        # At rate 0 no folder is created until a span with always=True is recorded.
        self._recording = self._make() if sampling.rate else None
        atexit.register(self.close)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Wrap one step of the loop.

        Exceptions pass through. After an exception, the step's span and its unfinished spans are marked as failed.
        """
        number = self.n_steps
        self.n_steps += 1
        began_ns = time.perf_counter_ns()
        can_record = not self._is_forked and self._safely(self._clock.can_mark)  # not while a CUDA graph is captured
        if self._open and can_record:
            self._write_finished()
            written_ns = time.perf_counter_ns()
            self._sampling.spent(written_ns - began_ns)
            began_ns = written_ns
        is_chosen = self._recording is not None and self._sampling.choose()
        sampled = self._safely(self._sample, number) if is_chosen and can_record else None
        if sampled is None:
            yield
            self._sampling.plain_step(time.perf_counter_ns() - began_ns)
            return
        self._sampled = sampled
        try:
            with sampled.recorded():
                yield
        finally:
            self._sampled = None
            self._safely(self._keep, sampled)
            hook_ns = None if sampled.is_census else sum(sampled.hook_ns.values())
            self._sampling.sampled_step(time.perf_counter_ns() - began_ns, hook_ns)

    @contextmanager
    def span(self, name: str, *, always: bool = False, **metadata: Any) -> Iterator[None]:
        """Record user code as a span, in a `with` block or as a decorator, in any thread or task. Spans may be nested.

        In an `async` function or a generator, use a `with` block. A decorator would measure only the call that creates
        the coroutine or generator. The span is recorded only in sampled steps, like modules. `always`: record rare long
        work (a checkpoint, an evaluation) at any rate, also outside steps. Any `name` is stored as text, and `metadata`
        as JSON. Exceptions pass through.
        """
        within = self._within(always)
        if within is None:
            yield
            return
        try:
            with within.span(self._safely(str, name), self._safely(_as_json, metadata), always):
                yield
        finally:
            self._safely(self._leave_aside, within)

    def _within(self, always: bool) -> SampledStep | None:
        """Return the object that records a span that begins now, or None if the span is not recorded.

        Other threads' spans with `always=True` are recorded apart from the step, because they may outlast it.
        """
        if self._is_forked:
            return None
        sampled = self._sampled  # read once, because the step may end in between
        if sampled is not None and (not always or sampled.is_own_thread):
            return sampled
        return self._safely(self._outside) if always else None

    def _outside(self) -> SampledStep | None:
        """Return the object that collects spans outside sampled steps until no span is open.

        Its span ids exceed the ids of sampled steps. The caller's span already counts as open. Otherwise another thread
        could end the collection before the span begins. Returns None after `close()`, and while a CUDA graph is
        captured, because querying a mark would end the capture.
        """
        if not self._clock.can_mark():
            return None
        with self._lock:
            if self._is_closed:
                return None
            if self._recording is None:
                self._recording = self._make()
            step, first = max(self.n_steps - 1, 0), _ASIDE + self._n_aside
            if self._aside is None:
                self._aside = SampledStep(step, (), self._clock, self._note, first_id=first, counters=self._counters)
                self._aside.begin()
            self._aside.number = step  # step number of new spans, because the collection may last many steps
            self._n_open_aside += 1
            return self._aside

    def _leave_aside(self, aside: SampledStep) -> None:
        """Write a span outside sampled steps that has ended. End the collection if it was the last open span."""
        if self._is_forked:  # forked while the span was open
            return
        with self._lock:
            if aside is not self._aside:  # the recorder has been closed since then
                return
            self._n_open_aside -= 1
            if self._n_open_aside:  # another span may stay open for hours, such as a span around the loop
                self._open.append(aside.take_ended())
            else:
                self._end_aside()
        self._write_finished()

    def _end_aside(self) -> None:
        """End the collection of spans outside sampled steps. The caller holds the lock."""
        aside, self._aside, self._n_open_aside = self._aside, None, 0
        if aside is not None:
            aside.end()
            self._n_aside += aside.n_spans
            self._open.append(aside)

    def close(self) -> Path | None:
        """Write the remaining rows and complete the recording. Return its folder, or None if nothing was recorded.

        Calling it again, or in a forked process, has no effect. If the recording cannot be written, warn instead of
        raising.
        """
        atexit.unregister(self.close)
        if self._is_forked:
            return None
        with self._lock:  # afterward, no span begins outside sampled steps
            self._is_closed = True
            self._safely(self._end_aside)
        if self._open:
            self._safely(self._clock.wait)  # the only blocking wait, after the loop
        with self._lock:  # another thread may be writing its last span
            while self._open:
                self._safely(self._write, self._open.pop(0))
            recording, self._recording = self._recording, None
        if self._counters is not None:
            self._counters.close()
        return None if recording is None else recording.close_or_warn(end_ns=time.time_ns())

    @property
    def _is_forked(self) -> bool:
        """Return whether this process is a fork of the recorder's process. In a fork, a lock may be held forever."""
        return os.getpid() != self._pid

    def _sample(self, number: int) -> SampledStep:
        self.n_sampled += 1
        self._safely(self._follow_model)
        # If inputs never repeat, a census at every opportunity would leave no usable times. So only the 1st, 2nd, 4th,
        # 8th … sampled step may be a census.
        is_census = self._count_operators and self._is_new and self.n_sampled & (self.n_sampled - 1) == 0
        self.n_censuses += is_census
        modules = list(modules_of(self._model))
        # A census measures all modules, because the work of an excluded module would be unknown.
        measured = modules if is_census else self._turns.next(modules, self._sampling.allowed_ns)
        return SampledStep(
            number,
            measured,
            self._clock,
            self._note,
            is_census=is_census,
            counters=self._counters,
            of_all=modules,
            untimed=self._untimed,
        )

    def _follow_model(self) -> None:
        """Set the clock of the model's device, which may have changed since the recorder was created."""
        device = next((p.device for p in self._model.parameters()), torch.device("cpu"))
        if device == self._device:
            return
        self._device, self._untimed = device, set()
        self._clock = CudaClock(device) if device.type == "cuda" else HostClock()
        self._described = {"source": self._clock.name, "device": str(device), **_described(device)}

    def _keep(self, sampled: SampledStep) -> None:
        self._open.append(sampled)
        self._turns.measured(sampled.hook_ns)
        self._untimed |= sampled.untimed
        if sampled.is_census:
            self._counted |= sampled.inputs
        self._is_new = not sampled.inputs <= self._counted
        self._write_finished()

    def _write_finished(self) -> None:
        """Write rows of the sampled steps that the GPU has finished, without waiting for it."""
        with self._lock:  # spans in other threads may end at the same time
            while self._open and self._safely(lambda: self._open[0].is_done) is not False:
                self._safely(self._write, self._open.pop(0))

    def _write(self, sampled: SampledStep) -> None:
        if self._recording is not None:
            rows, operators = sampled.rows(), sampled.operator_rows()
            self._recording.add("span_samples", rows)
            self._recording.add("span_sample_operators", operators)
            self._recording.add("span_sample_modules", sampled.module_rows())

    def _safely(self, call: Callable[..., Any], *args: Any) -> Any:
        """Return the call's result. If it raises, record the error in `unhooked` and return None."""
        try:
            return call(*args)
        except Exception as error:
            self._note("step", "step", why(error))
            return None

    def _note(self, name: str, kind: str, reason: str) -> None:
        self.unhooked.setdefault(name, {"module": name, "class": kind, "why": reason})

    def _own_columns(self) -> dict[str, Any]:
        """Return the recorder's current columns of `recordings`."""
        return {
            **self._described,
            "cpu_source": self._counters and self._counters.source,
            "rate": self._sampling.rate,
            "cost_ns": self._sampling.cost_ns,
            "n_steps": self.n_steps,
            "n_sampled_steps": self.n_sampled,
            "n_unhooked": len(self.unhooked),
            "unhooked": json.dumps(list(self.unhooked.values())[:_NAMED]),
        }

    def __enter__(self) -> SpanRecorder:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _as_json(metadata: dict[str, Any]) -> str | None:
    return json.dumps(metadata, default=str) if metadata else None


def _described(device: torch.device) -> dict[str, Any]:
    """Return the columns of `recordings` that identify a device: its name and, on CUDA, its memory and number of SMs."""
    columns: dict[str, Any] = {"device_name": device_name(str(device))}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        columns |= {"device_memory_bytes": properties.total_memory, "device_sms": properties.multi_processor_count}
    return columns
