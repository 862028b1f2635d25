"""Steps whose launches block, because the host runs ahead of the GPU until the stream's queue is full."""

from __future__ import annotations

from collections.abc import Generator

from ..work import Pending
from .program import COMPUTE_STREAM, GEMM, POINTWISE, StepProgram


class FullQueueProgram(StepProgram):
    """Program of one step with many small operators, one after another."""

    def run(self, number: int) -> Generator[Pending, int, None]:
        """Run ProfilerStep#number. There are no collectives, so nothing is yielded."""
        m = self.m
        with m.enter(f"ProfilerStep#{number}", "user_annotation"):
            for op in range(self.spec.tokens * self.spec.ops_per_layer):
                with m.enter("aten::addmm" if op % 2 == 0 else "aten::mul"):
                    m.advance(self.draw(self.spec.op_ns / 4))
                    self._compute(GEMM if op % 2 == 0 else POINTWISE, COMPUTE_STREAM)
                m.advance(self.draw(1000))
            if self.spec.sync_each_step:
                m.device_sync()
            m.advance(self.draw(15_000))
        m.advance(self.draw(20_000))
        yield from ()
