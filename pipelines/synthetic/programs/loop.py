"""One step of a typical training loop.

It has Python between the operators, data that is loaded and preprocessed on the host and preloaded on a copy stream, a queue that
runs empty and fills again, backward on autograd's thread, and a loss that is read in every second step.
"""

from __future__ import annotations

from collections.abc import Generator

from ..work import Event, Pending, Work
from .program import COMPUTE_STREAM, COPY_IN, COPY_STREAM, GEMM, POINTWISE, StepProgram

_LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
_FRAME = "python_function"


class LoopProgram(StepProgram):
    """Program of one step.

    Odd steps load a large batch. Every second layer from the third on has small kernels, so that the queue runs empty there
    and fills again.
    """

    def run(self, number: int) -> Generator[Pending, int, None]:
        """Run ProfilerStep#number. There are no collectives, so nothing is yielded."""
        m = self.m
        with m.enter(f"ProfilerStep#{number}", "user_annotation"), m.enter("train.py(40): step", _FRAME):
            m.wait(COMPUTE_STREAM, self._preload(number))
            self._layers("aten::linear", "aten::addmm")
            self._python("train.py(62): log", 40_000)
            m.on_thread(m.rows.pid + 1)
            self._layers("autograd::engine::evaluate_function: AddmmBackward0", "aten::mm")
            m.on_thread(m.rows.pid)
            with m.enter("Optimizer.step#SGD.step", "user_annotation"):
                m.advance(self.draw(30_000))
                for _ in range(self.spec.layers):
                    self._op("aten::_foreach_add_", "aten::add_", POINTWISE)
            if number % 2:
                self._item()
            m.advance(self.draw(15_000))
            if self.spec.sync_each_step:
                m.device_sync()
                m.advance(self.draw(15_000))
        m.advance(self.draw(20_000))
        yield from ()

    def _preload(self, number: int) -> Event:
        """Read a batch, preprocess it in Python, and copy it on a separate stream. Return the event of the copy."""
        m = self.m
        with m.enter(_LOADER, "user_annotation"):
            self._python("data.py(12): read", self.spec.op_ns * (4 if number % 2 else 1))
            self._python("data.py(31): normalize", self.spec.op_ns * 2)
        with m.enter("aten::to"):
            self._kernel(COPY_IN, COPY_STREAM, 80_000)
        return m.record(COPY_STREAM)

    def _python(self, name: str, mean_ns: float) -> None:
        with self.m.enter(name, _FRAME):
            self.m.advance(max(self.draw(mean_ns), 12_000))
        self.m.advance(self.draw(3000))

    def _layers(self, outer: str, inner: str) -> None:
        for layer in range(self.spec.layers):
            for op in range(self.spec.ops_per_layer):
                self._op(outer, inner, GEMM if op % 2 == 0 else POINTWISE)
                self.m.advance(self.draw(4000))
            self._scale = 0.1 if layer % 2 else 1.0
        self._scale = 1.0

    _scale = 1.0

    def _compute(self, work: Work, stream: int) -> None:
        self._kernel(work, stream, self.spec.kernel_ns * self.slowdown * self._scale)
