"""Traces for comparisons: small traces that can be worked out on paper, and real traces that are modelled once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
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
    kernel("add", 120, 4, 2),  # it runs after its step, but belongs to the step of its launch
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


GPU_BY = [by for by in BY if by != CAUSE]
"""The values of --by that divide GPU time. Causes divide all time."""


def times(rows: Iterable[Difference]) -> dict[str, tuple[float, float, str]]:
    """Return times in us and the change, by name, with shapes after the name."""
    rows_by_name = {f"{row.name} {row.input_dims or ''}".strip(): row for row in rows}
    return {name: (row.control_ns / 1e3, row.test_ns / 1e3, row.change) for name, row in rows_by_name.items()}


def run_of(*kernels: float, host: float = 0, rank: int = 0) -> list[dict]:
    """Return steps with one matrix product each, of these lengths in us.

    The third step takes `host` us longer on the host.
    """
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


KINDS = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "void multimem_all_reduce_kernel<c10::BFloat16, 4>(c10::BFloat16*)": "communication",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, cutlass::bfloat16_t>>(Flash_fwd_params)": "attention",
    "_ZN2ck16tensor_operation6device39kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffleINS_25GridwiseGemm": "conv",
    "void at::native::elementwise_kernel<128, 4, gpu_kernel_impl_nocast<direct_copy_kernel_cuda>>": "copy",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>": "fill",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>": "elementwise",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, WelfordOps<float>>>": "reduce",
    "void at::native::batch_norm_collect_statistics_kernel<Var, float>": "norm",
    "triton_red_fused__softmax_mm_3": "fused",
    "triton_tem_fused_mm_relu_0": "gemm",
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x32_MI16x16x1": "gemm",
    "volta_scudnn_128x64_stridedB_splitK_xregs_large_nn_v1": "conv",
    "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(cudnnTensorStruct)": "norm",
    "void convert_fp32(float*)": "other",
}


def _launched(name: str, us: float) -> list[dict]:
    return [x("cpu_op", name, 0, 9), call("cudaLaunchKernel", 1, 1, 1), kernel("gemm", 10, us, 1)]


def _of_kinds() -> list[dict]:
    """Return kernels of 1, 2, … us, one of each of KINDS, and another of the first kind.

    The last kernel takes 100 us and is launched by an operator.
    """
    under = [
        x("cpu_op", "aten::add", 900, 9),
        call("cudaLaunchKernel", 901, 1, 99),
        kernel(next(iter(KINDS)), 950, 100, 99),
    ]
    return [*(kernel(name, 10 * n, n + 1, n) for n, name in enumerate(KINDS)), *under]


def _overlapping() -> list[dict]:
    """Return two steps, of which the second begins before the first ends.

    The first has kernels of 1 and 2 us, the second one of 4 us.
    """
    steps = [x("user_annotation", f"ProfilerStep#{n}", 90 * n, 100) for n in (0, 1)]
    launched = {1: 10, 2: 95, 4: 120}
    work = [(call("cudaLaunchKernel", at, 1, us), kernel("k", at + 6, us, us)) for us, at in launched.items()]
    return [*steps, *(event for both in work for event in both)]


def _on_the_host(us: float) -> list[dict]:
    return [
        x("user_annotation", "ProfilerStep#1", 0, us),
        x("cpu_op", "aten::sort", 10, us - 20),
        x("cpu_op", "aten::mm", us - 9, 5),
    ]


SMALL: dict[str, list[list[dict]]] = {
    "pair": [BEFORE, AFTER, [event for event in BEFORE if event["cat"] in ("user_annotation", "cpu_op")]],
    "longer": [
        *(_launched("aten::mm", us) for us in (100, 101, 101.1)),
        [*_launched("aten::mm", 100), call("cudaLaunchKernel", 3, 1, 2), kernel("gemm", 120, 0.5, 2)],
    ],
    "kinds": [_of_kinds()],
    "overlap": [_overlapping()],
    "without_operator": [[*BEFORE, kernel("gemm", 300, us, 50)] for us in (33, 35)],
    "means": [run_of(50, 50, 50), run_of(54, 50, 56)],
    "host": [_on_the_host(us) for us in (100, 150)],
    "hosts": [[x("cpu_op", "aten::sort", 0, us)] for us in (10, 20, 10, 30)],
    "crossing": [
        [
            x("python_function", "train", 0, 100),
            x("python_function", "__enter__", 10, 20),
            x("user_annotation", "tokenize", 25, 60),
            x("python_function", "sleep", 40, 30),
        ]
    ],
    "judged": [
        *(run_of(50, 50, 50, us) for us in (50, 53)),
        run_of(52, 52, 52, 52),
        run_of(50, 50, 50, 50, host=40),
    ],
}
"""The traces that tests compare, by a name for each group."""


@cache
def _all_small() -> World:
    return World(trace for traces in SMALL.values() for trace in traces)


def small(name: str = "pair") -> World:
    """Return a world with only the traces SMALL[name].

    The models run once over all traces of SMALL, which takes about as long as for one trace.
    """
    part, first = copy(_all_small()), 0
    for other, traces in SMALL.items():
        if other == name:
            part.traces = part.traces[first : first + len(traces)]
            return part
        first += len(traces)
    raise KeyError(name)
