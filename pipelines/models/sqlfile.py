"""One SQL file of the catalog, read with sqlglot: its header, columns, dependencies and what it may not contain.

Parsing all files costs half a second, so what was read is kept by the hash of the texts in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipelines.models.errors import CatalogError

_FORMAT = "2"


@dataclass(frozen=True)
class Column:
    """An output column and its meaning, unit included."""

    name: str
    doc: str


@dataclass(frozen=True)
class ParsedFile:
    """What a file says of its table; `sql` is its text, run as it stands."""

    sql: str
    doc: str
    columns: tuple[Column, ...]
    dependencies: tuple[str, ...]
    checks: tuple[str, ...]


def parse_files(paths: list[Path]) -> dict[Path, ParsedFile]:
    """Parse files, or take what an earlier process parsed from the same texts. Raises CatalogError."""
    texts = {path: path.read_text() for path in paths}
    digest = hashlib.sha256(_FORMAT.encode())
    for path, text in texts.items():
        digest.update(f"{path}\0{text}\0".encode())
    cache = _cache_folder() / f"catalog-{digest.hexdigest()[:24]}.json"
    known = _read_cache(cache)
    if known is not None and set(known) == {str(path) for path in paths}:
        return {path: _from_json(texts[path], known[str(path)]) for path in paths}
    parsed = {path: parse_file(path, text) for path, text in texts.items()}
    _write_cache(cache, {str(path): {**asdict(file), "sql": ""} for path, file in parsed.items()})
    return parsed


def parse_file(path: Path, text: str) -> ParsedFile:
    """Parse one file and hold it against the rules. Raises CatalogError with file, line and what to write."""
    from sqlglot import exp, parse
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.scope import traverse_scope

    header = [line[2:].strip() for line in text.split("\nWITH")[0].split("\nSELECT")[0].splitlines() if line.startswith("--")]
    if not header or not header[0].startswith("One row: "):
        raise CatalogError(f"{path}:1: begin with `-- One row: …` that says what a row is")
    try:
        statements = [s for s in parse(text, dialect="duckdb") if s is not None]
    except SqlglotError as error:
        raise CatalogError(f"{path}: {error}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise CatalogError(f"{path}: one SELECT a file, found {len(statements)} statements")
    query = statements[0]
    _refuse_unportable(path, query)
    first = query
    while isinstance(first, exp.SetOperation):
        first = first.left
    columns = tuple(_column(path, text, projection) for projection in first.selects)
    tables = {
        source.name for scope in traverse_scope(query) for source in scope.sources.values() if isinstance(source, exp.Table)
    }
    checks = tuple(line.removeprefix("check: ") for line in header if line.startswith("check: "))
    doc = " ".join(line for line in header if not line.startswith("check: "))
    return ParsedFile(text, doc, columns, tuple(sorted(tables)), checks)


def _column(path: Path, text: str, projection: Any) -> Column:
    from sqlglot import exp

    name = projection.alias_or_name
    line = next((i for i, part in enumerate(text.splitlines(), 1) if f"{name}," in part or part.endswith(name)), 1)
    if isinstance(projection, exp.Star) or name == "*":
        raise CatalogError(f"{path}: the outermost SELECT names its columns, no `*`")
    if not projection.comments:
        raise CatalogError(f"{path}:{line}: column {name!r} has no meaning; write `{name},  -- Meaning, unit.`")
    return Column(name, projection.comments[-1].strip())


def _refuse_unportable(path: Path, query: Any) -> None:
    from sqlglot import exp

    if path.parent.name == "ingest":
        return  # reads DuckDB's own staging table
    banned: dict[type, str] = {exp.Pivot: "PIVOT", exp.Lambda: "a lambda", exp.Array: "a list", exp.Struct: "a struct"}
    for kind, what in banned.items():
        if next(query.find_all(kind), None) is not None:
            raise CatalogError(f"{path}: {what} is not portable")
    for join in query.find_all(exp.Join):
        if str(join.args.get("method") or "").upper() == "ASOF":
            raise CatalogError(f"{path}: ASOF is not portable; write a window over UNION ALL")
    for clause in query.find_all(exp.With):
        if clause.args.get("recursive"):
            raise CatalogError(f"{path}: recursive CTEs are not portable")
    for call in query.find_all(exp.PercentileCont, exp.Quantile):
        raise CatalogError(f"{path}: {call.sql()} is not portable")
    for group in query.find_all(exp.Group):
        if group.args.get("all"):
            raise CatalogError(f"{path}: GROUP BY ALL is not portable; list the columns")


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracelake"


def _read_cache(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def _write_cache(path: Path, value: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(value, file)
        os.replace(file.name, path)
    except OSError:
        return  # a home that cannot be written only costs time


def _from_json(text: str, value: dict[str, Any]) -> ParsedFile:
    columns = tuple(Column(**column) for column in value["columns"])
    return ParsedFile(text, value["doc"], columns, tuple(value["dependencies"]), tuple(value["checks"]))
