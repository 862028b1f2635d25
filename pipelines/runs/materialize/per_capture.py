"""Traces of the lake → tables of captures, updated capture by capture.

A capture whose traces changed (late ranks arrived) is recomputed into a new batch. The file of `captures` is written
last and is the commit mark; the newest batch of each capture counts. A killed run leaves the old state. A table whose
model changed, or that was not requested before, is computed for the captures of its batch, and its file is put in place
in one step.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.fleet.captures import known_groups
from pipelines.fleet.captures.given_tables import lake_captures, stage_captures, stage_members
from pipelines.fleet.captures.grouping import Capture
from pipelines.fleet.captures.roles import ROLES, RolesError, need_roles
from pipelines.lake.commit.manifest import Failure
from pipelines.lake.commit.parquet import options
from pipelines.lake.lake import TOLD_BY, Lake, Staged
from pipelines.lake.layout import CAPTURE_MARK, CAPTURE_RANKS, MARK, Batch, table_file, table_files
from pipelines.lake.publish.contents import no_row
from pipelines.lake.publish.user_tables import content_of
from pipelines.lake.read.damage import BrokenFiles
from pipelines.lake.read.snapshot import Now, look
from pipelines.lake.read.trace_marks import Marks, read_marks
from pipelines.models.catalog import Catalog
from pipelines.models.run import run_models, why_plain
from pipelines.models.sqltext import file_list, quoted
from pipelines.runs.materialize.per_trace import (
    compute_traces,
    plain_runs,
    stale,
    stale_batches,
    use_few_threads,
)
from pipelines.runs.materialize.publishing import Materialized, run_and_publish

OnStep = Callable[[str], Any]


@dataclass(frozen=True)
class _Known:
    """The newest committed row of a capture."""

    batch: Batch
    content: str
    is_gone: bool


@dataclass(frozen=True)
class Part:
    """The part of a lake to work on: captures by id (including deleted ones), and the batches of their traces."""

    captures: frozenset[str]
    batches: frozenset[Batch]


def part_of(lake: Lake, beginning: str) -> Part:
    """Returns the captures and traces whose ids begin with the given texts."""
    captures = lake_captures(lake, with_roles=False)
    names = frozenset(name for name in {*captures, *known_captures(lake)} if name.startswith(beginning))
    members = [(name, member.trace) for name, capture in captures.items() for member in capture.members]
    batches = {t.batch_id for name, t in members if name in names or t.trace_id.startswith(beginning)}
    return Part(names, frozenset(map(Batch, batches)))


def part_with(lake: Lake, traces: Collection[str]) -> Part:
    """Returns the batches of these traces, and the captures that they are in."""
    captures = lake_captures(lake, with_roles=False)
    members = [(name, m.trace) for name, one in captures.items() for m in one.members if m.trace.trace_id in traces]
    return Part(frozenset(name for name, _ in members), frozenset(Batch(trace.batch_id) for _, trace in members))


def materialize_captures(
    lake: Lake,
    tables: Iterable[str],
    force: bool = False,
    on_step: OnStep | None = None,
    part: Part | None = None,
) -> list[Materialized]:
    """Update tables of captures, for part or all of the lake, with the trace tables that they read, and publish.

    Raises what compute_captures raises.
    """
    asked = asked_captures(lake.catalog(), tables)
    steps = compute_captures(lake, asked, force, on_step, part)
    return run_and_publish(lake, steps, asked, part is None, force)


def asked_captures(catalog: Catalog, tables: Iterable[str]) -> list[str]:
    """Returns the tables of captures that are computed when the given ones are requested."""
    wanted = {*TOLD_BY, *tables}
    return [name for name in catalog.of_captures if name in wanted]


def compute_captures(
    lake: Lake,
    tables: Iterable[str],
    force: bool = False,
    on_step: OnStep | None = None,
    part: Part | None = None,
) -> Iterator[Materialized]:
    """Update tables of captures, for part or all of the lake, after the trace tables that they read.

    Captures that share a batch of such tables with a requested one are computed too: their rows are in the same file.
    One process does this at a time (`Lake.compute_lock`).
    Publishes nothing. Raises RolesError if a table needs a roles.csv that cannot be read.
    """
    say = on_step or (lambda _: None)
    with lake.compute_lock(lambda: say("another process computes tables, waiting")):
        yield from _compute_captures(lake, tables, force, say, part)


def _compute_captures(
    lake: Lake, tables: Iterable[str], force: bool, say: OnStep, part: Part | None
) -> Iterator[Materialized]:
    catalog = lake.catalog()
    asked = asked_captures(catalog, tables)
    catalog.refuse_errors(asked)
    state = _state(lake, catalog, asked, only_touched=part is None and not force)
    if state.seen.folders is not None and _needs_others(lake, catalog, asked, state):
        state = _state(lake, catalog, asked)
    captures, known, all_changed = state.captures, state.known, state.changed
    batches = _batches(known, all_changed, part)
    rewritten, is_new = set(batches), set(all_changed)
    # A changed capture in such a file would lose its old rows there, so it is updated along with them.
    beside = {name for name, found in known.items() if found.batch in rewritten}
    changed = [name for name in all_changed if part is None or name in part.captures | beside]
    others = captures.items() if state.seen.folders is None else ()
    same = {name: c for name, c in others if name not in is_new and known[name].batch in rewritten}
    new = {name: captures[name] for name in changed if name in captures}
    gone = [name for name in changed if name not in captures]
    read = {Batch(member.trace.batch_id) for capture in (*same.values(), *new.values()) for member in capture.members}
    if sources := trace_tables(catalog, asked):
        yield from compute_traces(lake, sources, sorted(read), on_step=say)
    for batch in batches if force else stale_batches(lake, catalog, asked, batches):
        wanted = asked if force else stale(lake, catalog, asked, batch)
        current = [capture for name, capture in same.items() if known[name].batch == batch]
        if wanted and current:
            yield from _compute(lake, catalog, batch, wanted, current, [], say)
    if new or gone:
        yield from _compute(lake, catalog, lake.new_batch(), asked, list(new.values()), gone, say)
    if part is None and state.given and not lake.without_broken:
        known_groups.note(lake.root, state.now, state.given, state.seen, captures)


def _needs_others(lake: Lake, catalog: Catalog, tables: list[str], state: _State) -> bool:
    """Returns whether tables of captures that did not change, or of traces that they read, have to be computed."""
    if stale_batches(lake, catalog, tables, _batches(state.known, state.changed, None)):
        return True
    new = {member.trace.batch_id for capture in state.captures.values() for member in capture.members}
    others = [Batch(name) for name in state.now.marks[MARK] if name not in new]
    return bool(stale_batches(lake, catalog, trace_tables(catalog, tables), others))


def compute_given(
    lake: Lake,
    tables: Iterable[str],
    captures: Iterable[Capture],
    gone: Iterable[str] = (),
    on_step: OnStep | None = None,
) -> list[Materialized]:
    """Compute tables of captures into a new batch. The captures are given, and all that is read is in the lake already.

    `gone`: ids of captures that no longer exist. Publishes nothing.
    """
    catalog = lake.catalog()
    asked, say = asked_captures(catalog, tables), on_step or (lambda _: None)
    return _compute(lake, catalog, lake.new_batch(), asked, list(captures), list(gone), say)


def stale_captures(lake: Lake, catalog: Catalog, tables: Sequence[str], part: Part | None = None) -> bool:
    """Returns whether a capture table is missing, of another version, or lacks traces of the lake (or its part)."""
    if not tables:
        return False
    state = _state(lake, catalog, tables, only_touched=True)
    if any(part is None or name in part.captures for name in state.changed):
        return True
    return bool(stale_batches(lake, catalog, tables, _batches(state.known, state.changed, part)))


def _batches(known: dict[str, _Known], changed: list[str], part: Part | None) -> list[Batch]:
    """Returns the batches of tables with (requested) captures that are unchanged."""
    is_new = set(changed)
    return sorted(
        {
            found.batch
            for name, found in known.items()
            if name not in is_new and not found.is_gone and (part is None or name in part.captures)
        }
    )


def trace_tables(catalog: Catalog, tables: Iterable[str]) -> list[str]:
    """Returns the stored trace tables that capture tables read, directly or through tables that are not stored."""
    found, todo = set(), list(tables)
    while todo:
        name = todo.pop()
        if name in catalog.materialized:
            found.add(name)
        elif name in catalog.models:
            todo += catalog.sources_of(name)
    return [name for name in catalog.materialized if name in found]


def known_captures(lake: Lake) -> dict[str, _Known]:
    """Returns, by capture_id, its row in the newest committed batch. Raises BrokenFiles if that is unknown."""
    broken = lake.broken({CAPTURE_MARK})
    if broken and not lake.without_broken:
        raise BrokenFiles(broken)
    if not broken:
        with database.connect() as con:
            found = read_marks(con, lake, Marks.captures)
        if found is not None:
            return {name: _Known(Batch(batch_id), content, is_gone) for name, batch_id, content, is_gone in found}
    files = [path for path in table_files(lake.root, CAPTURE_MARK) if path not in {one.path for one in broken}]
    if not files:
        return {}
    with database.scratch() as con:
        rows = con.execute(
            f"SELECT capture_id, batch_id, content, is_gone FROM read_parquet({file_list(files)}) ORDER BY batch_id"
        ).fetchall()
    return {capture_id: _Known(Batch(batch_id), content, is_gone) for capture_id, batch_id, content, is_gone in rows}


@dataclass(frozen=True)
class _State:
    """Captures as they are now and as last computed, and which of them changed.

    `captures` are those of the folders in `seen`, if it names any; `given`: what else they depend on, where that can be told.
    """

    now: Now
    seen: known_groups.Grouped
    given: str | None
    captures: dict[str, Capture]
    known: dict[str, _Known]
    changed: list[str]


def _state(lake: Lake, catalog: Catalog, tables: Iterable[str], only_touched: bool = False) -> _State:
    """Looks at all traces or, with `only_touched`, at those of folders in which something changed since the last run.

    Tables that do not use roles can be computed while roles.csv cannot be read: roles then stay as they were.
    """
    now, known = look(lake.root), known_captures(lake)
    given = known_groups.inputs(content_of(lake.root / ROLES))
    seen = known_groups.touched(lake.root, now, given) if only_touched else known_groups.ALL
    try:
        captures = lake_captures(lake, folders=seen.folders)
        before = (
            known
            if seen.folders is None
            else {name: known[name] for name in known if name in seen.before | captures.keys()}
        )
        return _State(now, seen, given, captures, known, _changed(captures, before))
    except RolesError:
        if need_roles(catalog, tables):
            raise
    captures, ranks = lake_captures(lake, with_roles=False), _known_ranks(lake)
    same = {
        name: known[name].content
        for name, capture in captures.items()
        if ranks.get(name) == {(m.trace.trace_id, m.rank, m.left_out_reason) for m in capture.members}
    }
    return _State(now, known_groups.ALL, None, captures, known, _changed(captures, known, same))


def _known_ranks(lake: Lake) -> dict[str, set[tuple[str, int | None, str | None]]]:
    """Returns, by capture_id, its traces and how they were used, as last computed."""
    found: dict[str, set] = {}
    with lake.connect([CAPTURE_RANKS]) as con:
        if con.execute(f"SELECT 1 FROM duckdb_views() WHERE view_name = {quoted(CAPTURE_RANKS)}").fetchall():
            query = f"SELECT capture_id, trace_id, rank, left_out_reason FROM {CAPTURE_RANKS}"
            for capture_id, *part in con.execute(query).fetchall():
                found.setdefault(capture_id, set()).add(tuple(part))
    return found


def _changed(
    captures: dict[str, Capture], known: dict[str, _Known], as_before: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Returns captures that are new, have other traces than before, or no longer exist; `as_before`: the contents of
    some.
    """
    content = {name: capture.content for name, capture in captures.items()} | dict(as_before)
    before = {name: found.content for name, found in known.items() if not found.is_gone}
    return sorted(name for name in {*content, *before} if content.get(name) != before.get(name))


