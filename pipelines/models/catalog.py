"""The models under sql/: names, dependencies, documentation and checks, read from the files themselves.

A file is one SELECT; its name is the table's name, its folder the layer. The header says what a row is; every output
column has a comment. What does not follow is refused at load, with file and line and what to write.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from pipelines.models.errors import CatalogError
from pipelines.models.sqlfile import Column, ParsedFile, parse_files

SQL_DIR = Path(__file__).resolve().parents[2] / "sql"
LAYERS = ("ingest", "rules", "canonical", "gpu", "cpu", "sync", "critical_path", "summary")

# Tables that the caller provides and that are no files: what a trace file was staged to, and what is asked for.
GIVEN = {
    "raw_events": "ingest",
    "_ingest_context": "ingest",
    "_staged_traces": "ingest",
    "_staged_findings": "ingest",
    "_rejected_files": "ingest",
    "window_requests": "canonical",
    "switch_overrides": "canonical",
}


@dataclass(frozen=True)
class Model:
    """A table of the lake. `kind`: sql (a model), lake (written by ingestion), rules (a CSV), python (`longest_path`)."""

    name: str
    layer: str
    path: Path
    sql: str
    doc: str
    columns: tuple[Column, ...]
    dependencies: tuple[str, ...]
    checks: tuple[str, ...]
    kind: str

    @property
    def private(self) -> bool:
        """A leading underscore: an intermediate table that is not written to the lake."""
        return self.name.startswith("_")


LONGEST_PATH = Model(
    name="longest_path",
    layer="critical_path",
    path=Path(__file__).resolve().parents[1] / "critical_path" / "path.py",
    sql="",
    doc="One row: an edge that networkx.dag_longest_path chose in a window, in order.",
    columns=(
        Column("trace_id", "The trace."),
        Column("window_id", "The window."),
        Column("seq", "Place on the path, from 1."),
        Column("edge_id", "The edge in critical_path_edges."),
    ),
    dependencies=("_edges", "_refused_windows", "critical_path_windows"),
    checks=("unique(trace_id, window_id, seq)",),
    kind="python",
)


@dataclass(frozen=True)
class Catalog:
    """All models by name, each after the models it reads."""

    models: dict[str, Model]

    def closure(self, names: Iterable[str]) -> list[str]:
        """The names and all they depend on, in order. Raises CatalogError for a name that is no table."""
        wanted, todo = set(), list(names)
        while todo:
            name = todo.pop()
            if name in GIVEN or name in wanted:
                continue
            if name not in self.models:
                raise CatalogError(f"no table {name!r}; there are: {', '.join(sorted(self.public))}")
            wanted.add(name)
            todo += self.models[name].dependencies
        return [name for name in self.models if name in wanted]

    @cached_property
    def public(self) -> list[str]:
        """The names that analysts see."""
        return [name for name, model in self.models.items() if not model.private]

    @cached_property
    def materialized(self) -> list[str]:
        """The tables that are computed after ingestion and written to the lake."""
        return [name for name in self.public if self.models[name].kind in ("sql", "python")]

    def version(self, name: str) -> str:
        """A hash over the model's text and all it reads: it changes when the table's content may change."""
        digest = hashlib.sha256()
        for upstream in self.closure([name]):
            model = self.models[upstream]
            digest.update(model.path.read_bytes() if model.kind in ("rules", "python") else model.sql.encode())
        return digest.hexdigest()[:16]


@lru_cache
def load_catalog(folder: Path = SQL_DIR) -> Catalog:
    """Read all models of a folder. Raises CatalogError at the first file that does not follow the rules."""
    models = {model.name: model for model in [*_rules(folder), *_sql_models(folder), LONGEST_PATH]}
    for model in models.values():
        _check_dependencies(model, models)
    try:
        order = list(TopologicalSorter({m.name: [d for d in m.dependencies if d in models] for m in models.values()}).static_order())
    except CycleError as error:
        raise CatalogError(f"models depend on each other in a circle: {' → '.join(error.args[1])}") from None
    return Catalog({name: models[name] for name in order})


def _sql_models(folder: Path) -> list[Model]:
    files = sorted(p for p in folder.glob("*/*.sql"))
    seen: dict[str, Path] = {}
    for path in files:
        if path.stem in seen:
            raise CatalogError(f"{path}: the table {path.stem!r} is already defined in {seen[path.stem]}")
        if path.parent.name not in LAYERS:
            raise CatalogError(f"{path}: unknown layer {path.parent.name!r}; add it to LAYERS in {__file__}")
        seen[path.stem] = path
    return [_sql_model(path, parsed) for path, parsed in parse_files(files).items()]


def _sql_model(path: Path, parsed: ParsedFile) -> Model:
    kind = "lake" if path.parent.name == "ingest" else "sql"
    return Model(
        path.stem, path.parent.name, path, parsed.sql, parsed.doc, parsed.columns, parsed.dependencies, parsed.checks, kind
    )


def _rules(folder: Path) -> list[Model]:
    return [_rule_table(path) for path in sorted(folder.glob("rules/*.csv"))]


def _rule_table(path: Path) -> Model:
    lines = path.read_text().splitlines()
    notes = [line[1:].strip() for line in lines if line.startswith("#")]
    header = next(csv.reader([line for line in lines if not line.startswith("#")]))
    docs = dict(note.split(": ", 1) for note in notes[1:] if ": " in note)
    missing = [name for name in header if name not in docs]
    if not notes or missing:
        raise CatalogError(f"{path}: say what a row is in a first comment line, then `# column: meaning` for {missing}")
    columns = tuple(Column(name, docs[name]) for name in header)
    return Model(path.stem, "rules", path, "", notes[0], columns, (), (), "rules")


def _check_dependencies(model: Model, models: dict[str, Model]) -> None:
    for name in model.dependencies:
        layer = models[name].layer if name in models else GIVEN.get(name)
        if layer is None:
            raise CatalogError(f"{model.path}: reads {name!r}, which is neither a model nor a rule table")
        if LAYERS.index(layer) > LAYERS.index(model.layer):
            raise CatalogError(f"{model.path}: layer {model.layer} may not read {name!r} of the later layer {layer}")
