"""The analysts' DuckDB file: views over the large tables, real tables for the small ones, comments on all of it.

It is built next to the old one, reopened, verified, and renamed into place: an analyst's open shell neither blocks
ingestion nor sees a partial state, and a write that fails leaves the old file. Its views hold absolute paths, and
refuse to answer from a copy elsewhere; `analyst()` rebuilds such a copy for its lake.
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
from pipelines.lake.lake import TOLD_BY, Lake
from pipelines.lake.names import ANALYST, ANALYST_TEMP, KEYS, REJECTS, Batch, table_file
from pipelines.lake.publish.contents import Contents, build, column_types, verify
from pipelines.lake.publish.increment import Anew, update
from pipelines.lake.publish.prices import PRICES
from pipelines.lake.publish.user_tables import content_of
from pipelines.lake.read.damage import Broken
from pipelines.lake.read.snapshot import look
from pipelines.models.cache import digest_of
from pipelines.models.catalog import Catalog

_ALWAYS = (*KEYS, *TOLD_BY, REJECTS, "events", "findings")  # always part of the check for being current
PUBLISHED, _NEXT = (
    "published",
    "published next",
)  # records of the catalog; the latter of a file that is about to take the other's place
# Change it when this program cannot update a file that an older version wrote: that is then rebuilt.
_FORMAT = "views over macros of rows"
# What they say.
_REST, _ROOT, _CATALOG, _SHOWN, _CHECKSUM, _SUM = "", "root", "catalog", "shown", "checksum", "sum"
_BROKEN, _UNREADABLE = "broken", "unreadable"  # the latter by path, with size and time: their sizes are as recorded


def publish(lake: Lake, catalog: Catalog | None = None, anew: bool = False, thorough: bool = False) -> Path:
    """Bring `<lake>/analyst.duckdb` up to date and return its path. Tables without rows yet are empty, with their types.

    It shows what is committed at this moment, and the user's prices (prices.py). If it already does, nothing is written;
    otherwise only what changed since it was published. `anew` rebuilds all of it. A file that is missing or of another size
    is noticed if `thorough`, or if the lake was damaged when it was last published. Raises CatalogError for a model whose SQL DuckDB rejects;
    NotPublished, OSError or duckdb.IOException if the file cannot be written: the old one stays.
    """
    catalog = catalog or lake.catalog()
    lake = Lake(lake.root.resolve())  # DuckDB also names the file by its resolved path
    if not anew and published_state(lake, catalog, thorough):
        return lake.root / ANALYST
    column_types(catalog)  # rejects models that DuckDB rejects, before anything is built from them
    with lake.publish_lock():
        if not content(lake.root).state[0]:
            with writing(lake.root):  # the file says of which catalog it is: there has to be one
                pass
        if anew or not published_state(lake, catalog, thorough):  # another process may have published meanwhile
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
            contents.files, contents.broken = lake.files_of(catalog.public), lake.broken(catalog.public)
            damaged = list(contents.broken)
            build(built, contents)
        with built.open("rb+") as file:
            os.fsync(file.fileno())
        verify(built, contents)
        broken = [[one.table, one.batch.batch_id, one.why] for one in contents.broken]
        unreadable = {str(one.path): _stamp(one.path) for one in contents.broken if one not in damaged}
        whole = {
            **_fixed(lake, catalog),
            _SHOWN: now.digest,
            _CHECKSUM: _checksum(built),
            _BROKEN: broken,
            _UNREADABLE: unreadable,
        }
        whole[_SUM] = digest_of([json.dumps(whole, sort_keys=True)])
        # If killed in between, the old record stands beside the new file, and it is published once more.
        note(lake.root, _NEXT, whole)
        os.replace(built, lake.root / ANALYST)
        note(lake.root, PUBLISHED, whole)


def _update(lake: Lake, built: Path, contents: Contents) -> bool:
    """Make `built` from the published file; returns False if it must be built anew."""
    if told_of(lake) is None:
        return False
    try:
        shutil.copyfile(lake.root / ANALYST, built)
        update(built, contents)
        return True
    except (Anew, FileNotFoundError):
        return False


def _read_only(file: Path) -> duckdb.DuckDBPyConnection:
    return database.connect(file, read_only=True)


def analyst(
    lake: Lake,
    tables: Iterable[str] = (),
    catalog: Catalog | None = None,
    connect: Callable[[Path], duckdb.DuckDBPyConnection] = _read_only,
) -> duckdb.DuckDBPyConnection:
    """Returns the current analysts' file, opened by `connect`; it is published first if necessary (see is_published). Of a lake
    that cannot be written, a private one is built where it would be.

    Raises an error for what needs damaged files; with a lake `without_broken` it answers without them.
    """
    catalog = catalog or lake.catalog()
    if not is_published(lake, tables):
        if not lake.is_writable:
            return _private(lake, catalog, connect, leave_out=lake.without_broken)
        publish(lake, catalog, thorough=True)
    if lake.without_broken and published_broken(lake):
        return _private(lake, catalog, connect, leave_out=True)
    path = lake.root / ANALYST
    try:
        return connect(path)
    except duckdb.Error:  # intact by its checksum, but not for this version of DuckDB
        publish(lake, catalog, anew=True)
        return connect(path)


def published_whole(lake: Lake) -> bool:
    """Returns whether the analysts' file is as it was written, up to date or not; also where there is none."""
    if not (lake.root / ANALYST).exists():
        return True
    checksum = _checksum(lake.root / ANALYST)
    told = [record_of(lake.root, name) for name in (PUBLISHED, _NEXT)]
    return any(one and one[_CHECKSUM] == checksum for one in told) or not any(told)


