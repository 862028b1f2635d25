"""The computation of tables of captures from the lake's traces, capture by capture.

If the traces of a capture changed, for example because late ranks arrived, the capture is recomputed into a new batch.
The file of `captures` is written last and is the commit marker. The newest batch of each capture counts. A killed run
leaves the old state. If a table's model changed, or the table was not requested before, it is computed for the captures
of each batch, and its file is moved into place in one step.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.fleet.captures import known_groups
from pipelines.fleet.captures.grouping import Capture
from pipelines.fleet.captures.input_tables import lake_captures, stage_captures, stage_members
from pipelines.fleet.captures.roles import ROLES, RolesError, need_roles
from pipelines.lake.commit.batch_rows import Failure
from pipelines.lake.commit.model_failures import lacking
from pipelines.lake.commit.parquet import options
from pipelines.lake.lake import Lake, Staged
from pipelines.lake.names import CAPTURE_MARK, CAPTURE_RANKS, MARK, Batch, table_file
from pipelines.lake.publish.contents import no_row
from pipelines.lake.publish.user_tables import content_of
from pipelines.lake.read.damage import BrokenFiles
from pipelines.lake.read.snapshot import Now, look
from pipelines.lake.read.trace_marks import Marks, read_marks
from pipelines.lake.read.views import MEMBERSHIP_TABLES
from pipelines.lake.table_files import table_files
from pipelines.models.catalog import Catalog
from pipelines.models.run import run_models, why_plain
from pipelines.models.sqltext import parquet_rows, quoted
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
    """The part of a lake to update: ids of captures (including deleted captures), and the batches of their traces."""

    captures: frozenset[str]
    batches: frozenset[Batch]


def part_of(lake: Lake, beginning: str) -> Part:
    """Return the captures and the traces whose ids start with the prefix `beginning`."""
    captures = lake_captures(lake, with_roles=False)
    names = frozenset(name for name in {*captures, *known_captures(lake)} if name.startswith(beginning))
    members = [(name, member.trace) for name, capture in captures.items() for member in capture.members]
    batches = {t.batch_id for name, t in members if name in names or t.trace_id.startswith(beginning)}
    return Part(names, frozenset(map(Batch, batches)))


def part_with(lake: Lake, traces: Collection[str]) -> Part:
    """Return the batches of these traces, and the captures that contain them."""
    captures = lake_captures(lake, with_roles=False)
    members = [
        (name, m.trace) for name, capture in captures.items() for m in capture.members if m.trace.trace_id in traces
    ]
    return Part(frozenset(name for name, _ in members), frozenset(Batch(trace.batch_id) for _, trace in members))


def materialize_captures(
    lake: Lake,
    tables: Iterable[str],
    on_step: OnStep | None = None,
) -> list[Materialized]:
    """Update tables of captures, with the trace tables that they read, and publish.

    Raise the errors of compute_captures.
    """
    requested = requested_captures(lake.catalog(), tables)
    return run_and_publish(
        lake, compute_captures(lake, requested, on_step=on_step), requested, of_all=True, force=False
    )


def requested_captures(catalog: Catalog, tables: Iterable[str]) -> list[str]:
    """Return the tables of captures that must be computed when these tables are requested."""
    requested = {*MEMBERSHIP_TABLES, *tables}
    return [name for name in catalog.of_captures if name in requested]


def compute_captures(
    lake: Lake,
    tables: Iterable[str],
    force: bool = False,
    on_step: OnStep | None = None,
    part: Part | None = None,
) -> Iterator[Materialized]:
    """Update tables of captures, for part or all of the lake, after the trace tables that they read.

    Captures that share a batch of these tables with a requested capture are also computed, because their rows are in
    the same file. Only one process computes at a time (`Lake.compute_lock`). Do not publish. Raise RolesError if a
    table needs a roles.csv that cannot be read.
    """
    say = on_step or (lambda _: None)
    with lake.compute_lock(lambda: say("another process computes tables, waiting")):
        yield from _compute_captures(lake, tables, force, say, part)


def _compute_captures(
    lake: Lake, tables: Iterable[str], force: bool, say: OnStep, part: Part | None
) -> Iterator[Materialized]:
    catalog = lake.catalog()
    requested = requested_captures(catalog, tables)
    catalog.refuse_errors(requested)
    work, sources = _plan(lake, catalog, requested, force, part), trace_tables(catalog, requested)
    while sources:
        yield from compute_traces(lake, sources, work.read, on_step=say)
        if lacking(look(lake.root).entries) == lacking(work.state.now.entries):
            break
        # The set of traces on which models fail has changed, which changes the captures of these traces, so plan again.
        # The new plan may contain traces that were ingested in the meantime, so compute their tables first.
        work = _plan(lake, catalog, requested, force, part)
    state, known_rows = work.state, work.state.known
    if (
        work.new or work.removed
    ):  # first, because rewriting a batch drops the old rows of changed captures, which count until then
        yield from _compute(lake, catalog, lake.new_batch(), requested, work.new, work.removed, say)
    for batch in work.batches if force else stale_batches(lake, catalog, requested, work.batches):
        stale_tables = requested if force else stale(lake, catalog, requested, batch)
        current = [capture for name, capture in work.same.items() if known_rows[name].batch == batch]
        if stale_tables and current:
            yield from _compute(lake, catalog, batch, stale_tables, current, _gone_in(lake, batch), say)
    if part is None and state.inputs_hash and not lake.without_broken:
        known_groups.note(lake.root, state.now, state.inputs_hash, state.seen, state.captures)


@dataclass(frozen=True)
class _Plan:
    """The captures to compute: new or changed captures (`new`), and unchanged captures (`same`) in `batches`.

    Tables of `batches` may be stale. `removed`: ids of captures that no longer exist. `read`: the batches of the traces
    of `new` and `same`.
    """

    state: _State
    new: list[Capture]
    removed: list[str]
    batches: list[Batch]
    same: dict[str, Capture]

    @property
    def read(self) -> list[Batch]:
        captures = (*self.same.values(), *self.new)
        return sorted({Batch(member.trace.batch_id) for capture in captures for member in capture.members})


def _plan(lake: Lake, catalog: Catalog, requested: list[str], force: bool, part: Part | None) -> _Plan:
    state = _state(lake, catalog, requested, only_touched=part is None and not force)
    if state.seen.folders is not None and _needs_others(lake, catalog, requested, state):
        state = _state(lake, catalog, requested)
    captures, known_rows, all_changed = state.captures, state.known, state.changed
    batches = [batch for batch in _batches(known_rows, all_changed, part) if not lake.is_digest(batch)]
    rewritten, is_new = set(batches), set(all_changed)
    # Rewriting such a file drops the old rows of a changed capture, so also update the changed capture.
    sharing_batch = {name for name, row in known_rows.items() if row.batch in rewritten}
    changed = [name for name in all_changed if part is None or name in part.captures | sharing_batch]
    candidates = captures.items() if state.seen.folders is None else ()
    same = {name: c for name, c in candidates if name not in is_new and known_rows[name].batch in rewritten}
    new = [captures[name] for name in changed if name in captures]
    return _Plan(state, new, [name for name in changed if name not in captures], batches, same)


def _gone_in(lake: Lake, batch: Batch) -> list[str]:
    """Return the captures that a batch records as deleted. A rewritten file must still record them.

    Otherwise, the rows of these captures in older batches would count again.
    """
    file = table_file(lake.root, CAPTURE_MARK, batch)
    if not file.exists():
        return []
    with database.scratch() as con:
        query = f"SELECT capture_id FROM {parquet_rows(file)} WHERE is_gone ORDER BY ALL"
        return [name for (name,) in con.execute(query).fetchall()]


def _needs_others(lake: Lake, catalog: Catalog, tables: list[str], state: _State) -> bool:
    """Return whether tables of unchanged captures, or of traces that they read, must be computed."""
    if stale_batches(lake, catalog, tables, _batches(state.known, state.changed, None)):
        return True
    new = {member.trace.batch_id for capture in state.captures.values() for member in capture.members}
    unseen = [Batch(name) for name in state.now.marks[MARK] if name not in new]
    return bool(stale_batches(lake, catalog, trace_tables(catalog, tables), unseen))


def compute_into_batch(
    lake: Lake,
    tables: Iterable[str],
    captures: Iterable[Capture],
    gone: Iterable[str],
) -> list[Materialized]:
    """Compute tables of these captures into a new batch. All inputs are already in the lake.

    `gone`: ids of captures that no longer exist. Do not publish.
    """
    catalog = lake.catalog()
    requested = requested_captures(catalog, tables)
    return _compute(lake, catalog, lake.new_batch(), requested, list(captures), list(gone), lambda _: None)


def stale_captures(lake: Lake, catalog: Catalog, tables: Sequence[str], part: Part | None = None) -> bool:
    """Return whether a table of captures is missing, of another version, or without traces of the lake (or part)."""
    if not tables:
        return False
    state = _state(lake, catalog, tables, only_touched=True)
    if any(part is None or name in part.captures for name in state.changed):
        return True
    return bool(stale_batches(lake, catalog, tables, _batches(state.known, state.changed, part)))


def _batches(known_rows: dict[str, _Known], changed: list[str], part: Part | None) -> list[Batch]:
    """Return the batches that contain unchanged captures. Unless `part` is None, use only the captures of the part."""
    is_new = set(changed)
    return sorted(
        {
            row.batch
            for name, row in known_rows.items()
            if name not in is_new and not row.is_gone and (part is None or name in part.captures)
        }
    )


def trace_tables(catalog: Catalog, tables: Iterable[str]) -> list[str]:
    """Return the stored tables of traces that tables of captures read, directly or through unstored tables."""
    sources, todo = set(), list(tables)
    while todo:
        name = todo.pop()
        if name in catalog.materialized:
            sources.add(name)
        elif name in catalog.models:
            todo += catalog.sources_of(name)
    return [name for name in catalog.materialized if name in sources]


def known_captures(lake: Lake) -> dict[str, _Known]:
    """Return the row of each capture in its newest committed batch. Raise BrokenFiles if the row is unknown."""
    broken = lake.broken({CAPTURE_MARK})
    if broken and not lake.without_broken:
        raise BrokenFiles(broken)
    if not broken:
        with database.connect() as con:
            marked = read_marks(con, lake, Marks.captures)
        if marked is not None:
            return {name: _Known(Batch(batch_id), content, is_gone) for name, batch_id, content, is_gone in marked}
    files = [path for path in table_files(lake.root, CAPTURE_MARK) if path not in {file.path for file in broken}]
    if not files:
        return {}
    with database.scratch() as con:
        rows = con.execute(
            f"SELECT capture_id, batch_id, content, is_gone FROM {parquet_rows(files)} ORDER BY batch_id"
        ).fetchall()
    return {capture_id: _Known(Batch(batch_id), content, is_gone) for capture_id, batch_id, content, is_gone in rows}


@dataclass(frozen=True)
class _State:
    """The current captures, their state when last computed (`known`), and the ids of changed captures.

    `captures`: only the captures of the folders in `seen`, if it names folders. `inputs_hash`: a digest of their other
    inputs, or None if unknown.
    """

    now: Now
    seen: known_groups.Grouped
    inputs_hash: str | None
    captures: dict[str, Capture]
    known: dict[str, _Known]
    changed: list[str]


def _state(lake: Lake, catalog: Catalog, tables: Iterable[str], only_touched: bool = False) -> _State:
    """Compare the traces of all folders, or with `only_touched` of changed folders, with the computed captures.

    If roles.csv cannot be read, tables that do not use roles can still be computed. Roles then stay unchanged.
    """
    now, known_rows = look(lake.root), known_captures(lake)
    input_digest = known_groups.inputs(content_of(lake.root / ROLES))
    grouped = known_groups.touched(lake.root, now, input_digest) if only_touched else known_groups.ALL
    try:
        captures = lake_captures(lake, folders=grouped.folders)
        compared = (
            known_rows
            if grouped.folders is None
            else {name: known_rows[name] for name in known_rows if name in grouped.before | captures.keys()}
        )
        return _State(now, grouped, input_digest, captures, known_rows, _changed(lake, captures, compared))
    except RolesError:
        if need_roles(catalog, tables):
            raise
    captures, ranks = lake_captures(lake, with_roles=False), _known_ranks(lake)
    same = {
        name: known_rows[name].content
        for name, capture in captures.items()
        if ranks.get(name) == {(m.trace.trace_id, m.rank, m.left_out_reason) for m in capture.members}
    }
    return _State(now, known_groups.ALL, None, captures, known_rows, _changed(lake, captures, known_rows, same))


def _known_ranks(lake: Lake) -> dict[str, set[tuple[str, int | None, str | None]]]:
    """Return (trace_id, rank, left_out_reason) of the ranks of each capture, as last computed."""
    ranks_by_capture: dict[str, set] = {}
    with lake.connect([CAPTURE_RANKS]) as con:
        if con.execute(f"SELECT 1 FROM duckdb_views() WHERE view_name = {quoted(CAPTURE_RANKS)}").fetchall():
            query = f"SELECT capture_id, trace_id, rank, left_out_reason FROM {CAPTURE_RANKS}"
            for capture_id, *part in con.execute(query).fetchall():
                ranks_by_capture.setdefault(capture_id, set()).add(tuple(part))
    return ranks_by_capture


def _changed(
    lake: Lake,
    captures: dict[str, Capture],
    known_rows: dict[str, _Known],
    as_before: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the ids of captures that are new, have changed, or no longer exist.

    A capture also counts as changed if it has complete traces in place of digests. `as_before`: contents that replace
    the current contents of some captures.
    """
    content = {name: capture.content for name, capture in captures.items()} | dict(as_before)
    before = {name: row.content for name, row in known_rows.items() if not row.is_gone}
    # A digest cannot be recomputed, even if roles or other jobs in its folder have changed.
    digests = {name for name, capture in captures.items() if capture.is_digest and name in before}
    is_whole = {name for name in before.keys() & captures.keys() - digests if lake.is_digest(known_rows[name].batch)}
    return sorted(
        name for name in {*content, *before} - digests if content.get(name) != before.get(name) or name in is_whole
    )


