"""Comparing two sides: worked examples, properties of any comparison, real traces counted from their JSON, TraceLens."""

from __future__ import annotations

import ast
import csv
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.fleet.trends.compared_windows import choose, traces_of, warm_up
from pipelines.fleet.trends.comparison import (
    BY,
    CAUSE,
    RULES,
    TABLES,
    CompareError,
    Comparison,
    Difference,
    Trace,
    Window,
    compare_pairs,
    facts_of,
    totals,
    usual_by,
)
from pipelines.fleet.trends.comparison_verdict import amount, doubts, judge, sentence, signed
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.effort import LARGE, first_of
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


@pytest.fixture(scope="module")
def small() -> World:
    return World([BEFORE, AFTER, [one for one in BEFORE if one["cat"] in ("user_annotation", "cpu_op")]])


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


def test_the_verdict_by_hand(small: World) -> None:
    before, after, host = small.traces
    assert sentence(small.compare(before, after).whole) == (
        "The step takes 100.0 us, unchanged (+0.0 %): mm +13.5 us, add \N{MINUS SIGN}4.0 us, "
        "work launched before +2.0 us; GPU idle \N{MINUS SIGN}15.5 us"
    )
    assert sentence(small.compare(before, before).whole).endswith(
        "(+0.0 %, median of 2 steps): GPU work unchanged; GPU idle unchanged"
    )
    assert sentence(small.compare(before, after, steps="all").whole) == (
        "The trace takes 72.0 instead of 150.0 us (\N{MINUS SIGN}52.0 %): mm +13.5 us, "
        "add \N{MINUS SIGN}4.0 us, work launched before +2.0 us; GPU idle \N{MINUS SIGN}89.5 us"
    )
    assert "no GPU work in test" in sentence(small.compare(before, host).whole)
    assert (
        sentence(small.compare(host, host, steps=7).whole)
        == "The step takes 100.0 us, unchanged (+0.0 %): no GPU work; host unchanged"
    )


def test_work_of_before_the_window_and_files_that_are_cut_off(small: World) -> None:
    before, after, _ = small.traces
    pairs = choose([before], [after], "first").pairs
    assert doubts(pairs, [before], [after]) == ["test: 2.00 us of the GPU work in its window was launched before it"]
    cut = replace(before, is_cut=True, file="cut.json")
    late = choose([before], [before], 8).pairs
    assert doubts(late, [cut], [before]) == [
        "control: 4.00 us of the GPU work in its window was launched before it",
        "control: cut.json is cut off, its last step may be partial",
        "test: 4.00 us of the GPU work in its window was launched before it",
    ]


def test_amounts_for_people() -> None:
    assert [amount(ns) for ns in (0, 340, 12_340, 4_560_000, 38_100_000, 1_234_000_000)] == [
        *("0", "0.34 us", "12.3 us", "4.56 ms", "38.1 ms", "1.23 s"),
    ]
    assert [signed(ns) for ns in (0, 1_200_000, -1_900_000, -340)] == [
        "0",
        "+1.2 ms",
        "\N{MINUS SIGN}1.9 ms",
        "\N{MINUS SIGN}0.34 us",
    ]


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


def test_changes_of_several_steps_are_means() -> None:
    world = World([run_of(50, 50, 50), run_of(54, 50, 56)])
    a, b = world.traces
    assert "(+0.0 %, median of 3 steps): mm +3.3 us;" in sentence(world.compare(a, b).whole)


def test_a_verdict_without_gpu_work() -> None:
    steps = [
        [
            x("user_annotation", "ProfilerStep#1", 0, us),
            x("cpu_op", "aten::sort", 10, us - 20),
            x("cpu_op", "aten::mm", us - 9, 5),
        ]
        for us in (100, 150)
    ]
    world = World(steps)
    a, b = world.traces
    assert sentence(world.compare(a, b).whole) == (
        "The step takes 150.0 instead of 100.0 us (+50.0 %): no GPU work; host: aten::sort +50.0 us"
    )


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


def test_ranks_without_gpu_work() -> None:
    world = World([x("cpu_op", "aten::sort", 0, us)] for us in (10, 20, 10, 30))
    ranked = [replace(one, rank=n % 2) for n, one in enumerate(world.traces)]
    found = world.compare(ranked[:2], ranked[2:])
    assert [sentence(part).partition(": ")[2] for part in found.places] == [
        *("no GPU work; host unchanged", "no GPU work; host: aten::sort +10.0 us"),
    ]


