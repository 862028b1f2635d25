"""Tensors inside what a context holds: containers and plain objects are looked into."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

# Not looked into: their tensors are the model's, which outlive the iteration.
OPAQUE = (torch.nn.Module, type, types.ModuleType, types.FunctionType, types.MethodType, torch.optim.Optimizer)
_PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device)


def children(value: Any) -> Iterator[tuple[Any, Any]]:
    """(key or attribute or position, part) of a container or an object with attributes; nothing for a leaf."""
    if isinstance(value, _PLAIN + OPAQUE):
        return
    if isinstance(value, dict):
        yield from list(value.items())
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from enumerate(list(value))
    else:
        yield from attributes(value).items()


def attributes(value: Any) -> dict[str, Any]:
    """The object's own attributes, those in `__slots__` too; empty for what has none."""
    slots = [n for cls in type(value).__mro__ for n in _names(vars(cls).get("__slots__", ())) if hasattr(value, n)]
    return {**{name: getattr(value, name) for name in slots}, **getattr(value, "__dict__", {})}


def _names(slots: Any) -> list[str]:
    return [n for n in ([slots] if isinstance(slots, str) else slots) if n not in ("__dict__", "__weakref__")]


def walk_tensors(values: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], torch.Tensor]]:
    """(path, tensor) of every tensor in `values`; an object met twice is visited once."""
    seen: set[int] = set()
    todo: list[tuple[tuple[Any, ...], Any]] = [((key,), value) for key, value in list(values.items())]
    while todo:
        path, value = todo.pop()
        if isinstance(value, torch.Tensor):
            yield path, value
        elif id(value) not in seen:
            seen.add(id(value))
            todo += [((*path, key), part) for key, part in children(value)]


def cuda_tensors(values: dict[str, Any]) -> Iterator[torch.Tensor]:
    """Every tensor in CUDA memory, gradients of leaves included; of a sparse one those that hold its memory."""
    for _, tensor in walk_tensors(values):
        if tensor.is_cuda:
            yield from memory_of(tensor)
        grad = tensor.grad if tensor.is_leaf else None
        if grad is not None and grad.is_cuda:
            yield from memory_of(grad)


def memory_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The strided tensors that hold the tensor's memory: itself, or the indices and values of a sparse one."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]
