"""The rows of a comparison, by hand: what meets, what is added, and what is the same."""

from __future__ import annotations

from collections import Counter

import pytest

from pipelines.fleet.trends.comparison import totals, usual_by
from tests.fleet.compare_world import BEFORE, World, small, times
from tests.harness import call, kernel, x


@pytest.fixture(scope="module", name="small")
def _small() -> World:
    return small()


def test_kernels_of_two_vendors_meet_at_their_operator(small: World) -> None:
    before, after, _ = small.traces
    unlaunched = "(launch not in the trace)"
    assert times(small.compare(before, after).whole.rows) == {
        "aten::mm": (30, 43.5, "increased"),
        "aten::add": (4, 0, "deleted"),
        unlaunched: (0, 2, "added"),
    }
    assert times(small.compare(before, after, "category").whole.rows) == {
        "gemm": (30, 43.5, "increased"),
        "elementwise": (4, 0, "deleted"),
        "copy": (0, 2, "added"),
    }
    assert times(small.compare(before, after, "shape").whole.rows) == {
        "aten::mm [[4,8],[8,2]]": (30, 33.5, "increased"),
        "aten::mm [[1,8],[8,2]]": (0, 10, "added"),
        "aten::add [[4]]": (4, 0, "deleted"),
        unlaunched: (0, 2, "added"),
    }
    assert times(small.compare(before, after, "kernel").whole.rows) == {
        "gemm": (30, 0, "deleted"),
        "other_gemm": (0, 43.5, "added"),
        "add": (4, 0, "deleted"),
        "Memcpy HtoD (Pinned -> Device)": (0, 2, "added"),
    }
    assert times(small.compare(before, after, "module").whole.rows) == {"(no module)": (34, 45.5, "increased")}


def test_counts_and_the_order_of_rows(small: World) -> None:
    rows = small.compare(small.traces[0], small.traces[1]).whole.rows
    assert [(row.name, row.control_n, row.test_n, row.diff_n, row.diff_ns) for row in rows] == [
        ("aten::mm", 1, 2, 1, 13_500),
        ("aten::add", 1, 0, -1, -4_000),
        ("(launch not in the trace)", 0, 1, 1, 2_000),
    ]
    assert {row.device for row in rows} == {"gpu"}


def test_own_time_on_the_host(small: World) -> None:
    found = times(small.compare(small.traces[0], small.traces[1]).whole.host)
    assert found == {
        "ProfilerStep": (75, 69, "decreased"),  # 100 less the operators inside
        "aten::mm": (17, 25 - 3 + 6 - 3, "increased"),
        "aten::add": (3, 0, "deleted"),
        "cudaLaunchKernel": (5, 6, "increased"),
    }


def test_unchanged_is_of_time(small: World) -> None:
    """Within 1 % of the longer side, whatever the counts are."""
    traces = [
        [x("cpu_op", "aten::mm", 0, 9), call("cudaLaunchKernel", 1, 1, 1), kernel("gemm", 10, duration, 1)]
        for duration in (100, 101, 101.1)
    ]
    world = World([*traces, [*traces[0], call("cudaLaunchKernel", 3, 1, 2), kernel("gemm", 120, 0.5, 2)]])
    a, b, c, twice = world.traces
    changes = [world.compare(a, other).whole.rows[0].change for other in (b, c, twice)]
    assert changes == ["unchanged", "increased", "unchanged"]


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


def test_kinds_of_kernels_without_operator() -> None:
    """By their names, the first rule that fits."""
    events = [kernel(name, 10 * n, n + 1, n) for n, name in enumerate(KINDS)]
    # Communication is that whatever operator launched it.
    under = [
        x("cpu_op", "aten::add", 900, 9),
        call("cudaLaunchKernel", 901, 1, 99),
        kernel(next(iter(KINDS)), 950, 100, 99),
    ]
    world = World([[*events, *under]])
    (only,) = world.traces
    expected: Counter[str] = Counter({"communication": 100})
    for n, kind in enumerate(KINDS.values()):
        expected[kind] += n + 1
    found = times(world.compare(only, only, "category").whole.rows)
    assert {kind: us for kind, (us, _, _) in found.items()} == expected


def test_steps_that_overlap_have_no_work_in_common() -> None:
    events = [
        *(x("user_annotation", f"ProfilerStep#{n}", 90 * n, 100) for n in (0, 1)),
        *(
            one
            for n, at in enumerate((10, 95))
            for one in (call("cudaLaunchKernel", at, 1, n), kernel("k", at + 5, n + 1, n))
        ),
    ]
    world = World([events])
    (only,) = world.traces
    assert [window.duration_ns for window in only.steps] == [90_000, 100_000]
    assert [one.gpu.control_ns for one in world.compare(only, only, "kernel").pairs] == [1000, 2000]
    assert totals(world.compare(only, only, "kernel", "all").whole.rows) == (3000, 3000)


def test_operators_are_usual_where_most_of_the_time_has_one(small: World) -> None:
    before, after, host = small.traces
    assert usual_by([[before], [after]]) == "operator"
    assert (
        usual_by([[before], [host]]) == usual_by([[host], [host]]) == "operator"
    )  # without GPU work nothing speaks against it
    known = World([[*BEFORE, kernel("gemm", 300, longer, 50)] for longer in (33, 35)]).traces
    assert [usual_by([[trace]]) for trace in known] == ["operator", "kernel"]  # 34 us of the others have an operator


def test_graph_replays_count_for_the_operator_that_was_captured() -> None:
    from tests.modelling.test_graph_owners import ADD, MM as CAPTURED, calls, replay  # noqa: I001

    captured = calls([CAPTURED, ADD], 0, 0, is_captured=True)
    replays = [replay(["gemm", "add"], at, at) for at in (1000, 2000)]
    world = World([[*captured, *(event for one in replays for event in one)]])
    (only,) = world.traces
    found = {row.name: row.control_n for row in world.compare(only, only, steps="all").whole.rows}
    assert found == {"aten::mm": 2, "aten::add": 2}