def test_operators_are_usual_where_most_of_the_time_has_one(small: World) -> None:
    before, after, host = small.traces
    assert usual_by([[before], [after]]) == "operator"
    assert (
        usual_by([[before], [host]]) == usual_by([[host], [host]]) == "operator"
    )  # without GPU work nothing speaks against it
    known = World([[*BEFORE, kernel("gemm", 300, longer, 50)] for longer in (33, 35)]).traces
    assert [usual_by([[trace]]) for trace in known] == ["operator", "kernel"]  # 34 us of the others have an operator


def steps_of(*lengths: float, first: int = 0) -> tuple[Window, ...]:
    return tuple(Window("t", first + n, 0, 0, round(us * 1e3), 0, 0) for n, us in enumerate(lengths))


def trace(*lengths: float, first: int = 0, rank: int | None = None, name: str = "x") -> Trace:
    windows = tuple(
        replace(one, trace_id=f"{name}{rank}")
        for one in (*steps_of(*lengths, first=first), Window("", None, 0, 0, 9, 0, 0))
    )
    return Trace(f"{name}{rank}", f"/{name}.json", f"{name}.json", rank, None, False, True, windows)


@pytest.mark.parametrize(
    ("lengths", "skipped"),
    [
        ((100, 100, 100), 0),
        ((150, 100, 100), 0),
        ((151, 100, 100), 1),
        ((900, 300, 100, 110, 90), 2),
        ((35, 72, 95, 95, 95), 0),  # short ones are none
        ((100, 900, 100, 100), 0),  # nor is a slow one later
        ((400, 100), 0),  # one step says nothing on what is usual
        ((900, 400), 0),
        ((), 0),
    ],
)
def test_warm_up(lengths: tuple[float, ...], skipped: int) -> None:
    assert warm_up(steps_of(*lengths)) == skipped


def numbers(control: Trace, test: Trace, steps: Any = None) -> tuple[list[tuple], list[str]]:
    chosen = choose([control], [test], steps)
    return [(pair.control.step, pair.test.step) for pair in chosen.pairs], chosen.left_out


def test_all_steps_that_both_sides_have() -> None:
    assert numbers(trace(9, 9, 9, first=4), trace(9, 9, 9, first=5)) == (
        [(5, 5), (6, 6)],
        ["control: step 4 without counterpart", "test: step 7 without counterpart"],
    )
    # What is warm-up on one side is left out on both.
    slow_start = trace(90, 9, 9, first=4)
    assert numbers(slow_start, trace(9, 9, 9, first=4)) == ([(5, 5), (6, 6)], ["both: step 4 left out as warm-up"])
    # Other numbers: the first steady one with the first steady one.
    assert numbers(slow_start, trace(9, 9, 9, first=20)) == (
        [(5, 20), (6, 21)],
        ["control: step 4 left out as warm-up", "test: step 22 without counterpart"],
    )
    assert numbers(slow_start, trace(9, first=4)) == (
        [(4, 4)],
        ["both: step 4 compared, though it may be warm-up", "control: steps 5, 6 without counterpart"],
    )
    assert numbers(slow_start, trace()) == ([(None, None)], ["test has no steps: whole traces are compared"])
    assert numbers(trace(), trace()) == ([(None, None)], [])


def test_one_step_where_it_is_asked_for() -> None:
    one, other = trace(90, 9, 9, first=4), trace(9, 9, 9, first=5)
    assert numbers(one, other, 6) == ([(6, 6)], [])
    assert numbers(one, other, "first") == ([(4, 5)], [])
    assert numbers(one, other, "all") == ([(None, None)], [])
    assert numbers(one, other, (4, 7)) == ([(4, 7)], [])
    assert numbers(one, other, (6, "all")) == ([(6, None)], [])
    assert numbers(one, trace(), "first") == ([(None, None)], ["test has no steps: whole traces are compared"])
    with pytest.raises(CompareError, match=r"x.json \(trace xNone\) has no step 4; it has 5, 6, 7"):
        numbers(one, other, 4)


def places(control: list[Trace], test: list[Trace]) -> tuple[list[tuple], list[str]]:
    chosen = choose(control, test)
    return [(pair.where, pair.control.trace_id, pair.test.trace_id) for pair in chosen.pairs], chosen.left_out


