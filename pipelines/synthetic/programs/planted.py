"""A step with one planted cause. The reason for its length is known, and so is its length without that cause.

Durations are not random, so a run without the plant (`plant="none"`) differs in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from ..busy import MEMORY
from ..groups import world
from ..work import Pending, Work
from .program import COMPUTE_STREAM, GEMM, StepProgram

PLANTS = (
    "none", "loader", "late_rank", "late_host", "synchronize", "pageable_copy", "launch_bound", "allocation", "recompilation",
    "garbage_collection", "checkpoint", "slow_collective", "preprocessing", "compute_bound",
)  # fmt: skip
_PAGEABLE = Work("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", MEMORY, "cudaMemcpyAsync",
                 '"bytes": 67108864, "memory bandwidth (GB/s)": 6.4')  # fmt: skip
_TO_HOST = Work("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", MEMORY, "cudaMemcpyAsync",
                '"bytes": 67108864, "memory bandwidth (GB/s)": 25.0')  # fmt: skip
_OPERATOR_NS, _LONG_NS = 20_000, 6_000_000
_FRAME, _NOTE = "python_function", "user_annotation"


class PlantedProgram(StepProgram):
    """Program of one step with the planted cause, operators with a kernel each, and a collective of several ranks."""

    def draw(self, mean_ns: float) -> int:
        """Return the mean on the clock's grid, without a random part."""
        return max(int(mean_ns) // self.m.grid * self.m.grid, self.m.grid)

    def latency(self, mean_ns: float) -> int:
        """Return the mean latency of a launch on the clock's grid."""
        return self.draw(mean_ns)

    def run(self, number: int) -> Generator[Pending, int, None]:
        """Run ProfilerStep#number. Yield the collective, if any. The driver sends the collective's end in true ns."""
        m, plant = self.m, self.spec.plant
        with m.enter(f"ProfilerStep#{number}", _NOTE):
            plant_cause = _BEFORE.get(plant)
            if plant == "late_host" and self._is_late(number):
                self._augment()
            if plant_cause:
                plant_cause(self)
            for _ in range(self.spec.layers * self.spec.ops_per_layer):
                self._operator()
            if self.spec.ranks > 1:
                yield from self._collective(world(self.spec.ranks), "allreduce")
                m.wait(COMPUTE_STREAM, m.record(28))
            # The other plants need a read of the loss, because the host's work before the read identifies their cause.
            if self.spec.sync_each_step or plant != "late_host":
                self._item()
        m.advance(self.draw(5000))

    def _operator(self) -> None:
        m, plant = self.m, self.spec.plant
        kernel = {"launch_bound": 2000, "compute_bound": 2_000_000}.get(plant, self.spec.kernel_ns)
        slowdown = self.spec.straggler_slowdown if plant == "late_rank" and self.rank == self.spec.straggler else 1
        with m.enter("aten::mm"):
            m.advance(_OPERATOR_NS * (4 if plant == "launch_bound" else 1))
            self._kernel(GEMM, COMPUTE_STREAM, kernel * slowdown)
            m.advance(_OPERATOR_NS // 2)
        m.advance(self.draw(2000))
        if plant == "synchronize":
            m.device_sync()

    def _is_late(self, number: int) -> bool:
        """Return whether the rank is late in a step. Without a straggler, the ranks are late in turn."""
        straggler = self.spec.straggler
        return self.rank == (number % self.spec.ranks if straggler is None else straggler)

    def _augment(self) -> None:
        with self.m.enter("augment", _NOTE):
            self.m.advance(self.draw(_LONG_NS * self.spec.straggler_slowdown))

    def _load(self) -> None:
        with self.m.enter("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", _NOTE):
            self.m.advance(_LONG_NS)

    def _copy(self) -> None:
        with self.m.enter("aten::to"), self.m.enter("aten::copy_"):
            self._kernel(_PAGEABLE, COMPUTE_STREAM, _LONG_NS)
            self.m.stream_sync(COMPUTE_STREAM)

    def _allocate(self) -> None:
        with self.m.enter("aten::empty"):
            self.m.call("cudaMalloc", _LONG_NS)

    def _compile(self) -> None:
        with self.m.enter("_compile.compile_inner (dynamo_timed)", _NOTE):
            self.m.advance(_LONG_NS // 2)
            with self.m.enter("inductor_compile (dynamo_timed)", _NOTE):
                self.m.advance(_LONG_NS // 2)

    def _collect(self) -> None:
        with self.m.enter("<built-in function collect>", _FRAME):
            self.m.advance(_LONG_NS)

    def _save(self) -> None:
        with self.m.enter("save_checkpoint", _NOTE):
            with self.m.enter("aten::to"):
                self._kernel(_TO_HOST, COMPUTE_STREAM, 400_000)
                self.m.stream_sync(COMPUTE_STREAM)
            self.m.advance(_LONG_NS)

    def _preprocess(self) -> None:
        with self.m.enter("transforms.py(31): normalize", _FRAME):
            self.m.advance(_LONG_NS)


_BEFORE: dict[str, Callable[[PlantedProgram], None]] = {
    "loader": PlantedProgram._load,
    "pageable_copy": PlantedProgram._copy,
    "allocation": PlantedProgram._allocate,
    "recompilation": PlantedProgram._compile,
    "garbage_collection": PlantedProgram._collect,
    "checkpoint": PlantedProgram._save,
    "preprocessing": PlantedProgram._preprocess,
}
