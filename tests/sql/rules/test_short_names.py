"""Short names of kernels and the globs of commands, for the corpus of names, the shared traces, and any text."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.base.foreign_text import visible
from pipelines.base.kernel_names import WIDTH, glob_of, glob_pattern, short_name, short_names
from tests.effort import examples
from tests.sql.rules.test_kernel_names import corpus

SAID = {
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, c10::BFloat16, float, c10::BFloat16>(c10::BFloat16*)": (
        "cunn_SoftMaxForward bf16"
    ),
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>(float*, int)": (
        "softmax_warp_forward f32"
    ),
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)": (
        "elementwise add f32"
    ),
    # The short name omits the type in which the functor computes.
    "void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, "
    "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int)": "elementwise Mul bf16",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float> > >(int)": (
        "reduce Mean f32"
    ),
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float, float, 7>(int)": "gemvx f32",
    "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn": "gemm bf16 256x128 tn",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>(cutlass_80_tensorop::Params)": (
        "gemm tf32 64x64 tn"
    ),
    "Cijk_Ailk_Bjlk_BBS_BH_MT32x16x64_MI16x16x16x1_SN_1LDSB0": "gemm bf16 32x16 nt",
    "volta_scudnn_128x64_relu_small_nn_v1": "conv f32 128x64 nn",
    "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN": "gemm bf16 192x192 tn",
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8EEEvPT0_": "add_rmsnorm_quant_kernel bf16",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "nccl AllReduce Sum f32 RING LL",
    "%all-gather-done.3 = bf16[4] all-gather-done(%all-reduce.3)": "%all-gather-done.3",
    "transformers/models/qwen2/modeling_qwen2.py(503): forward": "modeling_qwen2.py(503): forward",
    # Names that are not C++ kernels stay unchanged.
    **{
        name: name
        for name in (
            *("aten::mm", "prefill(bs=4)", "train.py(12): step", "<built-in function len>", "Optimizer.step#SGD.step"),
            *("Memcpy HtoD (Pageable -> Device)", "attn_fwd", "enumerate(DataLoader)", "## forward ##"),
        )
    },
}


@pytest.mark.parametrize("name", SAID)
def test_what_people_say(name: str) -> None:
    assert short_name(name) == SAID[name]


def fits(names: list[str]) -> None:
    """Assert that the short names are short, free of C++ clutter, and unique."""
    shown = short_names(names)
    assert len(set(shown)) == len(set(names))
    assert [said for said in shown if len(said) > WIDTH or re.search(r"[<(]|::|anonymous|unnamed", said)] == []


def test_the_corpus() -> None:
    fits([row["name"] for row in corpus()])


@pytest.mark.slow  # 5 s: reads every shared trace
def test_every_shared_trace(shared: Path) -> None:
    all_names = set[str]()
    for file in sorted((shared / "traces").rglob("*.json.gz")):
        text = gzip.decompress(file.read_bytes()).decode(errors="replace")
        kernels = re.findall(r'"cat": ?"[Kk]ernel", ?"name": ?"((?:[^"\\]|\\.)*)"', text)
        names = list(dict.fromkeys(name for name in kernels))
        if names:
            fits(names)
        all_names |= set(names)
    assert len(all_names) > 500


TEXT = st.lists(
    st.sampled_from(["void ", "at::native::", "(anonymous namespace)::", "kernel", "<", ">", "(", ")", "{", "_ZN", "9", "int", ", "])
    | st.text(max_size=6)
).map("".join)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(TEXT, min_size=1, max_size=6, unique=True), st.integers(8, 60))
def test_any_text(names: list[str], width: int) -> None:
    shown = short_names(names, width)
    assert all(len(said) <= width for said in shown) and len(set(shown)) == len(names)


@example("[\ue0b0]", "[a]")
@example("cache[\t]", "cache[?]")
@example("[[\x1b]]", "[[*]]")
@settings(max_examples=examples(200), deadline=None)
@given(*[st.text("[]*?a\x1b\ue0b0", max_size=6)] * 2)
def test_a_glob_has_what_a_terminal_shows_and_matches_its_name(name: str, other: str) -> None:
    glob = glob_of(name)
    assert visible(glob) == glob
    assert glob_pattern(glob).fullmatch(name)
    assert visible(name) != name or name == other or not glob_pattern(glob).fullmatch(other)