def test_rank_by_rank() -> None:
    a = [trace(9, rank=rank, name="a") for rank in (0, 1, 2)]
    b = [trace(9, rank=rank, name="b") for rank in (1, 2, 3)]
    assert places(a, b) == (
        [("rank 1", "a1", "b1"), ("rank 2", "a2", "b2")],
        ["control: rank 0 without counterpart", "test: rank 3 without counterpart"],
    )
    assert places(a[1:2], b) == ([("", "a1", "b1")], ["test: rank 2, rank 3 without counterpart"])
    # No rank in common, or none known: in their order.
    assert places(a[:1], b)[0] == [("", "a0", "b1")]
    unknown = [replace(one, rank=None, file=f"process {n}") for n, one in enumerate(a)]
    assert places(unknown, b)[0] == [
        *(
            ("process 0 and rank 1", "a0", "b1"),
            ("process 1 and rank 2", "a1", "b2"),
            ("process 2 and rank 3", "a2", "b3"),
        ),
    ]
    assert places(unknown, unknown)[0][0][0] == "process 0"


def test_the_traces_of_an_id() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE traces AS SELECT * FROM (VALUES ('1a'), ('1b'), ('2c')) AS t (trace_id)")
    con.execute(
        "CREATE TABLE capture_ranks AS SELECT 'ca' AS capture_id, row_number() OVER () - 1 AS rank, trace_id, "
        "CASE WHEN trace_id = '2c' THEN 'a copy' END AS left_out_reason FROM traces"
    )
    assert traces_of(con, "ca") == ["1a", "1b"]
    assert (traces_of(con, "ca", "first"), traces_of(con, "ca", 1), traces_of(con, "2")) == (["1a"], ["1b"], ["2c"])
    for name, rank, told in (
        ("ca", 2, "no rank 2; it has 0, 1"),
        ("9", "all", "no capture"),
        ("1", "all", "prefix of 2"),
    ):
        with pytest.raises(CompareError, match=told):
            traces_of(con, name, rank)


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


def test_every_step_is_judged(small: World) -> None:
    world = World(
        [run_of(50, 50, 50, 50), run_of(50, 50, 50, 53), run_of(52, 52, 52, 52), run_of(50, 50, 50, 50, host=40)]
    )
    base, one_slow, all_slow, host = world.traces
    fine = judge(world.compare(base, one_slow), 6)
    assert (fine.is_judged, fine.is_fine) == (True, True)
    assert "GPU time of step 3 went from 50.0 us to 53.0 us, +6.0 %, the worst of 4; the median +0.0 %" in fine.said
    broken = judge(world.compare(base, one_slow), 5.9)
    assert not broken.is_fine
    assert broken.said.endswith("the median +0.0 %, more than 5.9 %; grew most: aten::mm +3.0 us")
    assert judge(world.compare(base, one_slow, steps=2), 0).is_fine
    assert not judge(world.compare(base, all_slow), 3.9).is_fine and judge(world.compare(base, all_slow), 4).is_fine
    # GPU work is the same; the step is longer for what the host does.
    longer = judge(world.compare(base, host), 30)
    assert "the length of step 2 went from 100.0 us to 140.0 us, +40.0 %" in longer.said
    assert longer.said.endswith("grew most: on the host enumerate(DataLoader) +40.0 us")
    # How long a trace is says how long it was recorded.
    assert judge(world.compare(base, host, steps="all"), 0).is_fine
    nothing = judge(small.compare(small.traces[2], small.traces[2]), 5)
    assert not nothing.is_judged and "has none" in nothing.said


def test_graph_replays_count_for_the_operator_that_was_captured() -> None:
    from tests.modelling.test_graph_owners import ADD, MM as CAPTURED, calls, replay  # noqa: I001

    captured = calls([CAPTURED, ADD], 0, 0, is_captured=True)
    replays = [replay(["gemm", "add"], at, at) for at in (1000, 2000)]
    world = World([[*captured, *(event for one in replays for event in one)]])
    (only,) = world.traces
    found = {row.name: row.control_n for row in world.compare(only, only, steps="all").whole.rows}
    assert found == {"aten::mm": 2, "aten::add": 2}


# Real traces.

SINGLE = ("h100_qwen", "mi300_qwen")


def json_of(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    read = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw, strict=False)
    return read if isinstance(read, list) else read["traceEvents"]


GPU = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
CPU = ("cpu_op", "operator", "cuda_runtime", "runtime", "cuda_driver", "hip_runtime")


def cat(event: dict[str, Any]) -> str:
    return str(event.get("cat", "")).lower()


