"""One step of inference: token after token, many small operators on one thread, each token ends with a read of the answer."""

from __future__ import annotations

from collections.abc import Generator

from .program import COMPUTE_STREAM, COPY_OUT, GEMM, POINTWISE, StepProgram
from .work import Pending, Work

_LAYER = (
    ("aten::rms_norm", "aten::mean", POINTWISE),
    ("aten::linear", "aten::addmm", GEMM),
    ("aten::mul", "aten::mul", POINTWISE),
    ("aten::cat", "aten::_cat", POINTWISE),
    ("aten::scaled_dot_product_attention", "aten::_flash_attention_forward", GEMM),
    ("aten::linear", "aten::addmm", GEMM),
    ("aten::silu", "aten::silu", POINTWISE),
    ("aten::add", "aten::add_", POINTWISE),
)


class DecodeProgram(StepProgram):
    """The program of one step: `tokens` are decoded, as operators or each as one CUDA graph."""

    def run(self, number: int) -> Generator[Pending, int, None]:
        """ProfilerStep#number. There are no collectives, so nothing is yielded."""
        m = self.m
        m.enter(f"ProfilerStep#{number}", "user_annotation")
        self._input()
        for _ in range(self.sizes.tokens):
            if self.sizes.shape == "inference_graph":
                self._graph()
            else:
                self._operators()
            self._read()
        if self.sizes.sync_each_step:
            m.device_sync()
        m.advance(self.draw(2000))
        m.leave()
        m.advance(self.draw(20_000))
        yield from ()

    def _operators(self) -> None:
        for _ in range(self.sizes.layers):
            for outer, inner, work in _LAYER:
                self._op(outer, inner, work)

    def _graph(self) -> None:
        works: list[tuple[Work, int]] = [
            (work, self.draw(self.sizes.kernel_ns)) for _ in range(self.sizes.layers) for _, _, work in _LAYER
        ]
        self.m.enter("aten::copy_")
        self.m.advance(self.draw(self.sizes.op_ns))
        self.m.leave()
        self.m.graph(works, COMPUTE_STREAM, self.draw(20_000), self.draw(25_000))
        self.m.advance(self.draw(3000))

    def _read(self) -> None:
        m = self.m
        self._op("aten::argmax", "aten::argmax", POINTWISE)
        m.enter("aten::item")
        m.enter("aten::_local_scalar_dense")
        self._kernel(COPY_OUT, COMPUTE_STREAM, 3000)
        m.stream_sync(COMPUTE_STREAM)
        m.leave()
        m.leave()
        m.advance(self.draw(3000))
