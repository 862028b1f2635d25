"""Conversion of the words of a command line into parameter values, without typer's validation by pydantic.

Newer versions of typer check every value, even defaults, with pydantic, whose import takes longer than most commands.
Simple valid values are converted here. Typer converts all others and reports their errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def take_simple_values(command: Any, function: Callable[..., Any]) -> None:
    """Make the parameters of a command convert simple values without typer. `function`: the command's function."""
    hints = get_type_hints(function, include_extras=True)
    for parameter in command.params:
        # Older versions of typer let click check the values, which is fast.
        if parameter.name in hints and hasattr(parameter, "get_runtime_param"):
            kind, option = get_args(hints[parameter.name])
            parameter.process_value = _quick(parameter, *_bare(kind), option)


def take_no_help(option: Any) -> None:
    """Make an option such as `--help` skip typer's validation if the user does not pass it."""
    if option is not None and "process_value" not in vars(option):
        slowly = option.process_value
        option.process_value = lambda context, value: slowly(context, value) if value else None


def _bare(kind: Any) -> tuple[Any, bool]:
    """Return a type without `| None`, or the type of a list's items, and whether it is a list."""
    if get_origin(kind) in (Union, UnionType):
        kind = next(part for part in get_args(kind) if part is not NoneType)
    return (get_args(kind)[0], True) if get_origin(kind) is list else (kind, False)


def _quick(parameter: Any, kind: Any, is_list: bool, option: Any) -> Callable[[Any, Any], Any]:
    """Return a `process_value(context, value)` that converts simple values and leaves others to the parameter's own."""
    slowly = parameter.process_value

    def process_value(context: Any, value: Any) -> Any:
        if parameter.callback is not None or (parameter.required and not value):
            return slowly(context, value)
        try:
            if is_list:
                return () if value is None else [_converted(kind, option, item) for item in value]
            return None if value is None else _converted(kind, option, value)
        except Exception:  # typer reports the error
            return slowly(context, value)

    return process_value


def _converted(kind: Any, option: Any, value: Any) -> Any:
    """Return a value converted to `kind`. Raise ValueError if only typer can validate it."""
    if option.parser is not None:
        return option.parser(value)
    if kind is str and isinstance(value, str):
        return value
    if kind is bool and isinstance(value, bool):
        return value
    if kind in (int, float):
        number = kind(value)
        minimum = -math.inf if option.min is None else option.min
        maximum = math.inf if option.max is None else option.max
        if math.isfinite(number) and minimum <= number <= maximum:
            return number
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    raise ValueError(value)
