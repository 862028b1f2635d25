"""The models under sql/: names, dependencies, documentation and checks, read from the files themselves.

A file is one SELECT; its name is the table's name, its folder the layer. The header says what a row is; every output
column has a comment. What does not follow is refused at load, with file and line and what to write.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from pipelines.models.errors import CatalogError
from pipelines.models.sqlfile import SCOPE_LAKE, Column, ParsedFile, parse_files

SQL_DIR = Path(__file__).resolve().parents[2] / "sql"
LAYERS = (
    *("rules", "ingest", "canonical", "gpu", "cpu", "sync", "critical_path", "summary"),
    *("modelling", "fleet", "schedule"),
)
CAPTURE_LAYER = "fleet"  # its tables are about the ranks of a capture together

# Tables that the caller provides and that are no files: what a trace file was staged to, and what is asked for.
GIVEN = {
    "raw_events": "ingest",
    "_ingest_context": "ingest",
    "_staged_traces": "ingest",
    "_staged_findings": "ingest",
    "_rejected_files": "ingest",
    "_staged_schedule_runs": "ingest",
    "_staged_schedule_plans": "ingest",
    "_staged_schedule_task_timings": "ingest",
    "_staged_schedule_exposed_times": "ingest",
    "_staged_schedule_predictions": "ingest",
    "_staged_op_jobs": "ingest",
    "_staged_straggler_what_if": "ingest",
    "_staged_straggler_steps": "ingest",
    "_staged_straggler_rank_scores": "ingest",
    "_staged_flight_recorder_dumps": "ingest",
    "_staged_flight_recorder_entries": "ingest",
    "_staged_flight_recorder_verdicts": "ingest",
    "_staged_recordings": "ingest",
    "_staged_host_samples": "ingest",
    "_staged_gpu_samples": "ingest",
    "_staged_net_samples": "ingest",
    "_staged_stack_samples": "ingest",
    "_staged_span_samples": "ingest",
    "_staged_span_sample_operators": "ingest",
    "_staged_operator_work": "ingest",
    "window_requests": "canonical",
    "switch_overrides": "canonical",
    "execution_nodes": "canonical",
    "execution_edges": "canonical",
    "operator_nodes": "canonical",
    "_staged_captures": "fleet",
    "_staged_capture_ranks": "fleet",
    "_staged_capture_quality": "fleet",
    "_staged_capture_roles": "fleet",
    "_fitted_lanes": "fleet",
    "_fitted_kernels": "fleet",
    "_fitted_clocks": "fleet",
    "compared": "fleet",
}

# Given tables that Python computes from others: what they read, and the code that decides what is in them. Both count
# in the versions of the models that read them.
_FLEET = Path(__file__).resolve().parents[1] / "fleet"
_FITS = (
    ("collective_kernels",),
    tuple(_FLEET / f"{module}.py" for module in ("fits", "alignment", "lanes", "matching", "clocks")),
)
_STAGED_CAPTURES = (("traces",), (_FLEET / "captures.py", _FLEET / "stage.py"))
GIVEN_FROM = {
    **{name: _STAGED_CAPTURES for name in GIVEN if name.startswith("_staged_capture")},
    **dict.fromkeys(("_fitted_lanes", "_fitted_kernels", "_fitted_clocks"), _FITS),
}


@dataclass(frozen=True)
class Model:
    """A table. `kind`: sql (a model), lake (written by ingestion), view (a model over few rows, asked anew each time),
    rules (a CSV) or python (see PYTHON_MODELS).
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

    @property
    def private(self) -> bool:
        """A leading underscore: an intermediate table that is not written to the lake."""
        return self.name.startswith("_")


