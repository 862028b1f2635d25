"""Steps that wait by polling (`while not event.query(): pass`) for the last GPU activity or for an earlier event.

A separate thread, like NCCL's watchdog, polls at intervals and does not wait.
"""

from __future__ import annotations

from collections.abc import Generator

from ..work import Pending
from .program import COMPUTE_STREAM, COPY_OUT, COPY_STREAM, GEMM, POINTWISE, StepProgram

_WATCHDOG_NS = 150_000


class PollingProgram(StepProgram):
    """Program of one step: tokens, each of which ends with a copy to the host or with an earlier event."""

    def run(self, number: int) -> Generator[Pending, int, None]:
        """Run ProfilerStep#number. There are no collectives, so nothing is yielded."""
        m, start = self.m, self.m.now
        with m.enter(f"ProfilerStep#{number}", "user_annotation"):
            for token in range(self.spec.tokens):
                for op in range(self.spec.layers * self.spec.ops_per_layer):
                    self._op("aten::linear", "aten::addmm", GEMM if op % 2 == 0 else POINTWISE)
                computed = m.record(COMPUTE_STREAM)
                if token % 3 == 2:  # poll an event that is not the last work
                    self._op("aten::mul", "aten::mul", POINTWISE)
                    m.poll(computed, self.draw(1500), self.draw(1000))
                else:
                    m.wait(COPY_STREAM, computed)
                    with m.enter("aten::copy_"):
                        self._kernel(COPY_OUT, COPY_STREAM, 5000)
                    m.poll(m.record(COPY_STREAM), self.draw(1500), self.draw(1000))
                m.advance(self.draw(6000))
            if self.spec.sync_each_step:
                m.device_sync()
            m.advance(self.draw(2000))
        if self.spec.watchdog:
            for tick in range(start // _WATCHDOG_NS + 1, m.now // _WATCHDOG_NS + 1):
                m.query_row(m.rows.pid + 2, tick * _WATCHDOG_NS, 3000)
        m.advance(self.draw(20_000))
        yield from ()