def all_gpu_us(path: Path) -> float:
    return sum(e["dur"] for e in json_of(path) if e.get("ph") == "X" and cat(e) in GPU and "dur" in e)


def traces_in(shared: Path) -> list[Path]:
    found = [
        path
        for folder in ("critical_path", "single", "ranks", "dialects")
        for path in (shared / "traces" / folder).rglob("*.json*")
    ]
    return sorted(path for path in found if "execution_trace" not in path.name)


def assert_adds_up(shared: Path, paths: list[Path]) -> None:
    """Each with the next, as a whole: by anything, all rows together are all GPU time."""
    world = World(paths)
    expected = [all_gpu_us(path) for path in paths]
    assert sum(us > 0 for us in expected) > len(paths) // 2
    for by in GPU_BY:
        for n, one in enumerate(world.traces):
            other = (n + 1) % len(paths)
            found = totals(world.compare(one, world.traces[other], by, "all").whole.rows)
            assert [ns / 1e3 for ns in found] == pytest.approx([expected[n], expected[other]], rel=1e-6), (by, paths[n])


@pytest.mark.slow  # the parts of one pair add up in the test of parts
def test_rows_add_up_to_all_gpu_time(shared: Path) -> None:
    assert_adds_up(shared, [path for path in traces_in(shared) if path.stat().st_size < LARGE])


@pytest.mark.slow
def test_rows_of_large_traces_add_up_to_all_gpu_time(shared: Path) -> None:
    assert_adds_up(shared, [path for path in traces_in(shared) if path.stat().st_size >= LARGE])


def test_a_trace_against_itself_and_the_other_way_round(shared: Path) -> None:
    folder = shared / "traces" / "ranks" / "sampled_128"
    world = World([folder / "rank0.json.gz", folder / "rank1.json.gz"])
    a, b = world.traces
    for by in GPU_BY:
        same = world.compare(a, a, by).whole
        assert same.rows and same.host
        assert all(row.change == "unchanged" and row.diff_ns == row.diff_n == 0 for row in (*same.rows, *same.host))
        opposite = {"added": "deleted", "deleted": "added", "increased": "decreased", "decreased": "increased"}
        there, back = (
            {(r.cat, r.name, r.input_dims, r.input_types): r for r in world.compare(*sides, by).whole.rows}
            for sides in ((a, b), (b, a))
        )
        assert there.keys() == back.keys() and any(row.change != "unchanged" for row in there.values())
        for key, row in there.items():
            assert (row.diff_n, row.diff_ns) == (-back[key].diff_n, -back[key].diff_ns)
            assert back[key].change == opposite.get(row.change, row.change)


def test_parts_add_up_to_the_whole(shared: Path) -> None:
    """Ranks, and pairs of steps, of a comparison of captures."""
    paths = [
        shared / "traces" / "ranks" / name / f"{rank}.json.gz"
        for name in ("torchrec_4", "torchrec_unequal")
        for rank in (0, 1)
    ]
    world = World(paths)
    found = world.compare(world.traces[:2], world.traces[2:])
    assert [part.pairs[0].where for part in found.places] == ["rank 0", "rank 1"]
    assert [(one.pair.rank, one.pair.control.step) for one in found.pairs] == [(0, 5), (0, 6), (1, 5), (1, 6)]
    whole = totals(found.whole.rows)
    assert whole == totals(found.whole.categories)
    for side in (0, 1):
        assert sum(totals(part.rows)[side] for part in found.places) == whole[side] > 0
        assert sum((one.gpu.control_ns, one.gpu.test_ns)[side] for one in found.pairs) == whole[side]
    for one in found.pairs:  # alone, it has the same rows in long
        rows = compare_pairs(world.con, [one.pair], "operator").whole.rows
        assert totals(rows) == one.gpu[:2]
        assert (rows[0].name, rows[0].diff_ns) == (one.gpu.changed_name, one.gpu.changed_ns)
        assert one.gpu.grown_ns == max(row.diff_ns for row in rows)
        assert one.gpu.grown_name in {row.name for row in rows if row.diff_ns == one.gpu.grown_ns}


