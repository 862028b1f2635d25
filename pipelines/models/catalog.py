"""The catalog of models under sql/, with names, dependencies, documentation and checks from the SQL files.

A model is one SELECT statement, which statements.py locates in a file. Its header defines a row, and every output
column has a comment. Loading raises CatalogError for a file that violates these rules, with file, line and remedy.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from pipelines.base.datafiles import SQL_DIR
from pipelines.models.cache import digest_of
from pipelines.models.class_kinds import RuleTable, refuse_unknown_classes
from pipelines.models.errors import CatalogError
from pipelines.models.header import CAPTURE, LAKE, SCOPES, TRACE, USUAL, stored_tables
from pipelines.models.sources import DeclaredTable, code_version, declared_tables
from pipelines.models.sqlfile import STAGED, Column, ParsedStatement, parse_statements
from pipelines.models.statements import Statement, read_statements

LAYERS = (
    *("rules", "ingest", "canonical", "gpu", "cpu", "sync", "critical_path", "summary"),
    *("modelling", "fleet", "schedule"),
)
_RULE_TYPES = ("VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN")
# `name: meaning` for a text column, `name BIGINT: meaning` for a number column.
_RULE_COLUMN = re.compile(r"(?P<name>\w+)(?: (?P<type>[A-Z]+))?: (?P<doc>.*)")


@dataclass(frozen=True)
class Added:
    """Rows that a user adds to a rule table, in the order of its columns. They replace rows with the same first value.

    `content`: the source of the rows, which the table's version covers. `error`: why the rows cannot be used, as raised
    when a table needs the rows.
    """

    content: bytes
    rows: tuple[tuple[str | None, ...], ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class Model:
    """A table of the catalog.

    `kind`: sql (a model), lake (written by ingestion), view (a model over few rows, evaluated on every query), rules (a
    CSV) or python (created by `function`, `module:name`; see python_tables.py). `scope`: see header.py. `line`: the
    line of the file where `sql` begins. `staged`: columns and SQL types of `_staged_<name>`, if the model reads it.
    `types`: SQL types of a rule table's columns. `runs`: models that the function runs. `part_of`: the table that is
    the union of this model and others. `added`: the user's own rows of a rule table.
    """

    name: str
    layer: str
    path: Path
    sql: str
    doc: str
    columns: tuple[Column, ...]
    dependencies: tuple[str, ...]
    checks: tuple[str, ...]
    kind: str
    scope: str = TRACE
    staged: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    function: str = ""
    runs: tuple[str, ...] = ()
    part_of: str | None = None
    added: Added | None = None
    line: int = 1

    @property
    def place(self) -> str:
        """The model's file and line, as in error messages."""
        return f"{self.path}:{self.line}"

    @property
    def private(self) -> bool:
        """Whether the model is an intermediate table (leading underscore) that is not written to the lake."""
        return self.name.startswith("_")


