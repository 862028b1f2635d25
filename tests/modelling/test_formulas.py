"""Work of operators, compared with reference numbers of real traces, and with torch's own counter on new shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.modelling.formulas import work_of
from pipelines.modelling.op_formulas import work_columns
from pipelines.modelling.work import NotModelled, Work
from tests.effort import examples

YOUNGER = ("_C::", "_C_cache_ops::", "triton_")
TRACES = ("h100_qwen", "mi300_qwen", "mi300_rccl_metadata", "b200_eager_71_process_groups")


@pytest.mark.parametrize("trace", TRACES)
def test_every_operator_of_real_traces(shared: Path, trace: str) -> None:
    reference = json.loads((shared / "golden" / "modelling" / f"flops__{trace}.json").read_text())
    assert reference["ops"]
    for op in reference["ops"]:
        work = work_of(op["name"], op["input_dims"], op["input_type"], op["concrete"])
        expected = op["cost"]
        if expected is None:
            # The reference predates our formulas of servers' and compilers' kernels (test_custom_formulas.py).
            younger = op["name"].startswith(YOUNGER)
            assert (younger and isinstance(work, Work)) or work == NotModelled(op["why_null"]), op
            continue
        assert isinstance(work, Work), op
        keys = ("flops_matrix", "flops_vector", "bytes", "dtype")
        assert [getattr(work, key) for key in keys] == [expected[key] for key in keys], op
        assert work.flops_uncausal == expected["params"].get("flops_uncausal", expected["flops_matrix"])


@pytest.mark.parametrize(
    ("op", "moved", "flops"),
    [("aten::native_layer_norm_backward", 3, 9), ("aten::_softmax", 2, 3), ("aten::cumsum", 2, 1)],
)
def test_work_in_proportion_to_the_elements(op: str, moved: int, flops: int) -> None:
    """Bytes and operations are proportional to the elements, here 4 x 8 of 4 bytes.

    `moved`: how often each element is read or written. `flops`: the operations per element.
    """
    work = work_of(op, [[4, 8], []], ["float", "Scalar"], ["", "1"])
    assert isinstance(work, Work)
    assert (work.bytes, work.flops_vector, work.flops_matrix) == (moved * 32 * 4, flops * 32, 0)


def test_a_product_of_packed_fp4_counts_every_number() -> None:
    """[16, 32] by [32, 8] is recorded as [16, 16] by [16, 8], because one byte contains two numbers."""
    types = ["c10::Float4_e2m1fn_x2"] * 2 + ["c10::Float8_e4m3fn"] * 2 + ["", "", "Scalar", "Scalar"]
    dims = [[16, 16], [16, 8], [64], [64], [], [], [], []]
    work = work_of("aten::_scaled_mm", dims, types, [""] * 6 + ["15", "False"])
    assert isinstance(work, Work)
    assert (work.flops_matrix, work.bytes, work.dtype) == (2 * 16 * 32 * 8, 16 * 16 + 16 * 8 + 2 * 16 * 8, "fp4")


def test_shapes_that_torch_was_asked_about(shared: Path) -> None:
    """The expected numbers were recorded from torch's counter. It overcounts grouped convolutions backward."""
    reference = json.loads((shared / "golden" / "modelling" / "torch_flop_counter_check.json").read_text())
    made = reference["made"]
    assert made
    for case in made:
        args = case["args"]
        work = work_of(case["name"], args["Input Dims"], args["Input type"], args["Concrete Inputs"])
        assert isinstance(work, Work)
        assert work.flops_uncausal == case["mine"]


sizes = st.integers(1, 24)


def counted(run: Any) -> int:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        run(torch)
    return counter.get_total_flops()


def flops(op: str, dims: list, concrete: list[str] | None = None, tensors: int | None = None) -> int:
    n = len(dims) if tensors is None else tensors
    types = ["float"] * n + ["ScalarList"] * (len(dims) - n)
    work = work_of(op, dims, types, concrete or [""] * len(dims))
    assert isinstance(work, Work)
    return work.flops_uncausal


@pytest.mark.slow
@settings(max_examples=examples(12), deadline=None)
@given(sizes, sizes, sizes, sizes)
def test_products_as_torch_counts_them(batch: int, m: int, k: int, n: int) -> None:
    assert flops("aten::mm", [[m, k], [k, n]]) == counted(lambda t: t.ones(m, k) @ t.ones(k, n))
    assert flops("aten::bmm", [[batch, m, k], [batch, k, n]]) == counted(
        lambda t: t.bmm(t.ones(batch, m, k), t.ones(batch, k, n))
    )
    assert flops("aten::addmm", [[n], [m, k], [k, n]]) == counted(
        lambda t: t.addmm(t.ones(n), t.ones(m, k), t.ones(k, n))
    )


