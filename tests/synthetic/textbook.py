"""Small captures whose critical path can be added up by hand: each function contains the expected sum.

All times are whole microseconds. A top-level call lasts 5 µs, and 1 µs of idle time follows. The same 1 µs follows the
start of the annotation around all calls. A kernel starts 6 µs after its launch call began, or 1 µs after the end of the
work or event that it waits for. A blocking call returns 2 µs after that end.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath

from pipelines.synthetic.busy import COMMUNICATION, MEMORY
from pipelines.synthetic.capture import PathTruth
from pipelines.synthetic.kineto import Clock, Rows, head, tail
from pipelines.synthetic.longest import COMM, COMPUTE, CPU, GAP, HOST, LAUNCH, MEM
from pipelines.synthetic.machine import Machine
from pipelines.synthetic.work import Work

US = 1000
CALL, LATENCY, GAP_NS, WAKE = 5 * US, 6 * US, 1 * US, 2 * US
AROUND = 2 * US  # from the annotation's start to the first call, plus from the last call to the annotation's end

_GEMM = Work("ampere_sgemm_32x32_sliced1x4_tn")
_REDUCE = Work("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)", kind=COMMUNICATION)
_COPY = Work("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", MEMORY, "cudaMemcpyAsync", '"bytes": 1048576')


@dataclass(slots=True)
class TextbookCase:
    """A capture and its critical path: `expected` by construction, `simulated` as the machine computed it."""

    name: str
    text: str
    expected: PathTruth
    simulated: PathTruth

    def write(self, folder: FilePath | str) -> FilePath:
        """Write `<folder>/<name>.json` and return its path."""
        path = FilePath(folder) / f"{self.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text)
        return path

    def events(self) -> list[dict]:
        """Return the capture's traceEvents."""
        return json.loads(self.text)["traceEvents"]


def _chain(m: Machine) -> dict[str, int]:
    """Five sequential kernels of 50 µs, then a device sync: the first launch, five kernels, four gaps, the return."""
    for _ in range(5):
        m.launch(_GEMM, 7, 50 * US, CALL, LATENCY)
    m.device_sync()
    return {HOST: AROUND, LAUNCH: LATENCY, COMPUTE: 5 * 50 * US, GAP: 4 * GAP_NS, CPU: WAKE}


def _two_streams(m: Machine) -> dict[str, int]:
    """A kernel that waits for the longer of two branches.

    The path: the first call and the gap after it, the second launch, 300 µs, a gap, 50 µs, the return.
    """
    m.launch(_GEMM, 7, 100 * US, CALL, LATENCY)
    m.launch(_GEMM, 20, 300 * US, CALL, LATENCY)
    m.wait(7, m.record(20))
    m.launch(_GEMM, 7, 50 * US, CALL, LATENCY)
    m.device_sync()
    return {HOST: AROUND + US, CPU: CALL + WAKE, LAUNCH: LATENCY, COMPUTE: 350 * US, GAP: GAP_NS}


def _cpu_bound(m: Machine) -> dict[str, int]:
    """Six operators of 80 µs whose kernels of 10 µs end inside them. The path is the operators and 21 µs after each."""
    for _ in range(6):
        m.enter("aten::mul")
        m.advance(34 * US)
        m.launch(_GEMM, 7, 10 * US, CALL, LATENCY)
        m.advance(39 * US)  # plus 1 µs after entering and 1 µs after the call: 1 + 34 + 5 + 1 + 39 = 80 µs
        m.leave()
        m.advance(20 * US)
    return {HOST: US + 6 * 21 * US, CPU: 6 * 80 * US}


def _comm_bound(m: Machine) -> dict[str, int]:
    """A kernel, an all-reduce that waits for it, and a kernel that waits for the all-reduce."""
    m.launch(_GEMM, 7, 40 * US, CALL, LATENCY)
    m.wait(28, m.record(7))
    m.launch(_REDUCE, 28, 400 * US, CALL, LATENCY)
    m.wait(7, m.record(28))
    m.launch(_GEMM, 7, 30 * US, CALL, LATENCY)
    m.device_sync()
    return {HOST: AROUND, LAUNCH: LATENCY, COMPUTE: 70 * US, COMM: 400 * US, GAP: 2 * GAP_NS, CPU: WAKE}


def _memory_bound(m: Machine) -> dict[str, int]:
    """A copy of 200 µs on a separate stream, a kernel that waits for it, and a stream sync."""
    m.launch(_COPY, 20, 200 * US, CALL, LATENCY)
    m.wait(7, m.record(20))
    m.launch(_GEMM, 7, 25 * US, CALL, LATENCY)
    m.stream_sync(7)
    return {HOST: AROUND, LAUNCH: LATENCY, MEM: 200 * US, COMPUTE: 25 * US, GAP: GAP_NS, CPU: WAKE}


_BUILDERS: dict[str, Callable[[Machine], dict[str, int]]] = {
    "chain": _chain,
    "two_streams": _two_streams,
    "cpu_bound": _cpu_bound,
    "comm_bound": _comm_bound,
    "memory_bound": _memory_bound,
}
TEXTBOOK = tuple(_BUILDERS)
"""The names of the textbook captures."""


def textbook(name: str, *, fractional_ts: bool = False) -> TextbookCase:
    """Return the textbook capture of that name. Raise KeyError if it does not exist."""
    build = _BUILDERS[name]
    rows = Rows(Clock(fractional_ts), pid=1000, device=0)
    rows.metadata({1000: "thread 1000 (python3.11)"}, {7: "stream 7 "})
    # The grid is 1 µs even with fractional timestamps, so the sums do not change.
    machine = Machine(rows, gap_ns=GAP_NS, grid_ns=US)
    machine.now = 10 * US
    machine.enter("ProfilerStep#0", "user_annotation")
    expected = build(machine)
    machine.leave()
    rows.closing(machine.now)
    text = head(0, 1, 0) + ",\n".join(rows.take()) + tail(0, rows.clock)
    truth = PathTruth(sum(expected.values()), expected)
    return TextbookCase(name, text, truth, PathTruth.of(machine.truth.path))
