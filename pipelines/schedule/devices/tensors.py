"""Search for tensors in a context's values, including containers and plain objects."""

from __future__ import annotations

import types
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch

# Types that are not searched, because their tensors belong to the model and outlive the iteration.
OPAQUE = (torch.nn.Module, type, types.ModuleType, types.FunctionType, types.MethodType, torch.optim.Optimizer)
_PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device)
PLAIN_TYPES = frozenset(_PLAIN)
_CONTAINERS = (list, tuple, set, frozenset, deque)
_WITHOUT_ATTRIBUTES = frozenset((dict, *_CONTAINERS))
_LONG = 1_000
_LOOKED_AT = 64


def children(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (key, part) for the parts of a container or an object. A key is a dict key, an index or an attribute name.

    A leaf, and a container whose elements are plain values, have no parts.
    """
    if isinstance(value, _PLAIN + OPAQUE):
        return
    if isinstance(value, dict):
        if not PLAIN_TYPES.issuperset(map(type, value.values())):
            yield from list(value.items())
    elif isinstance(value, _CONTAINERS) and not PLAIN_TYPES.issuperset(map(type, value)):
        yield from enumerate(list(value))
    if type(value) not in _WITHOUT_ATTRIBUTES:
        yield from attributes(value).items()


def attributes(value: Any) -> dict[str, Any]:
    """Return the object's own attributes, including attributes in `__slots__`. Empty if it has none."""
    own_dict = getattr(value, "__dict__", None)
    slots = _slots(type(value))
    if not slots:
        return own_dict if type(own_dict) is dict else {}
    return {**{name: getattr(value, name) for name in slots if hasattr(value, name)}, **(own_dict or {})}


@lru_cache(maxsize=4096)
def _slots(kind: type) -> tuple[str, ...]:
    declared = [vars(cls).get("__slots__", ()) for cls in kind.__mro__]
    names = [name for slots in declared for name in ([slots] if isinstance(slots, str) else slots)]
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def walk_tensors(values: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], torch.Tensor]]:
    """Yield (path, tensor) of every tensor in `values`. Each container and object is visited once."""
    visited: set[int] = set()
    todo: list[tuple[tuple[Any, ...], Any]] = [((key,), value) for key, value in list(values.items())]
    while todo:
        path, value = todo.pop()
        if isinstance(value, torch.Tensor):
            yield path, value
        elif type(value) not in PLAIN_TYPES and id(value) not in visited:
            visited.add(id(value))
            todo += [((*path, key), part) for key, part in children(value)]


def cuda_tensors(values: dict[str, Any], gradients: bool = True) -> Iterator[torch.Tensor]:
    """Yield every tensor in CUDA memory, with the gradients of leaves if wanted. A sparse tensor yields its strided parts.

    The function must be cheap, because it is called at each submission. In a list or tuple of more than 1000 elements,
    it checks about 64. If these are plain values (numbers, strings, bytes), it assumes that all elements are.
    """
    visited: set[int] = set()
    todo = list(values.values())
    while todo:
        value = todo.pop()
        if isinstance(value, torch.Tensor):
            yield from _in_cuda_memory(value, gradients)
        elif type(value) not in PLAIN_TYPES and id(value) not in visited:
            visited.add(id(value))
            if not (isinstance(value, list | tuple) and len(value) > _LONG and _looks_plain(value)):
                todo += [part for _, part in children(value) if type(part) not in PLAIN_TYPES]


class StreamsOfTensors:
    """Streams on which each live tensor needs no (further) record_stream.

    It was recorded on the stream, or a task of the stream made it.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[weakref.ref[torch.Tensor], int, set[Any]]] = {}

    def add(self, tensor: torch.Tensor, stream: Any) -> bool:
        """Add the pair, and return whether it is new. A pair is new again if the tensor has new memory."""
        key, address = id(tensor), tensor.data_ptr()
        entry = self._by_id.get(key)
        if entry is None or entry[0]() is not tensor or entry[1] != address:
            entry = weakref.ref(tensor, lambda ref: self._forget(key, ref)), address, set()
            self._by_id[key] = entry
        if stream in entry[2]:
            return False
        entry[2].add(stream)
        return True

    def _forget(self, key: int, ref: weakref.ref[torch.Tensor]) -> None:
        entry = self._by_id.get(key)
        if entry is not None and entry[0] is ref:  # another tensor may have the id by now
            del self._by_id[key]


def _looks_plain(value: Sequence[Any]) -> bool:
    """Return whether a sample of the elements is plain. None is not plain, because it may be replaced later."""
    kinds = {*map(type, value[:: len(value) // _LOOKED_AT]), type(value[-1])}
    return all(map(_is_plain, kinds)) and not attributes(value)


@lru_cache(maxsize=4096)
def _is_plain(kind: type) -> bool:
    return kind is not type(None) and (issubclass(kind, _PLAIN) or kind.__module__ == "numpy")


def _in_cuda_memory(tensor: torch.Tensor, gradients: bool) -> Iterator[torch.Tensor]:
    if tensor.is_cuda:
        yield from memory_of(tensor)
    grad = tensor.grad if gradients and tensor.is_leaf else None
    if grad is not None and grad.is_cuda:
        yield from memory_of(grad)


def memory_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the strided tensors that own the tensor's memory: the tensor, or a sparse tensor's indices and values."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]
