"""Pieces of HTML: everything that comes from a trace is escaped here, numbers keep their exact value beside the shown one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pipelines.foreign_text import in_html

Row = dict[str, Any]
NOT_MEASURED = '<span class="none" title="not measured">n/a</span>'
_LONG = 90


def text(value: Any) -> str:
    """A text from a trace, escaped, for element content and quoted attributes."""
    return in_html(value)


def name(value: Any) -> str:
    """A name, cut where it is long; the whole of it is its tooltip."""
    if value is None:
        return NOT_MEASURED
    whole = str(value)
    if len(whole) <= _LONG:
        return f"<code>{text(whole)}</code>"
    return f'<code title="{text(whole)}">{text(whole[: _LONG - 1])}…</code>'


def time(ns: float) -> str:
    """Nanoseconds for people: `12.3 µs`, `4.56 ms`, `1.23 s`."""
    for unit, size, digits in (("s", 1e9, 3), ("ms", 1e6, 2)):
        if abs(ns) >= size:
            return f"{ns / size:,.{digits}f} {unit}"
    return f"{ns / 1e3:,.1f} µs"


def percent(value: float) -> str:
    """A percentage."""
    return f"{value:.1f} %"


def share(value: float) -> str:
    """A ratio (1 is all of it) as a percentage."""
    return f"{100 * value:.1f} %"


def count(value: float) -> str:
    """A whole number with separators; large ones (operations, bytes) with a prefix."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if abs(value) >= size:
            return f"{value / size:,.2f} {prefix}"
    return f"{value:,.0f}"


def size(value: float) -> str:
    """Bytes for people: `512 B`, `1.50 MiB`, `79.1 GiB`."""
    for unit, whole in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= whole:
            return f"{value / whole:,.2f} {unit}"
    return f"{value:,.0f} B"


def ratio(value: float) -> str:
    """A plain number."""
    return f"{value:.2f}"


def shapes(value: Any) -> str:
    """Shapes of arguments, JSON, as `8944x1024, 1024x2816`; scalars are left out, the whole is the tooltip."""
    try:
        told = ", ".join(shape for argument in json.loads(value) if (shape := _shape(argument)))
    except (ValueError, TypeError):
        return name(value)
    return f'<code class="shapes" title="{text(value)}">{text(told if len(told) <= _LONG else told[: _LONG - 1] + "…")}</code>'


def _shape(argument: list[Any]) -> str:
    if argument and isinstance(argument[0], list):  # a list of tensors
        return f"[{', '.join(_shape(tensor) for tensor in argument)}]"
    return "x".join(map(str, argument))


@dataclass(frozen=True)
class Column:
    """A column of a table: the row's key, the heading, how a value is written, and its tooltip (else the lake's)."""

    key: str
    heading: str
    show: Callable[[Any], str] = name
    says: str = ""

    @property
    def is_number(self) -> bool:
        return self.show not in (name, words, shapes)


def words(value: Any) -> str:
    """A text of ours or from a trace as running text."""
    return text(value)


@cache
def _docs(table: str) -> dict[str, str]:
    from pipelines.models.catalog import load_catalog

    return {column.name: column.doc for column in load_catalog().models[table].columns}


def table(of: str, columns: Sequence[Column], rows: Iterable[Row]) -> str:
    """Rows of the lake's table `of`, whose documentation is each heading's tooltip. A row with `suspect` is marked."""
    docs = _docs(of)
    head = "".join(
        f'<th{" class=number" if c.is_number else ""} title="{text(c.says or docs.get(c.key, ""))}">{text(c.heading)}</th>'
        for c in columns
    )
    body = "".join(f"<tr{_marks(row)}>{''.join(_cell(c, row[c.key]) for c in columns)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table data-table="{of}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _marks(row: Row) -> str:
    return (
        ' class="suspect" title="above 1.05: a peak, a shape or the attribution must be wrong"'
        if row.get("suspect")
        else ""
    )


def _cell(column: Column, value: Any) -> str:
    where = f'data-key="{column.key}"'
    if value is None:
        return f"<td {where}{' class=number' if column.is_number else ''}>{NOT_MEASURED}</td>"
    exact = f' class="number" data-value="{text(value)}"' if column.is_number else ""
    return f"<td {where}{exact}>{column.show(value)}</td>"


def section(ident: str, title: str, *body: str, note: str = "") -> str:
    """A section of the page; `note` says what its numbers mean."""
    said = f'<p class="note">{note}</p>' if note else ""
    return f'<section id="{ident}"><h2>{text(title)}</h2>{said}{"".join(body)}</section>'


def missing(why: str) -> str:
    """What stands where there is nothing to show."""
    return f'<p class="missing"><b>not measured</b>: {text(why)}</p>'


@dataclass(frozen=True)
class Part:
    """A piece of a bar: what it is (a colour and an entry of the legend), and how long."""

    kind: str
    value: float
    shown: str


def bars(rows: Sequence[tuple[str, Sequence[Part]]], colours: dict[str, str]) -> str:
    """Stacked bars with labels, all to the scale of the longest. `colours`: CSS class by kind, in the legend's order."""
    longest = max((sum(part.value for part in parts) for _, parts in rows), default=0) or 1
    lines = "".join(
        f'<div class="row"><span class="label">{text(said)}</span><span class="bar">{_parts(parts, longest, colours)}</span></div>'
        for said, parts in rows
    )
    used = {part.kind for _, parts in rows for part in parts if part.value > 0}
    legend = "".join(
        f'<span><i class="{style}"></i>{text(kind)}</span>' for kind, style in colours.items() if kind in used
    )
    return f'<div class="bars">{lines}</div><p class="legend">{legend}</p>'


def _parts(parts: Sequence[Part], longest: float, colours: dict[str, str]) -> str:
    return "".join(
        f'<span class="{colours.get(part.kind, "other")}" style="width:{100 * part.value / longest:.3f}%" '
        f'title="{text(part.kind)}: {text(part.shown)}" data-kind="{text(part.kind)}" data-value="{part.value}"></span>'
        for part in parts
        if part.value > 0
    )
