"""Conversion of foreign text (names of kernels, files, jobs, hosts, any text in a trace) for each output format.

A trace is untrusted input. Its text is shown in full but has no effect. No escape sequence reaches a terminal, and no
markup, tag or formula results from the text. Program output (JSON, Parquet, piped CSV) contains the text unchanged.
"""

from __future__ import annotations

import re
import unicodedata
from html import escape
from typing import Any

_MARKDOWN = re.compile(r"[\\`*\[\]|<>&~$]|:(?=//)|(?<![^\W_])_|_(?![^\W_])")
_REFERENCE = re.compile(r"(?<!\w)(?:[@#](?=\w)|www(?=\.))", re.IGNORECASE)
JOINER = "\u2060"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # also full-width
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def visible(value: Any) -> str:
    r"""Return text for terminals and logs. Escape invisible and control characters, as in `\x1b`, `\n`, `\u202e`."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(map(_written, text))


def _written(char: str) -> str:
    """Return the character, or its escape code if it is a control, format or private-use character.

    These include bidi overrides, zero-width characters, lone surrogates and line separators.
    """
    return char if char.isprintable() or unicodedata.category(char) == "Zs" else ascii(char)[1:-1]


def in_xml(value: Any) -> str:
    """Return text for SVG and HTML, between tags and in quoted attributes.

    XML does not allow control characters, so they are escaped as in `visible`.
    """
    return escape(visible(value), quote=True)


def in_markdown(value: Any) -> str:
    """Return text for a cell or line of GitHub's Markdown that cannot form a link, tag, code, emphasis or a new cell.

    It cannot mention a user or an issue either, because an invisible word joiner follows `@`, `#` and `www`.
    """
    escaped = _MARKDOWN.sub(lambda match: "\\" + match[0], visible(value))
    return _REFERENCE.sub(lambda match: match[0] + JOINER, escaped)


def in_spreadsheet(value: Any) -> Any:
    """Return the value for a CSV file for spreadsheets, with a leading apostrophe if it is text with a formula.

    Numbers stay unchanged, as values and as text.
    """
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return "'" + value
    return value
