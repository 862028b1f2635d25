"""Parsing of a statement under sql/ with sqlglot: its header, columns, dependencies and restrictions.

Parsing all statements takes seconds, so results are cached by folder (cache.py). They are used only if the texts and
the parsing modules are identical.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.models.cache import digest_of, remembered
from pipelines.models.errors import CatalogError
from pipelines.models.header import CAPTURE, LAKE, Header, read_header
from pipelines.models.rule_functions import FUNCTIONS
from pipelines.models.statements import Statement

STAGED = "_staged_"  # `_staged_<name>` has raw rows from a reader, to which the SQL of `<name>` assigns types


@dataclass(frozen=True)
class Column:
    """An output column and its meaning, unit included."""

    name: str
    doc: str


@dataclass(frozen=True)
class ParsedStatement:
    """A statement's description of its table.

    `staged`: the columns that it reads from `_staged_<its name>`, with the types that it casts them to.
    """

    header: Header
    columns: tuple[Column, ...]
    dependencies: tuple[str, ...]
    staged: dict[str, str]


def parse_statements(folder: Path, statements: Sequence[Statement]) -> dict[str, ParsedStatement]:
    """Return the parsed statements of a folder, by name, from the cache if the texts are equal.

    Raise CatalogError with file, line and remedy if a statement breaks the rules.
    """
    names = ("sqlfile.py", "portable.py", "header.py", "statements.py")
    rules = [(Path(__file__).with_name(name)).read_bytes() for name in names]
    texts = (part for s in statements for part in (s.name, s.place.removeprefix(str(folder)), s.text))
    digest = digest_of([*rules, *texts])

    def parse_all() -> dict[str, Any]:
        return {statement.name: asdict(parse_statement(statement)) for statement in statements}

    cached = remembered("catalog", digest, parse_all, folder)
    return {statement.name: _from_json(cached[statement.name]) for statement in statements}


def parse_statement(statement: Statement) -> ParsedStatement:
    """Parse a statement. Raise CatalogError with file, line and remedy if it breaks the rules."""
    from pipelines.models.portable import refuse_unportable

    header = read_header(statement)
    query = _query(statement)
    if header.scope in (CAPTURE, LAKE):  # these scopes also run on Spark
        refuse_unportable(statement.path, query)
    tables = _tables(query)
    staged = _staged(statement, query) if STAGED + statement.name in tables else {}
    return ParsedStatement(header, _columns(statement.path, query), tables, staged)


def _query(statement: Statement) -> Any:
    from sqlglot import exp, parse
    from sqlglot.errors import ParseError, SqlglotError

    text = "\n" * (statement.line - 1) + statement.text  # so that line numbers are those of the file
    try:
        parsed = [tree for tree in parse(text, dialect="duckdb") if tree is not None]
    except SqlglotError as error:
        line = error.errors[0].get("line", 1) if isinstance(error, ParseError) and error.errors else statement.line
        raise CatalogError(f"{statement.path}:{line}: unreadable SQL: {_plain(error)}") from None
    if len(parsed) != 1 or not isinstance(parsed[0], exp.Query):
        raise CatalogError(
            f"{statement.place}: write one SELECT for {statement.name}; this is {len(parsed)} statements or no SELECT. "
            "A line `-- model: NAME` begins a further one"
        )
    return parsed[0]


def _plain(error: Exception) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines()[0]


def _columns(path: Path, query: Any) -> tuple[Column, ...]:
    from sqlglot import exp

    while isinstance(query, exp.SetOperation):
        query = query.left  # the left side names the result's columns
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
    """Return the comment lines before a projection, which sqlglot attaches to the first part of an expression."""
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


def _staged(statement: Statement, query: Any) -> dict[str, str]:
    """Return the columns that a query reads from the staged table, and their types.

    Raise CatalogError if the query casts a column nowhere, because its type is then unknown.
    """
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    types: dict[str, str] = {}
    untyped: set[str] = set()
    staged_table = STAGED + statement.name
    for scope in traverse_scope(query):
        names = {
            n for n, (_, s) in scope.selected_sources.items() if isinstance(s, exp.Table) and s.name == staged_table
        }
        is_single = len(scope.selected_sources) == 1
        for column in scope.columns if names else ():
            if column.table in names or (is_single and not column.table):
                cast = column.parent if isinstance(column.parent, exp.Cast) else None  # TRY_CAST is a subclass of Cast
                if cast is not None:
                    types.setdefault(column.name, cast.to.sql(dialect="duckdb"))
                else:
                    untyped.add(column.name)
    if missing := sorted(untyped - types.keys()):
        raise CatalogError(
            f"{statement.place}: column {missing[0]!r} of {staged_table} has no type; write `CAST({missing[0]} AS TYPE)`"
        )
    return types


def _from_json(value: dict[str, Any]) -> ParsedStatement:
    header = Header(**{**value["header"], "checks": tuple(value["header"]["checks"])})
    columns = tuple(Column(**column) for column in value["columns"])
    return ParsedStatement(header, columns, tuple(value["dependencies"]), value["staged"])