@dataclass(frozen=True, eq=False)
class Catalog:
    """All models by name, each after the models it reads."""

    models: dict[str, Model]
    inputs: dict[str, DeclaredTable]  # tables that the caller of a model creates: staged rows, and requests
    _versions: dict[str, str] = field(default_factory=dict, repr=False)
    shipped: Catalog | None = None  # the catalog without the user's rows, None if this catalog has no such rows

    def with_added(self, added: Mapping[str, Added]) -> Catalog:
        """Return the catalog with rows added to rule tables.

        The rows change the versions of these tables and of their readers. Raise CatalogError for a kernel class that
        some of its readers do not know.
        """
        models = {name: replace(m, added=added[name]) if name in added else m for name, m in self.models.items()}
        refuse_unknown_classes(_rule_tables(models))
        return Catalog(models, self.inputs, shipped=self.shipped or self)

    def refuse_errors(self, names: Iterable[str]) -> None:
        """Raise CatalogError if one of these tables needs a user's rows, and they cannot be used."""
        for name in self.closure(names) if self.shipped else ():
            added = self.models[name].added
            if added and added.error:
                raise CatalogError(added.error)

    def closure(self, names: Iterable[str], through: Callable[[Model], bool] = lambda _: True) -> list[str]:
        """Return the names and all their dependencies, in dependency order. Raise CatalogError for an unknown name.

        `through(model)`: whether to follow the dependencies of a model.
        """
        needed, pending = set(), list(names)
        while pending:
            name = pending.pop()
            if name in self.inputs or name in needed:
                continue
            if name not in self.models:
                raise CatalogError(f"unknown table {name!r}; known tables are {', '.join(sorted(self.public))}")
            needed.add(name)
            pending += self.models[name].dependencies if through(self.models[name]) else ()
        return [name for name in self.models if name in needed]

    @cached_property
    def public(self) -> list[str]:
        """The names of the tables that analysts see."""
        return [name for name, model in self.models.items() if not model.private]

    @cached_property
    def materialized(self) -> list[str]:
        """The tables of traces that are computed after ingestion and written to the lake."""
        return self._computed(TRACE)

    @cached_property
    def of_captures(self) -> list[str]:
        """The tables of captures, which pipelines/runs/materialize/per_capture.py computes.

        They are computed once a capture's traces are in the lake.
        """
        return self._computed(CAPTURE)

    def _computed(self, scope: str) -> list[str]:
        models = (self.models[name] for name in self.public)
        return [model.name for model in models if model.kind in ("sql", "python") and model.scope == scope]

    def ingested(self, scope: str) -> list[str]:
        """Return the tables of a scope that ingestion writes, each after the tables it reads."""
        models = (self.models[name] for name in self.public)
        return [model.name for model in models if model.kind == "lake" and model.scope == scope]

    def sources_of(self, name: str) -> tuple[str, ...]:
        """Return the tables that a table reads, followed by the tables that the input tables among them read."""
        reads = self.models[name].dependencies
        return (*reads, *(source for table in reads if table in self.inputs for source in self.inputs[table].reads))

    @cached_property
    def rules(self) -> dict[str, Path]:
        """The rule tables and their files."""
        return {name: model.path for name, model in self.models.items() if model.kind == "rules"}

    def version(self, name: str) -> str:
        """Return a hash over a model's text and everything it reads, which changes if the table's content may change.

        Tables written by ingestion are not part of the hash, because no model recomputes them.
        """
        if name not in self._versions:
            model = self.models[name]
            reads = (*self.sources_of(name), *model.runs)
            parts = [_own_content(model)]
            input_tables = [self.inputs[read] for read in reads if read in self.inputs]
            parts += [code_version(table.module).encode() for table in input_tables if table.function]
            for read in reads:
                if read in self.models and self.models[read].kind != "lake":
                    parts.append(f"{read}={self.version(read)}".encode())
            self._versions[name] = digest_of(parts)[:16]
        return self._versions[name]


def _own_content(model: Model) -> bytes:
    if model.kind == "rules":
        return model.path.read_bytes() + (model.added.content if model.added else b"")
    if model.kind == "python":
        return code_version(model.function.partition(":")[0]).encode()
    return model.sql.encode()


@lru_cache
def load_catalog(folder: Path = SQL_DIR) -> Catalog:
    """Return all models of a folder. Raise CatalogError at the first file that breaks the rules."""
    models: dict[str, Model] = {}
    declared = declared_tables()
    read = [*_rules(folder), *_sql_models(folder)]
    for model in (*read, *_python_models({model.name for model in read}, declared)):
        if model.name in models:
            raise CatalogError(
                f"{model.place}: the table {model.name!r} is already defined in {models[model.name].path}"
            )
        models[model.name] = model
    refuse_unknown_classes(_rule_tables(models))
    input_tables = {name: table for name, table in declared.items() if table.is_input} | _staged(models)
    # A test's folder may not contain all commit markers, so their keys are taken from the project.
    keys = _keys(folder) if folder == SQL_DIR else _keys(SQL_DIR) | _keys(folder)
    for model in models.values():
        _check_dependencies(model, models, input_tables)
        _check_scope(model, models, keys)
    reads = {model.name: [d for d in model.dependencies if d in models] for model in models.values()}
    try:
        order = list(TopologicalSorter(reads).static_order())
    except CycleError as error:
        cycle = error.args[1]
        raise CatalogError(
            f"{models[cycle[0]].place}: models depend on each other in a cycle: {' → '.join(cycle)}"
        ) from None
    return Catalog({name: models[name] for name in order}, input_tables)


def _rule_tables(models: Mapping[str, Model]) -> dict[str, RuleTable]:
    return {
        name: RuleTable(model.path, [column.name for column in model.columns], model.added.rows if model.added else ())
        for name, model in models.items()
        if model.kind == "rules"
    }


def _keys(folder: Path) -> dict[str, str]:
    """Return the key column of each scope's commit marker, by scope.

    Raise CatalogError if a scope has two commit markers.
    """
    table_and_key_by_scope: dict[str, tuple[str, str]] = {}
    for table, (scope, key) in stored_tables(folder).items():
        if key and scope in table_and_key_by_scope:
            raise CatalogError(
                f"{folder}: {table_and_key_by_scope[scope][0]} and {table} both say `-- key: ` for scope {scope!r}; one is the mark"
            )
        if key:
            table_and_key_by_scope[scope] = table, key
    return {scope: key for scope, (_, key) in table_and_key_by_scope.items()}


