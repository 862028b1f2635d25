"""Real training workloads to schedule. This module has the data that plan files need, and does not import torch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.schedule.workloads.base import Workload

SIZES = ("tiny", "small", "large")
"""tiny: for tests. small: about 10 ms per iteration on one CPU core. large: fills a GPU, in at most half its memory."""


@dataclass(frozen=True)
class WorkloadInfo:
    """Description of a workload, available without torch.

    `module`, `workload`: the module in this folder and the name of the class. `nominal_ns`: duration of each task on
    `--device simulated`, ns. The proportions are those of the API reference (a copy of 1 ms in a period of 10 ms), or
    show the workload's purpose.
    """

    module: str
    workload: str
    nominal_ns: dict[str, int]

    @property
    def tasks(self) -> list[str]:
        """Return the task names, in the order of one serial iteration."""
        return list(self.nominal_ns)


_MS = 1_000_000
_DIST = {"H2D": 1 * _MS, "InputDistStart": _MS // 2, "InputDistWait": _MS // 2}
_DENSE = {"ZeroGrad": _MS // 10, "WaitBatch": _MS // 10}
_UPDATE = {"Backward": 6 * _MS, "OptimizerStep": 8 * _MS // 10}
_MLP = {"Forward": 3 * _MS, "Backward": 6 * _MS, "OptimizerStep": _MS}
_HALVES = {"BackwardUpper": 3 * _MS, "AllReduceUpper": 2 * _MS, "BackwardLower": 3 * _MS, "AllReduceLower": _MS}

WORKLOADS = {
    "mlp": WorkloadInfo("mlp", "Mlp", {"CopyBatch": _MS, **_MLP}),
    "copy_heavy_mlp": WorkloadInfo("mlp", "CopyHeavyMlp", {"CopyBatch": 5 * _MS, **_MLP}),
    "graphed_mlp": WorkloadInfo(
        "graphed_mlp", "GraphedMlp", {"CopyBatch": 5 * _MS, "LoadGraph": _MS // 2, "Step": 9 * _MS}
    ),
    "data_parallel_mlp": WorkloadInfo(
        "data_parallel_mlp",
        "DataParallelMlp",
        {"CopyBatch": _MS, "Forward": 3 * _MS, **_HALVES, "OptimizerStep": _MS},
    ),
    "augmented": WorkloadInfo(
        "augmented", "Augmented", {"Decode": 7 * _MS, "Augment": 2 * _MS, "CopyBatch": _MS, **_MLP}
    ),
    "sparse_dist": WorkloadInfo("sparse_dist", "SparseDist", {**_DIST, **_DENSE, "Forward": 38 * _MS // 10, **_UPDATE}),
    "fused_sparse_dist": WorkloadInfo(
        "fused_sparse_dist",
        "FusedSparseDist",
        {**_DIST, "EmbLookup": 8 * _MS // 10, **_DENSE, "Forward": 3 * _MS, **_UPDATE},
    ),
}


def build(name: str, size: str, device: Any = "cpu", seed: int = 0) -> Workload:
    """Return the workload with its weights on a device. On CUDA, `large` is halved until it fits into half the memory.

    Raise ValueError for an unknown size, KeyError for an unknown name, and ModuleNotFoundError without torch.
    """
    if size not in SIZES:
        raise ValueError(f"size={size!r}: use one of {', '.join(SIZES)}")
    info = WORKLOADS[name]
    workload = getattr(importlib.import_module(f"{__name__}.{info.module}"), info.workload)
    shape = workload.sizes[size]
    if size == "large" and str(device).startswith("cuda"):
        from pipelines.schedule.workloads.fitting import fitting_shape

        shape = fitting_shape(lambda shape: workload(shape, device, seed), shape, device)
    return workload(shape, device, seed)
