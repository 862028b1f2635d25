"""Reads a piece of the event array with DuckDB: entries as a JSON array in a separate file → `raw_events`.

DuckDB infers the columns from an entry with all known keys that comes first in the file. It then rejects an entry with
any other key, which it would silently ignore if the columns were declared. Such a piece is read again with whole
entries, and their unknown keys become column `unknown`.
"""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.models.python_tables import given_table
from pipelines.sqltext import quoted

_COLUMNS = (
    ("ph", "VARCHAR", "Phase."),
    ("cat", "VARCHAR", "Category."),
    ("name", "VARCHAR", "Name."),
    ("pid", "VARCHAR", "Process."),
    ("tid", "VARCHAR", "Thread."),
    ("ts", "VARCHAR", "Start, us; with a ~ before it where it was quoted on the way."),
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
)
_TEXTS = tuple(name for name, kind, _ in _COLUMNS[:-1] if kind == "VARCHAR")
_JSONS = tuple(name for name, kind, _ in _COLUMNS if kind == "JSON")
_BEFORE = b"[{%s,%s}" % (
    b",".join(b'"%s":"x"' % name.encode() for name in _TEXTS),
    b",".join(b'"%s":null' % name.encode() for name in _JSONS),  # of unknown type: JSON
)
_BLANK = re.compile(rb"\s*\Z")
_TYPES = ", ".join(f'"{name}": "{kind}"' for name, kind, _ in _COLUMNS[:-1])
_KNOWN = ", ".join(quoted(name) for name in (*_TEXTS, *_JSONS))
_OTHERS = f"list_filter(json_keys(entry), lambda key: key NOT IN ({_KNOWN}))"
_VALUE = "CAST(json_extract(entry, '/' || replace(replace(key, '~', '~0'), '/', '~1')) AS VARCHAR)"
_MEMBERS = f"list_transform({_OTHERS}, lambda key: CAST(to_json(key) AS VARCHAR) || ':' || {_VALUE})"
# DuckDB's reader silently accepts a bare NaN or infinity. It yields the same text as a string would, so where this
# matches the bytes are checked.
WORDS = ("NaN", "nan", "NAN", "Inf", "inf", "INF")
_BARE = ", ".join(quoted(word) for word in ("NaN", "Infinity", "-Infinity"))
_SUSPECT = " OR ".join(
    [
        *(
            f"CASE WHEN {' OR '.join(f'contains({column}, {quoted(word)})' for word in WORDS)} "
            f"THEN regexp_matches({column}, '(^|[:,[])\\s*[-+]?(?i:nan|inf)') ELSE false END"
            for column in _JSONS
        ),
        *(f"{column} IN ({_BARE})" for column in _TEXTS),
    ]
)
_REFUSE_SUSPECT = f"WHERE CASE WHEN {_SUSPECT} THEN error('a bare NaN or infinity, perhaps') ELSE true END"
_TIME_KEY = '("(?:ts|dur)"\\s*:\\s*)'


def write_piece(file: Path, entries: bytes | memoryview) -> None:
    """Write entries, with commas between them, as an array that the queries below can read."""
    with file.open("wb") as out:
        out.write(_BEFORE if _BLANK.match(entries) else _BEFORE + b",")
        out.write(entries)
        out.write(b"]")


def read_entries(file: Path) -> bytes:
    """Returns the entries that were written. If there are none, the text between them is gone."""
    return file.read_bytes()[len(_BEFORE) + 1 : -1]


@given_table(
    "raw_events",
    layer="ingest",
    doc="One row: an entry of a piece of traceEvents, as DuckDB reads its JSON.",
    columns=_COLUMNS,
)
def known_keys(file: Path, limit: int, refuse_suspect: bool = False, marked: bool = False) -> str:
    """Returns the query for a piece whose entries have only known keys; DuckDB rejects others, and objects of over
    `limit` bytes.
    """
    columns = f"* REPLACE ({_unmarked(_JSONS)})" if marked else "*"
    where = _REFUSE_SUSPECT if refuse_suspect else ""
    source = (
        f"read_json({quoted(file)}, format = 'array', records = true, sample_size = 1, maximum_object_size = {limit})"
    )
    return f"SELECT {columns}, CAST(NULL AS VARCHAR) AS unknown FROM {source} {where} OFFSET 1"


def all_keys(file: Path, limit: int, marked: bool = False) -> str:
    """Returns the query for a piece with any keys; DuckDB rejects an entry with a duplicate key, and non-objects."""
    columns = f"* REPLACE ({_unmarked((*_JSONS, 'unknown'))})" if marked else "*"
    source = f"read_json({quoted(file)}, format = 'array', records = false, columns = {{'entry': 'JSON'}}, maximum_object_size = {limit})"
    return f"""
        SELECT {columns} FROM (
            SELECT
                unnest(json_transform(CASE
                    WHEN json_type(entry) NOT IN ('OBJECT', 'NULL') THEN error('an entry that is no object')
                    WHEN len(json_keys(entry)) <> len(list_distinct(json_keys(entry))) THEN error('a key twice')
                    ELSE entry
                END, '{{{_TYPES}}}')),
                CASE WHEN len({_OTHERS}) > 0 THEN '{{' || array_to_string({_MEMBERS}, ',') || '}}' END AS unknown
            FROM {source} OFFSET 1
        )"""


def _unmarked(columns: tuple[str, ...]) -> str:
    """Restores times that repair.py quoted to their original form, in arguments."""
    bare = "regexp_replace({0}, '" + _TIME_KEY + "\"~(-?\\d+\\.\\d+)\"', '\\1\\2', 'g')"
    text = f"regexp_replace({bare}, '{_TIME_KEY}\"~~', '\\1\"~', 'g')"
    kept = "CASE WHEN contains({0}, '\"~') THEN " + text + " ELSE {0} END AS {0}"
    return ", ".join(kept.format(column) for column in columns)


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
