"""The rebuild of a lake's catalog from the sizes, footers and marker rows of its Parquet files alone.

Digests are then unknown, so `tracelake check` reads the files completely. A batch counts as merged if each of its
traces is in a later batch. A batch with only rejected files counts as merged if a later batch has all of these files. A
merged batch stays hidden. No Parquet file records the traces that retention removed, so they are listed in `.retired/`.
A batch that is listed there but still has files is hidden, and the next run removes it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.lake.commit.batch_rows import Failure, Manifest, Record, merged_away, to_row
from pipelines.lake.commit.parquet import FAILURES_KEY
from pipelines.lake.names import KEYS, MARK, REJECTS, RETIRED, VERSION_KEY, Batch, batch_files, batch_of, table_of
from pipelines.models.sqltext import file_list, parquet_rows

_MOST = 500  # maximum number of files that one query opens


def implied_rows(root: Path) -> tuple[dict[str, tuple[str, str, str]], dict[str, str]]:
    """Return the catalog rows of batches and the notices that the files imply. Raise OSError."""
    files = sorted(path for path in batch_files(root) if batch_of(path).is_valid)
    batches: defaultdict[str, Manifest] = defaultdict(lambda: Manifest(Batch("")))
    with database.scratch() as con:
        footers = _footers(con, files)
        for path in files:
            name, footer = path.stem, footers.get(str(path), {})
            failures = tuple(Failure(*values) for values in json.loads(footer.get(FAILURES_KEY, "[]")))
            record = Record(path.stat().st_size, None, "", failures, footer.get(VERSION_KEY))
            batches[name].batch, batches[name].records[table_of(path)] = Batch(name), record
        merges = _merges_of_rejects(con, files)
        for mark in KEYS:
            for name, keys in _keys(con, mark, [path for path in files if table_of(path) == mark]).items():
                batches[name].keys = {**(batches[name].keys or {}), **keys}
    into: dict[str, str] = {}
    rows, notices = {}, {}
    for name in sorted(batches, reverse=True):
        manifest = batches[name]
        traces = set(manifest.keys or ()) if MARK in manifest.records else set()
        if traces and traces <= into.keys():  # every trace is also in a later batch
            notices[name] = merged_away(into[min(traces)])
        elif name in merges:
            notices[name] = merged_away(merges[name])
        into |= dict.fromkeys(traces - into.keys(), name)
        rows[name] = to_row(manifest)
    for path in sorted((root / RETIRED).glob("*.json")):
        if (text := whole_text(path)) is not None:
            has_files = path.stem in rows  # true if the run that removed the batch was killed
            notices[path.stem] = _unfinished(text) if has_files else text
    return rows, notices


def _merges_of_rejects(con: duckdb.DuckDBPyConnection, files: list[Path]) -> dict[str, str]:
    """Return for each batch with only rejected files the newest later batch that has all of them, if any."""
    of_rejects = [path for path in files if table_of(path) == REJECTS]
    only_rejects = {path.stem for path in of_rejects} - {path.stem for path in files if table_of(path) != REJECTS}
    if not only_rejects:
        return {}
    query = f"SELECT filename, path, reason, seen_at FROM {parquet_rows('{}', 'filename = true')}"
    batches_by_reject: defaultdict[tuple, set[str]] = defaultdict(set)
    for name, *rejected in _of_each(con, of_rejects, query):
        batches_by_reject[tuple(rejected)].add(Path(name).stem)
    later: dict[str, set[str]] = {}
    for names in batches_by_reject.values():
        for name in names & only_rejects:
            newer = {other for other in names if other > name}
            later[name] = later.get(name, newer) & newer
    return {name: max(others) for name, others in later.items() if others}


def _unfinished(text: str) -> str:
    """Turn a removed batch's notice into a hidden batch's notice. Its grace period begins with the next run."""
    return json.dumps({**json.loads(text), "is_removed": False, "hidden_at": None})


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
    rows = f"SELECT filename, {KEYS[mark]}, {path} FROM {parquet_rows('{}', 'filename = true')}"
    for name, key, where in _of_each(con, files, rows):
        keys_by_batch.setdefault(Path(name).stem, {})[key] = where
    return keys_by_batch


def _of_each(con: duckdb.DuckDBPyConnection, files: list[Path], query: str) -> list[tuple]:
    """Return the rows of a query over many files. Skip unreadable files."""
    rows_read: list[tuple] = []
    for first in range(0, len(files), _MOST):
        chunk = files[first : first + _MOST]
        try:
            rows_read += con.execute(query.format(file_list(chunk))).fetchall()
        except duckdb.Error:
            for path in chunk if len(chunk) > 1 else ():
                rows_read += _of_each(con, [path], query)
    return rows_read