def published_broken(lake: Lake) -> list[Broken]:
    """Returns the files that were broken when the lake was published."""
    return _listed_broken(lake, record_of(lake.root, PUBLISHED) or {})


def _listed_broken(lake: Lake, told: Mapping[str, Any]) -> list[Broken]:
    found = told.get(_BROKEN, [])
    return [Broken(table, Batch(name), table_file(lake.root, table, Batch(name)), why) for table, name, why in found]


def _private(
    lake: Lake, catalog: Catalog, connect: Callable[[Path], duckdb.DuckDBPyConnection], leave_out: bool
) -> duckdb.DuckDBPyConnection:
    """A private file like the analysts', which is deleted when it is closed. `leave_out`: from the readable files only."""
    lake = Lake(lake.root.resolve(), lake.without_broken)
    where = lake.root if lake.is_writable else None
    with tempfile.TemporaryDirectory(prefix=ANALYST_TEMP, dir=where) as folder:
        built = Path(folder) / ANALYST
        files, broken, now = lake.files_of(catalog.public), lake.broken(catalog.public), look(lake.root)
        contents = Contents(lake.root, catalog, files, broken, now, leave_out, home=Path(folder).resolve())
        build(built, contents)
        return connect(built)  # while open, it exists until it is closed


def is_published(lake: Lake, tables: Iterable[str]) -> bool:
    """Returns whether the analysts' file shows what is committed right now, and these tables' files are as it says.

    It does not if something was ingested since, if a writer was killed before it published, if another version of the
    models or other prices wrote it, if the file was changed since, or if the lake was moved or copied.
    """
    try:
        told = _told_here(lake, lake.catalog())
        if told is None or told[_SHOWN] != look(lake.root).digest:
            return False
        return _is_damaged_as(lake, told, tables_to_check(tables))
    except OSError:  # a file was removed meanwhile
        return False


def published_state(lake: Lake, catalog: Catalog, thorough: bool = False) -> str | None:
    """Returns an id of the state that the analysts' file shows, if that is everything committed right now; else None.

    `thorough`: and if all files are there, by the size of each.
    """
    told = _told_of_all(lake, catalog, thorough)
    return told[_SUM] if told else None


def published_whole_and_now(lake: Lake) -> bool:
    """Returns whether the analysts' file shows what is committed right now, and no file was damaged when it was published. The sizes of files are not compared: who reads some compares these (`tables_to_check`)."""
    told = _told_of_all(lake, lake.catalog(), thorough=False)
    return told is not None and not told[_BROKEN] and not told[_UNREADABLE]


def tables_to_check(tables: Iterable[str]) -> set[str]:
    """Returns the tables whose files must be as they were written for an answer from these tables."""
    return {*_ALWAYS, *tables}


def _told_of_all(lake: Lake, catalog: Catalog, thorough: bool) -> dict[str, Any] | None:
    """Returns the record of the analysts' file if that shows everything committed right now: see published_state."""
    told = _told_here(lake, catalog)
    try:
        if told is None or told[_SHOWN] != look(lake.root).digest:
            return None
        is_intact = not thorough and not told[_BROKEN] and not told[_UNREADABLE]
        return told if is_intact or _is_damaged_as(lake, told, catalog.public) else None
    except OSError:  # a file was removed meanwhile
        return None


def _is_damaged_as(lake: Lake, told: Mapping[str, Any], tables: Iterable[str]) -> bool:
    """Returns whether these tables' files are those that the record says, and no others, are damaged."""
    asked, unreadable = set(tables), told[_UNREADABLE]
    found = {(one.table, one.batch.batch_id, one.why) for one in lake.broken(asked)}
    known = {(one.table, one.batch.batch_id, one.why): one.path for one in _listed_broken(lake, told)}
    by_size = {key for key, path in known.items() if key[0] in asked and str(path) not in unreadable}
    return found == by_size and all(_stamp(Path(path)) == stamp for path, stamp in unreadable.items())


def told_of(lake: Lake) -> dict[str, Any] | None:
    """Returns the record of the analysts' file, if the file is whole, of this lake, and without damaged tables."""
    told = _told_here(lake, lake.catalog())
    return told if told and not told[_BROKEN] and not told[_UNREADABLE] else None


def _told_here(lake: Lake, catalog: Catalog) -> dict[str, Any] | None:
    """Returns the record of the analysts' file, if it is whole, of this lake and of these models; else None."""
    told = _told(lake)
    return told if told is not None and _fixed(lake, catalog).items() <= told.items() else None


def _told(lake: Lake) -> dict[str, Any] | None:
    """Returns the record of the analysts' file, if both are as they were written; else None."""
    try:
        told = record_of(lake.root, PUBLISHED)
        return told if told and told[_CHECKSUM] == _checksum(lake.root / ANALYST) else None
    except OSError:  # never published
        return None


def _checksum(path: Path) -> int:
    with path.open("rb") as file:
        found = 0
        while chunk := file.read(1 << 20):
            found = isal_zlib.crc32(chunk, found)
    return found


def _fixed(lake: Lake, catalog: Catalog) -> dict[str, str]:
    """Returns what the analysts' file depends on besides batches: the lake's place, and a hash over the rest."""
    models = [f"{name}={catalog.version(name)}" for name in catalog.public]
    texts = [duckdb.__version__, _FORMAT, content_of(lake.root / PRICES), *models]
    return {_REST: digest_of(texts), _ROOT: str(lake.root.resolve()), _CATALOG: content(lake.root).state[0]}


def _stamp(path: Path) -> str:
    try:
        found = path.stat()
    except FileNotFoundError:
        return ""
    return f"{found.st_size}:{found.st_mtime_ns}"
