"""Python values as SQL text.

Bound parameters (`execute(query, [value])`) would also work, but the first one makes DuckDB import pandas if it is
installed (ibis brings it). That costs half a second per process, more than reading a small trace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from pipelines.base.paths import utf8_path


def as_text(value: str) -> str:
    """Returns text that can be encoded: file-name bytes that are not UTF-8, and lone surrogates of JSON, become escapes."""
    value = re.sub("[\udc80-\udcff]", lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", value)
    return value.encode("utf-8", "backslashreplace").decode()


def first_line(error: BaseException) -> str:
    """Returns an error's message without the lines that show the query."""
    return as_text(next(iter(str(error).splitlines()), ""))


def quoted(value: str | Path) -> str:
    """A SQL text literal. Raises UnusablePath for a path that DuckDB cannot open."""
    if isinstance(value, Path):
        value = utf8_path(value)
    # A NUL would end the statement: DuckDB reads it as a C string.
    parts = ["'" + part.replace("'", "''") + "'" for part in str(value).split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"


def literal(value: str | int | datetime | Path | None) -> str:
    """A value as SQL text; a datetime is a TIMESTAMP without time zone. Raises TypeError for any other type."""
    if value is None:
        return "NULL"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')}'"
    if isinstance(value, str | Path):
        return quoted(value)
    if isinstance(value, int):
        return str(value)
    raise TypeError(f"cannot write as SQL: {type(value).__name__}: {value!r}")


def row(values: Iterable[str | int | datetime | Path | None]) -> str:
    """A row for VALUES: `(1, 'a', NULL)`."""
    return f"({', '.join(literal(value) for value in values)})"


def file_list(files: Iterable[Path]) -> str:
    """A list of files, as read_parquet takes it."""
    return f"[{', '.join(quoted(file) for file in files)}]"


def distinct(columns: Iterable[str]) -> list[str]:
    """Names of columns, of which those that occurred before get a number, as in DuckDB: `name`, `name_1`."""
    found: list[str] = []
    for name in columns:
        number = 0
        while (numbered := f"{name}_{number}" if number else name) in found:
            number += 1
        found.append(numbered)
    return found
