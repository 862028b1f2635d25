"""The end of data, the same on every rank.

A globally ordered task is a collective: a rank that runs one more iteration than another waits for it for ever. So
before each iteration the ranks agree whether all of them have a batch; the first that has none ends all of them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

HAS_BATCH, AT_END, FAILED = 2, 1, 0  # the least of all ranks decides


class Agreement:
    """A minimum over all ranks, in a process group of its own, so that it never mixes with the tasks' collectives."""

    def __init__(self, group: Any = None, timeout_s: float = 60.0) -> None:
        self._group: Any = group
        self._timeout_s = timeout_s

    def least(self, status: int) -> int:
        """The least `status` of all ranks. Every rank must call it. Raises what torch.distributed raises."""
        import torch
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_initialized() or dist.get_world_size(self._group) == 1:
            return status
        if self._group is None:
            self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=self._timeout_s))
        answer = torch.tensor([status])
        dist.all_reduce(answer, dist.ReduceOp.MIN, group=self._group)
        return int(answer.item())
