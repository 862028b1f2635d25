"""Shortcuts, which run a task once and then replay its effects."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from pipelines.schedule.devices.tensors import walk_tensors
from pipelines.schedule.engine.copies import _CACHE_TAG, _cache_val, _restore_val, are_same, contents, with_tensors
from pipelines.schedule.plan.plan import IterContext, PipelineTask

__all__ = ["_CACHE_TAG", "Shortcuts", "_GraftGrad", "_cache_val", "_restore_val"]

Path = tuple[Any, ...]


class _GraftGrad(torch.autograd.Function):
    """Autograd bridge over a replayed task that connects a restored tensor with the tensors that its task used.

    Forward is the identity. Backward passes the gradient to the restored tensor, and zeros to the used tensors. So
    their graphs run (with hooks, fused updates, reductions), but add zero to each parameter's gradient.
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
    """Recorded effects of one run of a task on its context and outside it."""

    values: dict[str, Any]  # cached attributes that the task set or changed in place
    deleted: list[str]
    used: list[Path]  # paths in the context of the tensors that require gradients and lead to the results
    zeros: dict[Path, torch.Tensor]
    io: list[Any]  # cached captured values, in the order of task.io


class _Changes:
    """Attributes of a context that the recording thread (`own`) and other threads (`foreign`) set or delete."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.own: set[str] = set()
        self.foreign: set[str] = set()

    def note(self, name: str) -> None:
        (self.own if threading.get_ident() == self._thread else self.foreign).add(name)


_RECORDINGS: dict[int, list[_Changes]] = {}
"""The recordings of each context by its id. They are not stored in the context, whose names belong to the user."""


class _WatchedContext(IterContext):
    """A context that notes which thread changes which attribute, because tasks of other threads also change it."""

    def __setattr__(self, name: str, value: Any) -> None:
        _note(self, name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        _note(self, name)
        object.__delattr__(self, name)


def _note(ctx: IterContext, name: str) -> None:
    for changes in tuple(_RECORDINGS.get(id(ctx), ())):
        changes.note(name)


@contextmanager
def _watched(ctx: IterContext) -> Iterator[_Changes]:
    """Note the changes of a context. Its class stays changed, because another task of the iteration may be recorded."""
    changes = _Changes()
    recordings = _RECORDINGS.setdefault(id(ctx), [])
    recordings.append(changes)
    ctx.__class__ = _WatchedContext
    try:
        yield changes
    finally:
        recordings.remove(changes)
        if not recordings:
            _RECORDINGS.pop(id(ctx), None)


class Shortcuts:
    """Tasks of an engine with shortcuts, and their recordings."""

    def __init__(self) -> None:
        self.enabled: set[str] = set()
        self._recorded: dict[str, _Recorded] = {}
        self._promised: set[str] = set()  # tasks whose recording run is in progress

    @property
    def recorded(self) -> set[str]:
        """Return the tasks whose next run is a replay."""
        return set(self._recorded)

    def enable(self, names: Iterable[str]) -> None:
        """Enable shortcuts. The next run of each task is recorded, and later runs are replays."""
        self.enabled |= set(names)

    def disable(self, names: Iterable[str]) -> None:
        """Disable shortcuts. The tasks run normally again, and their recordings are discarded."""
        for name in names:
            self.enabled.discard(name)
            self._promised.discard(name)
            self._recorded.pop(name, None)

    def will_replay(self, name: str) -> bool:
        """Return whether the current launch replays the task. The first launch of an enabled task records it instead.

        Call this once per launch, because the first call promises a recording.
        """
        if name not in self.enabled:
            return False
        if name in self._recorded or name in self._promised:
            return True
        self._promised.add(name)
        return False

    def forget_promises(self) -> None:
        """Clear the pending recordings after an interrupted run, so that the next run makes them."""
        self._promised.clear()

    def record(self, task: PipelineTask, ctx: IterContext, concurrent: Sequence[str]) -> None:
        """Run the task and record its effects, without the effects of tasks that other threads run concurrently.

        `concurrent`: the tasks of the iteration that may run concurrently. Raise ValueError if there are any and a
        value was changed in place, because it is unknown which task changed it.
        """
        values_before = dict(vars(ctx))
        contents_before = {key: contents(value) for key, value in values_before.items()}
        graded = {path: t for path, t in walk_tensors(values_before) if t.requires_grad}
        origins = {path: _origin(t) for path, t in graded.items()}
        with _watched(ctx) as changes:
            task.fn(ctx)
        values_after, others = dict(vars(ctx)), changes.foreign - changes.own
        is_new = {k: k not in values_before or v is not values_before[k] for k, v in values_after.items()}
        in_place = [
            k for k, new in is_new.items() if not new and not are_same(contents_before[k], contents(values_after[k]))
        ]
        if in_place and concurrent:
            raise ValueError(
                f"ctx.{in_place[0]} was changed in place by {task.name!r} or by {' or '.join(map(repr, concurrent))}, which may run at "
                "the same time: assign a new value instead, or record the shortcut in a serial run (run_one_serial_iter)"
            )
        changed = {k: v for k, v in values_after.items() if (is_new[k] or k in in_place) and k not in others}
        reached = _origins_of([t for _, t in walk_tensors(changed)], {o for o in origins.values() if o is not None})
        used_paths = [path for path, origin in origins.items() if origin in reached]
        self._recorded[task.name] = _Recorded(
            values={key: _cache_val(value) for key, value in changed.items()},
            deleted=[key for key in values_before if key not in values_after and key not in others],
            used=used_paths,
            zeros={path: torch.zeros_like(graded[path]) for path in used_paths},
            io=[_cache_val(io.capture()) for io in task.io],
        )

    def replay(self, task: PipelineTask, ctx: IterContext) -> None:
        """Replay the recorded run's effects on the context and outside it."""
        recording = self._recorded[task.name]
        present = dict(walk_tensors(vars(ctx))) if recording.used else {}
        used_tensors = [(p, present[p]) for p in recording.used if p in present and present[p].requires_grad]
        zeros = [_zeros(recording, path, tensor) for path, tensor in used_tensors]
        for key in recording.deleted:
            with suppress(AttributeError):  # not set in this iteration
                delattr(ctx, key)  # not through vars(ctx), so that another task's recording notes the deletion
        for key, cached in recording.values.items():
            setattr(ctx, key, _grafted(_restore_val(cached), zeros, [t for _, t in used_tensors]))
        for io, cached in zip(task.io, recording.io, strict=True):
            io.restore(_restore_val(cached))


