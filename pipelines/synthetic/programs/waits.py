"""Steps with many kinds of waits.

cudaFree waits for the device, then takes its own time, and has no cuda_sync row. Other calls wait for streams and
events, or come after the end of the work.
"""

from __future__ import annotations

from collections.abc import Generator

from ..work import Pending
from .program import COMPUTE_STREAM, GEMM, POINTWISE, SIDE_STREAMS, StepProgram


class WaitsProgram(StepProgram):
    """Program of one step: one layer after another, with four kinds of waits in turn."""

    def run(self, number: int) -> Generator[Pending, int, None]:
        """Run ProfilerStep#number. There are no collectives, so nothing is yielded."""
        m = self.m
        with m.enter(f"ProfilerStep#{number}", "user_annotation"):
            for layer in range(2 * self.spec.layers):
                for op in range(self.spec.ops_per_layer):
                    stream = SIDE_STREAMS if layer % 4 == 0 and op % 3 == 0 else COMPUTE_STREAM
                    self._op("aten::linear", "aten::addmm", GEMM if op % 2 == 0 else POINTWISE, stream)
                self._wait(layer % 4)
                m.advance(self.draw(20_000))
            if self.spec.sync_each_step:
                m.device_sync()
            m.advance(self.draw(2000))
        m.advance(self.draw(20_000))
        yield from ()

    def _wait(self, kind: int) -> None:
        m = self.m
        if kind == 0:
            with m.enter("aten::empty"):
                m.free(self.draw(120_000))
        elif kind == 1:
            m.stream_sync(COMPUTE_STREAM)
        elif kind == 2:
            self._op("aten::nonzero", "aten::nonzero", POINTWISE, SIDE_STREAMS)
            m.stream_sync(SIDE_STREAMS)
        else:
            before = m.record(COMPUTE_STREAM)
            self._op("aten::linear", "aten::addmm", GEMM)
            m.event_sync(before)