def test_windows_measured_from_their_json(shared: Path) -> None:
    """How long the steps take, how long the GPU does nothing in them, and what ran in them that was launched before."""
    paths = [shared / "traces" / "single" / f"{name}.json.gz" for name in SINGLE]
    world = World(paths)
    for path, trace in zip(paths, world.traces, strict=True):
        events = [e for e in json_of(path) if e.get("ph") == "X"]
        (step,) = (e for e in events if e["name"] == "ProfilerStep#6" and cat(e) == "user_annotation")
        start, end = step["ts"], step["ts"] + step["dur"]
        launches = {
            e["args"]["correlation"]: e["ts"] for e in events if cat(e) in CPU and "correlation" in e.get("args", {})
        }
        busy = earlier = 0.0
        reached = start
        for event in sorted((e for e in events if cat(e) in GPU), key=lambda e: e["ts"]):
            first, last = max(event["ts"], start), min(event["ts"] + event["dur"], end)
            if last > first and launches.get(event["args"]["correlation"], -1) < start:
                earlier += last - first
            busy += max(last - max(first, reached), 0)
            reached = max(reached, last)
        (window,) = trace.steps
        found = (window.duration_ns, window.idle_ns, window.earlier_ns)
        assert found == pytest.approx([1e3 * us for us in (step["dur"], step["dur"] - busy, earlier)], abs=100)
        assert earlier > 1000 and busy > 1000
    said = sentence(world.compare(world.traces[0], world.traces[1]).whole)
    assert said.startswith("The step takes 42.7 instead of 47.2 ms (\N{MINUS SIGN}9.4 %): ")


RULED = Path(__file__).parents[2] / "sql" / "rules" / "op_kinds.csv"


def modelled() -> dict[str, bool]:
    """Operators with a formula, and whether they own what is launched below them."""
    lines = [line for line in RULED.read_text().splitlines() if not line.startswith("#")]
    return {row["op"]: row["owns_below"] == "true" for row in csv.DictReader(lines)}


def launched_by_hand(path: Path, first_step: int | None) -> dict[str, list[float]]:
    """Count and us of GPU work by its operator: of those around the launch the outermost that owns all below it, else
    the innermost with a formula, else the innermost. In one step, or in the whole trace.
    """
    events = [e for e in json_of(path) if e.get("ph") == "X" and "dur" in e]
    window = (-float("inf"), float("inf"))
    for event in events:
        if event["name"] == f"ProfilerStep#{first_step}" and cat(event) == "user_annotation":
            window = (event["ts"], event["ts"] + event["dur"])
    launches = {e["args"]["correlation"]: e for e in events if cat(e) in CPU and "correlation" in e.get("args", {})}
    rules, found = modelled(), defaultdict(lambda: [0, 0.0])
    threads = defaultdict(list)
    for event in events:
        if cat(event) in ("cpu_op", "operator") and event["dur"] > 0:
            threads[event["pid"], event["tid"]].append(event)
    for event in events:
        if cat(event) not in GPU:
            continue
        launch = launches.get(event.get("args", {}).get("correlation"))
        at = (launch or event)["ts"]
        if not window[0] <= at < window[1]:
            continue
        around: list[str] = []
        if launch:
            inside = [e for e in threads[launch["pid"], launch["tid"]] if e["ts"] <= at < e["ts"] + e["dur"]]
            around = [e["name"] for e in sorted(inside, key=lambda e: (e["ts"], -e["dur"]))]
        owning = [name for name in around if rules.get(name)]
        known = [name for name in around if name in rules]
        name = owning[:1] or known[-1:] or around[-1:]
        one = found[name[0] if name else "(no operator)" if launch else "(launch not in the trace)"]
        one[0] += 1
        one[1] += event["dur"]
    return found


@pytest.mark.parametrize(
    ("a", "b", "step"),
    [
        pytest.param("single/h100_qwen", "single/mi300_qwen", 6),
        pytest.param("ranks/dlrm_8/worker0", "ranks/dlrm_8/worker7", 10),
        pytest.param("ranks/dlrm_8/worker2", "ranks/dlrm_8/worker5", None, marks=pytest.mark.slow),
        pytest.param("single/mi300_rccl_metadata", "single/mi300_qwen", None, marks=pytest.mark.slow),
    ],
)
def test_operators_counted_from_their_json(shared: Path, a: str, b: str, step: int | None) -> None:
    paths = [shared / "traces" / f"{name}.json.gz" for name in (a, b)]
    world = World(paths)
    rows = world.compare(world.traces[0], world.traces[1], steps=step or "all").whole.rows
    before, after = (launched_by_hand(path, step) for path in paths)
    assert {row.name for row in rows} == before.keys() | after.keys()
    for row in rows:
        expected = [*before.get(row.name, (0, 0)), *after.get(row.name, (0, 0))]
        assert [row.control_n, row.control_ns / 1e3, row.test_n, row.test_ns / 1e3] == pytest.approx(expected), row.name
    assert len(rows) > 10


