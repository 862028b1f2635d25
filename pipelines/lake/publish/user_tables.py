"""CSV tables that users put into a lake's folder. Each table is validated against its declared columns."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.models.errors import CatalogError
from pipelines.models.sqltext import quoted

Row = dict[str, str | None]
NEEDED = "needed"  # not empty in any row
TEXT = "text"
PATTERN = "pattern"  # a regular expression of DuckDB
FLAG = "flag"  # true or false; empty means false


class WrongTable(CatalogError):
    """A table that cannot be used. The message contains the file and the line."""


@dataclass(frozen=True)
class UserTable:
    """The columns of a user's table with their kinds, and its row limit `most`, because every command reads it."""

    columns: Mapping[str, str]
    most: int = 1_000_000

    @property
    def needed(self) -> list[str]:
        """Return the columns that must be present."""
        return [name for name, kind in self.columns.items() if kind == NEEDED]

    def rows(self, path: Path) -> list[tuple[int, Row]]:
        """Return (line number, values by column) of each row, or [] if the file does not exist. Empty values are None.

        Columns that are not needed may be missing. Unknown columns are an error, because a misspelled column would
        otherwise be silently ignored. Raise WrongTable.
        """
        if not path.exists() and not path.is_symlink():
            return []
        if content_of(path).count(b"\n") > 2 * self.most:  # refuse a long file before parsing it
            raise self._too_long(path)
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                rows = _rows(path, csv.DictReader(file, strict=True), self)
        except OSError as error:
            raise WrongTable(f"{path}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise WrongTable(
                f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
            ) from None
        if len(rows) > self.most:
            raise self._too_long(path)
        for line, row in rows:
            for name, kind in self.columns.items():
                row[name] = _checked(f"{path}:{line}", name, kind, row[name], self)
        return rows

    def _too_long(self, path: Path) -> WrongTable:
        return WrongTable(f"{path}: more than {self.most:,} rows; one pattern can match many names")


def _checked(where: str, name: str, kind: str, value: str | None, table: UserTable) -> str | None:
    if kind == NEEDED and value is None:
        raise WrongTable(f"{where}: {name!r} is empty; every row has {', '.join(table.needed)}")
    if kind == PATTERN and value is not None:
        _check_pattern(where, name, value)
    if kind == FLAG:
        if value is not None and value.lower() not in ("true", "false"):
            raise WrongTable(f"{where}: {name} {value!r} is neither true nor false; leave it empty for false")
        return (value or "false").lower()
    return value


def _check_pattern(where: str, name: str, pattern: str) -> None:
    """Raise WrongTable for a pattern that DuckDB cannot use, or that matches every name.

    DuckDB's expressions (RE2) run in time proportional to the length of the name, so no pattern can be too slow.
    """
    try:
        with database.scratch() as con:
            fits_all = con.execute(f"SELECT regexp_matches('', {quoted(pattern)})").fetchall() == [(True,)]
    except duckdb.Error as error:
        why = str(error).splitlines()[0].removeprefix("Invalid Input Error: ")
        raise WrongTable(
            f"{where}: {name} {pattern!r} is not a regular expression of DuckDB ({why}); correct it"
        ) from None
    if fits_all:
        raise WrongTable(f"{where}: {name} {pattern!r} fits every name; begin it with ^ and what names share")


def _rows(path: Path, reader: csv.DictReader, table: UserTable) -> list[tuple[int, Row]]:
    rows = []
    try:
        header = [name.strip() for name in reader.fieldnames or ()]
        _check_header(path, header, table)
        reader.fieldnames = header
        for fields in reader:
            if None in fields:
                raise WrongTable(
                    f"{path}:{reader.line_num}: more values than columns; write decimals with a point, "
                    "and put text with commas in quotes"
                )
            rows.append((reader.line_num, {name: (fields.get(name) or "").strip() or None for name in table.columns}))
    except csv.Error as error:
        raise WrongTable(f"{path}:{reader.line_num}: not CSV: {error}") from None
    return rows


def _check_header(path: Path, header: list[str], table: UserTable) -> None:
    columns, needed = table.columns, table.needed
    hint = f"write a header of `{','.join(needed)}`"
    if more := [name for name in columns if name not in needed]:
        hint += f" and, where needed, `{','.join(more)}`"
    if missing := [name for name in needed if name not in header]:
        raise WrongTable(f"{path}:1: no column {missing[0]!r}; {hint}")
    if unknown := [name for name in header if name not in columns]:
        raise WrongTable(f"{path}:1: a column {unknown[0]!r} is unknown; {hint}")
    if len(set(header)) < len(header):
        raise WrongTable(f"{path}:1: a column appears twice; {hint}")


def content_of(path: Path) -> bytes:
    """Return the bytes that identify a table's state: its content, b"" if missing, or the error if unreadable."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        return str(error).encode()