@pytest.mark.slow  # 6 s, because it loads torch's counter; a test above has recorded answers
@settings(max_examples=examples(12), deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3),
    st.integers(0, 2), st.integers(1, 2), st.booleans(), st.integers(8, 12),
)  # fmt: skip
def test_convolutions_as_torch_counts_them(
    batch: int, into: int, out: int, groups: int, stride: int, padding: int, dilation: int, transposed: bool, size: int
) -> None:
    x = [batch, into * groups, size, size]
    w = [into * groups, out, 3, 2] if transposed else [out * groups, into, 3, 2]
    more = [[stride] * 2, [padding] * 2, [dilation] * 2, transposed, [0, 0], groups]
    concrete = ["", "", "", *map(str, more)]
    expected = counted(lambda t: t.ops.aten.convolution(t.ones(x), t.ones(w), None, *more))
    types = ["float", "float", "", *["ScalarList"] * 3, "Scalar", "ScalarList", "Scalar"]
    work = work_of("aten::convolution", [x, w, *[[]] * 7], types, concrete)
    assert isinstance(work, Work)
    assert work.flops_matrix == expected


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), sizes, sizes, st.sampled_from([8, 16]), st.booleans())
def test_attention_is_the_same_as_its_products(
    batch: int, heads: int, rows: int, columns: int, width: int, causal: bool
) -> None:
    """Attention has as many flops as its two products, as torch counts them above.

    Masked work is counted by the pairs that a causal mask leaves.
    """
    q, k = [batch, heads, rows, width], [batch, heads, columns, width]
    types = ["c10::BFloat16"] * 3 + ["Scalar"] * 4
    work = work_of(
        "aten::_scaled_dot_product_flash_attention",
        [q, k, k, [], [], [], []],
        types,
        ["", "", "", "0.", str(causal), "False", ""],
    )
    assert isinstance(work, Work)
    pairs = [batch * heads, rows, columns]
    full = flops("aten::bmm", [[batch * heads, rows, width], [batch * heads, width, columns]])
    full += flops("aten::bmm", [pairs, [batch * heads, columns, width]])
    assert work.flops_uncausal == full
    if causal and rows != columns:
        n_pairs = sum(1 for i in range(rows) for j in range(columns) if j <= i)
        assert work.flops_matrix == 4 * batch * heads * width * n_pairs
    else:
        assert work.flops_matrix == (full // 2 if causal else full)


@pytest.mark.parametrize("scale", ["float", ""])  # a tensor, or None
def test_flash_attention_in_fp8_has_its_flag_behind_the_scales(scale: str) -> None:
    """The overload `quantized` has three scales before the dropout."""
    q = [2, 3, 8, 4]
    scales = [[2, 3] if scale else []] * 3
    types = ["c10::Float8_e4m3fn"] * 3 + [scale] * 3 + ["Scalar"] * 3 + [""]
    full = 2 * 2 * 3 * 8 * 8 * (4 + 4)
    for causal, expected in (("True", full // 2), ("False", full)):
        literals = [""] * 6 + ["0.", causal, "False", ""]
        work = work_of("aten::_scaled_dot_product_flash_attention", [q, q, q, *scales, *[[]] * 4], types, literals)
        assert isinstance(work, Work)
        assert (work.flops_matrix, work.flops_uncausal, work.dtype) == (expected, full, "fp8")


@pytest.mark.slow  # 3 s, because it loads torch; the test above checks the first position
def test_positions_of_causal_flags_are_those_of_the_schemas() -> None:
    torch = pytest.importorskip("torch")
    places = {
        "_scaled_dot_product_flash_attention": 4,
        "_scaled_dot_product_efficient_attention": 6,
        "_scaled_dot_product_cudnn_attention": 6,
        "_scaled_dot_product_flash_attention_backward": 11,
        "_scaled_dot_product_efficient_attention_backward": 11,
        "_scaled_dot_product_cudnn_attention_backward": 14,
    }
    for name, place in places.items():
        schema = getattr(torch.ops.aten, name).default._schema
        assert [argument.name for argument in schema.arguments][place] == "is_causal", name
    if "quantized" in (flash := torch.ops.aten._scaled_dot_product_flash_attention).overloads():
        names = [argument.name for argument in flash.quantized._schema.arguments]
        assert (names[7], len(names)) == ("is_causal", 10)


def test_what_cannot_be_modelled_says_why() -> None:
    assert work_of("aten::index", [[3]], ["float"], [""]) == NotModelled("op_not_modelled")
    assert work_of("aten::mm", None, None, None) == NotModelled("no_shapes")
    assert work_of("aten::mm", [[2, 3], [4, 5]], ["float", "float"], ["", ""]) == NotModelled("bad_args")
    assert work_of("aten::mm", [[[2, 3], [3, 5]]], ["TensorList"], [""]) == NotModelled("bad_args")
    unknown = work_of("aten::mm", [[2, 3], [3, 5]], ["c10::complex", "float"], ["", ""])
    assert isinstance(unknown, Work)
    assert (unknown.flops_matrix, unknown.bytes, unknown.dtype) == (60, None, None)


Q = [4, 16, 2048, 64]
CONVOLUTION = [[32, 3, 224, 224], [64, 3, 7, 7], *[[]] * 7]


@pytest.mark.parametrize(
    ("op", "dims", "types"),
    [
        ("aten::convolution", CONVOLUTION, ["float", "float", *[""] * 4, "Scalar", "", "Scalar"]),
        ("aten::convolution_backward", [[32, 64, 112, 112], *CONVOLUTION], [*["float"] * 3, *[""] * 8]),
        ("aten::_scaled_dot_product_flash_attention", [Q, Q, Q, *[[]] * 4], ["c10::Half"] * 3 + ["Scalar"] * 3 + [""]),
        ("aten::native_batch_norm", [[8, 16, 4, 4], *[[]] * 7], ["float", *[""] * 4, *["Scalar"] * 3]),
        ("aten::native_group_norm", [[8, 16, 64], *[[]] * 7], ["float", "", "", *["Scalar"] * 5]),
        ("aten::native_layer_norm", [[2, 512], [], [], [], []], ["float", "", "", "", "Scalar"]),
        ("aten::sum", [[16, 128], [], [], []], ["float", "", "Scalar", ""]),
        (
            "sglang::inplace_fused_experts",
            [[1, 8], [4, 16, 8], [4, 8, 8], [1, 2], [1, 2], [], []],
            ["float"] * 4 + ["int"] + ["Scalar"] * 2,
        ),
    ],
)
@pytest.mark.parametrize("concrete", [None, []])
def test_literals_that_were_not_recorded_are_not_the_defaults(
    op: str, dims: list, types: list[str], concrete: list[str] | None
) -> None:
    """Traces of torch 1.10 to 2.0 have shapes but no Concrete Inputs. A call without shapes is no_shapes."""
    assert work_of(op, dims, types, concrete) == NotModelled("bad_args")
    assert work_of(op, None, None, concrete) == NotModelled("no_shapes")


@pytest.mark.parametrize(
    ("op", "dims"),
    [
        ("aten::mm", [[2, 3], [3, 5]]),
        ("aten::add", [[2, 3], [2, 3], []]),
        ("aten::_softmax", [[2, 3], [], []]),
        ("aten::native_layer_norm_backward", [[2, 3]]),
        ("aten::sum", [[16, 128], []]),  # sums all elements, because it has no argument for dimensions
    ],
)
def test_formulas_of_shapes_alone_need_no_literals(op: str, dims: list) -> None:
    types = ["float" if of else "" for of in dims]
    work = work_of(op, dims, types, None)
    assert isinstance(work, Work) and work == work_of(op, dims, types, [""] * len(dims))


def test_the_type_of_a_sum_is_no_dimension() -> None:
    """A sum's type is not taken for a dimension.

    In `x.sum(dtype=torch.float32)` the second argument is 6, the type. Dimensions come with a third argument, keepdim.
    """
    whole = work_of("aten::sum", [[8, 1_000_000], []], ["float", "Scalar"], ["", "6"])
    rows = work_of("aten::sum", [[8, 1_000_000], [], []], ["float", "ScalarList", "Scalar"], ["", "[1]", "False"])
    assert isinstance(whole, Work) and whole.bytes == 4 * (8_000_000 + 1)
    assert isinstance(rows, Work) and rows.bytes == 4 * (8_000_000 + 8)


def test_sizes_that_no_tensor_has_are_bad_arguments() -> None:
    text = json.dumps([[-4611686018427387904, 4], [4, 4]])
    assert work_columns("aten::mm", text, '["float", "float"]', '["", ""]')[-1] == "bad_args"
    assert work_of("aten::add", [[-2, -3], [-2, -3]], ["float", "float"], ["", ""]) == NotModelled("bad_args")
    floats = (
        "[[2, 512], [], [512], [512], []]",
        '["float", "ScalarList", "float", "float", "Scalar"]',
        '["", "[512.0]", "", "", "1e-5"]',
    )
    columns = work_columns("aten::native_layer_norm", *floats)
    assert all(value is None or isinstance(value, int) for value in columns[2:6])