def _compute(
    lake: Lake,
    catalog: Catalog,
    batch: Batch,
    tables: list[str],
    captures: list[Capture],
    removed: list[str],
    on_step: OnStep,
) -> list[Materialized]:
    """Write tables of captures into a batch. If they include the marker, write it last.

    If a model makes DuckDB invalidate its database, recompute everything in a new database, with the optimizer off for
    this model.
    """
    plain: dict[str, str] = {}
    step = ""

    def starts(name: str) -> None:
        nonlocal step
        step = name
        on_step(name)

    while True:
        try:
            return _compute_once(lake, catalog, batch, tables, captures, removed, starts, plain)
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
    removed: list[str],
    on_step: OnStep,
    plain: Mapping[str, str],
) -> list[Materialized]:
    folder = Path(tempfile.mkdtemp(dir=lake.staging(batch)))
    try:
        with database.private(folder) as con:
            stage_captures(con, captures, removed)
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
        lake.unstage(folder)


def _source_views(con: duckdb.DuckDBPyConnection, lake: Lake, tables: Iterable[str]) -> None:
    """Create views of the trace tables, restricted to the traces of the staged captures. Raise BrokenFiles."""
    members = con.execute("SELECT DISTINCT batch_id FROM _capture_members").fetchall()
    batches = [Batch(batch_id) for (batch_id,) in members]
    tables = list(tables)
    if broken := lake.broken(tables, batches):
        raise BrokenFiles(broken)  # rows must not be silently missing from a stored table
    for table in tables:
        files = [path for batch in batches if (path := table_file(lake.root, table, batch)).exists()]
        rows = f"SELECT * FROM {parquet_rows(files, 'union_by_name = true')}"
        cut = f"{rows} SEMI JOIN _capture_members USING (trace_id, batch_id)"
        if table == MARK:  # the files of traces do not store the capture, but the staged ranks do
            cut = f"SELECT t.* REPLACE (r.capture_id AS capture_id) FROM ({cut}) AS t JOIN _capture_members AS r USING (trace_id, batch_id)"
        if files:
            con.execute(f"CREATE VIEW {table} AS {cut}")
        elif not batches:  # only captures were removed, so the models run on empty tables
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
