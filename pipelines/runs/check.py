"""`tracelake check`, which compares every file of a lake with its record, and repairs damaged files on request.

The repair recomputes tables that can be computed from `events`. It moves a batch that lost an ingested table to
`.quarantine/`, and adds a row to `rejects` for each of its traces. The sensor ingests those files of the batch that are
still in the watched folder. The user has to ingest the other files again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.paths import path_text
from pipelines.lake import Batch, Lake
from pipelines.lake.commit import manifest
from pipelines.lake.commit.ingested_files import forget_keys, settled
from pipelines.lake.commit.parquet import options
from pipelines.lake.commit.staged_rows import insert_reject
from pipelines.lake.lake import Staged
from pipelines.lake.names import (
    ANALYST,
    CAPTURE_MARK,
    CAPTURE_RANKS,
    CAPTURE_TABLES,
    KEYS,
    MARK,
    OVERLAYS,
    QUARANTINE,
    REJECTS,
    batch_of,
    mark_of,
    table_file,
    table_of,
)
from pipelines.lake.publish.analyst_file import publish, published_whole
from pipelines.lake.read.damage import Broken, altered, unreadable
from pipelines.lake.table_files import table_files
from pipelines.models.catalog import load_catalog
from pipelines.models.dry_run import create_staged
from pipelines.models.sqltext import parquet_rows, quoted
from pipelines.readers.secrets import COMMAND, masked, text_columns, with_masks
from pipelines.runs.materialize.per_capture import compute_captures
from pipelines.runs.materialize.per_trace import SOURCES, compute_traces

_STRAY, _ANALYST, _SECRET = "stray", "analyst", "secret"
# The text columns and name columns that come from traces. Older versions of tracelake stored them unmasked.
_TEXTS = {MARK: (("metadata", "job", "host"), ("device_name",)), "events": (("args", "extra"), ("name",))}


@dataclass(frozen=True)
class Fault:
    """A fault in a lake: a damaged or stray file, an outdated analysts' file, or a file with apparent secrets.

    `table`: None if the file belongs to no table. `keys`: the keys (traces, runs, captures or others) of the file's
    batch, if recorded. `repaired`: the repair, None without a repair.
    """

    path: str
    why: str
    table: str | None = None
    batch_id: str | None = None
    keys: tuple[str, ...] = ()
    repaired: str | None = None


@dataclass(frozen=True)
class Checked:
    """The result of a check: the faults, the number of files, and the number of files that had no digest to compare."""

    faults: list[Fault]
    n_files: int
    n_not_recorded: int
    has_checksums: bool = True


def check(lake: Lake, repair: bool = False, on_file: Callable[[str], Any] | None = None) -> Checked:
    """Read every file of the lake and compare it with its record.

    Raise OSError if the lake cannot be read, or cannot be written for a repair.
    """
    checked = _find(lake, on_file or (lambda _: None))
    if repair and checked.faults:
        done = _repair(lake, checked.faults)
        checked = replace(checked, faults=[replace(f, repaired=done.get(f.path)) for f in checked.faults])
    return checked


def _find(lake: Lake, on_file: Callable[[str], Any]) -> Checked:
    broken = {damage.path: damage for damage in lake.broken()}
    files = sorted(path for path in lake.root.glob("*/day=*/*") if path.is_file() and path.parts[-3][0] != ".")
    strays = [path for path in files if path.suffix != ".parquet" or not Batch(path.stem).is_valid]
    committed = lake.all_batches()
    n_files = n_not_recorded = 0
    secret: list[Fault] = []
    with database.connect() as con:
        for path in sorted({*files} - {*strays} - broken.keys()):
            table, batch = table_of(path), Batch(path.stem)
            record = _record(lake, batch, table)
            if (table != REJECTS and batch not in committed) or record is None:
                continue  # hidden, or a leftover of a killed run
            on_file(f"{table}/{path.name}")
            n_files += 1
            n_not_recorded += not record.digest
            # Re-read the record, because the file may have been replaced during the check.
            if (damage := _content(con, path, record)) and _record(lake, batch, table) == record:
                broken[path] = damage
            elif n := _secrets(con, path, lake.is_digest(batch)):
                secret.append(_secret(lake, path, n))
    faults = [*(_fault(lake, damage) for damage in broken.values()), *secret]
    faults += [Fault(str(path), "is not a file of the lake", _STRAY) for path in strays]
    if not published_whole(lake):
        faults.append(Fault(str(lake.root / ANALYST), "does not match what was published", _ANALYST))
    return Checked(faults, n_files, n_not_recorded)


def _record(lake: Lake, batch: Batch, table: str) -> manifest.Record | None:
    log = manifest.read(lake.root, batch)
    return log.records.get(table) if log else None


def _content(con: duckdb.DuckDBPyConnection, path: Path, record: manifest.Record | None) -> Broken | None:
    """Compare a file's digest with its record, and return the damage or None.

    Without a recorded digest, read the whole file, which checks its page checksums.
    """
    if record is None or not record.digest:
        return _read_through(con, path)
    return altered(path, record)  # None if retention removed the file during the check


def _read_through(con: duckdb.DuckDBPyConnection, path: Path) -> Broken | None:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            for number in range(file.num_row_groups):
                file.read_row_group(number)
    except (pa.ArrowException, OSError) as error:
        return Broken(table_of(path), Batch(path.stem), path, f"cannot be read: {str(error).splitlines()[0]}")
    return next(iter(unreadable(con, [path])), None)


def _secrets(con: duckdb.DuckDBPyConnection, path: Path, is_digest: bool) -> int:
    """Count the rows of a file with values that look like a secret (pipelines/readers/secrets.py)."""
    texts, names = _masked_columns(con, path, is_digest)
    hidden = [(name, masked(name)) for name in texts] + [(name, masked(name, is_name=True)) for name in names]
    differs = " OR ".join(f"{text} <> {name}" for name, text in hidden)
    rows = parquet_rows(path)
    return con.execute(f"SELECT count(*) FROM {rows} WHERE {differs}").fetchall()[0][0] if differs else 0


def _masked_columns(con: duckdb.DuckDBPyConnection, path: Path, is_digest: bool) -> tuple[Sequence[str], Sequence[str]]:
    """Return the text columns and the name columns of a file in which secrets are masked.

    Both are empty for tables that models compute, because these tables are recomputed from masked inputs. Tables of a
    digest cannot be recomputed, so their columns are returned.
    """
    table = table_of(path)
    model = load_catalog().models.get(table)
    is_computed = model is None or model.kind != "lake"
    if table in _TEXTS or (is_computed and not is_digest) or table == REJECTS:
        return _TEXTS.get(table, ((), ()))
    columns = con.execute(f"DESCRIBE FROM {parquet_rows(path)}").fetchall()
    names = text_columns(columns)
    return [name for name in names if name == COMMAND], [name for name in names if name != COMMAND]


def _secret(lake: Lake, path: Path, n: int) -> Fault:
    rows = "1 row has a value that looks" if n == 1 else f"{n:,} rows have values that look"
    why = f"{rows} like a secret (a token, key or password): --repair masks what is stored; replace the secret, too"
    keys = manifest.read_keys(lake.root, Batch(path.stem)) or {}
    return Fault(str(path), why, _SECRET, path.stem, tuple(sorted(keys)))


def _mask(lake: Lake, path: Path) -> str:
    """Rewrite a file, and mask values that look like secrets."""
    batch, table = Batch(path.stem), table_of(path)
    # Hold the locks of all processes that replace files, so that none of them restores an unmasked value.
    with lake.compute_lock(), lake.commit_lock(), tempfile.TemporaryDirectory(dir=lake.staging(batch)) as folder:
        staged, record = Path(folder) / path.name, _record(lake, batch, table)
        failures, version = (record.failures, record.version) if record else ((), None)
        is_digest = lake.is_digest(batch)
        form = options(version, failures, is_digest)
        with database.connect() as con:
            rows = with_masks(f"FROM {parquet_rows(path)}", *_masked_columns(con, path, is_digest))
            ((n_rows,),) = con.execute(f"COPY ({rows}) TO {quoted(staged)} ({form})").fetchall()
        lake.put_all(batch, {table: Staged(staged, n_rows, failures, version)})
    return "masked"


def _remove_derived(lake: Lake, batch: Batch, computed: set[str]) -> list[Path]:
    """Remove the tables computed from a batch that has a secret, and return the removed files of the lake.

    They are removed before the batch is masked. If the run is killed in between, the next run still finds the secret.
    """
    if lake.is_digest(batch):  # the tables of a digest are masked instead
        return []
    removed = []
    with database.connect() as con:
        in_batch = f"SELECT trace_id FROM {parquet_rows(table_file(lake.root, MARK, batch))}"
        traces = {trace_id for (trace_id,) in con.execute(in_batch).fetchall()}
        # Include older states of captures, whose rows are still in the files.
        for path in table_files(lake.root, CAPTURE_RANKS):
            if lake.is_digest(batch_of(path)):
                continue
            ranks = con.execute(f"SELECT trace_id FROM {parquet_rows(path)}").fetchall()
            if not traces.isdisjoint(trace_id for (trace_id,) in ranks):
                removed += lake.take_away(batch_of(path), CAPTURE_TABLES)
    for trace_id in traces:
        shutil.rmtree(lake.root / OVERLAYS / f"day={batch.day}" / trace_id, ignore_errors=True)
    return [*removed, *lake.take_away(batch, computed)]


def _fault(lake: Lake, fault: Broken) -> Fault:
    keys = manifest.read_keys(lake.root, fault.batch) or {}
    return Fault(str(fault.path), fault.why, fault.table, fault.batch.batch_id, tuple(sorted(keys)))


def _repair(lake: Lake, faults: list[Fault]) -> dict[str, str]:
    """Repair the faults, and return the repair by path. Repair tables of traces before tables of captures."""
    done: dict[str, str] = {}
    catalog = lake.catalog()
    computed = set(catalog.materialized)
    ingested = {model.name for model in catalog.models.values() if model.kind == "lake"} - {REJECTS}
    of_captures = {fault.table for fault in faults if fault.table in CAPTURE_TABLES}
    by_batch: defaultdict[str, list[Fault]] = defaultdict(list)
    again: list[tuple[Batch, str]] = []
    for fault in faults:
        if fault.table == _STRAY:
            done[fault.path] = _set_aside(lake, Path(fault.path))
        elif fault.batch_id and fault.table != _SECRET:
            by_batch[fault.batch_id].append(fault)
    for batch_id, several in by_batch.items():
        batch, tables = Batch(batch_id), {fault.table or "" for fault in several}
        if lost := tables & ingested:
            _quarantine_batch(lake, batch, several, lost)
            done |= {fault.path: "quarantined with its batch" for fault in several}
            continue
        is_digest = lake.is_digest(batch)
        # Only capture_ranks records the traces of a digest of captures.
        marks = {CAPTURE_MARK, CAPTURE_RANKS} if is_digest else {CAPTURE_MARK}
        removed = set(CAPTURE_TABLES) if tables & marks else tables
        lake.take_away(batch, removed, lake.root / QUARANTINE / batch_id)
        again += [(batch, table) for table in removed & computed]  # _compute skips digests
        repair = "quarantined: a digest cannot be computed again" if is_digest else "computed again"
        # A table unknown to this version was renamed since, or is from a newer version. Its file is only quarantined.
        known = computed | set(CAPTURE_TABLES)
        done |= {f.path: repair if f.table in known else "quarantined" for f in several}
    # Mask secrets last, when all other files are readable.
    for path in (Path(fault.path) for fault in faults if fault.table == _SECRET):
        if not path.exists():
            done[str(path)] = "quarantined with its batch"
            continue
        with lake.compute_lock():  # so that no table is computed in between
            derived = _remove_derived(lake, batch_of(path), computed) if table_of(path) in SOURCES else []
            done[str(path)] = _mask(lake, path)
        again += [(batch_of(file), table_of(file)) for file in derived if table_of(file) in computed]
        of_captures |= {table_of(file) for file in derived} - computed
    _compute(lake, again, of_captures)
    if any(fault.table == _ANALYST for fault in faults) or done:
        publish(lake, catalog)
        done |= {fault.path: "published again" for fault in faults if fault.table == _ANALYST}
    return done


def _compute(lake: Lake, again: Iterable[tuple[Batch, str]], of_captures: set[str]) -> None:
    for batch in sorted({batch for batch, _ in again}):
        list(
            compute_traces(
                lake, [table for damaged_batch, table in again if damaged_batch == batch], [batch], force=True
            )
        )
    if of_captures:
        list(compute_captures(lake, of_captures))


def _set_aside(lake: Lake, path: Path) -> str:
    target = lake.root / QUARANTINE / _STRAY / path.relative_to(lake.root)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, target)
    return "quarantined"


def _quarantine_batch(lake: Lake, batch: Batch, faults: list[Fault], lost: set[str]) -> None:
    """Move a whole batch to the quarantine, and add a row to `rejects` for each of its traces (or other keys).

    Also forget these keys, because duplicate files and files of a set would otherwise still count as done.
    """
    mark = mark_of(sorted(lost)[0])
    keys = manifest.read_keys(lake.root, batch)
    paths = {**(keys or {}), **_paths(lake, mark, batch, keys or {})}
    files = ", ".join(f"{fault.table} ({fault.why})" for fault in faults)
    hint = "ingest it again" if mark == MARK else "ingest its folder again"
    rows = [
        (path or f"({KEYS[mark]} {key})", f"{KEYS[mark]} {key}: `tracelake check --repair` took its batch "
        f"{batch.batch_id} out, broken: {files}; {hint}")
        for key, path in paths.items()
    ]  # fmt: skip
    _reject(lake, rows or [(str(faults[0].path), f"batch {batch.batch_id} was taken out, broken: {files}")])
    # Otherwise duplicate files and files of a set would still count as done.
    forget_keys(lake, paths)
    tables = {table_of(path) for path in lake.root.glob(f"*/day={batch.day}/{batch.batch_id}.parquet")} - {REJECTS}
    lake.take_away(batch, tables | lost, lake.root / QUARANTINE / batch.batch_id)


def _paths(lake: Lake, mark: str, batch: Batch, keys: Iterable[str]) -> dict[str, str | None]:
    """Return the path of each trace of a batch from its file, or the folder of each set as ingestion recorded it."""
    if mark != MARK:
        folders = {key: path.parent for path, outcome in settled(lake).items() for key in outcome.trace_ids}
        return {key: path_text(folders[key]) for key in keys if key in folders}
    with database.scratch() as con:
        try:
            path = table_file(lake.root, MARK, batch)
            return dict(con.execute(f"SELECT trace_id, path FROM {parquet_rows(path)}").fetchall())
        except duckdb.Error:  # the caller uses the recorded keys
            return {}


def _reject(lake: Lake, rows: Iterable[tuple[str, str]]) -> None:
    """Add rows to `rejects`, in a separate batch."""
    batch = lake.new_batch()
    target = lake.staging(batch) / "rejects.parquet"
    with database.connect() as con:
        catalog = load_catalog()
        create_staged(con, catalog, REJECTS)
        for path, reason in rows:
            insert_reject(con, path, reason, batch)
        con.execute(f"COPY ({catalog.models[REJECTS].sql}) TO {quoted(target)} (FORMAT parquet, COMPRESSION zstd)")
    lake.put(REJECTS, batch, target)
    target.parent.rmdir()
