"""One SQL file of the catalog, read with sqlglot: its header, columns, dependencies and what it may not contain.

Where it says `threshold('name')`, the number is put from `sql/rules/thresholds.csv`: so a plan and a model's version are the
same as with the number in the text, on every engine and in views.

Parsing all files takes half a second, so results are kept, by folder, in the user's cache folder; they are used only if
the texts and this module are identical.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.base.datafiles import thresholds
from pipelines.models.cache import digest_of, remembered
from pipelines.models.errors import CatalogError
from pipelines.models.header import Header, read_header
from pipelines.models.needed_rows import Needs, needs_of
from pipelines.models.rule_functions import FUNCTIONS

_THRESHOLD = re.compile(r"\bthreshold\('([^']*)'\)")
STAGED = "_staged_"  # what ingestion read, before the SQL of the table of that name assigns types


@dataclass(frozen=True)
class Column:
    """An output column and its meaning, unit included."""

    name: str
    doc: str


@dataclass(frozen=True)
class ParsedFile:
    """What a file says about its table; `sql` is its text with its thresholds, run unchanged.

    `staged`: the columns that it reads from `_staged_<its name>`, with the types that it casts them to. `needs`: the tables
    without whose rows it has none.
    """

    sql: str
    header: Header
    columns: tuple[Column, ...]
    dependencies: tuple[str, ...]
    staged: dict[str, str]
    needs: Needs


def parse_files(folder: Path, paths: list[Path]) -> dict[Path, ParsedFile]:
    """Parse the files of a folder, or take what an earlier process parsed from the same texts. Raises CatalogError."""
    texts = {path: with_thresholds(path, path.read_text(encoding="utf-8")) for path in paths}
    rules = [
        (Path(__file__).with_name(name)).read_bytes()
        for name in ("sqlfile.py", "portable.py", "header.py", "needed_rows.py")
    ]
    digest = digest_of([*rules, *(part for path, text in texts.items() for part in (str(path), text))])

    def parse_all() -> dict[str, Any]:
        parsed = {path: parse_file(path, text) for path, text in texts.items()}
        return {str(path): {**asdict(file), "sql": ""} for path, file in parsed.items()}

    known = remembered(f"catalog-{digest_of([str(folder)])[:16]}", digest, parse_all)
    return {path: _from_json(text, known[str(path)]) for path, text in texts.items()}


def with_thresholds(path: Path, text: str) -> str:
    """Put the numbers for the names of thresholds. Raises CatalogError for a name that is not in the table."""
    values = thresholds()
    for call in _THRESHOLD.finditer(text):
        if call[1] not in values:
            line = text.count("\n", 0, call.start()) + 1
            raise CatalogError(f"{path}:{line}: unknown threshold {call[1]!r}; add its row to sql/rules/thresholds.csv")
    return _THRESHOLD.sub(lambda call: values[call[1]], text)


def parse_file(path: Path, text: str) -> ParsedFile:
    """Parse one file and check it against the rules. Raises CatalogError with file, line and what to write."""
    header = read_header(path, text)
    query = _query(path, text)
    tables = _tables(query)
    staged = _staged(path, query) if STAGED + path.stem in tables else {}
    return ParsedFile(text, header, _columns(path, query), tables, staged, needs_of(query))


def _query(path: Path, text: str) -> Any:
    from sqlglot import exp, parse
    from sqlglot.errors import ParseError, SqlglotError

    from pipelines.models.portable import refuse_unportable

    try:
        statements = [s for s in parse(text, dialect="duckdb") if s is not None]
    except SqlglotError as error:
        line = error.errors[0].get("line", 1) if isinstance(error, ParseError) and error.errors else 1
        raise CatalogError(f"{path}:{line}: unreadable SQL: {_plain(error)}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise CatalogError(f"{path}:1: write one SELECT per file; this is {len(statements)} statements or no SELECT")
    if path.parent.name != "ingest":  # that layer reads DuckDB's own staging table
        refuse_unportable(path, statements[0])
    return statements[0]


def _plain(error: Exception) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines()[0]


def _columns(path: Path, query: Any) -> tuple[Column, ...]:
    from sqlglot import exp

    while isinstance(query, exp.SetOperation):
        query = query.left  # its names are the result's
    return tuple(_column(path, projection) for projection in query.selects)


def _column(path: Path, projection: Any) -> Column:
    from sqlglot import exp

    from pipelines.models.portable import line_of

    name = projection.output_name
    line = line_of(projection)
    if isinstance(projection, exp.Star) or projection.alias_or_name == "*":
        raise CatalogError(f"{path}:{line}: the outermost SELECT names its columns, no `*`")
    if not name:
        raise CatalogError(f"{path}:{line}: give the column a name: `{projection.sql()} AS name,  -- Meaning, unit.`")
    comments = projection.comments or _comments_above(projection)
    if not comments:
        raise CatalogError(f"{path}:{line}: column {name!r} has no description; write `{name},  -- Meaning, unit.`")
    return Column(name, " ".join(comment.strip() for comment in comments))


def _comments_above(projection: Any) -> list[str]:
    """Returns the comment lines before a projection, which sqlglot attaches to the first part of an expression."""
    part = projection
    while not part.comments:
        part = next(part.iter_expressions(), None)
        if part is None:
            return []
    return part.comments


def _tables(query: Any) -> tuple[str, ...]:
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    sources = (source for scope in traverse_scope(query) for source in scope.sources.values())
    called = {call.name.removeprefix("first_") for call in query.find_all(exp.Anonymous)} & FUNCTIONS.keys()
    return tuple(sorted({source.name for source in sources if isinstance(source, exp.Table)} | called))


def _staged(path: Path, query: Any) -> dict[str, str]:
    """Returns the columns that a query reads from the staged table, and their types."""
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    types: dict[str, str] = {}
    untyped: set[str] = set()
    wanted = STAGED + path.stem
    for scope in traverse_scope(query):
        names = {n for n, (_, s) in scope.selected_sources.items() if isinstance(s, exp.Table) and s.name == wanted}
        alone = len(scope.selected_sources) == 1
        for column in scope.columns if names else ():
            if column.table in names or (alone and not column.table):
                cast = column.parent if isinstance(column.parent, exp.Cast) else None  # TRY_CAST is one, too
                if cast is not None:
                    types.setdefault(column.name, cast.to.sql(dialect="duckdb"))
                else:
                    untyped.add(column.name)
    if missing := sorted(untyped - types.keys()):
        raise CatalogError(
            f"{path}:1: column {missing[0]!r} of {wanted} has no type; write `CAST({missing[0]} AS TYPE)`"
        )
    return types


def _from_json(text: str, value: dict[str, Any]) -> ParsedFile:
    header = Header(**{**value["header"], "checks": tuple(value["header"]["checks"])})
    columns = tuple(Column(**column) for column in value["columns"])
    needs = tuple(map(tuple, value["needs"]))
    return ParsedFile(text, header, columns, tuple(value["dependencies"]), value["staged"], needs)
