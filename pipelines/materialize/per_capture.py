"""Traces of the lake → tables of captures, brought up to date by capture.

A capture whose traces changed (late ranks came) is recomputed into a batch of its own; the file of `captures` comes
last and is the mark, and of each capture the newest batch counts. A killed run leaves the old state. A table whose model
changed, or that was not asked for before, is computed for the captures of its batch and its file put in place whole.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb

from pipelines import database
from pipelines.fleet.captures import Capture
from pipelines.fleet.roles import RolesError, need_roles
from pipelines.fleet.stage import lake_captures, stage_captures, stage_members
from pipelines.lake.broken import BrokenFiles
from pipelines.lake.layout import CAPTURE_MARK, CAPTURE_RANKS, MARK, Batch, table_file, table_files
from pipelines.lake.store import TOLD_BY, VERSION_KEY, Lake
from pipelines.materialize.per_trace import MEMORY_LIMIT, compute_traces, stale, stale_batches
from pipelines.materialize.publishing import Materialized, run_and_publish
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.models.run import run_models
from pipelines.renamed import tables_now
from pipelines.sqltext import file_list, quoted

OnStep = Callable[[str], Any]


@dataclass(frozen=True)
class _Known:
    """The newest committed row of a capture."""

    batch: Batch
    content: str
    is_gone: bool


@dataclass(frozen=True)
class Part:
    """What of a lake is enough: captures by id (those that are no more, too), and the batches of their traces."""

    captures: frozenset[str]
    batches: frozenset[Batch]


def part_of(lake: Lake, beginning: str) -> Part:
    """The captures and traces whose ids begin so."""
    captures = lake_captures(lake, with_roles=False)
    names = frozenset(name for name in {*captures, *known_captures(lake)} if name.startswith(beginning))
    members = [(name, member.trace) for name, capture in captures.items() for member in capture.members]
    batches = {t.batch_id for name, t in members if name in names or t.trace_id.startswith(beginning)}
    return Part(names, frozenset(map(Batch, batches)))


def materialize_captures(
    lake: Lake,
    tables: Iterable[str],
    force: bool = False,
    on_step: OnStep | None = None,
    part: Part | None = None,
) -> list[Materialized]:
    """Bring tables of captures up to date, of a part or all, with the tables of traces that they read, and publish.

    Raises what compute_captures raises.
    """
    asked = asked_captures(load_catalog(), tables)
    steps = compute_captures(lake, asked, force, on_step, part)
    return run_and_publish(lake, steps, asked, of_all=part is None, force=force)


def asked_captures(catalog: Catalog, tables: Iterable[str]) -> list[str]:
    """The tables of captures that are computed where these are asked for."""
    wanted = {*TOLD_BY, *tables_now(tables)}
    return [name for name in catalog.of_captures if name in wanted]


def compute_captures(
    lake: Lake,
    tables: Iterable[str],
    force: bool = False,
    on_step: OnStep | None = None,
    part: Part | None = None,
) -> Iterator[Materialized]:
    """Bring tables of captures up to date, of a part or all, first the tables of traces that they read.

    Captures that share a batch of such tables with one of the part are computed with it: their rows are in one file.
    Publishes nothing. Raises RolesError if a table needs a roles.csv that cannot be read.
    """
    catalog = load_catalog()
    asked = asked_captures(catalog, tables)
    say = on_step or (lambda _: None)
    captures, known, all_changed = _state(lake, catalog, asked)
    batches = _batches(known, all_changed, part)
    # One that changed and lies in such a file, too, would lose its old rows there: it is brought up to date with them.
    beside = {name for name, found in known.items() if found.batch in batches}
    changed = [name for name in all_changed if part is None or name in part.captures | beside]
    same = {name: c for name, c in captures.items() if name not in all_changed and known[name].batch in batches}
    needed = [*same.values(), *(captures[name] for name in changed if name in captures)]
    read = {Batch(member.trace.batch_id) for capture in needed for member in capture.members}
    if sources := trace_tables(catalog, asked):
        yield from compute_traces(lake, sources, sorted(read), on_step=on_step)
    for batch in batches if force else stale_batches(lake, catalog, asked, batches):
        wanted = asked if force else stale(lake, catalog, asked, batch)
        current = [capture for name, capture in same.items() if known[name].batch == batch]
        if wanted and current:
            yield from _compute(lake, catalog, batch, wanted, current, [], say)
    if changed:
        new = [captures[name] for name in changed if name in captures]
        gone = [name for name in changed if name not in captures]
        yield from _compute(lake, catalog, lake.new_batch(), asked, new, gone, say)


def stale_captures(lake: Lake, catalog: Catalog, tables: Sequence[str], part: Part | None = None) -> bool:
    """Some table of captures is missing, of another version, or lacks traces that are in the lake (or its part)."""
    if not tables:
        return False
    _, known, changed = _state(lake, catalog, tables)
    if any(part is None or name in part.captures for name in changed):
        return True
    return bool(stale_batches(lake, catalog, tables, _batches(known, changed, part)))


def _batches(known: dict[str, _Known], changed: list[str], part: Part | None) -> list[Batch]:
    """The batches of tables that hold captures (of the part) which are as they were."""
    return sorted(
        {
            found.batch
            for name, found in known.items()
            if name not in changed and not found.is_gone and (part is None or name in part.captures)
        }
    )


def trace_tables(catalog: Catalog, tables: Iterable[str]) -> list[str]:
    """The stored tables of traces that tables of captures read, themselves or through what is not stored."""
    found, todo = set(), list(tables)
    while todo:
        name = todo.pop()
        if name in catalog.materialized:
            found.add(name)
        elif name in catalog.models:
            todo += catalog.sources_of(name)
    return [name for name in catalog.materialized if name in found]


def known_captures(lake: Lake) -> dict[str, _Known]:
    """By capture_id what the newest committed batch says of it. Raises BrokenFiles if that is unknown."""
    broken = lake.broken({CAPTURE_MARK})
    if broken and not lake.without_broken:
        raise BrokenFiles(broken)
    files = [path for path in table_files(lake.root, CAPTURE_MARK) if path not in {one.path for one in broken}]
    if not files:
        return {}
    with database.connect() as con:
        rows = con.execute(
            f"SELECT capture_id, batch_id, content, is_gone FROM read_parquet({file_list(files)}) ORDER BY batch_id"
        ).fetchall()
    return {capture_id: _Known(Batch(batch_id), content, is_gone) for capture_id, batch_id, content, is_gone in rows}


def _state(
    lake: Lake, catalog: Catalog, tables: Iterable[str]
) -> tuple[dict[str, Capture], dict[str, _Known], list[str]]:
    """The captures as they are, as they are known, and which of them changed.

    Tables that tell nothing of roles can be had while roles.csv cannot be read: then roles count as they were.
    """
    known = known_captures(lake)
    try:
        captures = lake_captures(lake)
        return captures, known, _changed(captures, known)
    except RolesError:
        if need_roles(catalog, tables):
            raise
    captures, before = lake_captures(lake, with_roles=False), _known_ranks(lake)
    same = {
        name: known[name].content
        for name, capture in captures.items()
        if before.get(name) == {(m.trace.trace_id, m.rank, m.left_out_reason) for m in capture.members}
    }
    return captures, known, _changed(captures, known, same)


def _known_ranks(lake: Lake) -> dict[str, set[tuple[str, int | None, str | None]]]:
    """By capture_id its traces and the parts they take, as computed last."""
    found: dict[str, set] = {}
    with lake.connect([CAPTURE_RANKS]) as con:
        if con.execute("SELECT 1 FROM duckdb_views() WHERE view_name = ?", [CAPTURE_RANKS]).fetchall():
            query = f"SELECT capture_id, trace_id, rank, left_out_reason FROM {CAPTURE_RANKS}"
            for capture_id, *part in con.execute(query).fetchall():
                found.setdefault(capture_id, set()).add(tuple(part))
    return found


def _changed(
    captures: dict[str, Capture], known: dict[str, _Known], as_before: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Captures that are new, have other traces than before, or are no more; `as_before`: the contents of some."""
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
    """Write tables for captures into a batch; the mark last, where it is among them."""
    folder = Path(tempfile.mkdtemp(dir=lake.staging(batch)))
    done = []
    try:
        with database.connect(folder / "work.duckdb") as con:
            con.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
            con.execute("SET preserve_insertion_order = false")
            stage_captures(con, captures, gone)
            stage_members(con, captures)
            sources = trace_tables(catalog, tables)
            _source_views(con, lake, ["traces", "events", "findings", *sources])
            runs = run_models(con, catalog, tables, frozenset(sources), on_step)
            took = {run.name: run.seconds for run in runs}
            for table in sorted(tables, key=lambda name: name == CAPTURE_MARK):
                done.append(_put(con, lake, catalog, table, batch, folder, took.get(table, 0.0)))
        return done
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _source_views(con: duckdb.DuckDBPyConnection, lake: Lake, tables: Iterable[str]) -> None:
    """Views of the tables of traces, cut to the traces of the staged captures. Raises BrokenFiles."""
    members = con.execute("SELECT DISTINCT batch_id FROM _capture_members").fetchall()
    batches = [Batch(batch_id) for (batch_id,) in members]
    tables = list(tables)
    if broken := [one for one in lake.broken(tables) if one.batch in batches]:
        raise BrokenFiles(broken)  # what is stored is computed of all that there was
    for table in tables:
        files = [path for batch in batches if (path := table_file(lake.root, table, batch)).exists()]
        rows = f"SELECT * FROM read_parquet({file_list(files)}, hive_partitioning = false, union_by_name = true)"
        cut = f"{rows} SEMI JOIN _capture_members USING (trace_id, batch_id)"
        if table == MARK:  # in the file a trace does not know its capture: these here do
            cut = f"SELECT t.* REPLACE (r.capture_id AS capture_id) FROM ({cut}) AS t JOIN _capture_members AS r USING (trace_id, batch_id)"
        if files:
            con.execute(f"CREATE VIEW {table} AS {cut}")


def _put(
    con: duckdb.DuckDBPyConnection,
    lake: Lake,
    catalog: Catalog,
    table: str,
    batch: Batch,
    folder: Path,
    seconds: float,
) -> Materialized:
    staged = folder / f"{table}.parquet"
    rows = f"SELECT *, {quoted(batch.batch_id)} AS batch_id FROM {table} ORDER BY capture_id"
    options = f"FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{VERSION_KEY}: {quoted(catalog.version(table))}}}"
    con.execute(f"COPY ({rows}) TO {quoted(staged)} ({options})")
    n_rows = con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
    lake.put(table, batch, staged, n_rows)
    return Materialized(table, batch, n_rows, seconds)
