"""The views of the large tables, which read their files through macros.

Most tables have a file in every batch, so tables share lists of batches. Each list is a macro that contains the names
of some batches. The macro `tracelake."files of <table>"` concatenates a table's lists. The macro `tracelake."rows of
<table>"` reads these files, and the view selects from it. A view's text depends neither on the number of batches nor on
the lake, and a new batch changes only one short list. The ids of the batches alone determine where a list begins, so
adding or removing a batch leaves other lists unchanged. Old lists are long, and the newest lists are short.

A view joins the rows with the marker also by file name, so that a query of one trace opens only its batch's file.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from pipelines.base.paths import utf8_path
from pipelines.lake.commit.staged_rows import insert_values
from pipelines.lake.names import CAPTURE_MARK, KEYS, MARK, REJECTS, Batch, mark_of, table_file
from pipelines.lake.read.snapshot import Now
from pipelines.lake.read.views import files_rows, valid_rows
from pipelines.lake.table_files import table_names
from pipelines.models.catalog import Catalog, Model
from pipelines.models.sqltext import file_list, quoted

SCHEMA = "tracelake"
MACROS = f"{SCHEMA}.macros"
# Mean number of batches per list. _LARGE is a multiple of _SMALL, so a long list begins where a short list would.
_SMALL, _LARGE = 32, 256
# The row count that DuckDB should assume for files that it has not opened. Its default is so low that it may build the
# hash table of the join from these files instead of from the marker's rows.
_MANY = 100_000_000
# Tables that are copied, in addition to all tables of scopes other than traces and captures.
_COPIED = (MARK, "findings", REJECTS)
_LARGE_OF_CAPTURES = (
    "collective_ranks",
    "capture_critical_path",
)  # all other tables of captures are small
Types = Iterable[tuple[str, str]]


def is_large(model: Model) -> bool:
    """Return whether a table is a view over its files. Small tables are copied into the analysts' file."""
    if model.kind in ("view", "rules"):
        return False
    if mark_of(model.name) == CAPTURE_MARK:
        return model.name in _LARGE_OF_CAPTURES
    return mark_of(model.name) == MARK and model.name not in _COPIED and model.layer != "summary"


def view_of(table: str) -> str:
    """Return the statement that creates the view of a large table, with the columns and rows of its macro."""
    return f"CREATE VIEW {table} AS FROM {_call(rows_of(table))}"


def rows_of(table: str) -> str:
    """Return the name of the macro that returns a large table's rows."""
    return f"rows of {table}"


