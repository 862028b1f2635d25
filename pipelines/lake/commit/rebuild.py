"""A lake's catalog, rebuilt from its Parquet files alone: their sizes, footers and marker rows.

Digests are then unknown, so `tracelake check` reads such files completely. A batch whose traces are in a later batch
was merged into it, and stays hidden. What retention removed is in `.retired/`, because no Parquet file records it.
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
    """Return the catalog rows of batches, and the notices, that the files imply. Raises OSError."""
    files = sorted(path for path in batch_files(root) if batch_of(path).is_valid)
    batches: defaultdict[str, Manifest] = defaultdict(lambda: Manifest(Batch("")))
    with database.scratch() as con:
        footers = _footers(con, files)
        for path in files:
            name, footer = path.stem, footers.get(str(path), {})
            failures = tuple(Failure(*values) for values in json.loads(footer.get(FAILURES_KEY, "[]")))
            record = Record(path.stat().st_size, None, "", failures, footer.get(VERSION_KEY))
            batches[name].batch, batches[name].records[table_of(path)] = Batch(name), record
        for mark in KEYS:
            for name, keys in _keys(con, mark, [path for path in files if table_of(path) == mark]).items():
                batches[name].keys = {**(batches[name].keys or {}), **keys}
    into: dict[str, str] = {}
    rows, notices = {}, {}
    for name in sorted(batches, reverse=True):
        manifest = batches[name]
        traces = set(manifest.keys or ()) if MARK in manifest.records else set()
        if traces and traces <= into.keys():  # otherwise it has traces that no other batch has
            notices[name] = merged_away(into[min(traces)])
        into |= dict.fromkeys(traces - into.keys(), name)
        rows[name] = to_row(manifest)
    for path in sorted((root / RETIRED).glob("*.json")):
        if (text := whole_text(path)) is not None:
            notices[path.stem] = text
    return rows, notices


def whole_text(path: Path) -> str | None:
    """Return the JSON in a notice of removed traces, or None if the file is damaged."""
    try:
        notice = json.loads(path.read_text(encoding="utf-8"))
        return json.dumps(notice) if isinstance(notice["traces"], list) else None
    except (ValueError, KeyError, TypeError):
        return None


def _footers(con: duckdb.DuckDBPyConnection, files: list[Path]) -> dict[str, dict[str, str]]:
    footers_by_path: dict[str, dict[str, str]] = {}
    rows = "SELECT file_name, decode(key), decode(value) FROM parquet_kv_metadata({})"
    for path, key, value in _of_each(con, files, rows):
        footers_by_path.setdefault(path, {})[key] = value
    return footers_by_path


def _keys(con: duckdb.DuckDBPyConnection, mark: str, files: list[Path]) -> dict[str, dict[str, str | None]]:
    keys_by_batch: dict[str, dict[str, str | None]] = {}
    path = "path" if mark == MARK else "NULL"
    rows = f"SELECT filename, {KEYS[mark]}, {path} FROM read_parquet({{}}, filename = true, hive_partitioning = false)"
    for name, key, where in _of_each(con, files, rows):
        keys_by_batch.setdefault(Path(name).stem, {})[key] = where
    return keys_by_batch


def _of_each(con: duckdb.DuckDBPyConnection, files: list[Path], query: str) -> list[tuple]:
    """Return the rows of a query over many files, without those that cannot be read."""
    rows_read: list[tuple] = []
    for first in range(0, len(files), _MOST):
        chunk = files[first : first + _MOST]
        try:
            rows_read += con.execute(query.format(file_list(chunk))).fetchall()
        except duckdb.Error:
            for path in chunk if len(chunk) > 1 else ():
                rows_read += _of_each(con, [path], query)
    return rows_read
