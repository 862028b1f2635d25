"""Copies of the values that a task set in its context. A copy owns its tensors, and can be restored repeatedly.

Containers keep their types. A subclass instance is created without calling its constructor, filled like its base type,
and gets the original's attributes. So a ModelOutput is restored as a ModelOutput, a defaultdict keeps its factory, and
a tensor that appears twice is still one tensor.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from operator import is_
from typing import Any

import torch

from pipelines.schedule.devices.tensors import OPAQUE, PLAIN_TYPES, attributes, walk_tensors

_CACHE_TAG = object()  # marks the start of a cached value; no user value can be this object

_MUTABLE = (dict, list, deque, set)
_CONTAINERS = (*_MUTABLE, tuple, frozenset)


def _cache_val(value: Any) -> Any:
    """Return a copy of `value` that owns its tensors.

    Each tensor is detached and cloned, and its requires_grad is recorded. The copy descends into dicts, lists, tuples
    (also named tuples), deques, sets and their subclasses, and objects whose attributes contain tensors. Other values
    are kept by reference. Tags: t tensor, d dict, l list, deque and set, u tuple and frozenset, o object.
    """
    return _cache(value, set(), {})


def _cache(value: Any, enclosing_ids: set[int], memo: dict[int, Any]) -> Any:
    if id(value) in enclosing_ids:  # an object that contains itself is kept by reference
        return value
    if id(value) not in memo:
        memo[id(value)] = _copied(value, enclosing_ids | {id(value)}, memo)
    return memo[id(value)]


def _copied(value: Any, enclosing_ids: set[int], memo: dict[int, Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return (_CACHE_TAG, "t", value.detach().clone(), value.requires_grad)
    if not _holds_tensors(value):
        return value
    kind, attributes_cached = type(value), {key: _cache(part, enclosing_ids, memo) for key, part in _own(value).items()}
    if isinstance(value, dict):
        return (
            _CACHE_TAG,
            "d",
            kind,
            attributes_cached,
            {key: _cache(part, enclosing_ids, memo) for key, part in value.items()},
        )
    if not isinstance(value, _CONTAINERS):
        return (_CACHE_TAG, "o", kind, attributes_cached)
    parts = [_cache(part, enclosing_ids, memo) for part in value]
    if isinstance(value, _MUTABLE):
        return (_CACHE_TAG, "l", kind, attributes_cached, parts, getattr(value, "maxlen", None))
    return (_CACHE_TAG, "u", kind, attributes_cached, parts)


def _holds_tensors(value: Any) -> bool:
    """Return whether the value must be copied: a container, or an object whose attributes contain tensors.

    Containers are always copied, so that a later change of the original does not reach the copy.
    """
    if isinstance(value, _CONTAINERS):
        return True
    return not isinstance(value, OPAQUE) and any(True for _ in walk_tensors(attributes(value)))


def _own(value: Any) -> dict[str, Any]:
    """Return the object's attributes, including the factory of a defaultdict, without its elements."""
    factory = {"default_factory": value.default_factory} if isinstance(value, defaultdict) else {}
    return {**factory, **attributes(value)}


Contents = list[tuple[Any, int | None, list[Any]]]


def contents(value: Any) -> Contents:
    """Return the state of a value that work in place changes: tensor versions, and elements of containers and objects.

    The parts are the ones that a copy owns. An inference tensor has no version, so its changes cannot be detected.
    """
    parts: Contents = []
    visited: set[int] = set()
    todo = [value]
    while todo:
        part = todo.pop()
        if type(part) in PLAIN_TYPES or id(part) in visited:
            continue
        visited.add(id(part))
        if isinstance(part, torch.Tensor):
            parts.append((part, None if part.is_inference() else part._version, []))
        elif _holds_tensors(part):
            elements = list(_own(part).values())
            if isinstance(part, _CONTAINERS):
                elements += [*part, *part.values()] if isinstance(part, dict) else part
            parts.append((part, None, elements))
            todo += elements
    return parts


def are_same(before: Contents, after: Contents) -> bool:
    """Return whether two results of `contents` have the same parts, each unchanged."""
    return len(before) == len(after) and all(
        part is other and version == later and len(elements) == len(others) and all(map(is_, elements, others))
        for (part, version, elements), (other, later, others) in zip(before, after, strict=True)
    )


def _restore_val(cached: Any) -> Any:
    """Return the value with new leaf tensors, so that no graph is traversed twice.

    The tensors share their memory with the cache. So a task that writes in place into a replayed tensor changes every
    later replay.
    """
    return _restore(cached, {})


def _restore(cached: Any, memo: dict[int, Any]) -> Any:
    if not (isinstance(cached, tuple) and cached and cached[0] is _CACHE_TAG):
        return cached
    if id(cached) not in memo:
        memo[id(cached)] = _made(cached, memo)
    return memo[id(cached)]


def _made(cached: tuple, memo: dict[int, Any]) -> Any:
    tag, kind = cached[1], cached[2]
    if tag == "t":
        return kind.detach().requires_grad_(cached[3])
    own_attributes = {key: _restore(part, memo) for key, part in cached[3].items()}
    if tag == "o":
        value = _bare(kind)
    elif tag == "d":
        value = _bare(kind)
        for key, part in cached[4].items():
            _set_item(value, key, _restore(part, memo))
    else:
        parts = [_restore(part, memo) for part in cached[4]]
        value = _filled(kind, parts, cached[5]) if tag == "l" else _frozen(kind, parts)
    for key, part in own_attributes.items():
        object.__setattr__(value, key, part)
    return value


def _bare(kind: type) -> Any:
    """Return a new instance of the type without calling its constructor."""
    try:
        return object.__new__(kind)
    except TypeError:  # a builtin base type has its own `__new__`
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
    """Return a restored value with `change` applied to each tensor, once per tensor.

    Dicts, lists and objects are modified in place.
    """
    return _with_tensors(value, change, {})


def _with_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor], memo: dict[int, Any]) -> Any:
    if id(value) in memo:
        return memo[id(value)][1]
    memo[id(value)] = (value, value)  # the reference also prevents reuse of the id
    if isinstance(value, torch.Tensor):
        result = change(value)
    elif not _holds_tensors(value):
        return value
    else:
        result = _parts_changed(value, lambda part: _with_tensors(part, change, memo))
    memo[id(value)] = (value, result)
    return result


def _parts_changed(value: Any, change: Callable[[Any], Any]) -> Any:
    own_attributes = {key: change(part) for key, part in _own(value).items()}
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
    for key, part in own_attributes.items():
        object.__setattr__(value, key, part)
    return value
