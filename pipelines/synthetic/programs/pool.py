"""Steps whose work two pool threads launch concurrently, each on its own stream, while the main thread waits."""

from __future__ import annotations

from collections.abc import Generator

from ..work import Pending
from .program import GEMM, POINTWISE, SIDE_STREAMS, StepProgram

_FRAME, _IDLE = "python_function", "<built-in method get of _queue.SimpleQueue object at 0x7f20>"
_JOIN = "<built-in method acquire of _thread.lock object at 0x7f10>"
_FIRST_THREAD = 5


class PoolProgram(StepProgram):
    """Program of one step with two launching threads, of which each in turn has twice as much work."""

    def run(self, number: int) -> Generator[Pending, int, None]:
        """Run ProfilerStep#number. There are no collectives, so nothing is yielded."""
        m = self.m
        with m.enter(f"ProfilerStep#{number}", "user_annotation"):
            tids = [self._submit(number, worker) for worker in range(2)]
            return_ns = self._hand_over(number)
            with m.enter(_JOIN, _FRAME):
                m.advance(100)
                m.wait_for(tids, return_ns)
            for op in range(2 * self.spec.ops_per_layer):
                self._op("aten::linear", "aten::addmm", GEMM if op % 2 == 0 else POINTWISE)
            if self.spec.sync_each_step:
                m.device_sync()
            m.advance(self.draw(2000))
        m.advance(self.draw(20_000))
        yield from ()

    def _hand_over(self, number: int) -> int:
        """Return the time until another thread continues, ns. It counts as host time outside operators."""
        return self.m.changes.of_host(self.draw(8000), [f"ProfilerStep#{number}"], False, self.m.grid)

    def _submit(self, number: int, worker: int) -> int:
        """Run one thread's part of the step and return its tid."""
        m, tid, stream = self.m, self.m.rows.pid + _FIRST_THREAD + worker, SIDE_STREAMS + worker
        m.advance(self.draw(3000))
        begin = m.now + self._hand_over(number)
        share = 2 if worker == number % 2 else 1
        with m.beside(tid):
            with m.enter(_IDLE, _FRAME):
                m.now = max(m.now, begin)
            for op in range(self.spec.layers * self.spec.ops_per_layer * share):
                self._op("aten::linear", "aten::addmm", GEMM if op % 2 == 0 else POINTWISE, stream)
            m.stream_sync(stream)
        m.advance(self.draw(2000))
        return tid
