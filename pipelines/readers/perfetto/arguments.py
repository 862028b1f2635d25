"""Arguments of packets → the arguments that Kineto writes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

Interned = Callable[[str, int], str | None]
# What PyTorch calls otherwise here, because the viewer wants the bare names to be numbers (monitor_trace.py).
_KINETO_NAMES = {"device id": "device", "stream id": "stream", "context id": "context"}
_SIMPLE = {"int_value", "uint_value", "bool_value", "pointer_value"}
_INTEGER = re.compile(r"-?[0-9]{1,18}\Z")
# An encoder of its own: json.dumps makes a new one at each call.
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_FRACTION = re.compile(r"-?[0-9]{1,15}\.[0-9]{1,15}\Z")


def arguments(found: Iterable[Any], interned: Interned) -> dict[str, Any]:
    """Returns debug annotations by name. `interned(kind, iid)`: a text that was said before."""
    return {_name(one, interned): _value(one, interned) for one in found}


def extra_data(found: Iterable[Any]) -> dict[str, Any]:
    """Returns the data of a render stage, all of which is text, as the values that were written."""
    return {_KINETO_NAMES.get(name := text(one.name), name): _read(text(one.value)) for one in found}


def text(value: Any) -> str:
    """Returns a text of a packet, which protobuf gives as bytes if it is not UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def as_json(args: dict[str, Any]) -> str | None:
    """Returns arguments as text; None if there are none."""
    if not args:
        return None
    return _encode(args).encode("utf-8", "replace").decode()


def _name(one: Any, interned: Interned) -> str:
    named = interned("argument", one.name_iid) if one.name_iid else None
    return text(one.name) or named or "(no name)"


def _value(one: Any, interned: Interned) -> Any:
    kind = one.WhichOneof("value")
    if kind in _SIMPLE:
        return getattr(one, kind)
    if kind is None:
        return _several(one, interned)
    value = getattr(one, kind)
    if kind == "string_value_iid":
        return interned("text", value)
    if kind == "legacy_json_value":
        return _json(text(value))
    if kind == "nested_value":
        return None
    if isinstance(value, bytes):
        return text(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _several(one: Any, interned: Interned) -> Any:
    """Returns a value that consists of others; None for none."""
    if one.array_values:
        return [_value(each, interned) for each in one.array_values]
    return arguments(one.dict_entries, interned) if one.dict_entries else None


def _read(text: str) -> Any:
    if _INTEGER.match(text):
        return int(text)
    if _FRACTION.match(text):
        return float(text)
    return _json(text) if text[:1] in ("[", "{") else text


def _json(text: str) -> Any:
    """Returns the value; the text itself if it is no JSON that others can read."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return text
    return value
