"""Line numbers of items in a TOML file, because tomllib discards positions.

The module handles files in the usual hand-written form, with `[[name]]` headers and keys at the start of a line.
Methods return None if they do not find the line (inline tables, quoted keys). A message then names only the file. Lines
count from 1.
"""

from __future__ import annotations

import re


class TomlLines:
    """Lines of the tables `[[name]]` of a text, and of the keys before them."""

    def __init__(self, text: str, name: str) -> None:
        self._lines = text.splitlines()
        header = re.compile(rf"\s*\[\[\s*{re.escape(name)}\s*\]\]")
        self._headers = [i for i, line in enumerate(self._lines) if header.match(line)]

    def top(self, key: str) -> int | None:
        """Return the line of a key above all tables, or None."""
        return self._find(key, range(self._headers[0] if self._headers else len(self._lines)))

    def table(self, place: int) -> int | None:
        """Return the line of the header of table `place` (index from 0), or None if there is no such table."""
        return self._headers[place] + 1 if place < len(self._headers) else None

    def key(self, place: int, key: str) -> int | None:
        """Return the line of a table's key, or of the table's header if the key has no line."""
        return self._find(key, self._body(place)) or self.table(place)

    def entry(self, place: int, key: str, value: str) -> int | None:
        """Return the line of the string `value` in the list `key` of a table, or None."""
        first = self._find(key, self._body(place))
        if first is None:
            return None
        quoted = re.compile(rf"""(["']){re.escape(value)}\1""")
        for i in range(first - 1, self._body(place).stop):
            if i >= first and re.match(r"\s*[\w-]+\s*=", self._lines[i]):
                return None
            if quoted.search(self._lines[i].split("#")[0]):
                return i + 1
        return None

    def _body(self, index: int) -> range:
        if index >= len(self._headers):
            return range(0)
        past = self._headers[index + 1] if index + 1 < len(self._headers) else len(self._lines)
        return range(self._headers[index] + 1, past)

    def _find(self, key: str, line_indices: range) -> int | None:
        assigned = re.compile(rf"\s*{re.escape(key)}\s*=")
        return next((i + 1 for i in line_indices if assigned.match(self._lines[i])), None)
