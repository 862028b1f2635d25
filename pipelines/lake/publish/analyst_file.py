"""The analysts' DuckDB file: views over large tables, copies of small tables, and comments on all of them.

The new file is built next to the old file, reopened, verified, and renamed into place. An analyst's open shell
therefore neither blocks ingestion nor sees a partial state, and the old file survives a failed write. The views contain
absolute paths, so they raise an error in a copy of the file in another folder. `analyst()` rebuilds such a copy for its
lake.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
from isal import isal_zlib

from pipelines.base import database
from pipelines.lake.commit.catalog_file import content, note, record_of, writing
from pipelines.lake.lake import Lake
from pipelines.lake.names import ANALYST, ANALYST_TEMP, KEYS, REJECTS, Batch, table_file
from pipelines.lake.publish.contents import Contents, build, column_types, verify
from pipelines.lake.publish.increment import Anew, update
from pipelines.lake.publish.prices import PRICES
from pipelines.lake.publish.user_tables import content_of
from pipelines.lake.read.damage import Broken
from pipelines.lake.read.snapshot import look
from pipelines.lake.read.views import MEMBERSHIP_TABLES
from pipelines.models.cache import digest_of
from pipelines.models.catalog import Catalog
from pipelines.models.sqltext import quoted

_ALWAYS = (*KEYS, *MEMBERSHIP_TABLES, REJECTS, "events", "findings")  # always checked before an answer
# Names of catalog records. _NEXT describes the file that is about to replace the file of PUBLISHED.
PUBLISHED, _NEXT = "published", "published next"
# Change this text when the program can no longer update files of older versions. Such a file is then rebuilt.
_FORMAT = "views over macros of rows"
# Keys of the records.
_REST, _ROOT, _CATALOG, _SHOWN, _CHECKSUM, _SUM = "", "root", "catalog", "shown", "checksum", "sum"
# _UNREADABLE has size and time by path, because unreadable files still have their recorded sizes.
_BROKEN, _UNREADABLE = "broken", "unreadable"


def publish(lake: Lake, catalog: Catalog | None = None, anew: bool = False, thorough: bool = False) -> Path:
    """Update `<lake>/analyst.duckdb` and return its path. Tables without rows are empty, with their types.

    The file shows the committed rows and the user's prices (prices.py). If it is current, it is not written. Otherwise
    only changes since the last publication are written. `anew` rebuilds the whole file. A missing Parquet file, or a
    Parquet file with another size, is detected if `thorough`, or if the lake was damaged at the last publication.

    Raise CatalogError for a model whose SQL DuckDB rejects. Raise NotPublished, OSError or duckdb.IOException if the
    file cannot be written. The old file then stays.
    """
    catalog = catalog or lake.catalog()
    lake = Lake(lake.root.resolve())  # DuckDB also names the file by its resolved path
    if not anew and published_state(lake, catalog, thorough):
        return lake.root / ANALYST
    column_types(catalog)  # raises for models that DuckDB rejects, before anything is built from them
    with lake.publish_lock():
        if not content(lake.root).state[0]:
            with writing(lake.root):  # creates the catalog, whose id is recorded with the file
                pass
        # Check again, because another process may have published before this process obtained the lock.
        if anew or not published_state(lake, catalog, thorough):
            _rewrite(lake, catalog, anew, thorough)
    return lake.root / ANALYST


def _rewrite(lake: Lake, catalog: Catalog, anew: bool, thorough: bool) -> None:
    with tempfile.TemporaryDirectory(prefix=ANALYST_TEMP, dir=lake.root) as folder:
        built = Path(folder) / ANALYST
        now = look(lake.root)
        damaged = lake.broken(catalog.public) if thorough else []
        contents = Contents(lake.root, catalog, {}, damaged, now)
        if anew or damaged or not _update(lake, built, contents):
            built.unlink(missing_ok=True)
            # List the files of the recorded state. Otherwise the next update would add later commits a second time.
            contents.files = lake.files_of(catalog.public, visible=now.entries)
            contents.broken = lake.broken(catalog.public)
            damaged = list(contents.broken)
            build(built, contents)
        with built.open("rb+") as file:
            os.fsync(file.fileno())
        verify(built, contents)
        broken = [[file.table, file.batch.batch_id, file.why] for file in contents.broken]
        unreadable = {str(file.path): _stamp(file.path) for file in contents.broken if file not in damaged}
        record = {
            **_fixed(lake, catalog),
            _SHOWN: now.digest,
            _CHECKSUM: _checksum(built),
            _BROKEN: broken,
            _UNREADABLE: unreadable,
        }
        record[_SUM] = digest_of([json.dumps(record, sort_keys=True)])
        # If the process is killed before the last step, the old record does not match the new file, and the next access
        # publishes again.
        note(lake.root, _NEXT, record)
        os.replace(built, lake.root / ANALYST)
        note(lake.root, PUBLISHED, record)


def _update(lake: Lake, built: Path, contents: Contents) -> bool:
    """Create `built` by updating a copy of the published file. Return False if it must be rebuilt instead."""
    if valid_record(lake) is None:
        return False
    try:
        shutil.copyfile(lake.root / ANALYST, built)
        update(built, contents)
        return True
    except (Anew, FileNotFoundError):
        return False


def connect_attached(
    file: Path, settings: Mapping[str, str] | None = None, config: dict[str, Any] | None = None
) -> duckdb.DuckDBPyConnection:
    """Return a separate read-only connection to an analysts' file. Raise ValueError for an invalid setting."""
    # Attach the file. If it were connected directly, DuckDB would reuse an older state that this process has open.
    con = database.connect(config=config or {})
    try:
        database.change_settings(con, settings or {})
        con.execute(f"ATTACH {quoted(file)} AS analyst (READ_ONLY)")
        con.execute("USE analyst")
    except BaseException:
        con.close()
        raise
    return con


