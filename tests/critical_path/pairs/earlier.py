"""Expected results for the twelve programs recorded before bench/pairs was written: ../shared/traces/h100_pairs."""

from __future__ import annotations

from typing import Any

_HOST = ("host_operators", "host_between_operators", "data_loading", "optimizer", "communication")
_GPU = ("gpu_computing", "copies", "communication", "optimizer")

EARLIER: dict[str, dict[str, Any]] = {
    "slow_loader": {
        "causes": ("data_loading",),
        "forbidden": _GPU,
        "whatif": ("--scale", "enumerate(DataLoader)*=0.5"),
    },
    "item_each_micro": {
        "causes": ("synchronization", "host_between_operators", "gpu_computing"),
        "forbidden": ("copies", "data_loading", "allocation", "communication", "optimizer"),
        "whatif": ("--remove", "wait:aten::item"),
        "fix": "do_not_wait",
    },
    "pageable_copies": {
        "causes": ("copies",),
        "forbidden": _HOST,
        "whatif": ("--remove", "class:MEMORY"),
        "fix": "copy_ahead",
    },
    "launch_bound": {
        "causes": ("host_operators", "launching"),
        "forbidden": ("gpu_computing", "synchronization", "copies", "data_loading", "communication"),
        "whatif": ("--remove", "aten::silu"),
    },
    "big_products": {
        "causes": ("gpu_computing",),
        "forbidden": (*_HOST, "launching", "copies", "synchronization"),
        "ratio": ("kernel:*gemm*",),
    },
    "empty_cache": {
        "causes": ("gpu_computing", "allocation"),
        "forbidden": ("communication", "data_loading", "optimizer", "copies"),
        "whatif": ("--remove", "cudaFree", "--remove", "cudaMalloc"),
        "fix": "no_empty_cache",
    },
    "garbage": {
        "causes": ("garbage_collection",),
        "forbidden": (*_GPU, "data_loading"),
        "whatif": ("--remove", "<built-in function collect>"),
        "fix": "no_gc",
    },
    "slow_optimizer": {
        "causes": ("optimizer",),
        "forbidden": ("gpu_computing", "synchronization", "copies", "data_loading", "communication"),
        "ratio": ("Optimizer.step#Adam.step",),
        "fix": "fused_optimizer",
    },
    "side_stream_binds": {
        "causes": ("gpu_computing",),
        "forbidden": (*_HOST, "copies", "synchronization"),
        "ratio": ("stream:*",),
    },
    "host_preprocessing": {
        "causes": ("host_between_operators",),
        "forbidden": (*_GPU, "launching", "allocation"),
        "whatif": ("--remove", "*normalize*"),
        "fix": "move_host_work",
    },
    "checkpointing": {
        "causes": ("checkpointing",),
        "forbidden": (*_GPU, "data_loading"),
        "whatif": ("--remove", "save_checkpoint"),
        "fix": "asynchronous_checkpoint",
    },
    "recompiles": {
        "causes": ("compilation",),
        "forbidden": ("gpu_computing", "copies", "synchronization", "data_loading", "host_operators"),
        "whatif": ("--remove", "entire_frame_compile"),
        "fix": "compile_once",
    },
}
"""Expected results by program; the fields are those of truth.json of bench/pairs."""