def _zeros(recording: _Recorded, path: Path, tensor: torch.Tensor) -> torch.Tensor:
    """Return zeros of the tensor's shape and type, reallocated only if a batch has another shape or type."""
    zeros = recording.zeros.get(path)
    if zeros is None or zeros.shape != tensor.shape or zeros.dtype != tensor.dtype:
        zeros = recording.zeros[path] = torch.zeros_like(tensor)
    return zeros.detach()


def _grafted(value: Any, zeros: list[torch.Tensor], used: list[torch.Tensor]) -> Any:
    """Return `value` after connecting each tensor that requires grad to the tensors that its task used."""
    if not used:
        return value
    return with_tensors(value, lambda t: _GraftGrad.apply(t, zeros, *used) if t.requires_grad else t)  # type: ignore[no-any-return]


def _origin(tensor: torch.Tensor) -> Any:
    """Return the tensor's graph node: its grad_fn or, for a leaf, its gradient accumulator, or None."""
    if tensor.grad_fn is not None:
        return tensor.grad_fn
    with torch.enable_grad():
        viewed = tensor.view_as(tensor).grad_fn
    return viewed.next_functions[0][0] if viewed is not None else None


def _origins_of(results: list[torch.Tensor], targets: set[Any]) -> set[Any]:
    """Return the nodes of `targets` that are reachable in the results' graphs."""
    reachable: set[Any] = set()
    todo = [t.grad_fn for t in results if t.grad_fn is not None]
    visited = set(todo)
    while todo and len(reachable) < len(targets):
        node = todo.pop()
        if node in targets:
            reachable.add(node)
        for earlier, _ in node.next_functions:
            if earlier is not None and earlier not in visited:
                visited.add(earlier)
                todo.append(earlier)
    return reachable