def analyst(
    lake: Lake,
    tables: Iterable[str] = (),
    connect: Callable[[Path], duckdb.DuckDBPyConnection] = connect_attached,
) -> duckdb.DuckDBPyConnection:
    """Return a connection by `connect` to the current analysts' file. Publish it first if necessary (see is_published).

    If the lake is read-only, build a private file in a temporary folder. A query that needs damaged files raises an
    error, or skips these files if the lake is `without_broken`.
    """
    catalog = lake.catalog()
    if not is_published(lake, tables):
        if not lake.is_writable:
            return _private(lake, catalog, connect, leave_out=lake.without_broken)
        publish(lake, catalog, thorough=True)
    if lake.without_broken and published_broken(lake):
        return _private(lake, catalog, connect, leave_out=True)
    path = lake.root / ANALYST
    try:
        return connect(path)
    except duckdb.Error:  # the checksum matches, but this version of DuckDB cannot open the file
        publish(lake, catalog, anew=True)
        return connect(path)


def published_whole(lake: Lake) -> bool:
    """Return whether the analysts' file is unchanged since it was written, even if it is not current.

    Also return True if the file does not exist, or if the catalog has no record of it.
    """
    if not (lake.root / ANALYST).exists():
        return True
    checksum = _checksum(lake.root / ANALYST)
    records = [record_of(lake.root, name) for name in (PUBLISHED, _NEXT)]
    return any(record and record[_CHECKSUM] == checksum for record in records) or not any(records)


def published_broken(lake: Lake) -> list[Broken]:
    """Return the files that were broken when the lake was published."""
    return _listed_broken(lake, record_of(lake.root, PUBLISHED) or {})


def _listed_broken(lake: Lake, record: Mapping[str, Any]) -> list[Broken]:
    rows = record.get(_BROKEN, [])
    return [Broken(table, Batch(name), table_file(lake.root, table, Batch(name)), why) for table, name, why in rows]


def _private(
    lake: Lake, catalog: Catalog, connect: Callable[[Path], duckdb.DuckDBPyConnection], leave_out: bool
) -> duckdb.DuckDBPyConnection:
    """Return a connection to a private analysts' file, which is deleted when the connection closes.

    `leave_out`: build it only from the readable files.
    """
    lake = Lake(lake.root.resolve(), lake.without_broken)
    where = lake.root if lake.is_writable else None
    with tempfile.TemporaryDirectory(prefix=ANALYST_TEMP, dir=where) as folder:
        built = Path(folder) / ANALYST
        now = look(lake.root)
        files, broken = lake.files_of(catalog.public, visible=now.entries), lake.broken(catalog.public)
        contents = Contents(lake.root, catalog, files, broken, now, leave_out, home=Path(folder).resolve())
        build(built, contents)
        return connect(built)  # the folder is now deleted, but the open file exists until it is closed


