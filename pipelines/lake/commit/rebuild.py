"""A lake's catalog from its Parquet files alone: what is in place, by size, with what footers and marks say of it.

Digests are not known then: `tracelake check` reads such files through. A batch whose traces are in a later one was merged
into that, and stays hidden. What retention removed is in `.retired/`, which no Parquet file tells.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.lake.commit.batch_rows import Failure, Manifest, Record, merged_away, to_row
from pipelines.lake.commit.parquet import FAILURES_KEY
from pipelines.lake.names import KEYS, MARK, RETIRED, VERSION_KEY, Batch, batch_files, batch_of, table_of
from pipelines.models.sqltext import file_list

_MOST = 500  # files that are opened together


def found_in(root: Path) -> tuple[dict[str, tuple[str, str, str]], dict[str, str]]:
    """Returns the rows of batches, and notices, as the files tell them. Raises OSError."""
    files = sorted(path for path in batch_files(root) if batch_of(path).is_valid)
    batches: defaultdict[str, Manifest] = defaultdict(lambda: Manifest(Batch("")))
    with database.scratch() as con:
        said = _footers(con, files)
        for path in files:
            name, told = path.stem, said.get(str(path), {})
            failures = tuple(Failure(*one) for one in json.loads(told.get(FAILURES_KEY, "[]")))
            record = Record(path.stat().st_size, None, "", failures, told.get(VERSION_KEY))
            batches[name].batch, batches[name].records[table_of(path)] = Batch(name), record
        for mark in KEYS:
            for name, keys in _keys(con, mark, [path for path in files if table_of(path) == mark]).items():
                batches[name].keys = {**(batches[name].keys or {}), **keys}
    into: dict[str, str] = {}
    rows, notices = {}, {}
    for name in sorted(batches, reverse=True):
        found = batches[name]
        traces = set(found.keys or ()) if MARK in found.records else set()
        if later := next((into[one] for one in traces if one in into), None):
            notices[name] = merged_away(later)
        into |= dict.fromkeys(traces - into.keys(), name)
        rows[name] = to_row(found)
    for path in sorted((root / RETIRED).glob("*.json")):
        if (text := whole_text(path)) is not None:
            notices[path.stem] = text
    return rows, notices


def whole_text(path: Path) -> str | None:
    """Returns the JSON in a record of what was removed; None if it is damaged."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return json.dumps(told) if isinstance(told["traces"], list) else None
    except (ValueError, KeyError, TypeError):
        return None


def _footers(con: duckdb.DuckDBPyConnection, files: list[Path]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    rows = "SELECT file_name, decode(key), decode(value) FROM parquet_kv_metadata({})"
    for path, key, value in _of_each(con, files, rows):
        found.setdefault(path, {})[key] = value
    return found


def _keys(con: duckdb.DuckDBPyConnection, mark: str, files: list[Path]) -> dict[str, dict[str, str | None]]:
    found: dict[str, dict[str, str | None]] = {}
    path = "path" if mark == MARK else "NULL"
    rows = f"SELECT filename, {KEYS[mark]}, {path} FROM read_parquet({{}}, filename = true, hive_partitioning = false)"
    for name, key, where in _of_each(con, files, rows):
        found.setdefault(Path(name).stem, {})[key] = where
    return found


def _of_each(con: duckdb.DuckDBPyConnection, files: list[Path], query: str) -> list[tuple]:
    """Returns the rows of a query over many files, without those that cannot be read."""
    found: list[tuple] = []
    for first in range(0, len(files), _MOST):
        some = files[first : first + _MOST]
        try:
            found += con.execute(query.format(file_list(some))).fetchall()
        except duckdb.Error:
            for path in some if len(some) > 1 else ():
                found += _of_each(con, [path], query)
    return found
