"""The analysts' DuckDB file: views over the large tables, real tables for the small ones, comments on all of it.

It is built next to the old one, reopened, verified, and renamed into place: an analyst's open shell neither blocks
ingestion nor sees half a state, and a write that fails leaves the old file. Its views hold absolute paths, and refuse to
answer from a copy elsewhere; `analyst()` rebuilds such a copy for its lake.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import duckdb
from isal import isal_zlib

from pipelines import database
from pipelines.lake.broken import Broken
from pipelines.lake.contents import Contents, build, column_types, verify
from pipelines.lake.layout import ANALYST, ANALYST_TEMP, KEYS, MANIFEST, PUBLISHED, REJECTS, Batch, table_file
from pipelines.lake.prices import PRICES
from pipelines.lake.store import TOLD_BY, Lake
from pipelines.lake.told import content_of
from pipelines.models.cache import digest_of
from pipelines.models.catalog import Catalog, load_catalog

_ALWAYS = (*KEYS, *TOLD_BY, REJECTS, "events", "findings")  # what every look is sure to show as of now
_NEXT = ".published.next.json"  # while the file is replaced, which it tells of
# What `.published.json` tells beside the tables' files.
_REST, _ROOT, _LOGS, _CHECKSUM, _BROKEN, _SUM = "", "root", "logs", "checksum", "broken", "sum"
Stamps = dict[str, list[str]]
"""By table a text for each committed file, `<batch_id>.parquet:<size>:<time of change>`, oldest first."""


def publish(lake: Lake, catalog: Catalog | None = None, anew: bool = False) -> Path:
    """Bring `<lake>/analyst.duckdb` up to date and return its path. Tables without rows yet are empty, with their types.

    It shows what is committed at this moment, and the user's prices (prices.py). If it does already, nothing is written,
    unless `anew`. Raises CatalogError for a model whose SQL DuckDB rejects; NotPublished, OSError or duckdb.IOException
    if the file cannot be written: the old one stays.
    """
    catalog = catalog or load_catalog()
    lake = Lake(lake.root.resolve())  # DuckDB, too, names the file by where links lead
    if not anew and published_state(lake, catalog):
        return lake.root / ANALYST
    column_types(catalog)  # refuses models that DuckDB refuses, before anything is made of them
    with lake.publish_lock():
        if anew or not published_state(lake, catalog):  # another process may have published meanwhile
            _rewrite(lake, catalog)
    return lake.root / ANALYST


def _rewrite(lake: Lake, catalog: Catalog) -> None:
    with tempfile.TemporaryDirectory(prefix=ANALYST_TEMP, dir=lake.root) as folder:
        built = Path(folder) / ANALYST
        files = _listed(lake, catalog.public)
        state = _whole_state(lake, catalog, stamps_of(files))
        contents = Contents(lake.root, catalog, files, lake.broken(catalog.public))
        build(built, contents)
        with built.open("rb+") as file:
            os.fsync(file.fileno())
        verify(built, contents)
        broken = [[one.table, one.batch.batch_id, one.why] for one in contents.broken]
        state_file = Path(folder) / PUBLISHED
        whole = {**state, _CHECKSUM: _checksum(built), _BROKEN: broken}
        state_file.write_text(json.dumps({**whole, _SUM: _sum(whole)}))
        with state_file.open("rb+") as file:
            os.fsync(file.fileno())
        # Killed on the way, the old state stands beside the new file: it is published once more.
        os.replace(state_file, lake.root / _NEXT)
        os.replace(built, lake.root / ANALYST)
        os.replace(lake.root / _NEXT, lake.root / PUBLISHED)


def _read_only(file: Path) -> duckdb.DuckDBPyConnection:
    return database.connect(file, read_only=True)


def analyst(
    lake: Lake,
    tables: Iterable[str] = (),
    catalog: Catalog | None = None,
    connect: Callable[[Path], duckdb.DuckDBPyConnection] = _read_only,
) -> duckdb.DuckDBPyConnection:
    """The analysts' file, opened by `connect` and as of now; it is published first if necessary (see is_published).

    What needs damaged files is an error; with a lake `without_broken` it answers without them.
    """
    catalog = catalog or load_catalog()
    if not is_published(lake, tables):
        publish(lake, catalog)
    if lake.without_broken and published_broken(lake):
        return _without_broken(lake, catalog, connect)
    path = lake.root / ANALYST
    try:
        return connect(path)
    except duckdb.Error:  # whole as to its checksum, but not for this version of DuckDB
        publish(lake, catalog, anew=True)
        return connect(path)


def published_whole(lake: Lake) -> bool:
    """The analysts' file and what is told of it are as they were written, be they up to date or not."""
    return any(_is_as_told(lake, lake.root / name) for name in (PUBLISHED, _NEXT))