def is_published(lake: Lake, tables: Iterable[str]) -> bool:
    """Return whether the analysts' file shows the committed rows, and the files of these tables match its record.

    It is False if anything was ingested since, if a writer was killed before it published, if the models or prices have
    changed, if the file was changed, or if the lake was moved or copied.
    """
    try:
        record = _own_record(lake, lake.catalog())
        if record is None or record[_SHOWN] != look(lake.root).digest:
            return False
        return _is_damaged_as(lake, record, tables_to_check(tables))
    except OSError:  # a file was removed in the meantime
        return False


def published_state(lake: Lake, catalog: Catalog, thorough: bool = False) -> str | None:
    """Return an id of the state that the analysts' file shows, or None if it does not show all commits.

    `thorough`: also return None if a Parquet file is missing or has another size.
    """
    record = _current_record(lake, catalog, thorough)
    return record[_SUM] if record else None


def published_whole_and_now(lake: Lake) -> bool:
    """Return whether the analysts' file shows all commits, and no file was damaged when it was published.

    File sizes are not compared. Readers of some tables compare the sizes of the files that they need
    (`tables_to_check`).
    """
    record = _current_record(lake, lake.catalog(), thorough=False)
    return record is not None and not record[_BROKEN] and not record[_UNREADABLE]


def tables_to_check(tables: Iterable[str]) -> set[str]:
    """Return the tables whose files must be undamaged for an answer from these tables."""
    return {*_ALWAYS, *tables}


def _current_record(lake: Lake, catalog: Catalog, thorough: bool) -> dict[str, Any] | None:
    """Return the record of the analysts' file, or None if it is not current (see published_state)."""
    record = _own_record(lake, catalog)
    try:
        if record is None or record[_SHOWN] != look(lake.root).digest:
            return None
        is_intact = not thorough and not record[_BROKEN] and not record[_UNREADABLE]
        return record if is_intact or _is_damaged_as(lake, record, catalog.public) else None
    except OSError:  # a file was removed in the meantime
        return None


def _is_damaged_as(lake: Lake, record: Mapping[str, Any], tables: Iterable[str]) -> bool:
    """Return whether the damaged files of these tables are exactly the files that the record names."""
    listed, unreadable = set(tables), record[_UNREADABLE]
    damaged = {(file.table, file.batch.batch_id, file.why) for file in lake.broken(listed)}
    recorded = {(file.table, file.batch.batch_id, file.why): file.path for file in _listed_broken(lake, record)}
    by_size = {key for key, path in recorded.items() if key[0] in listed and str(path) not in unreadable}
    return damaged == by_size and all(_stamp(Path(path)) == stamp for path, stamp in unreadable.items())


def valid_record(lake: Lake) -> dict[str, Any] | None:
    """Return the record of the analysts' file, or None if the file is changed, of another lake, or damaged."""
    record = _own_record(lake, lake.catalog())
    return record if record and not record[_BROKEN] and not record[_UNREADABLE] else None


def _own_record(lake: Lake, catalog: Catalog) -> dict[str, Any] | None:
    """Return the record of the analysts' file, or None if the file is changed, of another lake or of other models."""
    record = _record(lake)
    return record if record is not None and _fixed(lake, catalog).items() <= record.items() else None


def _record(lake: Lake) -> dict[str, Any] | None:
    """Return the record of the analysts' file, or None if the file and the record do not match."""
    try:
        record = record_of(lake.root, PUBLISHED)
        return record if record and record[_CHECKSUM] == _checksum(lake.root / ANALYST) else None
    except OSError:  # never published
        return None


def _checksum(path: Path) -> int:
    with path.open("rb") as file:
        checksum = 0
        while chunk := file.read(1 << 20):
            checksum = isal_zlib.crc32(chunk, checksum)
    return checksum


def _fixed(lake: Lake, catalog: Catalog) -> dict[str, str]:
    """Return the inputs of the analysts' file except batches: a hash of models and prices, lake path, catalog id."""
    models = [f"{name}={catalog.version(name)}" for name in catalog.public]
    texts = [duckdb.__version__, _FORMAT, content_of(lake.root / PRICES), *models]
    return {_REST: digest_of(texts), _ROOT: str(lake.root.resolve()), _CATALOG: content(lake.root).state[0]}


def _stamp(path: Path) -> str:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return ""
    return f"{stat.st_size}:{stat.st_mtime_ns}"
