"""Work of kernels that servers and compilers add, compared with loops, with torch, and with counts by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.modelling.custom_formulas import CUSTOM_FORMULAS
from pipelines.modelling.formulas import work_of
from pipelines.modelling.work import NotModelled, Work
from tests.effort import examples

BF16, FP32, FP8, INT = "c10::BFloat16", "float", "c10::Float8_e4m3fn", "int"
BAD = NotModelled("bad_args")
sizes = st.integers(1, 4)


def cost(op: str, *arguments: Any) -> Work | NotModelled:
    """Return the work of a call. An argument is (type, *dims) for a tensor, None for a missing one, else a literal."""
    dims, types, concrete = [], [], []
    for argument in arguments:
        is_tensor = isinstance(argument, tuple)
        dims.append(list(argument[1:]) if is_tensor else [])
        types.append(argument[0] if is_tensor else "" if argument is None else "Scalar")
        concrete.append("" if is_tensor or argument is None else str(argument))
    return work_of(op, dims, types, concrete)


def experts(tokens: int, width: int, inner: int, n: int, top: int, gate: int = 2, w: str = BF16) -> list[Any]:
    return [
        (BF16, tokens, width), (w, n, gate * inner, width), (w, n, width, inner), (FP32, tokens, top), (INT, tokens, top),
        "silu", False,
    ]  # fmt: skip


# Experts --------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(40), deadline=None)
@given(sizes, sizes, sizes, sizes, sizes, st.sampled_from([1, 2]))
def test_each_token_is_multiplied_by_each_of_its_experts(
    tokens: int, width: int, inner: int, n: int, top: int, gate: int
) -> None:
    """The expected number counts every multiplication and every addition in loops."""
    counted = 0
    for _ in range(tokens * top):
        for _ in range(gate * inner):
            counted += 2 * width
        for _ in range(width):
            counted += 2 * inner
    for op in ("vllm::inplace_fused_experts", "sglang::outplace_fused_experts"):
        work = cost(op, *experts(tokens, width, inner, n, top, gate))
        assert isinstance(work, Work)
        assert (work.flops_matrix, work.kind, work.dtype) == (counted, "experts", "bf16")
        if tokens == 1:  # x in and out, weights and ids, and the matrices of its experts
            assert work.bytes == 2 * 2 * width + top * 8 + 2 * top * (gate + 1) * inner * width
        else:  # the data decide which matrices are read
            assert work.bytes is None


def test_mixtral_by_hand() -> None:
    """Mixtral 8x7B (arXiv 2401.04088) needs 3 products of 2 * 4096 * 14336 for each token and expert.

    It has hidden size 4096, inner size 14336, 2 of 8 experts and SwiGLU. The call has 1024 tokens.
    """
    work = cost("vllm::inplace_fused_experts", *experts(1024, 4096, 14336, 8, 2))
    assert isinstance(work, Work)
    assert work.flops_matrix == 1024 * 2 * 3 * 2 * 4096 * 14336 == 721_554_505_728


def test_experts_on_other_ranks_and_packed_weights_are_no_guess() -> None:
    arguments = experts(8, 64, 32, 4, 2)
    assert cost("vllm::inplace_fused_experts", *arguments, (INT, 16)) == BAD  # expert_map
    assert cost("sglang::inplace_fused_experts", *arguments, True) == BAD  # filter_expert
    packed = [arguments[0], ("unsigned char", 4, 64, 32), *arguments[2:]]
    assert cost("vllm::inplace_fused_experts", *packed) == BAD
    assert cost("vllm::inplace_fused_experts", arguments[0], (BF16, 4, 65, 64), *arguments[2:]) == BAD
    assert cost("vllm::inplace_fused_experts", *arguments[:4], (INT, 7, 2)) == BAD
    fp8, int8 = (cost("vllm::inplace_fused_experts", *experts(8, 64, 32, 4, 2, w=w)) for w in (FP8, "signed char"))
    assert isinstance(fp8, Work) and isinstance(int8, Work) and (fp8.dtype, int8.dtype) == ("fp8", "bf16")


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), sizes, sizes)
def test_grouped_products_are_the_sum_of_their_groups(groups: list[int], k: int, n: int) -> None:
    rows, offsets = sum(groups), (INT, len(groups))
    by_rows = cost("aten::_grouped_mm", (BF16, rows, k), (BF16, len(groups), k, n), offsets, None, None)
    by_columns = cost("aten::_grouped_mm", (BF16, n, rows), (BF16, rows, k), offsets, None, None)
    each = cost("aten::_grouped_mm", (BF16, len(groups), n, k), (BF16, len(groups), k, n), None, None, None)
    last = cost("aten::_grouped_mm", (BF16, len(groups), n, k), (BF16, k, rows), offsets, None, None)
    assert all(isinstance(work, Work) for work in (by_rows, by_columns, each, last))
    assert by_rows.flops_matrix == sum(2 * m * k * n for m in groups) and by_rows.bytes is None  # type: ignore[union-attr]
    assert last.flops_matrix == sum(2 * n * k * m for m in groups)  # type: ignore[union-attr]
    assert by_columns.flops_matrix == sum(2 * n * m * k for m in groups)  # type: ignore[union-attr]
    assert by_columns.bytes == 2 * (n * rows + rows * k + len(groups) * n * k)  # type: ignore[union-attr]
    bmm = cost("aten::bmm", (BF16, len(groups), n, k), (BF16, len(groups), k, n))
    assert (each.flops_matrix, each.bytes) == (bmm.flops_matrix, bmm.bytes)  # type: ignore[union-attr]


def test_the_arguments_of_grouped_products_are_those_of_the_schema() -> None:
    torch = pytest.importorskip("torch")
    names = [argument.name for argument in torch.ops.aten._grouped_mm.default._schema.arguments]
    assert names[:3] == ["self", "mat2", "offs"]


# Attention ------------------------------------------------------------------------------------------------------------


def paged(
    sequences: int, length: Any, heads: int, kv_heads: int, width: int, second: bool = False
) -> Work | NotModelled:
    query, pages = (BF16, sequences, heads, width), (BF16, 9, kv_heads, width // 8, 16, 8)
    scratch = (
        [(FP32, sequences, heads, 3), (FP32, sequences, heads, 3), (BF16, sequences, heads, 3, width)] if second else []
    )
    rest = [pages, pages, kv_heads, 0.1, (INT, sequences, 4), (INT, sequences), 16, length, None, "auto"]
    return cost(f"_C::paged_attention_v{2 if second else 1}", query, *scratch, query, *rest)


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(1, 50), sizes, sizes, st.sampled_from([8, 64]), st.booleans())
def test_a_single_sequence_is_as_long_as_the_longest(
    length: int, groups: int, kv_heads: int, width: int, second: bool
) -> None:
    """The work equals dense attention of one query over keys of that length."""
    heads = groups * kv_heads
    dense = cost(
        "aten::_scaled_dot_product_flash_attention", (BF16, 1, heads, 1, width), *[(BF16, 1, kv_heads, length, width)] * 2,
        0.0, False, False, None,
    )  # fmt: skip
    work = paged(1, length, heads, kv_heads, width, second)
    assert isinstance(work, Work) and isinstance(dense, Work)
    assert (work.flops_matrix, work.bytes, work.kind) == (dense.flops_matrix, dense.bytes, "attention")


def test_lengths_of_several_sequences_are_data() -> None:
    assert paged(2, 48, 8, 2, 64) == paged(1, "", 8, 2, 64) == BAD


# Norms, rotations and so on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "arguments", "n_bytes", "flops"),
    [
        ("_C::rms_norm", [(BF16, 4, 8), (BF16, 4, 8), (BF16, 8), 1e-5], 2 * (32 + 32 + 8), 4 * 32),
        # input and residual are read and written
        ("_C::fused_add_rms_norm", [(BF16, 4, 8), (BF16, 4, 8), (BF16, 8), 1e-5], 2 * (4 * 32 + 8), 5 * 32),
        # 4 tokens, 2 heads of queries and 1 of keys, half of each rotated: 4 * 3 * 4 elements in and out
        (
            "_C::rotary_embedding",
            [("long int", 4), (BF16, 4, 16), (BF16, 4, 8), 8, (BF16, 99, 4), True],
            2 * 2 * 48 + 8 * 4,
            3 * 48,
        ),
        ("_C::silu_and_mul", [(BF16, 4, 8), (BF16, 4, 16)], 2 * (32 + 64), 2 * 32),
        ("_C::static_scaled_fp8_quant", [(FP8, 4, 8), (BF16, 4, 8), (FP32,)], 32 + 2 * 32, 32),
        ("_C::dynamic_scaled_fp8_quant", [(FP8, 4, 8), (BF16, 4, 8), (FP32, 1)], 32 + 2 * 32, 2 * 32),
        # keys and values of 3 tokens (a fourth is padding), 1 head of width 8, into a cache with 1 byte per element
        (
            "_C_cache_ops::reshape_and_cache_flash",
            [(BF16, 4, 1, 8), (BF16, 4, 1, 8), *[("unsigned char", 9, 16, 1, 8)] * 2, ("long int", 3), "fp8"],
            3 * 16 * (2 + 1) + 3 * 8,
            0,
        ),
    ],
)
def test_by_hand(op: str, arguments: list[Any], n_bytes: int, flops: int) -> None:
    work = cost(op, *arguments)
    assert isinstance(work, Work)
    assert (work.bytes, work.flops_vector, work.flops_matrix) == (n_bytes, flops, 0)


@pytest.mark.parametrize(
    "op", ["_C::silu_and_mul", "_C::static_scaled_fp8_quant", "_C::rms_norm", "_C::fused_add_rms_norm"]
)
def test_shapes_that_do_not_fit(op: str) -> None:
    assert cost(op, (BF16, 4, 8), (BF16, 5, 8), (FP32, 8)) == BAD
    assert cost(op, (BF16, 4, 8)) == BAD


# TorchInductor --------------------------------------------------------------------------------------------------------


def test_a_fused_kernel_reads_or_writes_each_tensor_once() -> None:
    work = cost("triton_poi_fused_add_mul_0", (BF16, 64, 8), (FP32, 8), (BF16, 64, 8), 512)
    assert isinstance(work, Work)
    assert (work.bytes, work.flops_matrix, work.flops_vector, work.kind) == (2 * 512 * 2 + 32, 0, None, "fused")
    assert cost("triton_poi_fused_add_mul_0", 512) == BAD


@pytest.mark.parametrize(
    ("name", "tensors", "is_known"),
    [
        ("triton_poi_fused_clone_slice_11", [(BF16, 100, 8), (BF16, 60, 8)], False),
        ("triton_poi_fused_slice_11", [(BF16, 100, 8), (BF16, 60, 8)], False),
        # a partly read bias does not matter next to two whole tensors; one a third of their size does
        ("triton_red_fused_add_split_unsqueeze_16", [(BF16, 100, 8), (BF16, 16), (BF16, 100, 8)], True),
        ("triton_red_fused_add_split_unsqueeze_16", [(BF16, 100, 8), (BF16, 264), (BF16, 100, 8)], False),
        ("triton_per_fused_embedding_0", [("long int", 7), (BF16, 5000, 8), (BF16, 7, 8)], False),
        ("triton_poi_fused_index_put_0", [(BF16, 7, 8), (BF16, 70, 8)], False),
        ("triton_per_fused_nll_loss_forward_2", [(BF16, 100, 5000), ("long int", 100), (FP32, 100, 1)], False),
        ("triton_per_fused__log_softmax_nll_loss2d_forward_0", [(BF16, 1, 8, 9, 9), (FP32, 1, 1, 9, 9)], False),
        # names that only look like such a kernel
        ("triton_poi_fused_nll_loss_backward_1", [(BF16, 100, 5000), ("long int", 100)], True),
        ("triton_poi_fused_indexed_splitting_3", [(BF16, 100, 8), (BF16, 60, 8)], True),
    ],
)
def test_a_kernel_that_may_use_a_part_is_known_only_if_that_does_not_matter(
    name: str, tensors: list[Any], is_known: bool
) -> None:
    assert isinstance(cost(name, *tensors, 512), Work) == is_known
    assert is_known or cost(name, *tensors, 512) == BAD


@settings(max_examples=examples(25), deadline=None)
@given(sizes, sizes, sizes)
def test_templates_are_products(m: int, k: int, n: int) -> None:
    work = cost("triton_tem_fused_addmm_relu_3", (BF16, n), (BF16, m, k), (BF16, k, n), (BF16, m, n), 1)
    expected = cost("aten::mm", (BF16, m, k), (BF16, k, n))
    assert isinstance(work, Work) and isinstance(expected, Work)
    assert (work.flops_matrix, work.bytes, work.kind) == (expected.flops_matrix, expected.bytes + 2 * n, "gemm")  # type: ignore[operator]


def test_templates_whose_operands_cannot_be_told() -> None:
    assert cost("triton_tem_fused_mm_3", (BF16, 2, 2), (BF16, 2, 3), (BF16, 4, 4)) == BAD
    # [3, 3] by [3, 3], or [3, 2] by [2, 3]
    square = (BF16, 3, 3)
    assert cost("triton_tem_fused_mm_3", square, square, (BF16, 3, 2), (BF16, 2, 3), square) == BAD


@pytest.mark.parametrize(
    "name", ["triton__0d1d2d", "triton_", "my_triton_poi_fused_add_0", "triton_tem_fused_flex_attention_0"]
)
def test_other_names_have_no_formula(name: str) -> None:
    assert cost(name, (BF16, 8)) == NotModelled("op_not_modelled")


def test_what_inductor_s_kernels_of_a_real_trace_do(shared: Path) -> None:
    """b200: one Inductor kernel over 888 int, long and bool elements.

    The expected bytes are computed from the trace's JSON.
    """
    trace = json.loads(
        gzip.decompress((shared / "traces" / "single" / "b200_eager_71_process_groups.json.gz").read_bytes())
    )
    (event,) = [e for e in trace["traceEvents"] if e.get("cat") == "cpu_op" and e["name"].startswith("triton_")]
    work = work_of(event["name"], *(event["args"][k] for k in ("Input Dims", "Input type", "Concrete Inputs")))
    assert isinstance(work, Work) and work.bytes == 888 * (4 + 8 + 1)


def test_every_formula_is_used_and_broken_arguments_are_refused() -> None:
    from pipelines.base.datafiles import rule_rows

    rows = [*rule_rows("op_kinds"), *rule_rows("op_patterns")]
    assert set(CUSTOM_FORMULAS) <= {row["formula"] for row in rows}
    for row in rows:
        name = row.get("op") or "triton_poi_fused_slice_0"
        assert work_of(name, [], [], []) == BAD
        assert work_of(name, [[[2]], "x", None], ["float", "float", "float"], []) == BAD
