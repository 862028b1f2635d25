"""The analysts' DuckDB file: views over the large tables, real tables for the small ones, comments on all of it.

It is built beside, opened anew and looked through, and renamed into place: an analyst's open shell neither blocks
ingestion nor sees half a state, and a write that fails leaves the old file. Its views hold absolute paths, and refuse to
answer from a copy that lies elsewhere; `analyst()` makes such a copy the lake's own.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import duckdb
from isal import isal_zlib

from pipelines.lake.layout import ANALYST, ANALYST_TEMP, CAPTURE_MARK, KEYS, MARK, PUBLISHED, REJECTS, mark_of
from pipelines.lake.prices import PRICES, add_prices
from pipelines.lake.store import TOLD_BY, Lake, committed_rows, trace_rows
from pipelines.lake.told import content_of
from pipelines.models.cache import digest_of, remembered
from pipelines.models.catalog import Catalog, Column, Model, load_catalog
from pipelines.models.run import run_models
from pipelines.sqltext import quoted

_SMALL = (MARK, "findings", REJECTS)  # and all about runs of schedules
_LARGE = ("collective_ranks", "capture_critical_path")  # of the tables of captures, which are small otherwise
_REST, _ROOT, _CHECKSUM = "", "root", "checksum"  # what `.published.json` tells beside the tables' files
BATCH_COLUMN = Column("batch_id", "Ingest run that the trace came with.")


class NotPublished(Exception):
    """The analysts' file that was built is not whole; the message says why. What was published before still stands."""


def publish(lake: Lake, catalog: Catalog | None = None) -> Path:
    """Write `<lake>/analyst.duckdb` anew and return its path. Tables without rows yet are empty, with their types.

    It shows what is committed at this moment, and the user's prices (prices.py). Raises CatalogError for a model whose
    SQL DuckDB refuses; NotPublished, OSError or duckdb.IOException where the file cannot be written: the old one stays.
    """
    catalog = catalog or load_catalog()
    column_types(catalog)  # refuses models that DuckDB refuses, before anything is made of them
    lake = Lake(lake.root.resolve())  # DuckDB, too, names the file by where links lead
    target = lake.root / ANALYST
    with lake.publish_lock(), tempfile.TemporaryDirectory(prefix=ANALYST_TEMP, dir=lake.root) as folder:
        built = Path(folder) / ANALYST
        files = _listed(lake, catalog.public)
        state = _state(lake, catalog, files)
        _build(built, lake, catalog, files)
        with built.open("rb+") as file:
            os.fsync(file.fileno())
        _verify(built, catalog, files)
        told = Path(folder) / PUBLISHED
        told.write_text(json.dumps({**state, _CHECKSUM: _checksum(built)}))
        with told.open("rb+") as file:
            os.fsync(file.fileno())
        # Killed between the two, the old state stands beside the new file: it is published once more.
        os.replace(built, target)
        os.replace(told, lake.root / PUBLISHED)
    return target


def analyst(lake: Lake, tables: Iterable[str] = (), catalog: Catalog | None = None) -> duckdb.DuckDBPyConnection:
    """The analysts' file, opened read-only and as of now; it is published first where it is not (see is_published)."""
    if not is_published(lake, tables):
        publish(lake, catalog)
    path = lake.root / ANALYST
    try:
        return duckdb.connect(str(path), read_only=True)
    except duckdb.Error:  # whole as to its checksum, but not for this version of DuckDB
        publish(lake, catalog)
        return duckdb.connect(str(path), read_only=True)


def is_published(lake: Lake, tables: Iterable[str]) -> bool:
    """The analysts' file shows what is committed of these tables, and which batches there are, at this moment.

    It does not where something came in since, where a writer was killed before it published, where another version
    of the models or other prices did, where the file is not the one that was looked through then, and where the lake
    was moved or copied since.
    """
    try:
        told = json.loads((lake.root / PUBLISHED).read_text())
        now = _state(lake, load_catalog(), _listed(lake, {*KEYS, *TOLD_BY, REJECTS, *tables}))
        return now.items() <= told.items() and told[_CHECKSUM] == _checksum(lake.root / ANALYST)
    except (OSError, ValueError, KeyError, AttributeError):  # never published, by an older version, or cut off
        return False


