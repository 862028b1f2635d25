"""Tables that the user puts into a lake's folder as CSV: read, or refused with file, line and what to do."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

Row = dict[str, str | None]


class WrongTable(Exception):
    """The table cannot be used; the message names file and line."""


def read_told(path: Path, columns: Sequence[str], needed: Sequence[str]) -> list[tuple[int, Row]]:
    """Returns the rows with their line numbers, by column, None where empty; no rows if there is no file.

    Columns not in `needed` may be missing. Columns not in `columns` are an error, because a misspelled column would
    otherwise be silently ignored. Raises WrongTable.
    """
    if not path.exists() and not path.is_symlink():
        return []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return _rows(path, csv.DictReader(file, strict=True), columns, needed)
    except OSError as error:
        raise WrongTable(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise WrongTable(f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from None


def _rows(path: Path, reader: csv.DictReader, columns: Sequence[str], needed: Sequence[str]) -> list[tuple[int, Row]]:
    rows = []
    try:
        header = [name.strip() for name in reader.fieldnames or ()]
        _check_header(path, header, columns, needed)
        reader.fieldnames = header
        for given in reader:
            if None in given:
                raise WrongTable(
                    f"{path}:{reader.line_num}: more values than columns; write decimals with a point, "
                    "and put text with commas in quotes"
                )
            rows.append((reader.line_num, {name: (given.get(name) or "").strip() or None for name in columns}))
    except csv.Error as error:
        raise WrongTable(f"{path}:{reader.line_num}: not CSV: {error}") from None
    return rows


def _check_header(path: Path, header: list[str], columns: Sequence[str], needed: Sequence[str]) -> None:
    hint = f"write a header of `{','.join(needed)}`"
    if more := [name for name in columns if name not in needed]:
        hint += f" and, where needed, `{','.join(more)}`"
    if missing := [name for name in needed if name not in header]:
        raise WrongTable(f"{path}:1: no column {missing[0]!r}; {hint}")
    if unknown := [name for name in header if name not in columns]:
        raise WrongTable(f"{path}:1: a column {unknown[0]!r} is not known; {hint}")
    if len(set(header)) < len(header):
        raise WrongTable(f"{path}:1: a column appears twice; {hint}")


def content_of(path: Path) -> bytes:
    """Returns what identifies a state of a table: its bytes, or why it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        return str(error).encode()
