"""Tensors inside what a context holds: containers and plain objects are looked into."""

from __future__ import annotations

import types
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
    elif isinstance(value, list | tuple):
        yield from enumerate(list(value))
    elif hasattr(value, "__dict__"):
        yield from list(vars(value).items())


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
    """Every tensor in CUDA memory, gradients of leaves included."""
    for _, tensor in walk_tensors(values):
        if tensor.is_cuda:
            yield tensor
        grad = tensor.grad if tensor.is_leaf else None
        if grad is not None and grad.is_cuda:
            yield grad
