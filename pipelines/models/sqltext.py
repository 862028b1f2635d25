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
    """Return text that UTF-8 can encode. Escape bytes of file names that are not UTF-8, and lone surrogates of JSON."""
    value = re.sub("[\udc80-\udcff]", lambda match: f"\\x{ord(match[0]) - 0xDC00:02x}", value)
    return value.encode("utf-8", "backslashreplace").decode()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without the lines that show the query."""
    return as_text(next(iter(str(error).splitlines()), ""))


def quoted(value: str | Path) -> str:
    """Return a SQL text literal. Raise UnusablePath for a path that DuckDB cannot open."""
    if isinstance(value, Path):
        value = utf8_path(value)
    # A NUL would end the statement, because DuckDB reads it as a C string.
    parts = ["'" + part.replace("'", "''") + "'" for part in str(value).split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"


def literal(value: str | int | datetime | Path | None) -> str:
    """Return a value as SQL text. A datetime becomes a TIMESTAMP without time zone. Raise TypeError for other types."""
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
    """Return a row for VALUES: `(1, 'a', NULL)`."""
    return f"({', '.join(literal(value) for value in values)})"


def file_list(files: Iterable[Path]) -> str:
    """Return a list of files, as an argument of read_parquet."""
    return f"[{', '.join(quoted(file) for file in files)}]"


def parquet_rows(files: Path | Iterable[Path] | str, *options: str) -> str:
    """Return a call of read_parquet for FROM. `files`: paths, or an SQL expression. `options`: further arguments.

    By default, DuckDB reads a folder named `host=a` in the path as a column `host`, which replaces a column of that
    name in the files. The call turns this off.
    """
    listed = files if isinstance(files, str) else quoted(files) if isinstance(files, Path) else file_list(files)
    return f"read_parquet({', '.join([listed, 'hive_partitioning = false', *options])})"


def distinct(columns: Iterable[str]) -> list[str]:
    """Return column names with a number added to repeated names, as in DuckDB: `name`, `name_1`."""
    names: list[str] = []
    for name in columns:
        number = 0
        while (numbered := f"{name}_{number}" if number else name) in names:
            number += 1
        names.append(numbered)
    return names