def _staged(models: dict[str, Model]) -> dict[str, DeclaredTable]:
    """Return the staged tables that the models of the layer `ingest` read."""
    names = {STAGED + name: model for name, model in models.items() if model.layer == "ingest"}
    return {
        name: DeclaredTable(name, model.layer, "", str(model.path), is_input=True)
        for name, model in names.items()
        if name in model.dependencies
    }


def _python_models(sql_names: set[str], declared: dict[str, DeclaredTable]) -> list[Model]:
    """Return the tables computed in Python whose inputs exist. A test's folder may not contain these inputs."""
    names = sql_names | declared.keys()
    return [_python_model(t) for t in declared.values() if not t.is_input and names.issuperset(t.reads)]


def _python_model(table: DeclaredTable) -> Model:
    return Model(
        name=table.name,
        layer=table.layer,
        path=Path(table.path),
        sql="",
        doc=table.doc,
        columns=tuple(Column(name, doc) for name, _, doc in table.columns),
        dependencies=tuple(table.reads),
        checks=tuple(table.checks),
        kind="python",
        scope=USUAL.get(table.layer, TRACE),
        function=table.function,
        runs=tuple(table.runs),
    )


def _sql_models(folder: Path) -> list[Model]:
    """Return a model for every statement, and for every table that is a union of parts."""
    statements = read_statements(folder)
    statement_by_name: dict[str, Statement] = {}
    for statement in statements:
        if statement.name in statement_by_name:
            raise CatalogError(
                f"{statement.place}: the table {statement.name!r} is already defined in {statement_by_name[statement.name].path}"
            )
        if statement.layer not in LAYERS:
            raise CatalogError(
                f"{statement.place}: unknown layer {statement.layer!r}; put it in one of {', '.join(LAYERS)}"
            )
        statement_by_name[statement.name] = statement
    parsed = parse_statements(folder, statements)
    models = [_sql_model(statement, parsed[statement.name]) for statement in statements]
    unions = sorted({model.part_of for model in models if model.part_of})
    return [*models, *(_whole(name, [model for model in models if model.part_of == name]) for name in unions)]


def _whole(name: str, parts: list[Model]) -> Model:
    """Return the table with the rows of all its parts.

    Raise CatalogError unless the parts are private, are in one layer and have equal columns.
    """
    first = parts[0]
    columns = [column.name for column in first.columns]
    for part in parts:
        if not name.startswith("_") or not part.private:
            raise CatalogError(f"{part.place}: `part of: {name}`: begin its name, and {part.name}, with an underscore")
        if [column.name for column in part.columns] != columns or part.layer != first.layer:
            raise CatalogError(
                f"{part.place}: the parts of {name} have one layer and the same columns in the same order; make them "
                f"those of {first.path}: {', '.join(columns)}"
            )
    rows = "\nUNION ALL\n".join(f"SELECT {', '.join(columns)} FROM {part.name}" for part in parts)
    return Model(
        name=name,
        layer=first.layer,
        path=first.path,
        sql=rows,
        doc=f"One row: a row of one of {', '.join(part.name for part in parts)}.",
        columns=first.columns,
        dependencies=tuple(part.name for part in parts),
        checks=(),
        kind="sql",
        scope=first.scope,
        line=first.line,
    )


def _sql_model(statement: Statement, parsed: ParsedStatement) -> Model:
    return Model(
        name=statement.name,
        layer=statement.layer,
        path=statement.path,
        sql=statement.text,
        doc=parsed.header.doc,
        columns=parsed.columns,
        dependencies=parsed.dependencies,
        checks=parsed.header.checks,
        kind=_kind(statement.layer, statement.name, parsed.header.scope),
        scope=parsed.header.scope,
        staged=parsed.staged,
        part_of=parsed.header.part_of,
        line=statement.line,
    )


def _kind(layer: str, name: str, scope: str) -> str:
    if scope == LAKE:
        return "view"
    return "lake" if layer == "ingest" and not name.startswith("_") else "sql"


