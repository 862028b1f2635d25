"""Check that this version of DuckDB reads entries as the reader expects, before the first file is read.

DuckDB 2.0 read all arguments as NULL if types were inferred from an entry without arguments, and traces were still
`ok`.
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
    """Raise WrongDuckDB unless each query of a piece reads entries with every key as they are written.

    The check takes 14 ms of CPU, so it runs only once for each version of DuckDB and of these queries.
    """
    code = [Path(file).read_bytes() for file in (piece.__file__, __file__)]
    remembered("reader_check", digest_of([duckdb.__version__, *code]), lambda: _check(con))


def _check(con: duckdb.DuckDBPyConnection) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "piece0.json"
        try:
            difference = next(_differences(con, file), None)
        except (duckdb.InvalidInputException, duckdb.DataError, duckdb.ProgrammingError) as error:
            difference = f"cannot read an entry: {error}"
    if difference:
        raise WrongDuckDB(f"DuckDB {duckdb.__version__} {difference}")


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
        con, all_keys(file, _LIMIT, False, True), {**texts, "unknown": json.dumps(_UNKNOWN, separators=(",", ":"))}
    )


def _write(file: Path, entries: list[dict[str, Any]]) -> None:
    write_piece(file, ",".join(json.dumps(entry) for entry in entries).encode())


def _rows(con: duckdb.DuckDBPyConnection, query: str, other_values: dict[str, Any]) -> Iterator[str]:
    all_null = dict.fromkeys([*_ENTRY, *other_values])
    expected_rows = [{**_TEXTS, **_OBJECTS, **other_values}, {**all_null, "ph": "M", "args": '{"name":1}'}]
    for row, expected_row in zip(database.rows_of(con, query), expected_rows, strict=True):
        for column in expected_row:
            yield from _different(column, row[column], expected_row[column])


def _different(part: str, read: Any, expected: Any) -> Iterator[str]:
    if read != expected:
        is_set = isinstance(expected, Set)
        values = [sorted(value) if is_set else value for value in (expected, read)]
        yield f"reads {part} of an entry, {values[0]!r}, as {values[1]!r}"
