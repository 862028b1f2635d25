"""Copying of an export's tables to DuckDB, a chunk at a time, from descriptions of the tables (`Source`).

Missing columns, and values of a wrong type, become NULL, and a finding reports them. The finding's name begins with the
tool: nsys_missing_table, …_missing_column, …_wrong_type, …_without_time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from pipelines.models.python_tables import insert_rows
from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.sqlite_exports.open_export import Exported, column


@dataclass(frozen=True)
class Source:
    """A table of the export. `columns`: our names → the export's names. `staged`: our table.

    `needed`: columns (our names) without which answers are wrong or missing. The other columns are missing in older
    exports. `process`: the export's column with the process, in the bits from `process_shift` on. `about`: the
    consequence if the table is missing, '' if most exports have no such table. `work`: value of the column `source` for
    the table's rows, if they ran on a GPU. `timed`: columns (our names) in which every row has a time. `texts`: text
    columns (our names); all others are integers.
    """

    name: str
    staged: str
    columns: dict[str, str]
    needed: frozenset[str]
    process: str | None
    about: str = ""
    work: str = ""
    timed: tuple[str, ...] = ("start_ns", "end_ns")
    texts: frozenset[str] = frozenset()
    process_shift: int = 0

    @property
    def process_sql(self) -> str:
        """The SQL expression of a row's process key, for SQLite."""
        return f"{column(self.process or '')} >> {self.process_shift}"


def stage_source(
    con: duckdb.DuckDBPyConnection, tool: str, export: Exported, source: Source, process: int | None
) -> list[Finding]:
    """Copy the rows of one process (None: all rows) to `source.staged`. Return findings about missing or wrong data.

    Raise TraceRejected if the table cannot be read, or two rows have the same `id`.
    """
    columns_present = export.columns(source.name)
    if not columns_present:
        message = f"{source.name}: {source.about}"
        return [Finding(f"{tool}_missing_table", "warning", 1, message)] if source.about else []
    columns = {ours: theirs for ours, theirs in source.columns.items() if theirs in columns_present}
    if "id" in columns:
        export.check_unique(source.name, columns["id"])
    where, values = _of_process(source, columns_present, process)
    selected = [(text_or_null if ours in source.texts else integer_or_null)(theirs) for ours, theirs in columns.items()]
    constant = ("source",) if source.work else ()
    query = f"SELECT {', '.join(['?'] * len(constant) + selected) or 'NULL'} FROM {column(source.name)}{where}"
    chunks = export.chunks(source.name, query, (*((source.work,) if constant else ()), *values))
    for chunk in chunks if columns else ():
        insert_rows(con, source.staged, chunk, (*constant, *columns))
    return [*_missing(tool, source, columns), *_wrong(tool, export, source, columns, where, values)]


def _of_process(source: Source, columns_present: frozenset[str], process: int | None) -> tuple[str, tuple[int, ...]]:
    if process is None or source.process not in columns_present:
        return "", ()
    return f" WHERE {source.process_sql} = ?", (process,)


def _missing(tool: str, source: Source, columns: dict[str, str]) -> Iterator[Finding]:
    """Yield a warning about missing columns that are needed, and an info about other missing columns."""
    absent = source.columns.keys() - columns.keys()
    for severity, names in (("warning", absent & source.needed), ("info", absent - source.needed)):
        if names:
            names_text = ", ".join(sorted(source.columns[name] for name in names))
            yield Finding(f"{tool}_missing_column", severity, len(names), f"{source.name} has no {names_text}: NULL")


def _wrong(
    tool: str, export: Exported, source: Source, columns: dict[str, str], where: str, values: tuple[int, ...]
) -> Iterator[Finding]:
    """Yield findings about values that are neither NULL nor of the column's type, and about rows without a time."""
    wrong_type_counts = [
        f"sum(typeof({column(theirs)}) NOT IN ('null', '{'text' if ours in source.texts else 'integer'}'))"
        for ours, theirs in columns.items()
    ]
    times = [f"typeof({column(columns[ours])}) <> 'integer'" for ours in source.timed if ours in columns]
    untimed = f"sum({' OR '.join(times)})" if times else "0"
    ((n_wrong, n_untimed),) = export.rows(
        source.name,
        f"SELECT {' + '.join(wrong_type_counts) or '0'}, {untimed} FROM {column(source.name)}{where}",
        values,
    )
    if n_wrong:
        message = f"{source.name}: values that are not of their column's type became NULL"
        yield Finding(f"{tool}_wrong_type", "error", n_wrong, message)
    if n_untimed:
        yield Finding(f"{tool}_without_time", "warning", n_untimed, f"{source.name}: rows without a start or an end")


def integer_or_null(name: str) -> str:
    """Return SQLite's expression for a column's value if it is an integer, else NULL."""
    return f"CASE typeof({column(name)}) WHEN 'integer' THEN {column(name)} END"


def text_or_null(name: str) -> str:
    """Return SQLite's expression for a column's value if it is text, else NULL."""
    return f"CASE typeof({column(name)}) WHEN 'text' THEN {column(name)} END"
