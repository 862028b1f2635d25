"""Columns, bars and sections of a page. templates/blocks.html contains the other parts of a section."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from markupsafe import Markup

from pipelines.faces.report.formats import file_name, linked, name, shapes, short_name, words
from pipelines.faces.words import in_words


@dataclass(frozen=True)
class Column:
    """A column of a table: the row's key, the heading, the value's format, and a tooltip.

    The default tooltip is the column's documentation in the lake.
    """

    key: str
    heading: str
    show: Callable[[Any], str] = name
    says: str = ""

    @property
    def is_number(self) -> bool:
        return self.show not in (name, words, shapes, short_name, file_name, linked, in_words)


@dataclass(frozen=True)
class Section:
    """A section of the page. `note` explains its numbers. `docs`: a page of docs/ with details, and its title."""

    ident: str
    title: str
    body: Markup
    note: str = ""
    docs: tuple[str, str] | None = None


def section(ident: str, title: str, *parts: str, note: str = "", docs: tuple[str, str] | None = None) -> Section:
    """Return a section of these parts, which are HTML from the macros. Empty parts are not shown."""
    return Section(ident, title, Markup().join(parts), note, docs)


class Part(NamedTuple):
    """A segment of a bar: its kind (which determines color and legend entry), its length, and its label."""

    kind: str
    value: float
    shown: str
