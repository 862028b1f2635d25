"""Agreement between ranks on whether there is a next iteration, and on its index.

A globally ordered task is a collective. A rank that runs one more iteration than the others hangs in the collective,
and a rank that is one iteration behind silently reduces data of two different iterations. So before each iteration, the
ranks agree that all of them have a batch for it. The first rank without a batch ends the run on all ranks. Once the
ranks may be out of step, for example because a rank was stopped during a run, no rank starts another run.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref
from zlib import crc32

HAS_BATCH, AT_END, FAILED = 2, 1, 0  # statuses; the lowest of all ranks decides

_LOST: WeakKeyDictionary[Any, BaseException] = WeakKeyDictionary()
"""Process groups whose collectives may be out of step, with the first error. Shared by all engines of the process."""


class OutOfStepError(RuntimeError):
    """The ranks request different iterations, or run different plans."""


class Agreement:
    """Minimum of a status over all ranks.

    It uses a separate process group, so that it never mixes with the tasks' collectives. `group`: the process group to
    use. If it is None, a group over all ranks is created, and recreated after torch.distributed was re-initialized.
    """

    def __init__(self, group: Any = None, timeout_s: float = 60.0) -> None:
        self._passed_group, self._timeout_s = group, timeout_s
        self._group: Any = group
        self._world: ReferenceType[Any] | None = None  # the default process group in which `_group` was created
        self._runs = 0
        self._plan = 0

    @property
    def ranks(self) -> int:
        """Return the number of ranks, 1 without torch.distributed."""
        import torch.distributed as dist

        return dist.get_world_size(self._passed_group) if dist.is_available() and dist.is_initialized() else 1

    @property
    def lost(self) -> BaseException | None:
        """Return the error after which the ranks' collectives may be out of step, or None if they are in step."""
        return _LOST.get(self._key()) if self.ranks > 1 else None

    def give_up(self, error: BaseException) -> None:
        """Record that a run stopped partway. From then on, the progress of each rank's collectives is unknown."""
        if self.ranks > 1:
            _LOST.setdefault(self._key(), error)

    def begin(self, plan: object) -> None:
        """Start a run. The repr of `plan` must be equal on all ranks."""
        self._renew()
        self._runs += 1
        self._plan = crc32(repr(plan).encode())

    def least(self, status: int, iteration: int, pause: int) -> int:
        """Return the lowest `status` of all ranks. Every rank must call it.

        `pause`: how many periods after the previous iteration this iteration starts. Raise OutOfStepError if the ranks
        do not request the same iteration, after the same pause, of the same run of the same plan. Errors of
        torch.distributed pass through.
        """
        if self.ranks == 1:
            return status
        import torch
        import torch.distributed as dist

        same = {
            "run": self._runs,
            "iteration": iteration,
            "pause before the iteration, in periods (progress() without an iterator)": pause,
            "plan, order of submission (run or run_serial) or shortcuts": self._plan,
        }
        numbers = [status, *same.values(), *(-value for value in same.values())]
        answer = torch.tensor(numbers, device="cpu")  # a default device that is a GPU may be busy with earlier work
        dist.all_reduce(answer, dist.ReduceOp.MIN, group=self._group)
        lowest_status, lowest, highest = answer[0].item(), answer[1 : 1 + len(same)], -answer[1 + len(same) :]
        for key, low, high in zip(same, lowest.tolist(), highest.tolist(), strict=True):
            if low != high:
                between = "" if key.startswith("plan") else f": from {low} to {high}, here {same[key]}"
                raise OutOfStepError(f"the ranks do not have the same {key}{between}")
        return int(lowest_status)

    def _renew(self) -> None:
        """Recreate the group if torch.distributed was re-initialized, unless the caller passed a group."""
        if self.ranks == 1 or self._passed_group is not None:
            return
        import torch.distributed as dist

        if self._world is None or self._world() is not dist.group.WORLD:
            self._world, self._runs = ref(dist.group.WORLD), 0
            self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=self._timeout_s))

    def _key(self) -> Any:
        import torch.distributed as dist

        return dist.group.WORLD if self._passed_group is None else self._passed_group
