"""Every rule of kernel_classes.csv with a name it covers: real names of NCCL, RCCL, DeepEP, Kineto, MTIA and Triton."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import connect, each, x

GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_64x3_nn_align8>(cutlass_80::Params)"
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
DISPATCH = "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*, deep_ep::topk_idx_t*)"

# category as written, name, expected class, expected rule
DEFAULT = [
    ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", "MEMORY", "tb-memory-category"),
    ("gpu_memset", "Memset (Device)", "MEMORY", "tb-memory-category"),
    ("gpu_memcpy", "CopyHostToDevice", "MEMORY", "tb-memory-category"),
    ("gpu_memset", "", "MEMORY", "tb-memory-category"),
    ("kernel", ALLREDUCE, "COMMUNICATION", "tb-communication"),
    ("Kernel", "void ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)", "COMMUNICATION", "tb-communication"),
    ("kernel", "NCCL_ALL_REDUCE", "COMMUNICATION", "tb-communication"),
    ("kernel", DISPATCH, "COMMUNICATION", "tb-communication"),
    ("kernel", "rcclGenericKernel(ncclDevComm*)", "COMMUNICATION", "tb-communication"),
    ("kernel", "rccl_main_kernel", "COMMUNICATION", "tb-communication"),
    ("kernel", "Memcpy PtoP (Device -> Device)", "MEMORY", "tb-memory-name"),
    ("kernel", "CUDA graph 9 as a whole", "OTHER", "nsys-whole-graph"),
    ("kernel", "Memset (Unknown)", "MEMORY", "tb-memory-name"),
    ("kernel", "dma_copy_engine_0", "MEMORY", "tb-memory-name"),
    ("kernel", "batched_dma_free_gather", "COMPUTATION", "tb-computation"),
    ("kernel", "void at::native::SyncBatchNormKernel<float>(float*)", "COMPUTATION", "tb-computation"),
    ("kernel", GEMM, "COMPUTATION", "tb-computation"),
    ("cuda_runtime", "cudaLaunchKernel", "RUNTIME", "tb-runtime"),
    ("cuda_driver", "cuLaunchKernelEx", "RUNTIME", "tb-runtime"),
    ("hip_runtime", "hipMemcpyAsync", "RUNTIME", "tb-runtime"),
    ("Runtime", "cudaStreamSynchronize", "RUNTIME", "tb-runtime"),
    ("cuda_sync", "Stream Wait Event", "SYNCHRONIZATION", "tb-synchronization"),
    ("synchronization", "Context Sync", "SYNCHRONIZATION", "tb-synchronization"),
    ("mtia_ccp_events", "hccl_all_reduce", "COMMUNICATION", "mtia-communication"),
    ("mtia_ccp_events", "collective_subgraph_execution", "COMMUNICATION", "mtia-communication"),
    ("mtia_ccp_events", "dma_in_0", "MEMORY", "mtia-memory"),
    ("mtia_ccp_events", "Memcpy DtoH", "MEMORY", "mtia-memory"),
    ("mtia_ccp_events", "Memset", "MEMORY", "mtia-memory"),
    ("mtia_ccp_events", "runFunction - job_exec", "OTHER", "mtia-stage"),
    ("mtia_ccp_events", "job_exe", "OTHER", "mtia-stage"),
    ("mtia_ccp_events", "packet_7", "OTHER", "mtia-stage"),
    ("mtia_ccp_events", "pe_exe", "OTHER", "mtia-stage"),
    ("mtia_ccp_events", "cpum_exe_subgraph", "OTHER", "mtia-stage"),
    ("mtia_ccp_events", "fused_linear_relu", "COMPUTATION", "mtia-computation"),
    ("cpu_op", "aten::addmm", "OTHER", "other"),
    ("user_annotation", "ncclAllReduce of the step", "OTHER", "other"),
    ("python_function", "torch/nn/modules/module.py(1532): _call_impl", "OTHER", "other"),
]

# HTA 2.6: the first rule that matches at the start of the name, whatever the category. These events have a stream.
HTA = [
    ("kernel", ALLREDUCE, "COMMUNICATION", "hta-communication"),
    ("kernel", "void ncclDevKernel_X(int)", "COMMUNICATION", "hta-communication"),
    ("kernel", "hipExtMallocFill", "COMMUNICATION", "hta-communication"),
    ("kernel", "hipMemcpyAsync", "COMMUNICATION", "hta-communication"),
    ("kernel", "hccl_all_reduce", "COMMUNICATION", "hta-communication"),
    ("kernel", "my::ncclKernel_AllReduce", "COMMUNICATION", "hta-communication"),
    ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", "MEMORY", "hta-memory"),
    ("gpu_memset", "Memset (Device)", "MEMORY", "hta-memory"),
    ("kernel", "dma_copy_engine_0", "MEMORY", "hta-memory"),
    ("kernel", "my::Memcpy", "OTHER", "hta-other"),
    ("kernel", "my::Memset", "OTHER", "hta-other"),
    ("kernel", "batched_dma_free_gather", "OTHER", "hta-other"),
    ("kernel", "void at::native::SyncBatchNormKernel<float>(float*)", "OTHER", "hta-other"),
    ("cuda_sync", "Stream Wait Event", "OTHER", "hta-other"),
    ("cuda_sync", "Stream Sync", "OTHER", "hta-other"),
    ("cuda_runtime", "cudaLaunchKernel", "OTHER", "hta-other"),
    ("mtia_ccp_events", "runFunction - job_exec", "OTHER", "hta-other"),
    ("mtia_ccp_events", "job_exe", "OTHER", "hta-other"),
    ("mtia_ccp_events", "packet_7", "OTHER", "hta-other"),
    ("mtia_ccp_events", "pe_exe", "OTHER", "hta-other"),
    ("mtia_ccp_events", "cpum_exe_subgraph", "OTHER", "hta-other"),
    ("mtia_ccp_events", "collective_subgraph_execution", "OTHER", "hta-other"),
    ("kernel", DISPATCH, "COMPUTATION", "hta-computation"),
    ("kernel", "rcclGenericKernel(ncclDevComm*)", "COMPUTATION", "hta-computation"),
    ("gpu_memcpy", "CopyHostToDevice", "COMPUTATION", "hta-computation"),
    ("cpu_op", "triton_poi_fused_add_0", "COMPUTATION", "hta-computation"),
    ("a category of tomorrow", "work", "COMPUTATION", "hta-computation"),
    ("kernel", GEMM, "COMPUTATION", "hta-computation"),
]


def classified(cases: list[tuple[str, str, str, str]], **args: Any) -> list[tuple]:
    """Return the classes and rules in table event_classes of one event per case, in order."""
    con, _ = connect([x(cat, name, 10 * i, 5, **args) for i, (cat, name, _, _) in enumerate(cases)])
    run_models(con, load_catalog(), ["event_classes", "kernels"])
    assert con.execute("SELECT sum(n_events), sum(sum_ns) FROM event_classes").fetchall() == [
        (len(cases), 5000 * len(cases))
    ]
    different = "k.class IS DISTINCT FROM c.class OR k.hta_class IS DISTINCT FROM c.hta_class OR k.rule_id <> c.rule_id"
    joined = "kernels AS k JOIN events USING (event_id) JOIN event_classes AS c ON c.cat = k.cat AND c.name = k.name"
    assert con.execute(f"SELECT k.name FROM {joined} WHERE {different}").fetchall() == []
    return con.execute(
        "SELECT c.class, c.rule_id, c.hta_class, c.hta_rule_id FROM events AS e JOIN event_classes AS c "
        "ON c.cat = e.cat AND c.name = e.name ORDER BY e.start_ns"
    ).fetchall()


def test_each_rule_of_the_default_profile() -> None:
    """TB-11, TB-12 and MTIA. Calls are RUNTIME and waits SYNCHRONIZATION, and `kernels` contains neither."""
    assert [row[:2] for row in classified(DEFAULT)] == [case[2:] for case in DEFAULT]


def test_each_rule_of_hta() -> None:
    rows = classified(HTA, stream=7, device=0)
    assert [row[2:] for row in rows] == [case[2:] for case in HTA]
    # In HTA, an event without a stream belongs to the CPU and has no class.
    assert classified([("cpu_op", "aten::addmm", "", "")])[0][2:] == (None, None)


def test_what_hta_counts_as_the_gpus_is_of_the_trace_itself() -> None:
    """Traces that are computed together do not influence each other's classes.

    TorchInductor gives the same names to operators of other programs.
    """
    traces = [[x("cpu_op", "triton_poi_fused_add_0", 0, 10, **args)] for args in ({}, {"stream": 7})]
    query = "SELECT hta_class, hta_rule_id FROM event_classes"
    classes = [con.execute(query).fetchall() for con in each(traces, "event_classes")]
    assert classes == [[(None, None)], [("COMPUTATION", "hta-computation")]]


def test_a_record_of_a_wait_is_the_gpus_in_hta_without_a_stream_too() -> None:
    assert classified([("cuda_sync", "Context Sync", "", "")])[0][2:] == ("OTHER", "hta-other")


def test_every_rule_has_a_name_here() -> None:
    lines = load_catalog().models["kernel_classes"].path.read_text().splitlines()
    rules = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    known = [("default", case[3]) for case in DEFAULT] + [("hta", case[3]) for case in HTA]
    # The rules of libraries, between TB-11's two, are checked with the corpus of test_kernel_names.py.
    known += [
        ("default", rule["rule_id"])
        for rule in rules
        if 20 < int(rule["rule_order"]) < 40 and rule["profile"] == "default"
    ]
    assert {(rule["profile"], rule["rule_id"]) for rule in rules} == set(known)
    assert len({(rule["profile"], rule["rule_order"]) for rule in rules}) == len(rules)


@pytest.mark.parametrize("name", ["critical_path/simple_add", "single/mi250_minitoy"])
def test_every_event_of_real_traces_has_a_class(shared: Path, name: str) -> None:
    con, _ = connect(shared / "traces" / f"{name}.json.gz")
    run_models(con, load_catalog(), ["event_classes", "kernels"])
    ((events, lasting),) = con.execute(
        "SELECT count(*), sum(duration_ns) FROM events WHERE duration_ns IS NOT NULL"
    ).fetchall()
    assert con.execute("SELECT sum(n_events), sum(sum_ns) FROM event_classes").fetchall() == [(events, lasting)]
    of_gpu = "SELECT class, hta_class, count(*), sum(duration_ns) FROM kernels GROUP BY ALL ORDER BY ALL"
    theirs = (
        "SELECT class, hta_class, sum(n_events), sum(sum_ns) FROM event_classes JOIN category_sides USING (cat) "
        "WHERE side = 'gpu' GROUP BY ALL ORDER BY ALL"
    )
    assert con.execute(of_gpu).fetchall() == con.execute(theirs).fetchall() != []
    classes = {row[0] for row in con.execute("SELECT DISTINCT class FROM event_classes").fetchall()}
    assert "RUNTIME" in classes
    assert ("SYNCHRONIZATION" in classes) == ("critical_path" in name)