def _is_as_told(lake: Lake, state_file: Path) -> bool:
    try:
        told = json.loads(state_file.read_text())
        return told.pop(_SUM) == _sum(told) and told[_CHECKSUM] == _checksum(lake.root / ANALYST)
    except (OSError, ValueError, KeyError, AttributeError):
        return False


def _sum(told: dict[str, Any]) -> str:
    return digest_of([json.dumps(told, sort_keys=True)])


def published_broken(lake: Lake) -> list[Broken]:
    """The files that were broken when the lake was published."""
    found = json.loads((lake.root / PUBLISHED).read_text()).get(_BROKEN, [])
    return [Broken(table, Batch(name), table_file(lake.root, table, Batch(name)), why) for table, name, why in found]


def _without_broken(
    lake: Lake, catalog: Catalog, connect: Callable[[Path], duckdb.DuckDBPyConnection]
) -> duckdb.DuckDBPyConnection:
    """A file like the analysts', but of the files that can be read; nobody else sees it, and it goes when it is closed."""
    with tempfile.TemporaryDirectory(prefix=ANALYST_TEMP, dir=lake.root) as folder:
        built = Path(folder) / ANALYST
        contents = Contents(lake.root, catalog, _listed(lake, catalog.public), lake.broken(catalog.public), True)
        build(built, contents)
        return connect(built)  # open, it stays until it is closed


def is_published(lake: Lake, tables: Iterable[str]) -> bool:
    """The analysts' file shows what is committed of these tables, and which batches there are, at this moment.

    It does not where something came in since, where a writer was killed before it published, where another version
    of the models or other prices did, where the file is not the one that was looked through then, and where the lake
    was moved or copied since.
    """
    try:
        return _told_as(lake, _state(lake, load_catalog(), stamps_of(_listed(lake, {*_ALWAYS, *tables})))) is not None
    except OSError:  # a file was taken away meanwhile
        return False


def published_state(lake: Lake, catalog: Catalog, stamps: Stamps | None = None) -> str | None:
    """What names the state that the analysts' file shows, if that is all that is committed at this moment; else None.

    `stamps`: those of all public tables, where they were listed before.
    """
    try:
        stamps = stamps_of(_listed(lake, catalog.public)) if stamps is None else stamps
        return _told_as(lake, _whole_state(lake, catalog, stamps))
    except OSError:  # a file was taken away meanwhile
        return None


def _told_as(lake: Lake, state: Mapping[str, str]) -> str | None:
    """The checksum of what is told of the analysts' file, if that agrees with a state; else None."""
    try:
        told = json.loads((lake.root / PUBLISHED).read_text())
        is_it = state.items() <= told.items() and told[_CHECKSUM] == _checksum(lake.root / ANALYST)
        return told[_SUM] if is_it else None
    except (OSError, ValueError, KeyError, AttributeError):  # never published, by an older version, or cut off
        return None


def _checksum(path: Path) -> int:
    with path.open("rb") as file:
        found = 0
        while chunk := file.read(1 << 20):
            found = isal_zlib.crc32(chunk, found)
    return found


def _listed(lake: Lake, tables: Iterable[str]) -> dict[str, list[Path]]:
    batches = lake.all_batches()
    return {table: lake.committed_files(table, batches) for table in tables}


def committed_stamps(lake: Lake, tables: Iterable[str]) -> Stamps:
    """The stamps of these tables' committed files. Raises OSError where one is taken away meanwhile."""
    return stamps_of(_listed(lake, tables))


def stamps_of(files: Mapping[str, list[Path]]) -> Stamps:
    """By table what tells one state of its files from the next. Raises OSError where one is taken away meanwhile."""
    # A table that is recomputed keeps its file's name: views show it, and tables that were copied do not.
    return {table: [_stamp(path) for path in paths] for table, paths in files.items()}


def _whole_state(lake: Lake, catalog: Catalog, stamps: Stamps) -> dict[str, str]:
    """`_state`, and a hash over the logs of what was written, from which follows what is damaged and what failed."""
    with os.scandir(lake.root / MANIFEST) if (lake.root / MANIFEST).exists() else nullcontext(()) as entries:
        logs = sorted(_stamp(Path(entry.path)) for entry in entries if not entry.name.startswith("."))
    return {**_state(lake, catalog, stamps), _LOGS: digest_of(logs)}


def _state(lake: Lake, catalog: Catalog, stamps: Stamps) -> dict[str, str]:
    """A hash for each table over its files, and one over all else that is in the analysts' file."""
    models = [f"{name}={catalog.version(name)}" for name in catalog.public]
    rest = digest_of([duckdb.__version__, content_of(lake.root / PRICES), *models])
    hashes = {table: digest_of(texts) for table, texts in stamps.items()}
    return {**hashes, _REST: rest, _ROOT: str(lake.root.resolve())}


def _stamp(path: Path) -> str:
    found = path.stat()
    return f"{path.name}:{found.st_size}:{found.st_mtime_ns}"
