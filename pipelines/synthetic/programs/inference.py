"""Inference: a program that decodes tokens with many small operators on one thread, and a server."""

from __future__ import annotations

from collections.abc import Generator

from ..work import Pending, Work
from .program import COMPUTE_STREAM, GEMM, POINTWISE, StepProgram

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
    """Program of one step that decodes `tokens` tokens, as operators or each as one CUDA graph."""

    _is_capturing = False

    def run(self, number: int) -> Generator[Pending, int, None]:
        """Run ProfilerStep#number. There are no collectives, so nothing is yielded."""
        m = self.m
        with m.enter(f"ProfilerStep#{number}", "user_annotation"):
            self._input()
            if number == self.spec.first_step:
                self._origin()
            for _ in range(self.spec.tokens):
                if self.spec.shape == "inference_graph":
                    self._graph()
                else:
                    self._operators()
                self._op("aten::argmax", "aten::argmax", POINTWISE)
                self._item()
                m.advance(self.draw(3000))
            if self.spec.sync_each_step:
                m.device_sync()
            m.advance(self.draw(2000))
        m.advance(self.draw(20_000))
        yield from ()

    def _origin(self) -> None:
        """Run the graph's operators, capture them, or both, or neither, as `graph_origin` specifies."""
        if self.spec.graph_origin in ("warm_up", "both"):
            self._operators()
        if self.spec.graph_origin in ("capture", "both"):
            self.m.call("cudaStreamBeginCapture", self.draw(2000))
            self._is_capturing = True
            self._operators()
            self._is_capturing = False
            self.m.call("cudaStreamEndCapture", self.draw(2000))
            self.m.call("cudaGraphInstantiate", self.draw(50_000))

    def _compute(self, work: Work, stream: int) -> None:
        """Launch work, or only write its call during a stream capture."""
        if self._is_capturing:
            self.m.call(work.call, self.draw(5000))
        else:
            super()._compute(work, stream)

    def _operators(self) -> None:
        for _ in range(self.spec.layers):
            for outer, inner, work in _LAYER:
                self._op(outer, inner, work)

    def _graph(self) -> None:
        works: list[tuple[Work, int]] = [
            (work, self.draw(self.spec.kernel_ns)) for _ in range(self.spec.layers) for _, _, work in _LAYER
        ]
        with self.m.enter("aten::copy_"):
            self.m.advance(self.draw(self.spec.op_ns))
        self.m.graph(works, COMPUTE_STREAM, self.draw(20_000), self.latency(25_000))
        self.m.advance(self.draw(3000))


REQUESTS, PROMPT = 8, 512
"""Number of requests in a server's batch, and number of tokens of each prompt."""


class ServingProgram(DecodeProgram):
    """Program of one batch of a server: the prompts of new requests (prefill), then a token for each, step by step."""

    def run(self, number: int) -> Generator[Pending, int, None]:
        """Run the batch's steps, with vLLM's names. `number` does not appear in the trace. There are no collectives."""
        self._step(f"execute_context_{REQUESTS}({REQUESTS * PROMPT})_generation_0(0)", PROMPT // 16)
        for _ in range(self.spec.tokens):
            self._step(f"execute_context_0(0)_generation_{REQUESTS}({REQUESTS})", 1)
        self.m.advance(self.draw(20_000))
        yield from ()

    def _step(self, name: str, longer: int) -> None:
        """Run one forward pass, whose kernels take `longer` times as long as the kernels of a token's forward pass."""
        before, self.slowdown = self.slowdown, self.slowdown * longer
        with self.m.enter(name, "user_annotation"):
            self._operators()
            self._op("aten::argmax", "aten::argmax", POINTWISE)
            self._item()
        self.slowdown = before
        self.m.advance(self.draw(10_000))
