"""Formats values for the page. Texts are escaped when rendered; numbers keep their exact value beside them."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup

from pipelines.base.foreign_text import visible
from pipelines.base.kernel_names import short_names

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


def time(ns: float) -> str:
    """Formats nanoseconds for people: `12.3 µs`, `4.56 ms`, `1.23 s`."""
    for unit, size, digits in (("s", 1e9, 3), ("ms", 1e6, 2)):
        if abs(ns) >= size:
            return f"{ns / size:,.{digits}f} {unit}"
    return f"{ns / 1e3:,.1f} µs"


def times(n: int) -> str:
    """How often something ran: `once`, `1,234 times`."""
    return "once" if n == 1 else f"{n:,} times"


def percent(value: float) -> str:
    """A percentage."""
    return f"{value:.1f} %"


def share(value: float) -> str:
    """Formats a ratio (1 is all of it) as a percentage."""
    return f"{100 * value:.1f} %"


def count(value: float) -> str:
    """Formats an integer with separators; large ones (operations, bytes) with a prefix."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if abs(value) >= size:
            return f"{value / size:,.2f} {prefix}"
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Formats bytes for people: `512 B`, `1.50 MiB`, `79.1 GiB`."""
    for unit, whole in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= whole:
            return f"{value / whole:,.2f} {unit}"
    return f"{value:,.0f} B"


def ratio(value: float) -> str:
    """A plain number."""
    return f"{value:.2f}"


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
