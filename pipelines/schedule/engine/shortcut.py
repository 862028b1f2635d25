"""Shortcuts: run a task once, then replay its effects (SWP-43, SWP-44, SWP-62 to SWP-66)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from pipelines.schedule.devices.tensors import walk_tensors
from pipelines.schedule.engine.copies import _CACHE_TAG, _cache_val, _restore_val, with_tensors
from pipelines.schedule.plan.plan import IterContext, PipelineTask

__all__ = ["_CACHE_TAG", "Shortcuts", "_GraftGrad", "_cache_val", "_restore_val"]

Path = tuple[Any, ...]


class _GraftGrad(torch.autograd.Function):
    """The autograd bridge over a replayed task: ties a restored tensor to the tensors its task had used.

    Forward is the identity. Backward passes the gradient to the restored tensor, and zeros to the used tensors: their
    graphs run (with hooks, fused updates, reductions) and add nothing to any parameter's gradient.
    """

    @staticmethod
    def forward(ctx: Any, restored: torch.Tensor, zeros: list[torch.Tensor], *used: torch.Tensor) -> torch.Tensor:
        ctx.zeros = zeros
        return restored.view_as(restored)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return (grad_outputs[0], None, *ctx.zeros)


@dataclass
class _Recorded:
    """What one run of a task did to its context and outside it."""

    values: dict[str, Any]  # attributes that it set or changed, cached
    deleted: list[str]
    used: list[Path]  # where in the context the tensors with gradients were that its results derive from
    zeros: dict[Path, torch.Tensor]
    io: list[Any]  # captured, cached, in the order of task.io


class Shortcuts:
    """Which tasks are short-cut, and what they recorded. One object per engine."""

    def __init__(self) -> None:
        self.enabled: set[str] = set()
        self._recorded: dict[str, _Recorded] = {}
        self._promised: set[str] = set()  # a recording run is under way

    @property
    def recorded(self) -> set[str]:
        """Returns the tasks whose next run is a replay."""
        return set(self._recorded)

    def enable(self, names: Iterable[str]) -> None:
        """Enable: the next run of each task is recorded, later ones are replayed."""
        self.enabled |= set(names)

    def disable(self, names: Iterable[str]) -> None:
        """Disable: tasks run normally again, and their recordings are discarded."""
        for name in names:
            self.enabled.discard(name)
            self._promised.discard(name)
            self._recorded.pop(name, None)

    def will_replay(self, name: str) -> bool:
        """Returns whether the current launch replays. Ask once per launch: the first that gets False records."""
        if name not in self.enabled:
            return False
        if name in self._recorded or name in self._promised:
            return True
        self._promised.add(name)
        return False

    def forget_promises(self) -> None:
        """Reset after a run that was cut off: what was not recorded will be recorded by the next run."""
        self._promised.clear()

    def record(self, task: PipelineTask, ctx: IterContext) -> None:
        """Run the task and record what it did."""
        before = dict(vars(ctx))
        graded = {path: t for path, t in walk_tensors(before) if t.requires_grad}
        origins = {path: _origin(t) for path, t in graded.items()}
        task.fn(ctx)
        after = vars(ctx)
        changed = {k: v for k, v in after.items() if k not in before or id(v) != id(before[k])}
        reached = _origins_of([t for _, t in walk_tensors(changed)], {o for o in origins.values() if o is not None})
        used = [path for path, origin in origins.items() if origin in reached]
        self._recorded[task.name] = _Recorded(
            values={key: _cache_val(value) for key, value in changed.items()},
            deleted=[key for key in before if key not in after],
            used=used,
            zeros={path: torch.zeros_like(graded[path]) for path in used},
            io=[_cache_val(io.capture()) for io in task.io],
        )

    def replay(self, task: PipelineTask, ctx: IterContext) -> None:
        """Replay what the recorded run did to the context and outside it."""
        known = self._recorded[task.name]
        present = dict(walk_tensors(vars(ctx))) if known.used else {}
        used = [(p, present[p]) for p in known.used if p in present and present[p].requires_grad]
        zeros = [_zeros(known, path, tensor) for path, tensor in used]
        for key in known.deleted:
            vars(ctx).pop(key, None)
        for key, cached in known.values.items():
            setattr(ctx, key, _grafted(_restore_val(cached), zeros, [t for _, t in used]))
        for io, cached in zip(task.io, known.io, strict=True):
            io.restore(_restore_val(cached))


def _zeros(known: _Recorded, path: Path, tensor: torch.Tensor) -> torch.Tensor:
    """Returns zeros of the tensor's shape; allocated again only when a batch has another shape."""
    zeros = known.zeros.get(path)
    if zeros is None or zeros.shape != tensor.shape or zeros.dtype != tensor.dtype:
        zeros = known.zeros[path] = torch.zeros_like(tensor)
    return zeros.detach()


def _grafted(value: Any, zeros: list[torch.Tensor], used: list[torch.Tensor]) -> Any:
    """Returns `value` with every tensor that requires grad tied to the tensors its task had used."""
    if not used:
        return value
    return with_tensors(value, lambda t: _GraftGrad.apply(t, zeros, *used) if t.requires_grad else t)  # type: ignore[no-any-return]


def _origin(tensor: torch.Tensor) -> Any:
    """Returns the tensor's graph node: the function that made it, or for a leaf its gradient accumulator."""
    if tensor.grad_fn is not None:
        return tensor.grad_fn
    with torch.enable_grad():
        viewed = tensor.view_as(tensor).grad_fn
    return viewed.next_functions[0][0] if viewed is not None else None


def _origins_of(results: list[torch.Tensor], wanted: set[Any]) -> set[Any]:
    """Returns which of the wanted nodes are reachable in the results' graphs."""
    found: set[Any] = set()
    todo = [t.grad_fn for t in results if t.grad_fn is not None]
    seen = set(todo)
    while todo and len(found) < len(wanted):
        node = todo.pop()
        if node in wanted:
            found.add(node)
        for earlier, _ in node.next_functions:
            if earlier is not None and earlier not in seen:
                seen.add(earlier)
                todo.append(earlier)
    return found
