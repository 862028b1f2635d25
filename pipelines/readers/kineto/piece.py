"""Reads a piece of the event array with DuckDB: entries as a JSON array in a separate file → `raw_events`.

Columns and types are declared: what DuckDB would infer differs from version to version, and whether it then rejects an
unknown key, too. It silently ignores keys that are not declared, so `keys_in` reads the keys of all entries first. A
piece with unknown keys is read as whole entries, and these keys become column `unknown`.

Times are read as doubles where these hold every nanosecond: 0.21 instead of 0.29 CPU s for 12 MB with fractions. A piece
in which one does not is read again, with times as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.models.python_tables import given_table
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
_NAMES = tuple(name for name in _TEXTS if name not in _TIMES)  # or objects, as text
_TYPES = ", ".join(f'"{name}": "{kind}"' for name, kind, _ in _KEYS)
KNOWN_KEYS = frozenset(name for name, _, _ in _KEYS)
_KNOWN = ", ".join(quoted(name) for name in (*_TEXTS, *_JSONS))
_OTHERS = f"list_filter(json_keys(entry), lambda key: key NOT IN ({_KNOWN}))"
_VALUE = "CAST(json_extract(entry, '/' || replace(replace(key, '~', '~0'), '/', '~1')) AS VARCHAR)"
_MEMBERS = f"list_transform({_OTHERS}, lambda key: CAST(to_json(key) AS VARCHAR) || ':' || {_VALUE})"
# DuckDB's reader silently accepts a bare NaN or infinity. It yields the same text as a string would, so where this
# matches the bytes are checked.
WORDS = ("NaN", "nan", "NAN", "Inf", "inf", "INF")
_BARE = ", ".join(quoted(word) for word in ("NaN", "Infinity", "-Infinity"))
_SUSPECT_JSON = {
    column: f"CASE WHEN {' OR '.join(f'contains({column}, {quoted(word)})' for word in WORDS)} "
    f"THEN regexp_matches({column}, '(^|[:,[])\\s*[-+]?(?i:nan|inf)') ELSE false END"
    for column in _JSONS
}
_SUSPECT_TEXT = {column: f"{column} IN ({_BARE})" for column in _TEXTS}
# An object may have a key twice: `has_key_twice` looks at the arguments themselves. Objects within them, and the rarer
# columns with more than one key, are refused: the reader that mends looks at all.
_NESTED = (
    "CASE WHEN contains(substr({0}, 2), '{{') "
    """THEN regexp_matches({0}, '[^\\\\]"\\s*:\\s*[{{]|[[,]\\s*[{{]\\s*"') ELSE false END"""
)
_PERHAPS_TWICE = {
    column: _NESTED.format(column) + ("" if column == "args" else f" OR coalesce(len(json_keys({column})) > 1, false)")
    for column in _JSONS
}
# Below 2^43 us, different times in whole nanoseconds are different doubles, and the double nearest to a time of n ns is
# n / 1000. So this finds a finer time, too: it is the nearest double to no whole number of nanoseconds.
_INEXACT = (
    "NOT isfinite({0}) OR {0} <> trunc({0}) AND (abs({0}) >= 8796093022208 "
    "OR (trunc({0}) * 1000 + round(({0} - trunc({0})) * 1000)) / 1000 <> {0})"
)
_NO_DOUBLES = "CAST(NULL AS DOUBLE) AS ts_us, CAST(NULL AS DOUBLE) AS dur_us"
_TIME_KEY = '("(?:ts|dur)"\\s*:\\s*)'


def write_piece(file: Path, entries: bytes | memoryview) -> None:
    """Write entries, with commas between them, as an array that the queries below can read."""
    with file.open("wb") as out:
        out.write(b"[")
        out.write(entries)
        out.write(b"]")


def read_entries(file: Path) -> bytes:
    """Returns the entries that were written."""
    return file.read_bytes()[1:-1]


def keys_in(con: duckdb.DuckDBPyConnection, file: Path, limit: int) -> frozenset[str]:
    """Returns all keys of a piece's entries. Raises DuckDB's error for a piece that is no JSON, or has an object of over `limit` bytes."""
    rows = con.execute(f"SELECT DISTINCT json_keys(entry) FROM {_entries(file, limit)}").fetchall()
    return frozenset(key for (keys,) in rows for key in keys or ())


def exact_times(file: Path, limit: int, keys: Set[str]) -> str:
    """Returns the query for a piece like that of `known_keys`, whose times are numbers; an error if one is finer than
    a nanosecond, or a double does not hold it.
    """
    names = {column: condition for column, condition in _SUSPECT_TEXT.items() if column not in _TIMES}
    inexact = {column: _INEXACT.format(column) for column in _TIMES}
    where = _refused(keys, _SUSPECT_JSON, _PERHAPS_TWICE, names, inexact)
    times = "CAST(NULL AS VARCHAR) AS ts, CAST(NULL AS VARCHAR) AS dur"
    return (
        f"SELECT * REPLACE ({times}), CAST(NULL AS VARCHAR) AS unknown, ts AS ts_us, dur AS dur_us "
        f"FROM ({_array(file, limit, keys, 'DOUBLE')}) {where}"
    )


@given_table(
    "raw_events",
    layer="ingest",
    doc="One row: an entry of a piece of traceEvents, as DuckDB reads its JSON.",
    columns=_COLUMNS,
)
def known_keys(
    file: Path, limit: int, keys: Set[str], refuse_suspect: bool = False, marked: bool = False, mended: bool = False
) -> str:
    """Returns the query for a piece whose entries have only `keys`, which are all known; DuckDB rejects objects of over
    `limit` bytes. `mended`: no object has a key twice.
    """
    columns = f"* REPLACE ({_unmarked((*_JSONS, *_NAMES))})" if marked else "*"
    suspect = (_SUSPECT_JSON, _SUSPECT_TEXT) if refuse_suspect else ()
    where = _refused(keys, *suspect, *(() if mended else (_PERHAPS_TWICE,)))
    return (
        f"SELECT {columns}, CAST(NULL AS VARCHAR) AS unknown, {_NO_DOUBLES} "
        f"FROM ({_array(file, limit, keys, 'VARCHAR')}) {where}"
    )


def _array(file: Path, limit: int, keys: Set[str], times: str) -> str:
    """Only columns that occur are read: the others would take an eighth of the time."""
    types = {name: times if name in _TIMES else kind for name, kind, _ in _KEYS}
    read = [name for name in types if name in keys] or ["ph"]
    declared = ", ".join(f"{quoted(name)}: {quoted(types[name])}" for name in read)
    columns = ", ".join(name if name in read else f"CAST(NULL AS {kind}) AS {name}" for name, kind in types.items())
    return (
        f"SELECT {columns} FROM read_json({quoted(file)}, format = 'array', records = true, "
        f"columns = {{{declared}}}, maximum_object_size = {limit})"
    )


def _entries(file: Path, limit: int) -> str:
    return (
        f"read_json({quoted(file)}, format = 'array', records = false, columns = {{'entry': 'JSON'}}, "
        f"maximum_object_size = {limit})"
    )


def _refused(keys: Set[str], *conditions: Mapping[str, str]) -> str:
    """Returns the WHERE that refuses a row for which a condition on one of `keys` holds."""
    of_keys = [condition for some in conditions for key, condition in some.items() if key in keys]
    if not of_keys:
        return ""
    return f"WHERE CASE WHEN {' OR '.join(of_keys)} THEN error('not to be read like this') ELSE true END"


def all_keys(file: Path, limit: int, marked: bool = False, mended: bool = False) -> str:
    """Returns the query for a piece with any keys; DuckDB rejects an entry with a duplicate key, and non-objects.

    `mended`: no object has a key twice.
    """
    where = "" if mended else _refused({*_JSONS, "unknown"}, _PERHAPS_TWICE, {"unknown": _NESTED.format("unknown")})
    columns = f"* REPLACE ({_unmarked((*_JSONS, *_NAMES, 'unknown'))})" if marked else "*"
    return f"""
        SELECT {columns}, {_NO_DOUBLES} FROM (
            SELECT
                unnest(json_transform(CASE
                    WHEN json_type(entry) NOT IN ('OBJECT', 'NULL') THEN error('an entry that is no object')
                    WHEN len(json_keys(entry)) <> len(list_distinct(json_keys(entry))) THEN error('a key twice')
                    ELSE entry
                END, '{{{_TYPES}}}')),
                CASE WHEN len({_OTHERS}) > 0 THEN '{{' || array_to_string({_MEMBERS}, ',') || '}}' END AS unknown
            FROM {_entries(file, limit)}
        )
        {where}"""


def _unmarked(columns: tuple[str, ...]) -> str:
    """Restores times that json_repair.py quoted to their original form, in arguments and in what should be a name."""
    bare = "regexp_replace({0}, '" + _TIME_KEY + "\"~(-?\\d+\\.\\d+)\"', '\\1\\2', 'g')"
    text = f"regexp_replace({bare}, '{_TIME_KEY}\"~~', '\\1\"~', 'g')"
    kept = "CASE WHEN contains({0}, '\"~') THEN " + text + " ELSE {0} END AS {0}"
    return ", ".join(kept.format(column) for column in columns)


def with_kinds(query: str) -> str:
    """Returns the query with a column _kind, a hash over the keys of the arguments."""
    return f"SELECT *, hash(json_keys(args)) AS _kind FROM (\n{query}\n)"


def has_key_twice(table: pa.Table, known: set[int]) -> bool:
    """Returns whether some arguments have a key twice. One of each kind is looked at; those without are added to `known`, and are
    not looked at again.
    """
    kinds = table["_kind"].combine_chunks()
    if new := set(kinds.unique().to_pylist()) - known:
        import numpy as np

        # Not to_numpy(), which imports pandas: that takes as long as reading 100,000 events.
        values, args = np.frombuffer(kinds.buffers()[1], dtype=np.uint64)[kinds.offset :], table["args"]
        texts = (args[int((values == kind).argmax())].as_py() for kind in new)
        if any(_is_twice(text) for text in texts if text):
            return True
        known |= new
    return False


def _is_twice(text: str) -> bool:
    found: list[bool] = []
    json.loads(text, object_pairs_hook=lambda pairs: found.append(len(dict(pairs)) < len(pairs)))
    return any(found)


def has_no_number(data: bytes) -> bool:
    """Finds a bare NaN or infinity: the word as a value, outside strings."""
    for word in (word.encode() for word in WORDS):
        at = data.find(word)
        while at >= 0:
            before = data[max(at - 8, 0) : at].rstrip().rstrip(b"+-").rstrip()[-1:]
            after = data[at : at + 16].lstrip(b"+-NaAIiFfnTtYy").lstrip()[:1]
            if before in (b":", b",", b"[") and after in (b",", b"}", b"]"):
                return True
            at = data.find(word, at + 3)
    return False
