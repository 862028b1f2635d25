"""One training step with tensor, pipeline and data parallelism, with many process groups, nested as in large jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from random import Random

from ..groups import Group, groups_of
from ..machine import Machine
from ..spec import CaptureSpec
from ..work import Pending
from .program import COMM_STREAM, COMPUTE_STREAM, GEMM, StepProgram


class ParallelProgram(StepProgram):
    """Program of one step: stages pass activations forward and gradients back, one micro-batch per step.

    A layer ends with an all-reduce over its tensor-parallel group, the backward pass with two all-reduces over the
    data-parallel group. The loss and the norm of the gradients are summed over all ranks.
    """

    def __init__(
        self, machine: Machine, spec: CaptureSpec, rank: int, slowdown: float, rng: Random, sequences: Counter[str]
    ) -> None:
        super().__init__(machine, spec, rank, slowdown, rng, sequences)
        self.groups = groups_of(spec, rank)

    def run(self, number: int) -> Generator[Pending, int, None]:
        """Run ProfilerStep#number. Yield each collective. The driver sends the collective's end in true ns."""
        m, groups = self.m, self.groups
        with m.enter(f"ProfilerStep#{number}", "user_annotation"):
            self._input()
            if groups.before:
                yield from self._awaited(groups.before, "recv")
            with m.enter("## forward ##", "user_annotation"):
                yield from self._layers("aten::linear")
            if groups.after:
                yield from self._collective(groups.after, "send")
                yield from self._awaited(groups.after, "recv")
            with m.enter("## backward ##", "user_annotation"):
                yield from self._layers("autograd::engine::evaluate_function: AddmmBackward0")
            if groups.before:
                yield from self._collective(groups.before, "send")
            for group in (groups.data, groups.data, groups.world, groups.world):
                if len(group.ranks) > 1:
                    yield from self._collective(group, "allreduce")
            self._optimizer()
            self._loss()
            if self.spec.sync_each_step:
                m.advance(self.draw(2000))
                m.device_sync()
            m.advance(self.draw(2000))
        m.advance(self.draw(20_000))

    def _layers(self, outer: str) -> Generator[Pending, int, None]:
        for _ in range(self.spec.layers):
            for _ in range(self.spec.ops_per_layer):
                self._op(outer, "aten::mm", GEMM)
            if len(self.groups.tensor.ranks) > 1:
                yield from self._awaited(self.groups.tensor, "allreduce")

    def _awaited(self, group: Group, name: str) -> Generator[Pending, int, None]:
        """Run a collective whose result the next kernels need."""
        yield from self._collective(group, name)
        self.m.wait(COMPUTE_STREAM, self.m.record(COMM_STREAM))
