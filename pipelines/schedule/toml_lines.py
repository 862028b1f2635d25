"""On which line of a TOML file something stands: tomllib reads values and forgets where they were.

Knows files written as one writes them by hand: `[[name]]` headers and keys at the start of a line. None if it does
not find the place (inline tables, quoted keys); a message then names the file alone. Lines count from 1.
"""

from __future__ import annotations

import re


class TomlLines:
    """The lines of the tables `[[name]]` of a text, and of the keys before them."""

    def __init__(self, text: str, name: str) -> None:
        self._lines = text.splitlines()
        header = re.compile(rf"\s*\[\[\s*{re.escape(name)}\s*\]\]")
        self._headers = [i for i, line in enumerate(self._lines) if header.match(line)]

    def top(self, key: str) -> int | None:
        """Line of a key above all tables."""
        return self._find(key, range(self._headers[0] if self._headers else len(self._lines)))

    def table(self, place: int) -> int | None:
        """Line of the header of the table at a place, from 0."""
        return self._headers[place] + 1 if place < len(self._headers) else None

    def key(self, place: int, key: str) -> int | None:
        """Line of a key of a table; of its header where the key is not seen."""
        return self._find(key, self._body(place)) or self.table(place)

    def entry(self, place: int, key: str, value: str) -> int | None:
        """Line on which a text stands in the list `key` of a table."""
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

    def _body(self, place: int) -> range:
        if place >= len(self._headers):
            return range(0)
        past = self._headers[place + 1] if place + 1 < len(self._headers) else len(self._lines)
        return range(self._headers[place] + 1, past)

    def _find(self, key: str, where: range) -> int | None:
        assigned = re.compile(rf"\s*{re.escape(key)}\s*=")
        return next((i + 1 for i in where if assigned.match(self._lines[i])), None)
