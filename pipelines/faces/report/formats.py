"""Formats of names, shapes and bars as HTML; `pipelines.base.units` formats numbers."""

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
    """Return a name as HTML. A kernel's name or a long name is shortened, with the full name as its tooltip."""
    full = str(value)
    if (short := shorter(full)) == full:
        return Markup('<code class="name">{}</code>').format(visible(full))
    return short_name((full, short))


def shorter(text: str, most: int = _LONG) -> str:
    """Return a text of at most `most` characters. Kernel names become their short names; other texts lose their middle."""
    if len(text) <= most and "::" not in text and "(" not in text:
        return text  # keeps `Linear_<3>`, whose number identifies the module
    return short_names([text], most)[0]


def short_name(value: tuple[str, str]) -> Markup:
    """Return a shortened name as HTML from (full name, short name), with the full name as its tooltip."""
    return Markup('<code class="name" title="{}">{}</code>').format(visible(value[0]), visible(value[1]))


def file_name(value: Any) -> Markup:
    """Return the name of a file as HTML, with the full path as its tooltip."""
    return short_name((str(value), PurePath(str(value)).name))


def meter(value: float) -> Markup:
    """Return a percentage with a bar as HTML."""
    width = f"{min(max(value, 0), 100):.1f}"
    return Markup('<span class="meter"><i style="width:{}%"></i></span> {}').format(width, percent(value))


def words(value: Any) -> str:
    """Return any value as plain text."""
    return str(value)


def linked(value: Any) -> Any:
    """Return a link or a text unchanged."""
    return value


def shapes(value: Any) -> Markup:
    """Format argument shapes (JSON) as `8944x1024, 1024x2816`, without scalars. The tooltip has the full JSON text."""
    try:
        text = ", ".join(shape for argument in json.loads(value) if (shape := _shape(argument)))
    except (ValueError, TypeError):
        return name(value)
    cut = text if len(text) <= _LONG else text[: _LONG - 1] + "…"
    return Markup('<code class="shapes" title="{}">{}</code>').format(visible(value), visible(cut))


def _shape(argument: list[Any]) -> str:
    if argument and isinstance(argument[0], list):  # a list of tensors
        return f"[{', '.join(_shape(tensor) for tensor in argument)}]"
    return "x".join(map(str, argument))
