"""Names, shapes and bars as HTML for the page; numbers are formatted by `pipelines.base.units`."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any

from markupsafe import Markup

from pipelines.base.foreign_text import visible
from pipelines.base.kernel_names import short_names
from pipelines.base.units import percent

_LONG = 80


def name(value: Any) -> Markup:
    """A name, short if it is a kernel's or long; its tooltip is the whole name."""
    whole = str(value)
    if (short := shorter(whole)) == whole:
        return Markup('<code class="name">{}</code>').format(visible(whole))
    return short_name((whole, short))


def shorter(text: str, most: int = _LONG) -> str:
    """Returns a text of at most `most` characters: of a kernel's name what people say, of others not the middle."""
    if len(text) <= most and "::" not in text and "(" not in text:
        return text  # `Linear_<3>` is a module, and its number tells it from others
    return short_names([text], most)[0]


def short_name(value: tuple[str, str]) -> Markup:
    """A name that was shortened: the whole, as the tooltip, and what is shown."""
    return Markup('<code class="name" title="{}">{}</code>').format(visible(value[0]), visible(value[1]))


def file_name(value: Any) -> Markup:
    """The name of a file; its tooltip is the whole path."""
    return short_name((str(value), PurePath(str(value)).name))


def meter(value: float) -> Markup:
    """A percentage with a bar."""
    width = f"{min(max(value, 0), 100):.1f}"
    return Markup('<span class="meter"><i style="width:{}%"></i></span> {}').format(width, percent(value))


def words(value: Any) -> str:
    """A text of ours or from a trace as running text."""
    return str(value)


def linked(value: Any) -> Any:
    """A link as it is, or a text."""
    return value


def shapes(value: Any) -> Markup:
    """Formats argument shapes (JSON) as `8944x1024, 1024x2816`; scalars are left out, the tooltip has everything."""
    try:
        told = ", ".join(shape for argument in json.loads(value) if (shape := _shape(argument)))
    except (ValueError, TypeError):
        return name(value)
    cut = told if len(told) <= _LONG else told[: _LONG - 1] + "…"
    return Markup('<code class="shapes" title="{}">{}</code>').format(visible(value), visible(cut))


def _shape(argument: list[Any]) -> str:
    if argument and isinstance(argument[0], list):  # a list of tensors
        return f"[{', '.join(_shape(tensor) for tensor in argument)}]"
    return "x".join(map(str, argument))