def _check_scope(model: Model, models: dict[str, Model], keys: Mapping[str, str]) -> None:
    """Raise CatalogError for an unknown scope, or a stored table without a key column.

    Also raise CatalogError for a table of traces that reads a table of captures. `keys`: scope → key column.
    """
    if model.scope not in (*SCOPES, *keys):
        line_number = next(
            i for i, line in enumerate(model.sql.splitlines(), model.line) if line.startswith("-- scope: ")
        )
        raise CatalogError(
            f"{model.path}:{line_number}: unknown scope {model.scope!r}; write `-- scope: ` and one of {', '.join({**dict.fromkeys(SCOPES), **keys})}; "
            "a new one has a table with `-- key: COLUMN`, its mark"
        )
    if model.private or model.kind not in ("sql", "python", "lake"):
        return
    if model.kind != "lake" and model.scope not in (TRACE, CAPTURE):
        raise CatalogError(
            f"{model.place}: tables of scope {model.scope!r} are written by ingestion; move it to sql/ingest/, or write "
            f"`-- scope: {LAKE}`"
        )
    columns = {column.name for column in model.columns}
    if missing := [name for name in _needed(model, keys) if name not in columns]:
        raise CatalogError(
            f"{model.place}: a table of sql/{model.layer}/ is stored by {model.scope}s and has no column {missing[0]!r}; "
            f"add it, or write `-- scope: {LAKE}` in the header of a view over the whole lake"
        )
    for name in model.dependencies if model.scope == TRACE else ():
        if name in models and models[name].scope == CAPTURE and not models[name].private:
            raise CatalogError(
                f"{_place(model, name)}: a table of traces may not read {name!r}, which is of captures; "
                f"write `-- scope: {CAPTURE}` or `-- scope: {LAKE}`"
            )


def _rules(folder: Path) -> list[Model]:
    return [_rule_table(path) for path in sorted(folder.glob("rules/**/*.csv"), key=lambda path: path.stem)]


def _rule_table(path: Path) -> Model:
    lines = path.read_text(encoding="utf-8").splitlines()
    notes = [line[1:].strip() for line in lines if line.startswith("#")]
    if not notes or not notes[0].startswith("One row: "):
        raise CatalogError(f"{path}:1: start the file with `# One row: …`, which says what a row is")
    header_line = next((i for i, line in enumerate(lines, 1) if not line.startswith("#")), len(lines))
    header = next(csv.reader(lines[header_line - 1 : header_line]), [])
    matches = [column for note in notes[1:] if (column := _RULE_COLUMN.match(note))]
    docs = {column["name"]: column["doc"] for column in matches}
    types = {column["name"]: column["type"] or "VARCHAR" for column in matches}
    missing = [name for name in header if name not in docs]
    if missing:
        raise CatalogError(
            f"{path}:{header_line}: column {missing[0]!r} has no description; write `# {missing[0]}: meaning` above"
        )
    if invalid := [f"# {name} {types[name]}" for name in header if types[name] not in _RULE_TYPES]:
        raise CatalogError(
            f"{path}: {invalid[0]!r} has no type that a rule's column can have: {', '.join(_RULE_TYPES)}"
        )
    columns = tuple(Column(name, docs[name]) for name in header)
    types = {name: types[name] for name in header}
    return Model(path.stem, "rules", path, "", notes[0], columns, (), (), "rules", types=types)


def _needed(model: Model, keys: Mapping[str, str]) -> list[str]:
    """Return the key columns that a stored table must have, with `batch_id` for ingested tables outside of traces."""
    batch_columns = ["batch_id"] if model.kind == "lake" and model.scope != TRACE else []
    return [*([keys[model.scope]] if model.scope in keys else []), *batch_columns]


def _check_dependencies(model: Model, models: dict[str, Model], input_tables: Mapping[str, DeclaredTable]) -> None:
    for name in model.dependencies:
        if name in models and _stands_behind(models[name], model):
            raise CatalogError(f"{models[name].place}: put {name} before {model.name}, which reads it")
        if name not in models and name not in input_tables:
            raise CatalogError(f"{_place(model, name)}: reads {name!r}; write the name of a model or of a rule table")
        layer = (models[name] if name in models else input_tables[name]).layer
        if layer != "rules" and LAYERS.index(layer) > LAYERS.index(model.layer):  # rules are data, for every layer
            raise CatalogError(
                f"{_place(model, name)}: layer {model.layer} may not read {name!r} of the later layer {layer}; "
                f"move the file to sql/{layer}/"
            )


def _stands_behind(source: Model, reader: Model) -> bool:
    return source.path == reader.path and source.line > reader.line and source.part_of != reader.name


def _place(model: Model, table: str) -> str:
    """Return file and line where a model names a table."""
    pattern = re.compile(rf"\b{re.escape(table)}\b")
    lines = enumerate(model.sql.splitlines(), model.line)
    return f"{model.path}:{next((i for i, line in lines if pattern.search(line.split('--')[0])), model.line)}"
