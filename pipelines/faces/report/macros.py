"""The macros of templates/blocks.html. Each returns a part of a page as HTML, in which every text is escaped."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipelines.base.foreign_text import visible
from pipelines.faces.report.blocks import Part
from pipelines.faces.words import in_words

DOCS = "TRACELAKE_DOCS"
"""Environment variable: the address of docs/. If it is set, the page links to docs/."""


def docs_address(page: str) -> str:
    """Return the URL of a page of docs/, or "" if DOCS is not set.

    If DOCS ends in a slash, it is a site built from docs/, so `.md` becomes `/`.
    """
    base = os.environ.get(DOCS, "")
    return f"{base}{page.removesuffix('.md')}/" if base.endswith("/") else f"{base}/{page}" if base else ""


def _shown(value: Any) -> Any:
    """Return a text with control characters replaced, before Jinja escapes it, or any other value unchanged."""
    return visible(value) if type(value) is str else value


TEMPLATES = Environment(
    loader=PackageLoader(__package__ or "", "templates"), autoescape=True, finalize=_shown, undefined=StrictUndefined
)
TEMPLATES.globals.update(in_words=in_words, docs_address=docs_address)
_WIDTH = 1000
"""Approximate width of a bar in pixels. A part below one pixel is not visible."""
macros: Any = TEMPLATES.get_template("blocks.html").module


def bars(rows: Sequence[tuple[str, Sequence[Part]]], colours: dict[str, str]) -> Markup:
    """Return labeled stacked bars, all to the scale of the longest.

    `colours`: CSS class by kind, in the order of the legend. The legend lists the kinds that are visible in a bar, in
    words.
    """
    longest = max((sum(part.value for part in parts) for _, parts in rows), default=0) or 1
    used = {part.kind for _, parts in rows for part in parts if part.value >= longest / _WIDTH}
    return macros.bars(rows, colours, longest, used)
