"""One training step of one rank as a program for the machine: input copy, forward, backward with buckets, optimizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from random import Random

from ..busy import COMMUNICATION, MEMORY
from ..groups import Group, world
from ..machine import Machine
from ..spec import CaptureSpec
from ..work import KERNEL_ARGS, Pending, Work

COMPUTE_STREAM, COPY_STREAM, COMM_STREAM = 7, 20, 28
SIDE_STREAMS = 30
"""Number of the first additional compute stream."""
ELEMENTS = 6_637_568

_LAMBDA = "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"
GEMM = Work("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel")
POINTWISE = Work(
    f"void at::native::vectorized_elementwise_kernel<4, {_LAMBDA}, at::detail::Array<char*, 3> >"
    f"(int, {_LAMBDA}, at::detail::Array<char*, 3>)"
)
_MULTIPLY, _ACTIVATE = ("aten::linear", "aten::addmm", GEMM), ("aten::gelu", "aten::mul", POINTWISE)
COPY_IN = Work("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", MEMORY, "cudaMemcpyAsync",
               '"bytes": 1048576, "memory bandwidth (GB/s)": 12.5')  # fmt: skip
COPY_OUT = Work("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", MEMORY, "cudaMemcpyAsync",
                '"bytes": 4, "memory bandwidth (GB/s)": 0.002')  # fmt: skip
CLEAR = Work("Memset (Device)", "gpu_memset", MEMORY, "cudaMemsetAsync",
             '"bytes": 6291456, "memory bandwidth (GB/s)": 1268.4387096774194')  # fmt: skip
_KERNELS = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
    **dict.fromkeys(("send", "recv"), "ncclDevKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)"),
}
_CALLS = {"allreduce": "all_reduce"}


class StepProgram:
    """Program of one step. `run` yields a Pending for each collective, which waits for the other ranks."""

    def __init__(
        self, machine: Machine, spec: CaptureSpec, rank: int, slowdown: float, rng: Random, sequences: Counter[str]
    ) -> None:
        """Create the program.

        slowdown: factor of this rank's compute kernels. sequences: number of collectives issued so far, by group.
        """
        self.m, self.spec, self.rank, self.slowdown, self.rng = machine, spec, rank, slowdown, rng
        self.sequences = sequences
        self._ops = 0

    def draw(self, mean_ns: float) -> int:
        """Return a duration between 0.5 and 1.5 times the mean, on the clock's grid, at least one grid step."""
        grid = self.m.grid
        ns = int(mean_ns * (0.5 + self.rng.random()))
        return max(ns // grid * grid, grid)

    def latency(self, mean_ns: float) -> int:
        """Return a launch latency on the clock's grid.

        It differs from the mean by at most the spec's relative jitter.
        """
        grid, jitter = self.m.grid, self.spec.launch_jitter
        return max(int(mean_ns * (1 - jitter + 2 * jitter * self.rng.random())) // grid * grid, grid)

    def run(self, number: int) -> Generator[Pending, int, None]:
        """Run ProfilerStep#number. Yield each collective. The driver sends the collective's end in true ns."""
        m = self.m
        with m.enter(f"ProfilerStep#{number}", "user_annotation"):
            self._input()
            self._forward()
            yield from self._backward()
            self._optimizer()
            self._loss()
            if self.spec.sync_each_step:
                m.advance(self.draw(2000))
                m.device_sync()
            m.advance(self.draw(2000))
        m.advance(self.draw(20_000))

    def _kernel(self, work: Work, stream: int, mean_ns: float) -> None:
        self.m.launch(work, stream, self.draw(mean_ns), self.draw(5000), self.latency(7000))

    def _compute(self, work: Work, stream: int) -> None:
        self._kernel(work, stream, self.spec.kernel_ns * self.slowdown)

    def _op(self, outer: str, inner: str, work: Work, stream: int = COMPUTE_STREAM) -> None:
        """Run two nested operators around one launch."""
        m, part = self.m, self.spec.op_ns / 4
        if self.spec.include_python_frames:
            m.enter(f"torch/nn/modules/linear.py(116): forward_{self._ops % 7}", "python_function")
        with m.enter(outer):
            m.advance(self.draw(part))
            with m.enter(inner):
                m.advance(self.draw(part))
                self._compute(work, stream)
                m.advance(self.draw(part))
            m.advance(self.draw(part))
        if self.spec.include_python_frames:
            m.leave()
        m.advance(self.draw(3000))
        self._ops += 1

    def _side_op(self, stream: int) -> None:
        """Run an operator on another compute stream. It waits for the main stream, which later waits for it."""
        m = self.m
        with m.enter("aten::_fused_side_branch"):
            m.wait(stream, m.record(COMPUTE_STREAM))
            self._compute(POINTWISE, stream)
            side_done = m.record(stream)
        self._op("aten::linear", "aten::addmm", GEMM)
        with m.enter("aten::add"):
            m.wait(COMPUTE_STREAM, side_done)
            self._compute(POINTWISE, COMPUTE_STREAM)
        m.advance(self.draw(3000))

    def _item(self) -> None:
        """Read a number back from the GPU, as `tensor.item()` does."""
        with self.m.enter("aten::item"), self.m.enter("aten::_local_scalar_dense"):
            self._kernel(COPY_OUT, COMPUTE_STREAM, 3000)
            self.m.stream_sync(COMPUTE_STREAM)

    def _input(self) -> None:
        m = self.m
        loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        with m.enter(loader, "user_annotation"), m.enter("aten::stack"):
            m.advance(self.draw(self.spec.op_ns))
        with m.enter("aten::to"):
            self._kernel(COPY_IN, COPY_STREAM, 80_000)
            copied = m.record(COPY_STREAM)
        with m.enter("aten::zero_"):
            self._kernel(CLEAR, COMPUTE_STREAM, 5000)
            m.wait(COMPUTE_STREAM, copied)
        m.advance(self.draw(3000))

    def _forward(self) -> None:
        side_streams = self.spec.compute_streams - 1
        with self.m.enter("## forward ##", "user_annotation"):
            for layer in range(self.spec.layers):
                for op in range(self.spec.ops_per_layer):
                    self._op(*(_MULTIPLY if op % 2 == 0 else _ACTIVATE))
                if side_streams:
                    self._side_op(SIDE_STREAMS + layer % side_streams)

    def _backward(self) -> Generator[Pending, int, None]:
        m, spec = self.m, self.spec
        with m.enter("## backward ##", "user_annotation"):
            m.on_thread(m.rows.pid + 1)
            for layer in range(spec.layers):
                for op in range(spec.ops_per_layer):
                    name = "AddmmBackward0" if op % 2 == 0 else "MulBackward0"
                    self._op(f"autograd::engine::evaluate_function: {name}", "aten::mm", GEMM)
                last = layer == spec.layers - 1
                if spec.ranks > 1 and (last or layer % spec.bucket_layers == spec.bucket_layers - 1):
                    yield from self._all_reduce()
            m.on_thread(m.rows.pid)

    def _all_reduce(self) -> Generator[Pending, int, None]:
        yield from self._collective(world(self.spec.ranks), "allreduce")

    def _collective(self, group: Group, name: str) -> Generator[Pending, int, None]:
        """Run one collective of a group on the communication stream, after the compute stream's work so far."""
        m = self.m
        args = group.args(name, ELEMENTS, self.sequences[group.name])
        self.sequences[group.name] += 1
        work = Work(_KERNELS[name], kind=COMMUNICATION, args=f"{KERNEL_ARGS}, {args}")
        with m.enter("record_param_comms", args=", " + args):
            ready = m.record(COMPUTE_STREAM)
            with m.enter(f"nccl:{_CALLS.get(name, name)}", "user_annotation"):
                m.wait(COMM_STREAM, ready)
                pending = m.launch_open(work, COMM_STREAM, self.draw(6000), self.latency(8000))
                pending.members = group.ranks
                m.finish(pending, (yield pending))
        m.advance(self.draw(3000))

    def _optimizer(self) -> None:
        m = self.m
        with m.enter("Optimizer.step#SGD.step", "user_annotation"):
            if self.spec.ranks > 1:
                m.wait(COMPUTE_STREAM, m.record(COMM_STREAM))
            for _ in range(max(self.spec.layers // 2, 1)):
                self._op("aten::_foreach_add_", "aten::add_", POINTWISE)

    def _loss(self) -> None:
        self.m.event_sync(self.m.record(COMPUTE_STREAM))
        self._op("aten::sum", "aten::sum", POINTWISE)
        self._item()
        # Work without another waiter, so that the device sync at the step's end really waits.
        self._op("aten::mean", "aten::mean", POINTWISE)
