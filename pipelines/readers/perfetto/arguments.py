"""Conversion of packets' arguments to the arguments that Kineto writes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

Interned = Callable[[str, int], str | None]
# PyTorch uses these other names here, because the viewer requires values under the bare names to be numbers
# (monitor_trace.py).
_KINETO_NAMES = {"device id": "device", "stream id": "stream", "context id": "context"}
_SIMPLE = {"int_value", "uint_value", "bool_value", "pointer_value"}
_INTEGER = re.compile(r"-?[0-9]{1,18}\Z")
# A shared encoder, because json.dumps creates a new one at each call.
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_FRACTION = re.compile(r"-?[0-9]{1,15}\.[0-9]{1,15}\Z")


def arguments(annotations: Iterable[Any], interned: Interned) -> dict[str, Any]:
    """Return the values of debug annotations by name.

    `interned(kind, iid)`: the text that an earlier packet interned.
    """
    return {_name(annotation, interned): _value(annotation, interned) for annotation in annotations}


def extra_data(data: Iterable[Any]) -> dict[str, Any]:
    """Return the values of a render stage's data by name. They are stored as text, and numbers and JSON are parsed."""
    values = {text(datum.name): _read(text(datum.value)) for datum in data}
    # A program's annotation of the work may use a bare name: `stream` of torch.cuda._graph_annotations.
    replaced = {bare for name, bare in _KINETO_NAMES.items() if name in values}
    return {_KINETO_NAMES.get(name, name): value for name, value in values.items() if name not in replaced}


def text(value: Any) -> str:
    """Return a text of a packet as str. Protobuf returns bytes if the text is not UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def as_json(args: dict[str, Any]) -> str | None:
    """Return arguments as JSON text, or None without arguments."""
    if not args:
        return None
    return _encode(args).encode("utf-8", "replace").decode()


def _name(annotation: Any, interned: Interned) -> str:
    interned_name = interned("argument", annotation.name_iid) if annotation.name_iid else None
    return text(annotation.name) or interned_name or "(no name)"


def _value(annotation: Any, interned: Interned) -> Any:
    kind = annotation.WhichOneof("value")
    if kind in _SIMPLE:
        return getattr(annotation, kind)
    if kind is None:
        return _several(annotation, interned)
    value = getattr(annotation, kind)
    if kind == "string_value_iid":
        return interned("text", value)
    if kind == "legacy_json_value":
        return _json(text(value))
    if kind == "nested_value":
        return None
    if isinstance(value, bytes):
        return text(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _several(annotation: Any, interned: Interned) -> Any:
    """Return the array or the dict of an annotation without a scalar value.

    If it has neither, return []. PyTorch writes such an annotation for an empty list, for example the sizes of a scalar
    tensor.
    """
    if annotation.dict_entries:
        return arguments(annotation.dict_entries, interned)
    return [_value(element, interned) for element in annotation.array_values]


def _read(text: str) -> Any:
    if _INTEGER.match(text):
        return int(text)
    if _FRACTION.match(text):
        return float(text)
    return _json(text) if text[:1] in ("[", "{") else text


def _json(text: str) -> Any:
    """Return the parsed value, or the text itself if it is not standard JSON."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value
