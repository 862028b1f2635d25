"""Reads a piece of the event array with DuckDB: entries as a JSON array in a separate file → `raw_events`.

DuckDB infers the columns from an entry with all known keys that comes first in the file. It then rejects an entry with
any other key, which it would silently ignore if the columns were declared. Such a piece is read again with whole
entries, and their unknown keys become column `unknown`.

Times are read as doubles where these hold every nanosecond: 0.21 instead of 0.29 CPU s for 12 MB with fractions. A piece
in which one does not is read again, with times as text.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.models.python_tables import given_table
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
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
_BEFORE = b"[{%s,%s}" % (
    b",".join(b'"%s":"x"' % name.encode() for name in _TEXTS),
    b",".join(b'"%s":null' % name.encode() for name in _JSONS),  # of unknown type: JSON
)
# Of the same length, with times that are doubles.
_BEFORE_DOUBLES = _BEFORE.replace(b'"ts":"x"', b'"ts":1.5').replace(b'"dur":"x"', b'"dur":1.5')
_BLANK = re.compile(rb"\s*\Z")
_TYPES = ", ".join(f'"{name}": "{kind}"' for name, kind, _ in _KEYS)
_KNOWN = ", ".join(quoted(name) for name in (*_TEXTS, *_JSONS))
_OTHERS = f"list_filter(json_keys(entry), lambda key: key NOT IN ({_KNOWN}))"
_VALUE = "CAST(json_extract(entry, '/' || replace(replace(key, '~', '~0'), '/', '~1')) AS VARCHAR)"
_MEMBERS = f"list_transform({_OTHERS}, lambda key: CAST(to_json(key) AS VARCHAR) || ':' || {_VALUE})"
# DuckDB's reader silently accepts a bare NaN or infinity. It yields the same text as a string would, so where this
# matches the bytes are checked.
WORDS = ("NaN", "nan", "NAN", "Inf", "inf", "INF")
_BARE = ", ".join(quoted(word) for word in ("NaN", "Infinity", "-Infinity"))
_SUSPECT_JSON = [
    f"CASE WHEN {' OR '.join(f'contains({column}, {quoted(word)})' for word in WORDS)} "
    f"THEN regexp_matches({column}, '(^|[:,[])\\s*[-+]?(?i:nan|inf)') ELSE false END"
    for column in _JSONS
]
_SUSPECT_TEXT = {column: f"{column} IN ({_BARE})" for column in _TEXTS}
# An object may have a key twice: `has_key_twice` looks at the arguments themselves. Objects within them, and the rarer
# columns with more than one key, are refused: the reader that mends looks at all.
_NESTED = (
    "CASE WHEN contains(substr({0}, 2), '{{') "
    """THEN regexp_matches({0}, '[^\\\\]"\\s*:\\s*[{{]|[[,]\\s*[{{]\\s*"') ELSE false END"""
)
_PERHAPS_TWICE = [_NESTED.format(column) for column in _JSONS]
_PERHAPS_TWICE += [f"coalesce(len(json_keys({column})) > 1, false)" for column in _JSONS if column != "args"]
# Below 2^43 us, different times in whole nanoseconds are different doubles, and the double nearest to a time of n ns is
# n / 1000. So this finds a finer time, too: it is the nearest double to no whole number of nanoseconds.
_INEXACT = (
    "NOT isfinite({0}) OR {0} <> trunc({0}) AND (abs({0}) >= 8796093022208 "
    "OR (trunc({0}) * 1000 + round(({0} - trunc({0})) * 1000)) / 1000 <> {0})"
)
_NO_DOUBLES = "CAST(NULL AS DOUBLE) AS ts_us, CAST(NULL AS DOUBLE) AS dur_us"
_TIME_KEY = '("(?:ts|dur)"\\s*:\\s*)'


def write_piece(file: Path, entries: bytes | memoryview, doubles: bool = False) -> None:
    """Write entries, with commas between them, as an array that the queries below can read; `doubles`: first by
    `exact_times`, before any other.
    """
    before = _BEFORE_DOUBLES if doubles else _BEFORE
    with file.open("wb") as out:
        out.write(before if _BLANK.match(entries) else before + b",")
        out.write(entries)
        out.write(b"]")


def read_times_as_text(file: Path) -> None:
    """Change a piece that was written for `exact_times` into one for `known_keys`."""
    with file.open("r+b") as out:
        out.write(_BEFORE)


def read_entries(file: Path) -> bytes:
    """Returns the entries that were written. If there are none, the text between them is gone."""
    return file.read_bytes()[len(_BEFORE) + 1 : -1]


def exact_times(file: Path, limit: int) -> str:
    """Returns the query for a piece like that of `known_keys`, whose times are numbers; an error if one is finer than
    a nanosecond, or a double does not hold it.
    """
    texts = [_SUSPECT_TEXT[column] for column in _TEXTS if column not in _TIMES]
    where = _refused([*_SUSPECT_JSON, *_PERHAPS_TWICE, *texts, *(_INEXACT.format(column) for column in _TIMES)])
    times = "CAST(NULL AS VARCHAR) AS ts, CAST(NULL AS VARCHAR) AS dur"
    return (
        f"SELECT * REPLACE ({times}), CAST(NULL AS VARCHAR) AS unknown, ts AS ts_us, dur AS dur_us "
        f"FROM {_array(file, limit)} {where} OFFSET 1"
    )


@given_table(
    "raw_events",
    layer="ingest",
    doc="One row: an entry of a piece of traceEvents, as DuckDB reads its JSON.",
    columns=_COLUMNS,
)
def known_keys(file: Path, limit: int, refuse_suspect: bool = False, marked: bool = False, mended: bool = False) -> str:
    """Returns the query for a piece whose entries have only known keys; DuckDB rejects others, and objects of over
    `limit` bytes. `mended`: no object has a key twice.
    """
    columns = f"* REPLACE ({_unmarked((*_JSONS, *_NAMES))})" if marked else "*"
    suspect = [*_SUSPECT_JSON, *_SUSPECT_TEXT.values()] if refuse_suspect else []
    where = _refused([*suspect, *([] if mended else _PERHAPS_TWICE)])
    return (
        f"SELECT {columns}, CAST(NULL AS VARCHAR) AS unknown, {_NO_DOUBLES} FROM {_array(file, limit)} {where} OFFSET 1"
    )


def _array(file: Path, limit: int) -> str:
    return (
        f"read_json({quoted(file)}, format = 'array', records = true, sample_size = 1, maximum_object_size = {limit})"
    )


def _refused(conditions: list[str]) -> str:
    if not conditions:
        return ""
    return f"WHERE CASE WHEN {' OR '.join(conditions)} THEN error('not to be read like this') ELSE true END"


def all_keys(file: Path, limit: int, marked: bool = False, mended: bool = False) -> str:
    """Returns the query for a piece with any keys; DuckDB rejects an entry with a duplicate key, and non-objects.

    `mended`: no object has a key twice.
    """
    where = "" if mended else _refused([*_PERHAPS_TWICE, _NESTED.format("unknown")])
    columns = f"* REPLACE ({_unmarked((*_JSONS, *_NAMES, 'unknown'))})" if marked else "*"
    source = f"read_json({quoted(file)}, format = 'array', records = false, columns = {{'entry': 'JSON'}}, maximum_object_size = {limit})"
    return f"""
        SELECT {columns}, {_NO_DOUBLES} FROM (
            SELECT
                unnest(json_transform(CASE
                    WHEN json_type(entry) NOT IN ('OBJECT', 'NULL') THEN error('an entry that is no object')
                    WHEN len(json_keys(entry)) <> len(list_distinct(json_keys(entry))) THEN error('a key twice')
                    ELSE entry
                END, '{{{_TYPES}}}')),
                CASE WHEN len({_OTHERS}) > 0 THEN '{{' || array_to_string({_MEMBERS}, ',') || '}}' END AS unknown
            FROM {source} OFFSET 1
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
