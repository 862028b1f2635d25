"""Building blocks of sections, which templates/page.html renders."""

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
    """A column of a table: the row's key, the heading, the value's format, and a tooltip (default: the lake's
    documentation).
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
    """A piece of a section: `kind` is the macro of templates/page.html that renders it, `of` its argument."""

    kind: str
    of: Any


@dataclass(frozen=True)
class Section:
    """A section of the page; `note` says what its numbers mean, `docs` where more is said: a page of docs/ and its title."""

    ident: str
    title: str
    blocks: Sequence[Block]
    note: str
    docs: tuple[str, str] | None = None


def section(
    ident: str, title: str, *body: Block | Sequence[Block], note: str = "", docs: tuple[str, str] | None = None
) -> Section:
    """Returns a section of blocks and of lists of blocks, which may be empty."""
    blocks = [block for part in body for block in ((part,) if isinstance(part, Block) else part)]
    return Section(ident, title, blocks, note, docs)


def heading(said: str) -> Block:
    """A heading within a section."""
    return Block("heading", said)


def paragraph(said: str) -> Block:
    """A sentence."""
    return Block("paragraph", said)


def missing(why: str) -> Block:
    """A text in place of something that is not there."""
    return Block("missing", why)


def more(rows: Sequence[Any], shown: int, where: str) -> list[Block]:
    """Says how many rows are not shown, if any, and where they are."""
    return [paragraph(f"{len(rows) - shown} more {where}")] if len(rows) > shown else []


def verdict(said: str, strong: str = "") -> Block:
    """The conclusion of a section; `strong` comes before it."""
    return Block("verdict", {"said": said, "strong": strong})


@dataclass(frozen=True)
class Finding:
    """What takes time, what to do about it, by how much that helps, the command that shows it, and where more is said."""

    what: str
    advice: str
    gain: str
    command: str
    docs: tuple[str, str]


def lead(sentences: Sequence[str]) -> Block:
    """What the page comes to, in sentences."""
    return Block("lead", sentences)


def findings(found: Sequence[Finding]) -> Block:
    """A numbered list of findings."""
    return Block("findings", found)


@dataclass(frozen=True)
class Help:
    """What a change saves, the change, the command that gives the number, and what limits the number (may be empty)."""

    saves: str
    change: str
    command: str
    caveat: str


def helps(rows: Sequence[Help]) -> Block:
    """A list of changes that would help."""
    return Block("helps", rows)


def figure(svg: str | None, why: str = "there is nothing to draw") -> Block:
    """One of our pictures, whose texts are already escaped; `why`: the reason if it is missing."""
    return missing(why) if svg is None else Block("figure", Markup(svg))


def table(of: str, columns: Sequence[Column], rows: Sequence[Row]) -> Block:
    """Rows of the lake's table `of`, whose documentation gives each heading's tooltip. Rows with `suspect` are marked."""
    return Block("table", {"name": of, "columns": columns, "rows": rows, "docs": _docs(of)})


def titled(said: str, of: str, columns: Sequence[Column], rows: Sequence[Row], why: str) -> list[Block]:
    """A table under a heading; `why`: the reason if it is missing."""
    return [heading(said), table(of, columns, rows) if rows else missing(why)]


@dataclass(frozen=True)
class Part:
    """A piece of a bar: what it is (a color and a legend entry), and how long."""

    kind: str
    value: float
    shown: str


def bars(rows: Sequence[tuple[str, Sequence[Part]]], colours: dict[str, str]) -> Block:
    """Labeled stacked bars, all to the scale of the longest. `colours`: CSS class by kind, in the legend's order; kinds are
    shown in words.
    """
    longest = max((sum(part.value for part in parts) for _, parts in rows), default=0) or 1
    used = {part.kind for _, parts in rows for part in parts if part.value > 0}
    return Block("bars", {"rows": rows, "colours": colours, "longest": longest, "used": used})
