"""The views of the large tables, in parts: the files of some 32 batches each, so that a new batch changes one part.

A part is the view `tracelake."<table> <first batch>"`. Where parts begin depends on the ids of the batches alone, so
what is added or removed at one place leaves the other parts as they are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pipelines.lake.views import file_rows, typed_rows, valid_rows

SCHEMA = "tracelake"
_LENGTH = 32  # on average


def chunks(batch_ids: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns the parts that batches form, in order, each by the id that names it."""
    found: dict[str, list[str]] = {}
    part: list[str] = []
    for name in sorted(batch_ids):
        if not part or zlib.crc32(name.encode()) % _LENGTH == 0:
            part = found.setdefault(name, [])
        part.append(name)
    return {first: tuple(names) for first, names in found.items()}


def part_name(table: str, first: str) -> str:
    """Returns the name of the view of a part, in the schema SCHEMA."""
    return f"{table} {first}"


def part_view(table: str, first: str, files: Sequence[Path], types: Sequence[tuple[str, str]] | None) -> str:
    """Returns the statements that create the view of a part. `types`: the columns that all its files have, if known."""
    rows = typed_rows(files, types) if types else file_rows(table, files)
    name = f'{SCHEMA}."{part_name(table, first)}"'
    return f"CREATE OR REPLACE VIEW {name} AS {rows}; COMMENT ON VIEW {name} IS 'A part of {table}: files of some batches.'"


def joined_rows(table: str, firsts: Iterable[str]) -> str:
    """Returns the SELECT of a table's committed rows over its parts."""
    parts = " UNION ALL BY NAME ".join(f'SELECT * FROM {SCHEMA}."{part_name(table, first)}"' for first in firsts)
    return valid_rows(table, f"SELECT * FROM ({parts})")


def files_by_part(files: Mapping[str, Path], batch_ids: Iterable[str]) -> dict[str, list[Path]]:
    """Returns the files of a table by part; parts without files are left out. `batch_ids`: all that are shown."""
    parts = {first: [files[name] for name in names if name in files] for first, names in chunks(batch_ids).items()}
    return {first: paths for first, paths in parts.items() if paths}