def chunks(batch_ids: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Split the batches into lists of consecutive ids. Each list is keyed by its first id."""
    names = sorted(batch_ids)
    sums = [zlib.crc32(name.encode()) for name in names]
    newest = max((index for index, checksum in enumerate(sums) if checksum % _LARGE == 0), default=0)
    starts = [
        index
        for index, checksum in enumerate(sums)
        if index == 0 or checksum % _LARGE == 0 or (index > newest and checksum % _SMALL == 0)
    ]
    ends = [*starts[1:], len(names)] if names else []
    return {names[start]: tuple(names[start:end]) for start, end in zip(starts, ends, strict=True)}


@dataclass(frozen=True)
class Files:
    """The committed files of a table.

    `lists`: macros that name the files whose columns are current according to the catalog. `others`: all other files,
    whose columns are read from the files.
    """

    table: str
    lists: tuple[str, ...]
    others: tuple[Path, ...]

    def rows(self, root: Path, types: Types) -> str | None:
        """Return the SELECT of the committed rows, or None without files. `types`: the columns of this version."""
        certain = _certain_rows(self.table, root, types) if self.lists else None
        other_rows = valid_rows(self.table, files_rows(_call(_others(self.table)))) if self.others else None
        return " UNION ALL BY NAME ".join(f"({rows})" for rows in (certain, other_rows) if rows) or None


@dataclass
class Lists:
    """The macros that name the committed files. `macros`: the macros' text by name, for the tables requested so far."""

    now: Now
    catalog: Catalog
    macros: dict[str, str] = field(default_factory=dict)
    _parts: dict[str, dict[str, list[list[str]]]] = field(default_factory=dict)
    _named: dict[tuple[str, ...], str] = field(default_factory=dict)
    _there: dict[str, dict[str, Path]] = field(default_factory=dict)

    def of(self, table: str) -> Files:
        """Return a table's files, and add its macros."""
        lists, other_paths = [], []
        for groups in self._groups(mark_of(table)).values():
            certain = [names for names in groups if self._is_certain(table, names[0])]
            if certain:
                lists.append(self._name_list(certain))
            uncertain = (name for names in groups if names not in certain for name in names)
            other_paths += [self._file(table, name) for name in uncertain if self.now.has(table, name)]
        if lists:
            names = ", ".join(_call(name) for name in lists)
            folder = quoted(f"{utf8_path(self.now.root)}/{table}/")
            listed = f"string_split(concat_ws(' ', {names}), ' ')"
            self.macros[_certain(table)] = f"list_transform({listed}, lambda name: {folder} || name || '.parquet')"
        return self.of_others(table, other_paths, tuple(lists))

    def of_others(self, table: str, others: Iterable[Path], lists: tuple[str, ...] = ()) -> Files:
        """Return a table's files and add the macro of `others`, whose columns the catalog does not record."""
        files = Files(table, lists, tuple(sorted(others)))
        if files.others:
            self.macros[_others(table)] = file_list(files.others)
        return files

    def fit(self, table: str) -> bool:
        """Return whether all files of a computed table have the columns of this version."""
        groups = (names for groups in self._groups(mark_of(table)).values() for names in groups)
        return all(self._is_certain(table, names[0]) for names in groups if self.now.has(table, names[0]))

    def _file(self, table: str, name: str) -> Path:
        # List the folder once, because checking the files one by one takes ten times as long.
        if table not in self._there:
            self._there[table] = table_names(self.now.root, table)
        return self._there[table].get(name) or table_file(self.now.root, table, Batch(name))

    def _groups(self, mark: str) -> dict[str, list[list[str]]]:
        """Return the lists of a marker's batches, each as groups of batches with equal tables and versions."""
        if mark not in self._parts:
            self._parts[mark] = {}
            for first, names in chunks(self.now.marks[mark]).items():
                of_kind: defaultdict[object, list[str]] = defaultdict(list)
                for name in names:
                    of_kind[name if name in self.now.loose else id(self.now.entries[name].kind)].append(name)
                self._parts[mark][first] = list(of_kind.values())
        return self._parts[mark]

    def _is_certain(self, table: str, name: str) -> bool:
        """Return whether a batch has a file of a table, with the columns of this version."""
        if name in self.now.loose:
            return False
        kind, model = self.now.entries[name].kind, self.catalog.models[table]
        if table not in kind.places or any(column.name == "filename" for column in model.columns):
            return False
        # Ingested tables (kind "lake") have no version.
        return model.kind == "lake" or kind.versions.get(table) == self.catalog.version(table)

    def _name_list(self, groups: list[list[str]]) -> str:
        key = tuple(names[0] for names in groups)
        if key not in self._named:
            names = sorted(name for group in groups for name in group)
            text = " ".join(f"day={Batch(name).day}/{name}" for name in names)
            self._named[key] = f"{names[0]} {zlib.crc32(text.encode()):08x}"
            self.macros[self._named[key]] = quoted(text)
        return self._named[key]


def write_macros(con: duckdb.DuckDBPyConnection, macros: Mapping[str, str]) -> None:
    """Create or replace the macros that changed, drop those that no longer exist, and update the table MACROS."""
    before = macros_in(con)
    changed = {name: text for name, text in macros.items() if before.get(name) != text}
    # A macro can be created only after the macros that it calls, so create the lists of names first.
    for name, text in sorted(
        changed.items(), key=lambda item: item[0].startswith("files of ") + 2 * item[0].startswith("rows of ")
    ):
        con.execute(f'CREATE OR REPLACE MACRO {SCHEMA}."{name}"() AS {text}')
    dropped = sorted(before.keys() - macros.keys())
    for name in dropped:
        con.execute(f'DROP MACRO {SCHEMA}."{name}"')
    if stale := [*dropped, *changed]:
        con.execute(f"DELETE FROM {MACROS} WHERE name IN ({', '.join(map(quoted, stale))})")
    insert_values(con, MACROS, [{"name": name, "text": text} for name, text in changed.items()])


def macros_in(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the text of each macro in an analysts' file, by name."""
    return dict(con.execute(f"SELECT name, text FROM {MACROS}").fetchall())


def _certain_rows(table: str, root: Path, types: Types) -> str:
    key, mark = KEYS[mark_of(table)], mark_of(table)
    schema = ", ".join(
        f"{quoted(name)}: {{name: {quoted(name)}, type: {quoted(kind)}, default_value: NULL}}" for name, kind in types
    )
    # DuckDB prunes files only by a column that is called `filename`.
    files = (
        f"read_parquet({_call(_certain(table))}, hive_partitioning = false, filename = true, "
        f"explicit_cardinality = {_MANY}, schema = MAP {{{schema}}})"
    )
    folder = quoted(f"{utf8_path(root)}/{table}/day=")
    day = "batch_id[1:4], '-', batch_id[5:6], '-', batch_id[7:8]"
    marked = f"SELECT {key}, batch_id, concat({folder}, {day}, '/', batch_id, '.parquet') AS filename FROM {mark}"
    # The key comes from the marker, so a query's filter on it applies to the marker's few rows, which select the files.
    return (
        f"SELECT file.* EXCLUDE (filename) REPLACE (mark.{key} AS {key}) FROM {files} AS file "
        f"JOIN ({marked}) AS mark USING (filename, {key}, batch_id)"
    )


def _certain(table: str) -> str:
    return f"files of {table}"


def _others(table: str) -> str:
    return f"other files of {table}"


def _call(macro: str) -> str:
    return f'{SCHEMA}."{macro}"()'
