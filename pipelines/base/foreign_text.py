"""Foreign text (names of kernels, files, jobs, hosts, whatever a trace says) as text, one function for each surface.

A trace is untrusted input. Its text is shown in full and has no effect: no escape sequence reaches a terminal, no
markup, tag or formula results from it. Program output (JSON, Parquet, CSV that is piped) keeps it exactly.
"""

from __future__ import annotations

import re
import unicodedata
from html import escape
from typing import Any

_MARKDOWN = re.compile(r"[\\`*\[\]|<>&~$]|(?<![^\W_])_|_(?![^\W_])")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # also full-width
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def visible(value: Any) -> str:
    r"""Text for people and logs: invisible and terminal control characters are spelled out: `\x1b`, `\n`, `\u202e`."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(map(_written, text))


def _written(char: str) -> str:
    """Control and format characters (bidi overrides, zero width), lone surrogates, line separators, private use: by code."""
    return char if char.isprintable() or unicodedata.category(char) == "Zs" else ascii(char)[1:-1]


def in_xml(value: Any) -> str:
    """Text for SVG and HTML, between tags and in quoted attributes. XML has no place for control characters: they are written out."""
    return escape(visible(value), quote=True)


def in_markdown(value: Any) -> str:
    """Text for a cell or a line of Markdown (GitHub's kind): it cannot form a link, tag, code, emphasis or a new cell."""
    return _MARKDOWN.sub(lambda found: "\\" + found[0], visible(value))


def in_spreadsheet(value: Any) -> Any:
    """A cell of a CSV file that a spreadsheet opens: text that it would run as a formula gets a leading apostrophe.

    Numbers stay, as values and as text.
    """
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return "'" + value
    return value
