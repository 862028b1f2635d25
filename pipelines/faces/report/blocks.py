"""Building blocks of sections, rendered by templates/page.html."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from markupsafe import Markup

from pipelines.faces.report.formats import file_name, linked, name, shapes, short_name, words
from pipelines.faces.report.subject import Row
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


@cache
def _docs(table: str) -> dict[str, str]:
    from pipelines.models.catalog import load_catalog

    return {column.name: column.doc for column in load_catalog().models[table].columns}


@dataclass(frozen=True)
class Block:
    """A part of a section: `kind` is the macro of templates/page.html that renders it, `of` the macro's argument."""

    kind: str
    of: Any


@dataclass(frozen=True)
class Section:
    """A section of the page. `note` explains its numbers. `docs`: a page of docs/ with details, and its title."""

    ident: str
    title: str
    blocks: Sequence[Block]
    note: str
    docs: tuple[str, str] | None = None


def section(
    ident: str, title: str, *body: Block | Sequence[Block], note: str = "", docs: tuple[str, str] | None = None
) -> Section:
    """Return a section of blocks and lists of blocks (which may be empty)."""
    blocks = [block for part in body for block in ((part,) if isinstance(part, Block) else part)]
    return Section(ident, title, blocks, note, docs)


def heading(said: str) -> Block:
    """Return a heading within a section."""
    return Block("heading", said)


def paragraph(said: str) -> Block:
    """Return a paragraph."""
    return Block("paragraph", said)


def missing(why: str) -> Block:
    """Return a text that replaces missing content and states the reason."""
    return Block("missing", why)


def more(rows: Sequence[Any], shown: int, where: str) -> list[Block]:
    """Return a paragraph with the number of rows that are not shown and their location, or no block if all are shown."""
    return [paragraph(f"{len(rows) - shown} more {where}")] if len(rows) > shown else []


def verdict(said: str, strong: str = "") -> Block:
    """Return the conclusion of a section. `strong`: emphasized text before it."""
    return Block("verdict", {"said": said, "strong": strong})


@dataclass(frozen=True)
class Finding:
    """A finding: what takes time, advice, the gain of following it, a command that shows it, and a page of docs/ with its title."""

    what: str
    advice: str
    gain: str
    command: str
    docs: tuple[str, str]


def lead(sentences: Sequence[str]) -> Block:
    """Return the summary of the page, as sentences."""
    return Block("lead", sentences)


def findings(found: Sequence[Finding]) -> Block:
    """Return a numbered list of findings."""
    return Block("findings", found)


@dataclass(frozen=True)
class Help:
    """A change that would help: its saving, the change, the command that computes the saving, and a caveat (may be empty)."""

    saves: str
    change: str
    command: str
    caveat: str


def helps(rows: Sequence[Help]) -> Block:
    """Return a list of changes that would help."""
    return Block("helps", rows)


def figure(svg: str | None, why: str = "there is nothing to draw") -> Block:
    """Return a picture, or the reason `why` if it is missing. The texts in `svg` must be escaped already."""
    return missing(why) if svg is None else Block("figure", Markup(svg))


def table(of: str, columns: Sequence[Column], rows: Sequence[Row]) -> Block:
    """Return a table with rows of the lake's table `of`.

    Headings get its documentation as tooltips. Rows with `suspect` are marked.
    """
    return Block("table", {"name": of, "columns": columns, "rows": rows, "docs": _docs(of)})


def titled(said: str, of: str, columns: Sequence[Column], rows: Sequence[Row], why: str) -> list[Block]:
    """Return a table under a heading, or the reason `why` under the heading if there are no rows."""
    return [heading(said), table(of, columns, rows) if rows else missing(why)]


@dataclass(frozen=True)
class Part:
    """A segment of a bar: its kind (which determines color and legend entry), its length, and its label."""

    kind: str
    value: float
    shown: str


def bars(rows: Sequence[tuple[str, Sequence[Part]]], colours: dict[str, str]) -> Block:
    """Return labeled stacked bars, all to the scale of the longest.

    `colours`: CSS class by kind, in the order of the legend, which shows kinds in words.
    """
    longest = max((sum(part.value for part in parts) for _, parts in rows), default=0) or 1
    used = {part.kind for _, parts in rows for part in parts if part.value > 0}
    return Block("bars", {"rows": rows, "colours": colours, "longest": longest, "used": used})
