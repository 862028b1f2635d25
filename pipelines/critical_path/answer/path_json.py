"""The path answer as JSON text, streamed from DuckDB because a path may have millions of rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.base import database
from pipelines.critical_path.answer.path_answer import PathAnswer
from pipelines.critical_path.answer.path_names import is_made
from pipelines.models.catalog import Catalog

_BATCH, _ROWS = 1 << 17, 1 << 15  # rows per read and per write
# Up to this limit, a time in µs has at most 15 digits, so its decimal text is the shortest text of the float.
_EXACT_NS = 10**15
_FRACTIONS = [f".{n:03d}".rstrip("0") if n else ".0" for n in range(1000)]


def json_parts(con: duckdb.DuckDBPyConnection, catalog: Catalog, answer: PathAnswer) -> Iterator[str]:
    """Yield the text of `answer.as_json()`, with `path` read from `con`.

    `con` is the connection on which `critical_path` computed the answer.
    """
    return as_parts(answer.as_json() | {"path": _rows(con, catalog)})


def as_parts(members: dict[str, Any]) -> Iterator[str]:
    """Yield an object as `json.dumps` writes it, member by member.

    A member that is an iterator yields its own parts.
    """
    for index, (name, value) in enumerate(members.items()):
        yield f"{', ' if index else '{'}{json.dumps(name)}: "
        if isinstance(value, Iterator):
            yield from value
        else:
            yield json.dumps(value, default=str)
    yield "}"


def _rows(con: duckdb.DuckDBPyConnection, catalog: Catalog) -> Iterator[str]:
    n = con.execute("SELECT count(*) FROM _path_bounds").fetchall()[0][0]
    name, kind, bound, owner = texts = (_Coded(), _Coded(), _Coded(), _Coded())
    event, duration = np.empty((2, n), dtype=np.int64)
    codes = np.empty((4, n), dtype=np.int32)
    n_read = 0
    for batch in _batches(con, catalog):
        index = np.subtract(np.from_dlpack(batch.column(0)), 1)
        event[index], duration[index] = (np.from_dlpack(batch.column(column_no)) for column_no in (1, 2))
        for column_no, coded in enumerate(texts):
            codes[column_no, index] = coded.codes(batch.column(3 + column_no))
        n_read += len(index)
    assert n_read == n, f"{n_read} rows of a path of {n} edges"  # otherwise items of the arrays are uninitialized
    names = _strings(f', "name": {text}' for text in name.texts)
    kinds = _strings(f', "edge_type": {text}, "duration_us": ' for text in kind.texts)
    bounds = _strings(f', "bound_by": {text}, "owner": ' for text in bound.texts)
    owners = _strings(f"{text}}}, " for text in owner.texts)
    yield "["
    for first in range(0, n, _ROWS):
        part = slice(first, first + _ROWS)
        text = _joined(
            _strings(['{"event_id": '])[0],
            _array(event[part]).cast(pa.string()),
            names.take(_array(codes[0][part])),
            kinds.take(_array(codes[1][part])),
            *_microseconds(duration[part]),
            bounds.take(_array(codes[2][part])),
            owners.take(_array(codes[3][part])),
        )
        yield text if part.stop < n else text.removesuffix(", ")
    yield "]"


def _batches(con: duckdb.DuckDBPyConnection, catalog: Catalog) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the path, unordered, each with its position from 1 (`seq`)."""
    # If the table does not exist, query the model's SQL. Creating the table would take as long as the query, for
    # columns not needed here. Do not sort in DuckDB, because sorting would also move the names. The caller writes the
    # numbers of each row at index `seq`.
    rows = "FROM critical_path" if is_made(con, "critical_path") else catalog.models["critical_path"].sql
    query = f"SELECT seq, event_id, duration_ns, name, edge_type, bound_by, owner FROM (\n{rows}\n)"
    return database.arrow_result(con, query).to_arrow_reader(_BATCH)


class _Coded:
    """Distinct JSON texts, each with a number.

    Names repeat in the path's rows, so each distinct text is stored once.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._code: dict[str | None, int] = {}

    def codes(self, column: pa.Array) -> np.ndarray:
        """Return for each row of a column the index of its JSON text in `texts`. New texts are appended to `texts`."""
        encoded = column.dictionary_encode(null_encoding="encode")
        for value in encoded.dictionary.to_pylist():
            if self._code.setdefault(value, len(self.texts)) == len(self.texts):
                self.texts.append(json.dumps(value))
        numbers = np.array([self._code[value] for value in encoded.dictionary.to_pylist()], dtype=np.int32)
        return numbers[np.from_dlpack(encoded.indices).astype(np.int64)]


# Build Arrow arrays from buffers. pa.array and to_numpy import pandas, which takes longer than writing the rows.


def _array(numbers: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers.astype(np.int64))])


def _strings(texts: Iterable[str]) -> pa.Array:
    parts = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(parts), pa.py_buffer(ends), pa.py_buffer(b"".join(parts)))


def _microseconds(ns: np.ndarray) -> list[pa.Array]:
    """Return arrays of texts whose concatenation is `repr(ns / 1000)` of each number."""
    if np.abs(ns).max(initial=0) > _EXACT_NS:
        return [_strings(repr(number / 1000) for number in ns.tolist())]
    signs, size = _strings(["", "-"]), np.abs(ns)
    return [
        signs.take(_array(ns < 0)),
        _array(size // 1000).cast(pa.string()),
        _strings(_FRACTIONS).take(_array(size % 1000)),
    ]


def _joined(*columns: pa.Scalar | pa.Array) -> str:
    """Return one text with the texts of all columns, row after row."""
    rows = pc.call_function("binary_join_element_wise", [*columns, _strings([""])[0]])
    _, offsets, data = rows.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)
    return data[int(ends[rows.offset]) : int(ends[rows.offset + len(rows)])].to_pybytes().decode()
