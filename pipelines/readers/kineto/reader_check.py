"""Refuses a version of DuckDB that reads entries otherwise than the reader expects, before the first file is read.

DuckDB 2.0 read all arguments as NULL where types were inferred from an entry without any, and files were `ok`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.database import WrongDuckDB
from pipelines.models.cache import digest_of, remembered
from pipelines.readers.kineto import piece
from pipelines.readers.kineto.piece import KNOWN_KEYS, all_keys, exact_times, keys_in, known_keys, write_piece

_LIMIT = 1 << 16
_OBJECTS = {"args": '{"stream":7,"External id":1}', "attr": '{"name":"a"}', "stack": "[1,2]"}
_TIMES = {"ts": 1.5, "dur": 2.0}
_TEXTS = {key: f"a {key}" for key in sorted(KNOWN_KEYS - {*_OBJECTS, *_TIMES})}
_ENTRY = {**_TEXTS, **_TIMES, **{key: json.loads(text) for key, text in _OBJECTS.items()}}
_BESIDE = {"ph": "M", "args": {"name": 1}}
_UNKNOWN = {"beside": [1]}


def check_reader(con: duckdb.DuckDBPyConnection) -> None:
    """Raise WrongDuckDB unless entries with every key are read as they are written, by each query of a piece.

    It takes 14 ms of CPU, and so is done once for each version of DuckDB and of these queries.
    """
    code = [Path(file).read_bytes() for file in (piece.__file__, __file__)]
    remembered("reader_check", digest_of([duckdb.__version__, *code]), lambda: _check(con))


def _check(con: duckdb.DuckDBPyConnection) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "piece0.json"
        try:
            wrong = next(_differences(con, file), None)
        except (duckdb.InvalidInputException, duckdb.DataError, duckdb.ProgrammingError) as error:
            wrong = f"cannot read an entry: {error}"
    if wrong:
        raise WrongDuckDB(f"DuckDB {duckdb.__version__} {wrong}")


def _differences(con: duckdb.DuckDBPyConnection, file: Path) -> Iterator[str]:
    _write(file, [_ENTRY, _BESIDE])
    keys = keys_in(con, file, _LIMIT)
    yield from _different("keys", keys, KNOWN_KEYS)
    doubles = {"ts": None, "dur": None, "ts_us": 1.5, "dur_us": 2.0, "unknown": None}
    texts = {"ts": "1.5", "dur": "2.0", "ts_us": None, "dur_us": None, "unknown": None}
    yield from _rows(con, exact_times(file, _LIMIT, keys), doubles)
    yield from _rows(con, known_keys(file, _LIMIT, keys, mended=True), texts)
    _write(file, [{**_ENTRY, **_UNKNOWN}, _BESIDE])
    yield from _different("keys", keys_in(con, file, _LIMIT), KNOWN_KEYS | _UNKNOWN.keys())
    yield from _rows(
        con, all_keys(file, _LIMIT, mended=True), {**texts, "unknown": json.dumps(_UNKNOWN, separators=(",", ":"))}
    )


def _write(file: Path, entries: list[dict[str, Any]]) -> None:
    write_piece(file, ",".join(json.dumps(entry) for entry in entries).encode())


def _rows(con: duckdb.DuckDBPyConnection, query: str, others: dict[str, Any]) -> Iterator[str]:
    nothing = dict.fromkeys([*_ENTRY, *others])
    expected = [{**_TEXTS, **_OBJECTS, **others}, {**nothing, "ph": "M", "args": '{"name":1}'}]
    for row, right in zip(database.rows_of(con, query), expected, strict=True):
        for column in right:
            yield from _different(column, row[column], right[column])


def _different(what: str, read: Any, right: Any) -> Iterator[str]:
    if read != right:
        is_set = isinstance(right, Set)
        shown = [sorted(value) if is_set else value for value in (right, read)]
        yield f"reads {what} of an entry, {shown[0]!r}, as {shown[1]!r}"
