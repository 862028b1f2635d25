"""Real training workloads to schedule. The data that a plan file needs about a workload is here and needs no torch."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.schedule.workloads.base import Workload

SIZES = ("tiny", "small", "large")
"""tiny: tests. small: about 10 ms per iteration on one CPU core. large: fills a data-center GPU."""


@dataclass(frozen=True)
class WorkloadInfo:
    """Description of a workload that needs no torch.

    `workload`: name of its class, in the module of the workload's name. `nominal_ns`: task → duration on
    `--device simulated`, ns, in the proportions of the API reference (a copy of 1 ms in a period of 10 ms).
    """

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

WORKLOADS = {
    "mlp": WorkloadInfo("Mlp", {"CopyBatch": _MS, "Forward": 3 * _MS, "Backward": 6 * _MS, "OptimizerStep": _MS}),
    "sparse_dist": WorkloadInfo("SparseDist", {**_DIST, **_DENSE, "Forward": 38 * _MS // 10, **_UPDATE}),
    "fused_sparse_dist": WorkloadInfo(
        "FusedSparseDist", {**_DIST, "EmbLookup": 8 * _MS // 10, **_DENSE, "Forward": 3 * _MS, **_UPDATE}
    ),
}


def build(name: str, size: str, device: Any = "cpu", seed: int = 0) -> Workload:
    """Return the workload with its weights on a device.

    Raise ValueError if the size is unknown, and ModuleNotFoundError or KeyError if the name is.
    """
    if size not in SIZES:
        raise ValueError(f"size={size!r}: use one of {', '.join(SIZES)}")
    module = importlib.import_module(f"{__name__}.{name}")
    workload = getattr(module, WORKLOADS[name].workload)
    return workload(workload.sizes[size], device, seed)
