"""Names that identify a cause, and similar names that do not."""

from __future__ import annotations

import textwrap

import duckdb
import pytest

from pipelines.base.datafiles import rule_rows
from pipelines.faces.advice import advice_of
from tests.harness import kernel, rows_of, without

ANNOTATIONS = {
    "data_loading": (
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "load_batch", "## load_data ##", "dataloader", "data loading", "get_batch", "fetch data", "train loader", "next_batch",
        "_BaseDataLoaderIter.__next__", "get_train_batch", "data_wait", "data_time", "next(data_iter)", "[pl][profile]run_training_epoch.train_dataloader_next",
    ),
    "checkpointing": ("save_checkpoint", "checkpoint", "## checkpoint ##", "torch.save", "checkpoint: save", "write ckpt", "ckpt", "load_state_dict"),
    "garbage_collection": ("gc.collect", "gc", "Python GC", "garbage collection", "gc_collect", "python_gc"),
    "compilation": (
        "_compile.compile_inner (dynamo_timed)", "inductor_compile (dynamo_timed)", "CachingAutotuner.benchmark_all_configs",
        "recompile", "compile", "backend_compile (dynamo_timed)", "triton autotune",
    ),
    "optimizer": ("Optimizer.step#AdamW.step", "Optimizer.zero_grad#SGD.zero_grad", "## optimizer ##", "optimizer_step", "opt_step"),
    "initialization": ("init_process_group", "ncclCommInitRank", "initialize_distributed"),
    "profiler": ("profiler.export", "export_chrome_trace", "ProfilerSession::Create", "ProfilerStart", "Profiler", "profiler_stop"),
    "": (
        "ProfilerStep#5", "## forward ##", "Torch-Compiled Region: 0/0", "CompiledFunction", "CompiledFunctionBackward",
        "CheckpointFunction", "CheckpointFunctionBackward", "aten::uniform_", "aten::index_copy_", "nccl:all_reduce",
        "DistributedDataParallel.forward", "# running sparse arch", "autograd::engine::evaluate_function: AddmmBackward0",
        "TorchDynamo Cache Lookup", "aten::_fused_adam_", "record_param_comms", "vllm::unified_attention_with_output",
        "execute_context_1(888)_generation_0(0)", "stepper", "optical_flow", "FSDP::pre_forward_prefetch", "metadata", "update_data_ptr",
        "offload_model", "offloading state",
    ),
}  # fmt: skip
FRAMES = {
    "data_loading": ("torch/utils/data/dataloader.py(634): __next__", "/env/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py(51): fetch",
        "data/prefetch.py(30): next", "streaming/base/dataset.py(1400): __iter__", "ray/data/iterator.py(100): iter_batches",
        "datasets/iterable_dataset.py(2093): __iter__", "accelerate/data_loader.py(550): __iter__", "megatron/training.py(500): get_batch",
        "lightning/pytorch/loops/fetchers.py(120): __next__", "detectron2/data/common.py(180): __iter__", "train.py(9): get_train_batch",
    ),
    "garbage_collection": ("<built-in function collect>", "train.py(7): gc.collect"),
    "checkpointing": ("torch/serialization.py(627): save", "train.py(40): save_checkpoint", "transformers/trainer.py(3100): _save_checkpoint", "safetensors/torch.py(280): save_file",
        "lightning/pytorch/trainer/connectors/checkpoint_connector.py(400): dump_checkpoint", "transformers/modeling_utils.py(3000): save_pretrained",
    ),
    "compilation": (
        "torch/_dynamo/convert_frame.py(1371): __call__", "torch/_inductor/compile_fx.py(1552): compile_fx",
        "/env/triton/compiler/compiler.py(226): compile", "torch/utils/cpp_extension.py(1300): load", "cupy/cuda/compiler.py(1): compile_using_nvrtc",
    ),
    "optimizer": ("torch/optim/adamw.py(161): step",),
    "profiler": (
        "torch/profiler/profiler.py(741): step", "profiler.py(101): start_trace", "profiler.py(213): stop_trace",
        "/env/lib/python3.12/site-packages/jax/_src/profiler.py(100): start_trace", "jax/profiler.py(9): stop_and_get_fdo_profile",
        "jax\\_src\\profiler.py(4): stop_trace", "torch_xla/debug/profiler.py(80): start_trace", "torch/cuda/profiler.py(60): start",
        "torch/autograd/profiler.py(330): _start_trace", "torch/autograd/profiler.py(400): _parse_kineto_results",
        "<built-in method _disable_profiler of PyCapsule object at 0x7f1>", "<built-in method _enable_profiler of PyCapsule object at 0x1>",
        "tensorflow/python/profiler/profiler_v2.py(90): start", "lightning/pytorch/profilers/pytorch.py(500): stop", "cProfile.py(60): print_stats",
    ),
    "synchronization": ("torch/cuda/__init__.py(954): synchronize",),
    "": (
        "torch/utils/checkpoint.py(451): checkpoint", "torch/_dynamo/eval_frame.py(632): _fn", "triton/runtime/jit.py(330): run",
        "train.py(40): step", "torch/nn/modules/linear.py(116): forward", "torch/autograd/profiler.py(700): __enter__", "torch_geometric/data/data.py(80): __getitem__", "data/augment.py(3): flip",
        "tqdm/std.py(1160): __iter__", "train.py(90): main", "vllm/v1/core/sched/scheduler.py(100): schedule", "re.py(250): compile",
        "profiler.py(356): wrapper", "profiler.py(9): start_training", "myjob/profiler.py(101): start_trace", "train.py(7): start_trace",
        "tracing.py(1): stop_trace_server", "ray_profiler.py(3): stop_trace", "profiler.py(10): start_trace_of_rays", "jaxpr/profiler.py(1): start_trace",
        "torch/autograd/profiler.py(30): __exit__", "tensorflow/python/profiler/trace.py(180): wrapped", "torch/cuda/nvtx.py(1): range_push",
        "profile.py(10): run", "my/torch_profiler.py(9): start",
    ),
}  # fmt: skip
CALLS = {
    "allocation": ("cudaMalloc", "cudaFree", "cudaHostAlloc", "hipMalloc", "hipFree", "cudaMallocAsync", "cuMemCreate", "cudaFreeHost", "urUSMDeviceAlloc", "zeMemFree", "hipExtMallocWithFlags"),
    "synchronization": ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "hipStreamSynchronize", "cudaEventQuery", "urQueueFinish", "zeEventHostSynchronize"),
    "compilation": ("cuModuleLoadData", "cuLibraryLoadData", "hipModuleLoadData", "cudaGraphInstantiate", "cudaGraphInstantiateWithFlags", "cudaGraphExecUpdate"),
    "initialization": ("cuInit", "cudaGetDeviceCount", "hipInit"),
    "profiler": ("cuptiActivityFlushAll", "cudaProfilerStart", "cuProfilerStop", "hipProfilerStart", "roctracer_flush_activity"),
    "": ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamWaitEvent", "cudaEventRecord", "hipLaunchKernel", "cudaGraphLaunch", "cudaStreamIsCapturing", "urEnqueueKernelLaunch", "zeEventQueryStatus"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("column", "names_by_cause"),
    [("annotation_pattern", ANNOTATIONS), ("frame_pattern", FRAMES), ("call_pattern", CALLS)],
    ids=["annotations", "frames", "calls"],
)
def test_a_name_tells_its_cause_and_no_other(column: str, names_by_cause: dict[str, tuple[str, ...]]) -> None:
    rules = sorted(
        (int(row["rule_rank"]), row["cause"], row[column]) for row in rule_rows("cause_rules") if row[column]
    )
    with duckdb.connect() as con:

        def first(name: str) -> str:
            fits = "SELECT regexp_matches(?, ?)"
            return next(
                (c for _, c, pattern in rules if con.execute(fits, [name, pattern]).fetchall() == [(True,)]), ""
            )

        cause_by_name = {name: first(name) for names in names_by_cause.values() for name in names}
    assert cause_by_name == {name: cause for cause, names in names_by_cause.items() for name in names}