@pytest.mark.parametrize(
    ("folder", "a", "b"),
    first_of([("sampled_128", "rank0", "rank1"), ("torchrec_4", "0", "2"), ("dlrm_8", "worker0", "worker7")], 1),
)
def test_kernels_of_a_step_counted_from_their_json(shared: Path, folder: str, a: str, b: str) -> None:
    paths = [shared / "traces" / "ranks" / folder / f"{name}.json.gz" for name in (a, b)]
    world = World(paths)
    found: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in world.compare(world.traces[0], world.traces[1], "kernel", "first").whole.rows:
        for place, value in enumerate((row.control_n, row.control_ns / 1e3, row.test_n, row.test_ns / 1e3)):
            found[row.name][place] += value
    before, after = map(kernels_of_the_first_step, paths)
    assert found.keys() == before.keys() | after.keys() and len(found) > 10
    for name, ours in found.items():
        assert ours == pytest.approx([*before.get(name, (0, 0)), *after.get(name, (0, 0))]), name


def kernels_of_the_first_step(path: Path) -> dict[str, list[float]]:
    """Count and us by name in the first step, by the launch, from the JSON."""
    events = [e for e in json_of(path) if e.get("ph") == "X"]
    steps = [e for e in events if e["name"].startswith("ProfilerStep#") and cat(e) == "user_annotation"]
    first = min(steps, key=lambda e: e["ts"])
    launches = {e["args"]["correlation"]: e for e in events if cat(e) in CPU and "correlation" in e.get("args", {})}
    found: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for event in events:
        if cat(event) in GPU:
            at = launches.get(event["args"].get("correlation"), event)["ts"]
            if first["ts"] <= at < first["ts"] + first["dur"]:
                found[event["name"]][0] += 1
                found[event["name"]][1] += event["dur"]
    return found


def test_operators_and_shapes_are_tracelens_s(shared: Path) -> None:
    """What TraceLens says of an H100 and an MI300 that run the same model: each row, to the hundredth of a microsecond."""
    world = World([shared / "traces" / "single" / f"{name}.json.gz" for name in SINGLE])
    golden = [json.loads((shared / "golden" / "modelling" / f"flops__{name}.json").read_text()) for name in SINGLE]
    ours: list[Counter[Any]] = [Counter(), Counter()]
    for row in world.compare(world.traces[0], world.traces[1], "shape", "all").whole.rows:
        key = (row.name, shape(json.loads(row.input_dims or "[]")))
        for side, ns in enumerate((row.control_ns, row.test_ns)):
            ours[side][key] += ns
    for side, one in enumerate(golden):
        theirs: Counter[Any] = Counter()
        for row in one["tracelens_rows"]:
            if row["matched"]:
                theirs[row["name"], shape(ast.literal_eval(row["dims"]))] += row["tl_kernel_us"]
        assert len(theirs) > 25
        for key, us in theirs.items():
            assert ours[side][key] / 1e3 == pytest.approx(us, abs=0.01), key
        summary = one["summary"]
        unlaunched = ours[side]["(launch not in the trace)", ()]
        assert unlaunched / 1e3 == pytest.approx(summary["gpu_us_no_launch"])
        assert sum(ours[side].values()) / 1e3 == pytest.approx(summary["gpu_us_total"])


def shape(dims: Any) -> Any:
    return tuple(map(shape, dims)) if isinstance(dims, list | tuple) else dims


@pytest.mark.parametrize(
    "name", first_of(["mi300_rccl_metadata", "h100_qwen", "mi300_qwen", "a100_cuda_graphs_rank0_of_16"], 1)
)
def test_operators_are_those_of_the_saved_question(shared: Path, name: str) -> None:
    """`ask gpu-operators`: the same sums, also of what replays of graphs ran."""
    world = World([shared / "traces" / "single" / f"{name}.json.gz"])
    (only,) = world.traces
    found = {row.name: row.control_ns for row in world.compare(only, only, steps="all").whole.rows}
    asked = world.own.execute(
        "SELECT op, sum(duration_ns) FROM kernel_owners WHERE op IS NOT NULL GROUP BY op"
    ).fetchall()
    assert {op: ns for op, ns in found.items() if not op.startswith("(")} == dict(asked)
