"""The top of the page for traces with next to nothing in them, and what it advises for a kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.faces.report.sections.savings import _HOST_ADVICE, advice_for
from tests.faces.report.read_page import report
from tests.harness import call, kernel, op, x


def verdict(tmp_path: Path, *events: dict[str, Any]) -> str:
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return report(tmp_path, path).texts["verdict"]


@pytest.mark.slow  # a trace of the CPU alone has one in test_page.py
def test_a_trace_without_a_path_has_a_page(tmp_path: Path) -> None:
    said = verdict(tmp_path, {"ph": "X", "name": "load", "pid": 1, "tid": 1, "ts": 0, "dur": 10})
    assert "no GPU work: 1 event in 10.0 µs" in said
    assert "What would be gained by changes is not computed: there is no critical path" in said


@pytest.mark.slow  # caveats of such a path: tests/critical_path/test_caveats.py
def test_nothing_is_advised_for_a_path_of_which_next_to_nothing_is_known(tmp_path: Path) -> None:
    said = verdict(tmp_path, op("aten::mm", 0, 5), x("python_function", "idle", 0, 1_000_000, 2))
    assert "The critical path takes 5.0 µs, only 0.0 % of the trace" in said
    assert "No change that was tried saves 1 % of the critical path and of the trace's time." in said
    assert "Gain:" not in said and "aten::mm takes the most time on the path: 5.0 µs, once." in said


@pytest.mark.slow  # the verdict of a capture is in test_page.py
def test_a_wait_is_not_what_a_faster_host_would_end(tmp_path: Path) -> None:
    wait = call("cudaDeviceSynchronize", 60, 500, 2)
    said = verdict(tmp_path, op("aten::mm", 0, 60), call("cudaLaunchKernel", 50, 2, 1), kernel("k", 70, 400, 1), wait)
    assert "host work on the critical path" in said and "most of it: aten::mm" in said
    assert "cudaDeviceSynchronize" not in said.split("most of it:")[1].split("tracelake")[0]
    assert "k takes the most GPU time: 400.0 µs (100.0 %), once." in said


def test_loading_the_runtime_is_no_call_to_make_less_often() -> None:
    assert "skip the first steps" in advice_for("cudaDeviceGetStreamPriorityRange", _HOST_ADVICE)
    assert "allocate less often" in advice_for("cudaFree", _HOST_ADVICE)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("void cutlass::Kernel<cutlass::gemm::...::PredicatedTileIterator<...> >", "lower precision"),
        ("void cutlass::device_kernel<... cute::Copy_Atom<cute::SM90_TMA> ...GmmaWarpSpecialized>", "lower precision"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, cute::Copy_Atom<...> > >", "a newer attention"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<float> >", "fuse it"),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 4>", "fuse it"),
        ("void at::native::batch_norm_collect_statistics_kernel<float>", "fuse it"),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float>", "look at its shapes"),
    ],
)
def test_advice_follows_from_what_a_kernel_is(name: str, advice: str) -> None:
    assert advice_for(name).startswith(advice)