def test_causes_and_rules_are_of_one_vocabulary() -> None:
    kinds = rule_rows("cause_kinds")
    assert [int(row["cause_no"]) for row in kinds] == list(range(len(kinds)))
    assert {row["cause"] for row in rule_rows("cause_rules")} <= {row["cause"] for row in kinds}
    assert all(row["title"] and row["phrase"] and row["advice"] for row in kinds)


@pytest.mark.parametrize(
    ("cause", "names", "said"),
    [
        ("gpu_computing", {"aten::mm": 3, "aten::add": 2}, "precision"),
        ("gpu_computing", {"aten::mm": 3, "aten::add": 2, "aten::mul": 2}, "fuse"),
        ("gpu_computing", {"Cijk_Ailk_Bljk_BBS_BH_MT64x64x64": 1}, "precision"),
        ("gpu_computing", {"void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)": 1}, "fuse"),
        ("gpu_computing", {"aten::_flash_attention_forward": 1}, "attention"),
        ("gpu_computing", {"my_own_kernel": 1}, "the GPU is the limit"),
        ("launching", {"cudaLaunchKernel": 5, "cudaGraphLaunch": 2}, "CUDA graphs"),
        ("launching", {"cudaLaunchKernel": 2, "cudaGraphLaunch": 980}, "cudaGraphUpload"),
        ("communication", {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)": 1}, "during the backward pass"),
        ("copies", {"Memcpy HtoD (Pinned -> Device)": 1}, "copy ahead"),
        ("copies", {"Memcpy DtoH (Device -> Pageable)": 1}, "read results less often"),
        ("allocation", {"cudaHostAlloc": 1}, "pin"),
        ("allocation", {"cudaMalloc": 1}, "allocator keep its memory"),
        ("host_between_operators", {"outside operators, thread 7": 9, "train.py(3): f": 1}, "ranges around its work"),
        ("host_between_operators", {"outside operators, thread 7": 1, "train.py(3): f": 9}, "names the functions inside"),
        ("host_between_operators", {"queue.py(154): get": 1}, "waits for another thread or process"),
        ("host_between_operators", {"tokenize": 1}, "move it to another process"),
    ],
)  # fmt: skip
def test_advice_follows_what_most_of_a_cause_is(cause: str, names: dict[str, int], said: str) -> None:
    advice = advice_of(cause, names.items())
    assert said in advice
    assert cause != "launching" or ("fewer launches" in advice) != (
        "cudaGraphLaunch" in names and names["cudaGraphLaunch"] > 5
    )


def test_advice_of_a_trace_without_gpu_work_speaks_of_none() -> None:
    for name in ("aten::mm", "aten::item"):
        assert "the CPU computes" in advice_of("host_operators", [(name, 1)], on_gpu=False)
    assert "record it, too" in advice_of("launching", [("cudaLaunchKernel", 1)], on_gpu=False)
    assert "workers" in advice_of("data_loading", [("load", 1)], on_gpu=False)


def test_every_rule_of_advice_is_of_the_vocabulary_and_fits_two_lines() -> None:
    rows = rule_rows("cause_advice")
    assert {row["cause"] for row in rows} <= {row["cause"] for row in rule_rows("cause_kinds")}
    families = {row["family"] for row in rule_rows("op_kinds")} | {
        row["category"] for row in rule_rows("kernel_categories")
    }
    assert {category for row in rows for category in row["categories"].split("|") if category} <= families
    said = [row["advice"] for row in rows] + [row["advice_without_gpu"] for row in rule_rows("cause_kinds")]
    assert all(len(textwrap.wrap(advice, 71, break_on_hyphens=False)) <= 2 for advice in said)


def test_work_without_a_name_has_a_class() -> None:
    """Kernels whose name is missing, empty, or both in one trace have a class."""
    empty, missing = kernel("", 20, 5, 2), without(kernel("", 10, 5, 1), "name")
    for trace in ([missing], [empty], [missing, empty]):
        assert rows_of(trace, "_event_names", "name, kind, class, n_events") == [
            ("", "kernel", "COMPUTATION", len(trace))
        ]
