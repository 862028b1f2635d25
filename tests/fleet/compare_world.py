"""Traces for comparisons: small ones that can be worked out on paper, and real ones that are modelled once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import duckdb

from pipelines.fleet.trends.compared_windows import choose
from pipelines.fleet.trends.comparison import (
    BY,
    CAUSE,
    RULES,
    TABLES,
    Comparison,
    Difference,
    Trace,
    compare_pairs,
    facts_of,
)
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import call, connect_all, kernel, x

MM = {"Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}


BEFORE = [
    x("user_annotation", "ProfilerStep#7", 0, 100),
    x("cpu_op", "aten::mm", 10, 20, **MM),
    call("cudaLaunchKernel", 12, 3, 1),
    kernel("gemm", 20, 30, 1),
    x("cpu_op", "aten::add", 40, 5, **{"Input Dims": [[4]], "Input type": ["float"]}),
    call("cudaLaunchKernel", 41, 2, 2),
    kernel("add", 120, 4, 2),  # it runs after its step, and belongs to its launch's
    x("user_annotation", "ProfilerStep#8", 100, 100),
    x("cpu_op", "aten::mm", 110, 50, **MM),
]


AFTER = [
    x("user_annotation", "ProfilerStep#3", 0, 100),
    x("cpu_op", "aten::mm", 10, 25, **MM),
    x("cpu_op", "aten::mm", 50, 6, **{"Input Dims": [[1, 8], [8, 2]], "Input type": ["float", "float"]}),
    call("cudaLaunchKernel", 12, 3, 1),
    kernel("other_gemm", 20, 33.5, 1),
    call("cudaLaunchKernel", 52, 3, 4),
    kernel("other_gemm", 60, 10, 4),
    kernel("Memcpy HtoD (Pinned -> Device)", 80, 2, 99, cat="gpu_memcpy"),  # its launch is not in the trace
]


class World:
    """Traces whose models ran once, and comparisons of them."""

    def __init__(self, traces: Iterable[list[dict] | Path]) -> None:
        own, ids = connect_all(traces)
        own.execute("SET threads = 2")
        run_models(own, load_catalog(), (*TABLES, *RULES))
        self.con, self.own = duckdb.connect(), own
        self.traces = facts_of(self.con, own, ids)

    def compare(
        self,
        a: Trace | Sequence[Trace],
        b: Trace | Sequence[Trace],
        by: str = "operator",
        steps: int | str | None = None,
    ) -> Comparison:
        sides = [[side] if isinstance(side, Trace) else side for side in (a, b)]
        return compare_pairs(self.con, choose(sides[0], sides[1], steps).pairs, by)


GPU_BY = [one for one in BY if one != CAUSE]
"""What divides GPU time; causes divide all time."""


def times(rows: Iterable[Difference]) -> dict[str, tuple[float, float, str]]:
    """Times in us and change, by name, with shapes behind it."""
    found = {f"{row.name} {row.input_dims or ''}".strip(): row for row in rows}
    return {name: (row.control_ns / 1e3, row.test_ns / 1e3, row.change) for name, row in found.items()}


def run_of(*kernels: float, host: float = 0, rank: int = 0) -> list[dict]:
    """Steps with one matrix product each, of these lengths in us; the third has host time more."""
    events, at = [], 0.0
    for number, us in enumerate(kernels):
        length = 100 + (host if number == 2 else 0)
        events += [
            x("user_annotation", f"ProfilerStep#{number}", at, length),
            x("cpu_op", "aten::mm", at + 10, 5),
            call("cudaLaunchKernel", at + 11, 2, number + 1),
            kernel("gemm", at + 20, us, number + 1),
        ]
        if host and number == 2:
            events.append(x("user_annotation", "enumerate(DataLoader)", at + 60, host))
        at += length
    return events


@cache
def small() -> World:
    """BEFORE, AFTER and a trace without GPU work, for all files that compare them."""
    return World([BEFORE, AFTER, [one for one in BEFORE if one["cat"] in ("user_annotation", "cpu_op")]])
