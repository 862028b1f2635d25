"""Times of a model's modules, on some of a training loop's steps:

    spans = record_spans(model, "recordings/", rate=0.05)
    for batch in loader:
        with spans.step():
            ...  # forward, backward, optimizer, as before

Steps that are not sampled run the plain model: hooks are there only during a sampled step. The first sampled step, and
rarer and rarer ones after it while inputs are new, is a census: its operators are counted, so that the lake knows the
work of all steps with such inputs; its own times are marked. On CUDA, times are those of events on the stream, read when
they are done, so no step waits for the GPU; elsewhere those of the clock. `close()`, or the interpreter's end, writes
the rest.
"""

from __future__ import annotations

import atexit
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from pipelines.record.clocks import CudaClock, HostClock
from pipelines.record.folder import Recording
from pipelines.record.graph import modules_of
from pipelines.record.peaks import device_name
from pipelines.record.step import Inputs, SampledStep


def record_spans(
    model: torch.nn.Module,
    out: str | Path,
    rate: float = 0.05,
    *,
    run_id: str | None = None,
    rank: int | None = None,
    seed: int = 0,
    count_operators: bool = True,
) -> SpanRecorder:
    """A recorder for a training loop. `rate` is the share of steps that are sampled, 0 to 1.

    Ranks with one seed sample the same steps. `count_operators`: make censuses; without them times have no work beside
    them. A census runs a compiled model uncompiled, which may take more memory. A module that is compiled is one span, without those
    inside; one that is compiled in place (`module.compile()`) is none. Raises ValueError for a rate outside of
    0 to 1.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"rate {rate}: give the share of steps to sample, 0 to 1")
    return SpanRecorder(model, out, rate, run_id, rank, seed, count_operators)


class SpanRecorder:
    """See `record_spans`. Not for several threads at once; the backward pass may use threads of its own."""

    def __init__(
        self,
        model: torch.nn.Module,
        out: str | Path,
        rate: float,
        run_id: str | None,
        rank: int | None,
        seed: int,
        count_operators: bool,
    ) -> None:
        self.rate, self.n_steps, self.n_sampled, self.n_censuses = rate, 0, 0, 0
        self._names = dict(modules_of(model))
        self._device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self._clock = CudaClock(self._device) if self._device.type == "cuda" else HostClock()
        self._dice = random.Random(seed)
        self._open: list[SampledStep] = []  # measured, but the GPU is not through with them
        self._counted: set[Inputs] = set()  # inputs whose work a census saw
        self._is_new = True  # a span had others
        self._count_operators = count_operators
        # A rate of 0 leaves nothing behind, not even a folder.
        self._recording = Recording(out, "spans", run_id, os.getpid(), rank) if rate else None
        self._began_ns = time.time_ns()
        atexit.register(self.close)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around a step of the loop. What the step raises is passed on; its spans are marked as failed."""
        number = self.n_steps
        self.n_steps += 1
        if self._recording is None or self._dice.random() >= self.rate:
            yield
            return
        self.n_sampled += 1
        self._write_finished()
        # Where inputs never repeat, a census at every chance would cost all the times: the 1st, 2nd, 4th, 8th … is enough.
        is_census = self._count_operators and self._is_new and self.n_sampled & (self.n_sampled - 1) == 0
        self.n_censuses += is_census
        sampled = SampledStep(number, self._names, self._clock, is_census=is_census)
        try:
            with sampled.recorded():
                yield
        finally:
            self._open.append(sampled)
            if is_census:
                self._counted |= sampled.inputs
            self._is_new = not sampled.inputs <= self._counted

    def close(self) -> Path | None:
        """Write what is left and make the recording whole; returns its folder, None at rate 0. Once is enough."""
        atexit.unregister(self.close)
        if self._recording is None:
            return None
        recording, self._recording = self._recording, None
        self._clock.wait()  # after the loop: the only wait there is
        for sampled in self._open:
            _write(recording, sampled)
        self._open.clear()
        return recording.close(
            source=self._clock.name,
            device=str(self._device),
            **_described(self._device),
            rate=self.rate,
            n_steps=self.n_steps,
            n_sampled_steps=self.n_sampled,
            started_ns=self._began_ns,
            ended_ns=time.time_ns(),
        )

    def _write_finished(self) -> None:
        """Rows of the sampled steps that the GPU is through with; asking does not wait."""
        while self._open and self._open[0].is_done and self._recording is not None:
            _write(self._recording, self._open.pop(0))

    def __enter__(self) -> SpanRecorder:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _write(recording: Recording, sampled: SampledStep) -> None:
    recording.add("span_samples", sampled.rows())
    recording.add("span_sample_operators", sampled.operator_rows())


def _described(device: torch.device) -> dict[str, Any]:
    """What the lake recognises a device by."""
    told: dict[str, Any] = {"device_name": device_name(str(device))}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        told |= {"device_memory_bytes": properties.total_memory, "device_sms": properties.multi_processor_count}
    return told