_CRITICAL_PATH = Path(__file__).resolve().parents[1] / "critical_path"
LONGEST_PATH = Model(
    name="longest_path",
    layer="critical_path",
    path=_CRITICAL_PATH / "path.py",
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
EVENT_SLACK = Model(
    name="event_slack",
    layer="critical_path",
    path=_CRITICAL_PATH / "slack.py",
    sql="",
    doc="One row: an event of a window's graph, with how much longer it may get and how much it holds the path up. "
    "How: the longest path through every edge, forwards and backwards; an event's edges are those attributed to it.",
    columns=(
        Column("trace_id", "The trace."),
        Column("window_id", "The window."),
        Column("event_id", "The event."),
        Column(
            "slack_ns",
            "How much longer the event may get before the path's length changes, ns; 0 on the path; "
            "NULL where the event has no edge of its own.",
        ),
        Column(
            "drag_ns",
            "How much shorter the path is when all edges of the event weigh 0, ns; 0 off the path; "
            "NULL where the event has no edge of its own.",
        ),
        Column(
            "own_ns",
            "Summed path weight of the event's edges, ns: its own time and, for GPU work, the gap behind it "
            "(or, once more, the time until the next began on its stream before it ended); NULL where it has none.",
        ),
    ),
    dependencies=("_edges", "_refused_windows", "critical_path_windows"),
    checks=("unique(trace_id, window_id, event_id)",),
    kind="python",
)

WALKED_SEGMENTS = Model(
    name="_walked_segments",
    layer="fleet",
    path=_FLEET / "path" / "captures.py",
    sql="",
    doc="One row: a segment of the critical path through the ranks of a capture, or why there is none.",
    columns=(),
    dependencies=("capture_ranks", "clock_offsets", "collective_lanes", "collectives", "collective_ranks"),
    checks=(),
    kind="python",
)
# It runs the models of single ranks itself, a rank at a time, so all that these read counts in its version.
_OF_RANKS = ("rules", "canonical", "gpu", "cpu", "sync", "critical_path")

_MODELLING = Path(__file__).resolve().parents[1] / "modelling"
OP_FORMULAS = Model(
    name="_op_formulas",
    layer="modelling",
    path=_MODELLING / "op_formulas.py",
    sql="",
    doc="One row: a name and arguments of operators, with the work that they ask for.",
    columns=(
        Column("shape_id", "Number of the name and arguments in _op_calls."),
        Column("family", "Family of the formula; NULL without one."),
        Column("dtype", "Type that decides the peak; NULL without a model or for a type that is not known."),
        Column("flops_matrix", "Matrix operations; NULL without a model."),
        Column("flops_uncausal", "The same without a causal mask; NULL without a model."),
        Column("flops_vector", "Other operations; NULL without a model."),
        Column("bytes", "Least traffic, bytes; NULL without a model or where an element's size is not known."),
        Column("not_modelled", "Why there is no model; NULL where there is."),
    ),
    dependencies=("_op_calls", "op_kinds"),
    checks=("unique(shape_id)",),
    kind="python",
)
HOST_STACKS = Model(
    name="_host_stacks",
    layer="modelling",
    path=_MODELLING / "stacks.py",
    sql="",
    doc="One row: a host event with a duration and the event it started in, on its thread.",
    columns=(
        Column("trace_id", "The trace."),
        Column("event_id", "The event."),
        Column("parent_event_id", "The event it started in; NULL at the top of the thread."),
        Column("crosses", "It ends after its parent."),
    ),
    dependencies=("_host_events",),
    checks=("unique(trace_id, event_id)",),
    kind="python",
)
HOST_ANCESTORS = Model(
    name="_host_ancestors",
    layer="modelling",
    path=_MODELLING / "stacks.py",
    sql="",
    doc="One row: an inner event of _host_events and an outer one that it started in, directly or further up.",
    columns=(
        Column("trace_id", "The trace."),
        Column("event_id", "The inner event."),
        Column("ancestor_id", "The outer event."),
        Column("height", "Place of the outer event on the way up, from 1."),
    ),
    dependencies=("_host_events", "_host_stacks"),
    checks=("unique(trace_id, event_id, ancestor_id)",),
    kind="python",
)

# Tables that Python makes: the function `module:name` that creates the table in a connection, and the code that decides
# what is in it, so that the version changes with it.
PYTHON_MODELS: dict[str, tuple[Model, str, tuple[Path, ...]]] = {
    LONGEST_PATH.name: (
        LONGEST_PATH,
        "pipelines.critical_path.path:longest_paths",
        tuple(_CRITICAL_PATH / f"{module}.py" for module in ("path", "graph", "backend", "longest")),
    ),
    EVENT_SLACK.name: (
        EVENT_SLACK,
        "pipelines.critical_path.slack:event_slacks",
        tuple(_CRITICAL_PATH / f"{module}.py" for module in ("slack", "drag", "reach", "graph", "longest")),
    ),
    OP_FORMULAS.name: (
        OP_FORMULAS,
        "pipelines.modelling.op_formulas:op_formulas",
        tuple(_MODELLING / f"{module}.py" for module in ("op_formulas", "formulas", "arguments")),
    ),
    HOST_STACKS.name: (HOST_STACKS, "pipelines.modelling.stacks:host_stacks", (_MODELLING / "stacks.py",)),
    HOST_ANCESTORS.name: (HOST_ANCESTORS, "pipelines.modelling.stacks:host_ancestors", (_MODELLING / "stacks.py",)),
    WALKED_SEGMENTS.name: (
        WALKED_SEGMENTS,
        "pipelines.fleet.path.captures:walk_captures",
        (
            *sorted((_FLEET / "path").glob("*.py")),
            *(path for layer in _OF_RANKS for path in sorted(SQL_DIR.glob(f"{layer}/*.*"))),
        ),
    ),
}


@dataclass(frozen=True, eq=False)
class Catalog:
    """All models by name, each after the models it reads."""

    models: dict[str, Model]
    _versions: dict[str, str] = field(default_factory=dict, repr=False)

    def closure(self, names: Iterable[str]) -> list[str]:
        """The names and all they depend on, in order. Raises CatalogError for a name that is no table."""
        wanted, todo = set(), list(names)
        while todo:
            name = todo.pop()
            if name in GIVEN or name in wanted:
                continue
            if name not in self.models:
                raise CatalogError(f"unknown table {name!r}; known are: {', '.join(sorted(self.public))}")
            wanted.add(name)
            todo += self.models[name].dependencies
        return [name for name in self.models if name in wanted]

    @cached_property
    def public(self) -> list[str]:
        """The names that analysts see."""
        return [name for name, model in self.models.items() if not model.private]

    @cached_property
    def materialized(self) -> list[str]:
        """The tables of traces that are computed after ingestion and written to the lake."""
        return [name for name in self._computed if self.models[name].layer != CAPTURE_LAYER]

    @cached_property
    def of_captures(self) -> list[str]:
        """The tables of captures: computed when a capture's traces are in the lake, by pipelines/fleet/materialize.py."""
        return [name for name in self._computed if self.models[name].layer == CAPTURE_LAYER]

    @cached_property
    def _computed(self) -> list[str]:
        return [name for name in self.public if self.models[name].kind in ("sql", "python")]

    @cached_property
    def rules(self) -> dict[str, Path]:
        """The rule tables and their files."""
        return {name: model.path for name, model in self.models.items() if model.kind == "rules"}

    def version(self, name: str) -> str:
        """A hash over a model's text and all it reads: it changes when the table's content may change.

        What ingestion wrote counts as given: no model recomputes it, so its SQL is not part of the hash.
        """
        if name not in self._versions:
            model = self.models[name]
            given = [GIVEN_FROM[d] for d in model.dependencies if d in GIVEN_FROM]
            reads = (*model.dependencies, *(name for names, _ in given for name in names))
            upstream = [d for d in reads if d in self.models and self.models[d].kind != "lake"]
            digest = hashlib.sha256(_own_content(model))
            for path in (path for _, paths in given for path in paths):
                digest.update(path.read_bytes())
            for dependency in upstream:
                digest.update(f"{dependency}={self.version(dependency)};".encode())
            self._versions[name] = digest.hexdigest()[:16]
        return self._versions[name]


def _own_content(model: Model) -> bytes:
    if model.kind == "rules":
        return model.path.read_bytes()
    if model.kind == "python":
        return b"".join(path.read_bytes() for path in PYTHON_MODELS[model.name][2] if path.exists())
    return model.sql.encode()


@lru_cache
def load_catalog(folder: Path = SQL_DIR) -> Catalog:
    """Read all models of a folder. Raises CatalogError at the first file that does not follow the rules."""
    models: dict[str, Model] = {}
    for model in (*_rules(folder), *_sql_models(folder), *_python_models(folder)):
        if model.name in models:
            raise CatalogError(
                f"{model.path}:1: the table {model.name!r} is already defined in {models[model.name].path}"
            )
        models[model.name] = model
    for model in models.values():
        _check_dependencies(model, models)
        if folder == SQL_DIR or model.layer == CAPTURE_LAYER:  # other folders are of no lake
            _check_scope(model)
    reads = {model.name: [d for d in model.dependencies if d in models] for model in models.values()}
    try:
        order = list(TopologicalSorter(reads).static_order())
    except CycleError as error:
        circle = error.args[1]
        raise CatalogError(
            f"{models[circle[0]].path}:1: models depend on each other in a cycle: {' → '.join(circle)}"
        ) from None
    return Catalog({name: models[name] for name in order})


def _python_models(folder: Path) -> list[Model]:
    """The tables made by Python; a folder of SQL files without what they read (a test's) has none of them."""
    names = {path.stem for path in folder.glob("*/*.*")} | PYTHON_MODELS.keys()
    return [model for model, _, _ in PYTHON_MODELS.values() if names.issuperset(model.dependencies)]


def _sql_models(folder: Path) -> list[Model]:
    files = sorted(folder.glob("*/*.sql"))
    seen: dict[str, Path] = {}
    for path in files:
        if path.stem in seen:
            raise CatalogError(f"{path}:1: the table {path.stem!r} is already defined in {seen[path.stem]}")
        if path.parent.name not in LAYERS:
            raise CatalogError(f"{path}:1: unknown layer {path.parent.name!r}; put it in one of {', '.join(LAYERS)}")
        seen[path.stem] = path
    return [_sql_model(path, parsed) for path, parsed in parse_files(folder, files).items()]


def _sql_model(path: Path, parsed: ParsedFile) -> Model:
    layer = path.parent.name
    return Model(
        name=path.stem,
        layer=layer,
        path=path,
        sql=parsed.sql,
        doc=parsed.doc,
        columns=parsed.columns,
        dependencies=parsed.dependencies,
        checks=parsed.checks,
        kind=_kind(layer, path.stem, parsed),
    )


def _kind(layer: str, name: str, parsed: ParsedFile) -> str:
    if layer == "ingest" and not name.startswith("_"):
        return "lake"
    return "view" if layer == "schedule" or parsed.scope == SCOPE_LAKE else "sql"


def _check_scope(model: Model) -> None:
    """What is stored is stored by trace or, in the folder of captures, by capture: rows without its id belong to none."""
    key, of = ("capture_id", "captures") if model.layer == CAPTURE_LAYER else ("trace_id", "traces")
    if model.kind not in ("sql", "python") or model.private or key in {column.name for column in model.columns}:
        return
    raise CatalogError(
        f"{model.path}:1: a table of sql/{model.layer}/ is stored by {of} and has no column {key!r}; add it, or write "
        f"`-- scope: {SCOPE_LAKE}` in the header of what is a view over the whole lake"
    )


def _rules(folder: Path) -> list[Model]:
    return [_rule_table(path) for path in sorted(folder.glob("rules/*.csv"))]


def _rule_table(path: Path) -> Model:
    lines = path.read_text(encoding="utf-8").splitlines()
    notes = [line[1:].strip() for line in lines if line.startswith("#")]
    if not notes or not notes[0].startswith("One row: "):
        raise CatalogError(f"{path}:1: start the file with `# One row: …`, which says what a row is")
    at = next((i for i, line in enumerate(lines, 1) if not line.startswith("#")), len(lines))
    header = next(csv.reader(lines[at - 1 : at]), [])
    docs = dict(note.split(": ", 1) for note in notes[1:] if ": " in note)
    missing = [name for name in header if name not in docs]
    if missing:
        raise CatalogError(
            f"{path}:{at}: column {missing[0]!r} has no description; write `# {missing[0]}: meaning` above"
        )
    columns = tuple(Column(name, docs[name]) for name in header)
    return Model(path.stem, "rules", path, "", notes[0], columns, (), (), "rules")


def _check_dependencies(model: Model, models: dict[str, Model]) -> None:
    for name in model.dependencies:
        layer = models[name].layer if name in models else GIVEN.get(name)
        if layer is None:
            raise CatalogError(f"{_place(model, name)}: reads {name!r}; write the name of a model or of a rule table")
        if layer != "rules" and LAYERS.index(layer) > LAYERS.index(model.layer):  # rules are data, for every layer
            raise CatalogError(
                f"{_place(model, name)}: layer {model.layer} may not read {name!r} of the later layer {layer}; "
                f"move the file to sql/{layer}/"
            )


def _place(model: Model, table: str) -> str:
    """File and line where a model names a table."""
    named = re.compile(rf"\b{re.escape(table)}\b")
    lines = enumerate(model.sql.splitlines(), 1)
    return f"{model.path}:{next((i for i, line in lines if named.search(line.split('--')[0])), 1)}"
