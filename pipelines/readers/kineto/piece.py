"""Queries that read a piece of the event array, a JSON array in a separate file, as `raw_events`.

Columns and types are declared, because DuckDB versions differ in the types that they infer and in whether they then
reject an unknown key. DuckDB silently ignores keys that are not declared, so `keys_in` reads the keys of all entries
first. A piece with unknown keys is read as whole entries, and these keys become column `unknown`.

Times are read as doubles if doubles represent every nanosecond, because this takes 0.21 instead of 0.29 CPU s for 12 MB
with fractions. If one time in a piece is not exact as a double, the piece is re-read with times as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.models.python_tables import input_table
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_COLUMNS = (
    ("ph", "VARCHAR", "Phase."),
    ("cat", "VARCHAR", "Category."),
    ("name", "VARCHAR", "Name."),
    ("pid", "VARCHAR", "Process."),
    ("tid", "VARCHAR", "Thread."),
    (
        "ts",
        "VARCHAR",
        "Start, us; with a ~ before it where it was quoted on the way; NULL where ts_us holds it exactly.",
    ),
    ("dur", "VARCHAR", "Duration, us; likewise."),
    ("id", "VARCHAR", "Id of a flow."),
    ("bp", "VARCHAR", "Binding point of a flow."),
    ("s", "VARCHAR", "Scope of an instant."),
    ("tts", "VARCHAR", "Start on the thread's clock."),
    ("tdur", "VARCHAR", "Duration on the thread's clock."),
    ("cname", "VARCHAR", "Name of a color."),
    ("sf", "VARCHAR", "Id of a stack frame."),
    ("args", "JSON", "Arguments."),
    ("attr", "JSON", "Attributes."),
    ("stack", "JSON", "Stack."),
    ("unknown", "VARCHAR", "The other keys with their values, as members of a JSON object."),
    ("ts_us", "DOUBLE", "Start, us, where a double holds its nanoseconds; otherwise NULL."),
    ("dur_us", "DOUBLE", "Duration, us; likewise."),
)
_KEYS = _COLUMNS[:-3]
_TEXTS = tuple(name for name, kind, _ in _KEYS if kind == "VARCHAR")
_JSONS = tuple(name for name, kind, _ in _KEYS if kind == "JSON")
_TIMES = ("ts", "dur")
_NAMES = tuple(name for name in _TEXTS if name not in _TIMES)  # a value may also be an object, as text
_TYPES = ", ".join(f'"{name}": "{kind}"' for name, kind, _ in _KEYS)
KNOWN_KEYS = frozenset(name for name, _, _ in _KEYS)
_KNOWN = ", ".join(quoted(name) for name in (*_TEXTS, *_JSONS))
_OTHERS = f"list_filter(json_keys(entry), lambda key: key NOT IN ({_KNOWN}))"
_VALUE = "CAST(json_extract(entry, '/' || replace(replace(key, '~', '~0'), '/', '~1')) AS VARCHAR)"
_MEMBERS = f"list_transform({_OTHERS}, lambda key: CAST(to_json(key) AS VARCHAR) || ':' || {_VALUE})"
# DuckDB's reader silently accepts a bare NaN or infinity and returns the same text as for a string. The bytes are
# therefore checked if one of these words occurs.
WORDS = ("NaN", "nan", "NAN", "Inf", "inf", "INF")
_BARE = ", ".join(quoted(word) for word in ("NaN", "Infinity", "-Infinity"))
_SUSPECT_JSON = {
    column: f"CASE WHEN {' OR '.join(f'contains({column}, {quoted(word)})' for word in WORDS)} "
    f"THEN regexp_matches({column}, '(^|[:,[])\\s*[-+]?(?i:nan|inf)') ELSE false END"
    for column in _JSONS
}
_SUSPECT_TEXT = {column: f"{column} IN ({_BARE})" for column in _TEXTS}
# An object may have a duplicate key. `has_duplicate_key` checks the top-level keys of the arguments. The query rejects
# nested objects, and objects with several keys in the rarer columns, so that the tolerant reader checks them.
_NESTED = (
    "CASE WHEN contains(substr({0}, 2), '{{') "
    """THEN regexp_matches({0}, '[^\\\\]"\\s*:\\s*[{{]|[[,]\\s*[{{]\\s*"') ELSE false END"""
)
_PERHAPS_TWICE = {
    column: _NESTED.format(column) + ("" if column == "args" else f" OR coalesce(len(json_keys({column})) > 1, false)")
    for column in _JSONS
}
# Below 2^43 us, different times in whole nanoseconds are different doubles, and the double nearest to a time of n ns is
# n / 1000. The condition thus also detects a time finer than a nanosecond, which is not the nearest double to any n ns.
_INEXACT = (
    "NOT isfinite({0}) OR {0} <> trunc({0}) AND (abs({0}) >= 8796093022208 "
    "OR (trunc({0}) * 1000 + round(({0} - trunc({0})) * 1000)) / 1000 <> {0})"
)
_NO_DOUBLES = "CAST(NULL AS DOUBLE) AS ts_us, CAST(NULL AS DOUBLE) AS dur_us"
_TIME_KEY = '("(?:ts|dur)"\\s*:\\s*)'


def write_piece(file: Path, entries: bytes | memoryview) -> None:
    """Write comma-separated entries as a JSON array, which the queries below can read."""
    with file.open("wb") as out:
        out.write(b"[")
        out.write(entries)
        out.write(b"]")


def read_entries(file: Path) -> bytes:
    """Return the entries that `write_piece` wrote."""
    return file.read_bytes()[1:-1]


def keys_in(con: duckdb.DuckDBPyConnection, file: Path, limit: int) -> frozenset[str]:
    """Return all keys of a piece's entries.

    DuckDB raises if the piece is not JSON, or an object is over `limit` bytes.
    """
    rows = con.execute(f"SELECT DISTINCT json_keys(entry) FROM {_entries(file, limit)}").fetchall()
    return frozenset(key for (keys,) in rows for key in keys or ())


def exact_times(file: Path, limit: int, keys: Set[str]) -> str:
    """Return the query for a piece like that of `known_keys`, with times as doubles, us.

    DuckDB raises if a time is finer than a nanosecond, or is not exact as a double.
    """
    names = {column: condition for column, condition in _SUSPECT_TEXT.items() if column not in _TIMES}
    inexact = {column: _INEXACT.format(column) for column in _TIMES}
    where = _refused(keys, _SUSPECT_JSON, _PERHAPS_TWICE, names, inexact)
    times = "CAST(NULL AS VARCHAR) AS ts, CAST(NULL AS VARCHAR) AS dur"
    return (
        f"SELECT * REPLACE ({times}), CAST(NULL AS VARCHAR) AS unknown, ts AS ts_us, dur AS dur_us "
        f"FROM ({_array(file, limit, keys, 'DOUBLE')}) {where}"
    )


@input_table(
    "raw_events",
    layer="ingest",
    doc="One row: an entry of a piece of traceEvents, as DuckDB reads its JSON.",
    columns=_COLUMNS,
)
def known_keys(
    file: Path, limit: int, keys: Set[str], refuse_suspect: bool = False, marked: bool = False, mended: bool = False
) -> str:
    """Return the query for a piece whose entries have only `keys`, all of them known keys.

    DuckDB rejects objects of over `limit` bytes. `refuse_suspect`: raise if a value may be a bare NaN or infinity.
    `marked`: remove the marks of quoted times from the other columns. `mended`: no object has a duplicate key.
    """
    columns = f"* REPLACE ({_unmarked((*_JSONS, *_NAMES))})" if marked else "*"
    suspect = (_SUSPECT_JSON, _SUSPECT_TEXT) if refuse_suspect else ()
    where = _refused(keys, *suspect, *(() if mended else (_PERHAPS_TWICE,)))
    return (
        f"SELECT {columns}, CAST(NULL AS VARCHAR) AS unknown, {_NO_DOUBLES} "
        f"FROM ({_array(file, limit, keys, 'VARCHAR')}) {where}"
    )


def _array(file: Path, limit: int, keys: Set[str], times: str) -> str:
    """Return the query for the columns in `keys`. Other columns are NULL, which saves an eighth of the time."""
    type_by_column = {name: times if name in _TIMES else kind for name, kind, _ in _KEYS}
    columns_read = [name for name in type_by_column if name in keys] or ["ph"]
    declared = ", ".join(f"{quoted(name)}: {quoted(type_by_column[name])}" for name in columns_read)
    columns = ", ".join(
        name if name in columns_read else f"CAST(NULL AS {kind}) AS {name}" for name, kind in type_by_column.items()
    )
    return (
        f"SELECT {columns} FROM read_json({quoted(file)}, format = 'array', records = true, "
        f"columns = {{{declared}}}, maximum_object_size = {limit}, hive_partitioning = false)"
    )


def _entries(file: Path, limit: int) -> str:
    return (
        f"read_json({quoted(file)}, format = 'array', records = false, columns = {{'entry': 'JSON'}}, "
        f"maximum_object_size = {limit}, hive_partitioning = false)"
    )


def _refused(keys: Set[str], *conditions: Mapping[str, str]) -> str:
    """Return the WHERE clause that raises an error if a condition on one of `keys` is true, or ''."""
    of_keys = [
        condition for condition_by_column in conditions for key, condition in condition_by_column.items() if key in keys
    ]
    if not of_keys:
        return ""
    return f"WHERE CASE WHEN {' OR '.join(of_keys)} THEN error('not to be read like this') ELSE true END"


def all_keys(file: Path, limit: int, marked: bool, mended: bool) -> str:
    """Return the query for a piece whose entries may have any keys.

    DuckDB raises an error for an entry with a duplicate key, and for an entry that is neither an object nor null.
    `marked`, `mended`: as for `known_keys`.
    """
    where = "" if mended else _refused({*_JSONS, "unknown"}, _PERHAPS_TWICE, {"unknown": _NESTED.format("unknown")})
    columns = f"* REPLACE ({_unmarked((*_JSONS, *_NAMES, 'unknown'))})" if marked else "*"
    return f"""
        SELECT {columns}, {_NO_DOUBLES} FROM (
            SELECT
                unnest(json_transform(CASE
                    WHEN json_type(entry) NOT IN ('OBJECT', 'NULL') THEN error('an entry that is not an object')
                    WHEN len(json_keys(entry)) <> len(list_distinct(json_keys(entry))) THEN error('a key twice')
                    ELSE entry
                END, '{{{_TYPES}}}')),
                CASE WHEN len({_OTHERS}) > 0 THEN '{{' || array_to_string({_MEMBERS}, ',') || '}}' END AS unknown
            FROM {_entries(file, limit)}
        )
        {where}"""


def _unmarked(columns: tuple[str, ...]) -> str:
    """Return REPLACE expressions that restore the original form of quoted times in arguments and names."""
    bare = "regexp_replace({0}, '" + _TIME_KEY + "\"~(-?\\d+\\.\\d+)\"', '\\1\\2', 'g')"
    text = f"regexp_replace({bare}, '{_TIME_KEY}\"~~', '\\1\"~', 'g')"
    unmarked = "CASE WHEN contains({0}, '\"~') THEN " + text + " ELSE {0} END AS {0}"
    return ", ".join(unmarked.format(column) for column in columns)


def with_kinds(query: str) -> str:
    """Return the query with an additional column _kind, a hash over the keys of the arguments."""
    return f"SELECT *, hash(json_keys(args)) AS _kind FROM (\n{query}\n)"


def has_duplicate_key(table: pa.Table, known: set[int]) -> bool:
    """Return whether arguments in the table have a duplicate key.

    Only one row of each kind is checked. Kinds without a duplicate are added to `known` and not checked again.
    """
    kinds = table["_kind"].combine_chunks()
    if new := set(kinds.unique().to_pylist()) - known:
        import numpy as np

        # to_numpy() would import pandas, which takes as long as reading 100,000 events.
        values, args = np.frombuffer(kinds.buffers()[1], dtype=np.uint64)[kinds.offset :], table["args"]
        texts = (args[int((values == kind).argmax())].as_py() for kind in new)
        if any(_is_twice(text) for text in texts if text):
            return True
        known |= new
    return False


def _is_twice(text: str) -> bool:
    has_duplicates: list[bool] = []
    try:
        json.loads(text, object_pairs_hook=lambda pairs: has_duplicates.append(len(dict(pairs)) < len(pairs)))
    except RecursionError:  # the tolerant reader reports the nesting and its position
        return True
    return any(has_duplicates)


def has_no_number(data: bytes) -> bool:
    """Return whether a bare NaN or infinity occurs as a value, outside strings."""
    for word in (word.encode() for word in WORDS):
        pos = data.find(word)
        while pos >= 0:
            char_before = data[max(pos - 8, 0) : pos].rstrip().rstrip(b"+-").rstrip()[-1:]
            char_after = data[pos : pos + 16].lstrip(b"+-NaAIiFfnTtYy").lstrip()[:1]
            if char_before in (b":", b",", b"[") and char_after in (b",", b"}", b"]"):
                return True
            pos = data.find(word, pos + 3)
    return False
