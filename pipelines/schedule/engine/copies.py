"""Copies of what a task left in its context. A copy owns its tensors; it is taken once and restored any number of
times.

Containers keep their types: a subclass instance is created without calling its constructor, filled like its base type,
and given its attributes. So a ModelOutput is restored as a ModelOutput, a defaultdict keeps its factory, and a tensor
that appears twice is still one tensor.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch

from pipelines.schedule.devices.tensors import OPAQUE, attributes, walk_tensors

_CACHE_TAG = object()  # marks the start of a cached value; no user value can be this object

_MUTABLE = (dict, list, deque, set)
_CONTAINERS = (*_MUTABLE, tuple, frozenset)


def _cache_val(value: Any) -> Any:
    """Returns a copy of `value` that owns its tensors: each is detached and cloned, and requires_grad is remembered.

    Descends into dicts, lists, tuples (also named tuples), deques, sets and their subclasses, and objects whose
    attributes hold tensors. Everything else is kept by reference. Tags: t tensor, d dict, l list, deque and set, u
    tuple and frozenset, o object.
    """
    return _cache(value, set(), {})


def _cache(value: Any, above: set[int], known: dict[int, Any]) -> Any:
    if id(value) in above:  # an object that contains itself is kept as it is
        return value
    if id(value) not in known:
        known[id(value)] = _copied(value, above | {id(value)}, known)
    return known[id(value)]


def _copied(value: Any, above: set[int], known: dict[int, Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return (_CACHE_TAG, "t", value.detach().clone(), value.requires_grad)
    if not _holds_tensors(value):
        return value
    kind, own = type(value), {key: _cache(part, above, known) for key, part in _own(value).items()}
    if isinstance(value, dict):
        return (_CACHE_TAG, "d", kind, own, {key: _cache(part, above, known) for key, part in value.items()})
    if not isinstance(value, _CONTAINERS):
        return (_CACHE_TAG, "o", kind, own)
    parts = [_cache(part, above, known) for part in value]
    if isinstance(value, _MUTABLE):
        return (_CACHE_TAG, "l", kind, own, parts, getattr(value, "maxlen", None))
    return (_CACHE_TAG, "u", kind, own, parts)


def _holds_tensors(value: Any) -> bool:
    """Containers are always copied, so that a later change of the original does not reach the copy."""
    if isinstance(value, _CONTAINERS):
        return True
    return not isinstance(value, OPAQUE) and any(True for _ in walk_tensors(attributes(value)))


def _own(value: Any) -> dict[str, Any]:
    """Returns what the object holds besides its elements."""
    factory = {"default_factory": value.default_factory} if isinstance(value, defaultdict) else {}
    return {**factory, **attributes(value)}


def _restore_val(cached: Any) -> Any:
    """Returns the value, with fresh leaf tensors each time, so that no graph is traversed twice.

    Tensor memory is shared with the cache, not copied: a task that writes in place into a replayed tensor changes every
    later replay.
    """
    return _restore(cached, {})


def _restore(cached: Any, known: dict[int, Any]) -> Any:
    if not (isinstance(cached, tuple) and cached and cached[0] is _CACHE_TAG):
        return cached
    if id(cached) not in known:
        known[id(cached)] = _made(cached, known)
    return known[id(cached)]


def _made(cached: tuple, known: dict[int, Any]) -> Any:
    tag, kind = cached[1], cached[2]
    if tag == "t":
        return kind.detach().requires_grad_(cached[3])
    own = {key: _restore(part, known) for key, part in cached[3].items()}
    if tag == "o":
        value = _bare(kind)
    elif tag == "d":
        value = _bare(kind)
        for key, part in cached[4].items():
            _set_item(value, key, _restore(part, known))
    else:
        parts = [_restore(part, known) for part in cached[4]]
        value = _filled(kind, parts, cached[5]) if tag == "l" else _frozen(kind, parts)
    for key, part in own.items():
        object.__setattr__(value, key, part)
    return value


def _bare(kind: type) -> Any:
    """Returns a new instance of the type, made without calling the type's own constructor."""
    try:
        return object.__new__(kind)
    except TypeError:  # a builtin base type below it has its own `__new__`
        base: Any = next(b for b in (OrderedDict, defaultdict, *_MUTABLE, kind) if issubclass(kind, b))
        return base.__new__(kind)


def _set_item(value: dict, key: Any, part: Any) -> None:
    base: Any = OrderedDict if isinstance(value, OrderedDict) else dict
    base.__setitem__(value, key, part)


def _filled(kind: type, parts: list[Any], maxlen: int | None) -> Any:
    value = _bare(kind)
    if isinstance(value, deque):
        deque.__init__(value, parts, maxlen)
    elif isinstance(value, list):
        list.extend(value, parts)
    else:
        set.update(value, parts)
    return value


def _frozen(kind: Any, parts: list[Any]) -> Any:
    if hasattr(kind, "_make"):  # a named tuple, whose constructor may take other arguments
        return tuple.__new__(kind, parts)
    return kind(parts)


def with_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Returns a restored value with `change` applied to each tensor, once per tensor. Modifies dicts, lists and objects
    in place.
    """
    return _with_tensors(value, change, {})


def _with_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor], known: dict[int, Any]) -> Any:
    if id(value) in known:
        return known[id(value)][1]
    known[id(value)] = (value, value)  # the reference also keeps its id from being reused
    if isinstance(value, torch.Tensor):
        found = change(value)
    elif not _holds_tensors(value):
        return value
    else:
        found = _parts_changed(value, lambda part: _with_tensors(part, change, known))
    known[id(value)] = (value, found)
    return found


def _parts_changed(value: Any, change: Callable[[Any], Any]) -> Any:
    own = {key: change(part) for key, part in _own(value).items()}
    if isinstance(value, dict):
        for key, part in list(value.items()):
            _set_item(value, key, change(part))
    elif isinstance(value, _CONTAINERS):
        parts = [change(part) for part in value]
        if isinstance(value, list):
            list.__setitem__(value, slice(None), parts)
        elif isinstance(value, _MUTABLE):
            value = _filled(type(value), parts, getattr(value, "maxlen", None))
        else:
            value = _frozen(type(value), parts)
    for key, part in own.items():
        object.__setattr__(value, key, part)
    return value