def _build(built: Path, lake: Lake, catalog: Catalog, files: dict[str, list[Path]]) -> None:
    with duckdb.connect(str(built)) as con:
        con.execute("BEGIN")  # one flush to disk instead of one a statement
        con.execute("CREATE SCHEMA tracelake")
        con.execute(f"CREATE TABLE tracelake.published AS SELECT {quoted(lake.root)} AS root, now() AS published_at")
        con.execute(
            "COMMENT ON TABLE tracelake.published IS 'One row: this file.'; "
            "COMMENT ON COLUMN tracelake.published.root IS 'The lake whose files the views read.'; "
            "COMMENT ON COLUMN tracelake.published.published_at IS 'When it was made.'"
        )
        for table in sorted(catalog.public, key=lambda name: name not in KEYS):  # the marks first: others read them
            _publish_table(con, catalog, catalog.models[table], files, lake.root)
        add_prices(con, lake.root)
        con.execute("COMMIT")
        try:
            con.execute("CHECKPOINT")  # closing writes, too, but does not tell where that fails
        except duckdb.FatalException as error:
            raise NotPublished(f"{ANALYST}: cannot be written, so the old one stays: {error}") from None


def _verify(built: Path, catalog: Catalog, files: dict[str, list[Path]]) -> None:
    """The file as it lies on the disk has every public table, and every mark as many rows as its files.

    Raises NotPublished.
    """
    try:
        if built.with_name(f"{built.name}.wal").exists():
            raise NotPublished("a part of it was not written (its log is left); is the disk full?")
        with duckdb.connect(str(built), read_only=True) as con:
            there = {name for (name,) in con.execute("SHOW TABLES").fetchall()}
            if missing := sorted(set(catalog.public) - there):
                raise NotPublished(f"{len(missing)} tables are not in it, such as {missing[0]}")
            for mark in KEYS:
                _verify_mark(con, mark, files)
    except (duckdb.Error, NotPublished) as error:
        told = str(error).splitlines()[0]
        raise NotPublished(f"{ANALYST}: what was built is not whole, so the old one stays: {told}") from None


def _verify_mark(con: duckdb.DuckDBPyConnection, mark: str, files: dict[str, list[Path]]) -> None:
    found = con.execute(f"SELECT count(*) FROM {mark}").fetchall()[0][0]
    committed = 0
    if files[mark]:
        with duckdb.connect() as other:
            rows = trace_rows(files) if mark == MARK else committed_rows(mark, files[mark])
            committed = other.execute(f"SELECT count(*) FROM ({rows})").fetchall()[0][0]
    if found != committed:
        raise NotPublished(f"{mark} has {found} rows of {committed} that are committed")


def _checksum(path: Path) -> int:
    with path.open("rb") as file:
        found = 0
        while chunk := file.read(1 << 20):
            found = isal_zlib.crc32(chunk, found)
    return found


def _listed(lake: Lake, tables: Iterable[str]) -> dict[str, list[Path]]:
    batches = lake.all_batches()
    return {table: lake.committed_files(table, batches) for table in tables}


def _state(lake: Lake, catalog: Catalog, files: dict[str, list[Path]]) -> dict[str, str]:
    """A hash for each table over its files, and one over all else that is in the analysts' file."""
    models = [f"{name}={catalog.version(name)}" for name in catalog.public]
    rest = digest_of([duckdb.__version__, content_of(lake.root / PRICES), *models])
    # A table that is computed anew keeps its file's name: views show it, and tables that were copied do not.
    hashes = {table: digest_of(f"{p.name}:{p.stat().st_mtime_ns}" for p in paths) for table, paths in files.items()}
    return {**hashes, _REST: rest, _ROOT: str(lake.root.resolve())}


