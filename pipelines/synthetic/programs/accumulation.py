"""Gradient accumulation over micro-batches, as with DDP's no_sync.

Only the gradients of the last micro-batch are reduced, concurrently with its backward pass on autograd's thread.
"""

from __future__ import annotations

from collections.abc import Generator

from ..busy import COMMUNICATION
from ..work import Pending, Work
from .program import COMM_STREAM, COMPUTE_STREAM, GEMM, POINTWISE, StepProgram

_MICRO_BATCHES = 3
_REDUCE = Work("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", kind=COMMUNICATION)


class AccumulationProgram(StepProgram):
    """Program of one step on one rank, without other ranks. The durations of its reductions are random."""

    def run(self, number: int) -> Generator[Pending, int, None]:
        """Run ProfilerStep#number. There are no other ranks, so nothing is yielded."""
        m = self.m
        with m.enter(f"ProfilerStep#{number}", "user_annotation"):
            for micro in range(_MICRO_BATCHES):
                self._pass("aten::linear", "aten::addmm")
                m.on_thread(m.rows.pid + 1)
                self._pass(
                    "autograd::engine::evaluate_function: AddmmBackward0", "aten::mm", micro == _MICRO_BATCHES - 1
                )
                m.on_thread(m.rows.pid)
                m.advance(self.draw(4000))
            m.wait(COMPUTE_STREAM, m.record(COMM_STREAM))
            for _ in range(2):
                self._op("aten::_foreach_add_", "aten::add_", POINTWISE)
            if self.spec.sync_each_step:
                m.device_sync()
            m.advance(self.draw(2000))
        m.advance(self.draw(20_000))
        yield from ()

    def _pass(self, outer: str, inner: str, reduces: bool = False) -> None:
        m = self.m
        for _ in range(self.spec.layers):
            for op in range(self.spec.ops_per_layer):
                self._op(outer, inner, GEMM if op % 2 == 0 else POINTWISE)
            if reduces:
                ready = m.record(COMPUTE_STREAM)
                with m.enter("nccl:all_reduce", "user_annotation"):
                    m.wait(COMM_STREAM, ready)
                    self._kernel(_REDUCE, COMM_STREAM, 3 * self.spec.kernel_ns)
                m.advance(self.draw(3000))
