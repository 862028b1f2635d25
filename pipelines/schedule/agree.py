"""What all ranks must be of one mind about: whether there is a next iteration, and which.

A globally ordered task is a collective: a rank that runs one more iteration than another waits for it forever, and one
that is an iteration behind gets sums of two iterations, which nobody notices. So before each iteration the ranks agree
that all of them have a batch for it (the first that has none ends all of them), and once that may no longer be so, as
when a rank was stopped inside a run, none of them begins another.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref
from zlib import crc32

HAS_BATCH, AT_END, FAILED = 2, 1, 0  # the least of all ranks decides

_LOST: WeakKeyDictionary[Any, BaseException] = WeakKeyDictionary()
"""Process groups whose collectives may be out of step, and since which error: of this process, whichever engine it was."""


class OutOfStepError(RuntimeError):
    """The ranks ask for different iterations, or run different plans."""


class Agreement:
    """A minimum over all ranks, in a process group of its own, so that it never mixes with the tasks' collectives.

    `group`: the group to ask; None makes one of all ranks, anew when torch.distributed was.
    """

    def __init__(self, group: Any = None, timeout_s: float = 60.0) -> None:
        self._given, self._timeout_s = group, timeout_s
        self._group: Any = group
        self._world: ReferenceType[Any] | None = None  # in which the group was made
        self._runs = 0
        self._plan = 0

    @property
    def ranks(self) -> int:
        """How many there are; 1 where torch.distributed is not used."""
        import torch.distributed as dist

        return dist.get_world_size(self._given) if dist.is_available() and dist.is_initialized() else 1

    @property
    def lost(self) -> BaseException | None:
        """Since which error the ranks' collectives may be out of step; None if they are not."""
        return _LOST.get(self._key()) if self.ranks > 1 else None

    def give_up(self, error: BaseException) -> None:
        """A run was stopped inside: how far each rank's collectives are is not known any more."""
        if self.ranks > 1:
            _LOST.setdefault(self._key(), error)

    def begin(self, plan: object) -> None:
        """A run begins. `plan`: what must be equal on all ranks; its repr is compared."""
        self._renew()
        self._runs += 1
        self._plan = crc32(repr(plan).encode())

    def least(self, status: int, iteration: int) -> int:
        """The least `status` of all ranks. Every rank must call it.

        Raises OutOfStepError if the ranks do not ask for the same iteration of the same run of the same plan, and
        what torch.distributed raises.
        """
        if self.ranks == 1:
            return status
        import torch
        import torch.distributed as dist

        same = {"run": self._runs, "iteration": iteration, "plan, order of submission or shortcuts": self._plan}
        answer = torch.tensor([status, *same.values(), *(-value for value in same.values())])
        dist.all_reduce(answer, dist.ReduceOp.MIN, group=self._group)
        found, lowest, highest = answer[0].item(), answer[1 : 1 + len(same)], -answer[1 + len(same) :]
        for what, low, high in zip(same, lowest.tolist(), highest.tolist(), strict=True):
            if low != high:
                between = "" if what.startswith("plan") else f": from {low} to {high}, here {same[what]}"
                raise OutOfStepError(f"the ranks do not have the same {what}{between}")
        return int(found)

    def _renew(self) -> None:
        """A group for the ranks that there are now."""
        if self.ranks == 1 or self._given is not None:
            return
        import torch.distributed as dist

        if self._world is None or self._world() is not dist.group.WORLD:
            self._world, self._runs = ref(dist.group.WORLD), 0
            self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=self._timeout_s))

    def _key(self) -> Any:
        import torch.distributed as dist

        return dist.group.WORLD if self._given is None else self._given
