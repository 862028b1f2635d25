"""Steps whose layers are on two devices in turn.

One thread launches on both, and activations are copied between them.
"""

from __future__ import annotations

from collections.abc import Generator

from ..busy import MEMORY
from ..kineto import DEVICE_STREAMS
from ..work import Pending, Work
from .program import COMPUTE_STREAM, GEMM, POINTWISE, StepProgram

_SECOND = DEVICE_STREAMS + COMPUTE_STREAM
_PEER = Work("Memcpy PtoP (Device -> Device)", "gpu_memcpy", MEMORY, "cudaMemcpyAsync", '"bytes": 1048576')


class DevicesProgram(StepProgram):
    """Program of one step with layers on two devices."""

    def run(self, number: int) -> Generator[Pending, int, None]:
        """Run ProfilerStep#number. There are no collectives, so nothing is yielded."""
        m = self.m
        with m.enter(f"ProfilerStep#{number}", "user_annotation"):
            for _ in range(self.spec.layers):
                self._layer(COMPUTE_STREAM)
                with m.enter("aten::to"):
                    self._kernel(_PEER, COMPUTE_STREAM, self.spec.kernel_ns / 2)
                    m.wait(_SECOND, m.record(COMPUTE_STREAM))
                self._layer(_SECOND)
            m.wait(COMPUTE_STREAM, m.record(_SECOND))
            self._op("aten::add", "aten::add", POINTWISE)
            self._item()
            m.advance(self.draw(2000))
        m.advance(self.draw(20_000))
        yield from ()

    def _layer(self, stream: int) -> None:
        for op in range(self.spec.ops_per_layer):
            self._op("aten::linear", "aten::addmm", GEMM if op % 2 == 0 else POINTWISE, stream)