@lru_cache
def column_types(catalog: Catalog) -> dict[str, list[tuple[str, str]]]:
    """The columns and DuckDB types of every public table, found by running all models on nothing."""
    digest = digest_of([duckdb.__version__, *(catalog.version(name) for name in catalog.models)])
    found = remembered("column-types", digest, lambda: _dry_run(catalog))
    return {table: [(column, kind) for column, kind in columns] for table, columns in found.items()}


def _dry_run(catalog: Catalog) -> dict[str, list[tuple[str, str]]]:
    from pipelines.critical_path.windows import request_windows
    from pipelines.fleet.stage import empty_stage
    from pipelines.ingest import empty_lake_tables

    with duckdb.connect() as con:
        empty_lake_tables(con, catalog)
        request_windows(con, [])
        empty_stage(con)
        run_models(con, catalog, catalog.public)
        types = {n: [(r[0], r[1]) for r in con.execute(f"DESCRIBE {n}").fetchall()] for n in catalog.public}
    for name in (*catalog.materialized, *catalog.of_captures):
        types[name].append((BATCH_COLUMN.name, "VARCHAR"))
    return types


def _publish_table(
    con: duckdb.DuckDBPyConnection, catalog: Catalog, model: Model, files: dict[str, list[Path]], root: Path
) -> None:
    kind = "TABLE"
    if model.kind == "rules":
        run_models(con, catalog, [model.name])
    elif model.kind == "view":
        kind = "VIEW"
        con.execute(f"CREATE VIEW {model.name} AS {model.sql}")
    elif not files[model.name]:
        types = column_types(catalog)[model.name]
        con.execute(f"CREATE TABLE {model.name} ({', '.join(f'{_name(column)} {type_}' for column, type_ in types)})")
    else:
        is_small = model.name in _SMALL or model.layer == "summary" or mark_of(model.name) not in (MARK, CAPTURE_MARK)
        is_small |= mark_of(model.name) == CAPTURE_MARK and model.name not in _LARGE
        kind = "TABLE" if is_small else "VIEW"
        rows = trace_rows(files) if model.name == MARK else committed_rows(model.name, files[model.name])
        if model.kind == "lake" and mark_of(model.name) != MARK and model.name != REJECTS:
            # Files of an older version lack columns, which views over the table and the report ask for.
            columns = ", ".join(
                f"CAST(NULL AS {type_}) AS {_name(c)}" for c, type_ in column_types(catalog)[model.name]
            )
            rows = f"({rows}) UNION ALL BY NAME SELECT {columns} WHERE FALSE"
        if kind == "VIEW":
            rows = f"SELECT * FROM ({rows}) WHERE {_is_at_home(root)}"
        con.execute(f"CREATE {kind} {model.name} AS {rows}")
    _comment(con, model, kind)


def _is_at_home(root: Path) -> str:
    """The condition that the file is opened where it was made: a copy of it must not answer from the original's files."""
    way_out = (
        f"this file was made as {root / ANALYST}, whose files it would read, and it is elsewhere now: open that one, or "
        "for a copied or moved lake run `tracelake sql --lake FOLDER` once, which makes it the lake's own"
    )
    there = f"SELECT count(*) FROM duckdb_databases() WHERE path = {quoted(root / ANALYST)}"
    return f"(SELECT CASE WHEN ({there}) > 0 THEN true ELSE error({quoted(way_out)}) END)"


def _comment(con: duckdb.DuckDBPyConnection, model: Model, kind: str) -> None:
    present = {row[0] for row in con.execute(f"DESCRIBE {model.name}").fetchall()}
    comments = [f"COMMENT ON {kind} {model.name} IS {quoted(model.doc)}"]
    for column in (BATCH_COLUMN, *model.columns):
        if column.name in present:
            comments.append(f"COMMENT ON COLUMN {model.name}.{_name(column.name)} IS {quoted(column.doc)}")
    con.execute("; ".join(comments))


def _name(column: str) -> str:
    return f'"{column}"'