def _compute(
    lake: Lake,
    catalog: Catalog,
    batch: Batch,
    tables: list[str],
    captures: list[Capture],
    gone: list[str],
    on_step: OnStep,
) -> list[Materialized]:
    """Write tables for captures into a batch; the mark last, if it is among them. Where DuckDB gives up its database with
    a model, all is computed again in a new one, that model with the optimizer off.
    """
    plain: dict[str, str] = {}
    step = ""

    def starts(name: str) -> None:
        nonlocal step
        step = name
        on_step(name)

    while True:
        try:
            return _compute_once(lake, catalog, batch, tables, captures, gone, starts, plain)
        except duckdb.FatalException as error:
            if step in plain:
                raise
            plain[step] = why_plain(error)


def _compute_once(
    lake: Lake,
    catalog: Catalog,
    batch: Batch,
    tables: list[str],
    captures: list[Capture],
    gone: list[str],
    on_step: OnStep,
    plain: Mapping[str, str],
) -> list[Materialized]:
    folder = Path(tempfile.mkdtemp(dir=lake.staging(batch)))
    try:
        with database.private(folder) as con:
            stage_captures(con, captures, gone)
            stage_members(con, captures)
            sources = trace_tables(catalog, tables)
            _source_views(con, lake, ["traces", "events", "findings", *sources])
            use_few_threads(con)
            runs = run_models(con, catalog, tables, frozenset(sources), on_step, plain=plain)
            took = {run.name: run.seconds for run in runs}
            failures = plain_runs(catalog, tables, runs, [None])
            order = sorted(tables, key=lambda name: name == CAPTURE_MARK)
            staged = {table: _staged(con, catalog, table, batch, folder, failures.get(table, ())) for table in order}
        lake.put_all(batch, staged)
        return [Materialized(table, batch, s.n_rows or 0, took.get(table, 0.0)) for table, s in staged.items()]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _source_views(con: duckdb.DuckDBPyConnection, lake: Lake, tables: Iterable[str]) -> None:
    """Creates views of the trace tables, restricted to the traces of the staged captures. Raises BrokenFiles."""
    members = con.execute("SELECT DISTINCT batch_id FROM _capture_members").fetchall()
    batches = [Batch(batch_id) for (batch_id,) in members]
    tables = list(tables)
    if broken := lake.broken(tables, batches):
        raise BrokenFiles(broken)  # stored tables are computed from everything present at the time
    for table in tables:
        files = [path for batch in batches if (path := table_file(lake.root, table, batch)).exists()]
        rows = f"SELECT * FROM read_parquet({file_list(files)}, hive_partitioning = false, union_by_name = true)"
        cut = f"{rows} SEMI JOIN _capture_members USING (trace_id, batch_id)"
        if table == MARK:  # rows in a file do not know their trace's capture: the staged ranks do
            cut = f"SELECT t.* REPLACE (r.capture_id AS capture_id) FROM ({cut}) AS t JOIN _capture_members AS r USING (trace_id, batch_id)"
        if files:
            con.execute(f"CREATE VIEW {table} AS {cut}")
        elif not batches:  # captures that are gone are all that is new: the models run on no rows
            con.execute(f"CREATE VIEW {table} AS {no_row(lake.catalog(), table)} WHERE false")


def _staged(
    con: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    table: str,
    batch: Batch,
    folder: Path,
    failures: Sequence[Failure],
) -> Staged:
    staged = folder / f"{table}.parquet"
    rows = f"SELECT *, {quoted(batch.batch_id)} AS batch_id FROM {table} ORDER BY capture_id"
    copied = con.execute(f"COPY ({rows}) TO {quoted(staged)} ({options(catalog.version(table), failures)})")
    ((n_rows,),) = copied.fetchall()
    return Staged(staged, n_rows, tuple(failures), catalog.version(table))
