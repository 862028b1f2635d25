"""CPU seconds of each step of adding a capture of 8 traces, by the number of batches in the lake.

`python -m bench.growth FOLDER [--sizes 10 100 1000]`; `make growth`. Large lakes are built from a small lake that was
really ingested and computed. Its batches are copied with new ids of batches, traces and captures, and the catalog is
rebuilt from the copies. So `tracelake check` finds no damage in the lake.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from pipelines.faces.cli.named_traces_query import open_named_traces
from pipelines.fleet.captures.input_tables import lake_captures
from pipelines.lake import Batch, Lake
from pipelines.lake.commit import manifest
from pipelines.lake.commit.catalog_file import rebuild
from pipelines.lake.names import (
    ANALYST,
    CAPTURE_MARK,
    CAPTURE_RANKS,
    CAPTURE_TABLES,
    KEYS,
    MARK,
    VERSION_KEY,
    table_file,
    table_of,
)
from pipelines.lake.publish.analyst_file import analyst, is_published, publish
from pipelines.lake.publish.contents import column_types
from pipelines.lake.read.query_tables import tables_read
from pipelines.lake.read.sandbox import Limits, connect_parser
from pipelines.lake.version import mark_layout
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import parquet_rows, quoted
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.runs.materialize.per_trace import materialize
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture

SIZES = (1, 10, 100, 1000)
RATIO = 1.5
_FROM, _TO = 10, 1000  # the sizes that the floor compares
_AT_ONCE = 100
_FIRST = datetime(2026, 1, 1)
_EVERY = timedelta(seconds=71)  # between two captures, so about 1,200 per day
GROWING = {
    "first look after a change: models": "a new process reads all rows of the catalog",
    "first look after a change: captures": "a new process reads all rows of the catalog",
    "list all captures (lake_captures)": "the answer is every capture",
    "look at all files of kernels (is_published)": "a query of all traces reads all of these files",
    "plain DuckDB, by a subquery": "DuckDB learns the id when it has opened a file of each batch",
}
"""Steps whose cost must grow with the lake, and the reason. See docs/scaling.md."""
_SMALL: dict[str, Any] = {"ranks": 8, "steps": 3, "layers": 2, "ops_per_layer": 2}


def seed_lake(folder: Path, ranks: int = 8) -> Lake:
    """Return a lake of one capture of small traces, with all its tables. The traces stay in `in/`."""
    lake = Lake(folder / "lake")
    if not lake.exists:
        ingest(write_capture(CaptureSpec(seed=1, **{**_SMALL, "ranks": ranks}), folder / "in").paths, lake)
        materialize_all(lake)
    return lake


def cloned(seed: Lake, root: Path, n: int, begins: datetime = _FIRST) -> Lake:
    """Return a new lake of `n` captures, each a copy of the seed's capture in its own batches.

    The copies are written table by table, a hundred captures at a time, and are not published. `begins`: time of the
    first capture.
    """
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    mark_layout(root)
    for first in range(0, n, _AT_ONCE):
        _clone(seed, root, range(first, min(n, first + _AT_ONCE)), begins)
    rebuild(root)
    return Lake(root)


def _clone(seed: Lake, root: Path, numbers_of: range, begins: datetime) -> None:
    sources = {batch: sorted(seed.root.glob(f"*/day=*/{batch.batch_id}.parquet")) for batch in _all(seed)}
    numbers = {batch: place for place, batch in enumerate(sorted(sources))}
    catalog = load_catalog()
    with duckdb.connect() as con:
        con.execute("SET threads = 1")
        con.execute("SET preserve_insertion_order = false")
        _create_ids(con, seed, numbers_of, numbers, begins)
        for batch, files in sources.items():
            for path in files:
                table = table_of(path)
                version = catalog.version(table) if table not in catalog.ingested("trace") else None
                _write_clones(con, path, table, batch, root, version)
        _set_contents(con, root)


def _all(lake: Lake) -> list[Batch]:
    return [Batch(name) for name in manifest.entries(lake.root)]


def _create_ids(
    con: duckdb.DuckDBPyConnection, seed: Lake, clones: range, numbers: dict[Batch, int], begins: datetime
) -> None:
    """Create table `ids` (k, old, new) with the ids of traces, captures, groups and batches in clone k."""
    con.execute("CREATE TABLE ids (k INTEGER, old VARCHAR, new VARCHAR)")
    names = set()
    for table, columns in ((MARK, ("trace_id", "group_id")), (CAPTURE_MARK, ("capture_id",))):
        files = [table_file(seed.root, table, batch) for batch in seed.batches(table)]
        for column in columns:
            query = f"SELECT {column} FROM {parquet_rows(files)}"
            names |= {value for (value,) in con.execute(query).fetchall()}
    rows = [(k, name, hashlib.sha256(f"{name} {k}".encode()).hexdigest()[:16]) for k in clones for name in names]
    for k in clones:
        for batch, place in numbers.items():
            at = begins + k * _EVERY + timedelta(seconds=place)
            rows.append((k, batch.batch_id, f"{at:%Y%m%dT%H%M%S%f}-{k:08x}"))
    _insert(con, rows)
    con.execute("CREATE TABLE maps AS SELECT k, map(list(old), list(new)) AS m FROM ids GROUP BY k ORDER BY k")


def _insert(con: duckdb.DuckDBPyConnection, rows: list[tuple[int, str, str]]) -> None:
    for start in range(0, len(rows), 5000):
        text = ", ".join(f"({k}, {quoted(old)}, {quoted(new)})" for k, old, new in rows[start : start + 5000])
        con.execute(f"INSERT INTO ids VALUES {text}")


def _write_clones(
    con: duckdb.DuckDBPyConnection, path: Path, table: str, batch: Batch, root: Path, version: str | None
) -> None:
    source = parquet_rows(path)
    described = con.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    texts = [name for name, kind, *_ in described if kind == "VARCHAR"]
    known = "(SELECT DISTINCT old FROM ids)"
    checked = ", ".join(f'coalesce(bool_or("{name}" IN {known}), false)' for name in texts)
    flags = con.execute(f"SELECT {checked} FROM {source}").fetchone() if texts else ()
    changed = {name for name, is_id in zip(texts, flags or (), strict=True) if is_id}
    shown = ", ".join(_renamed(name, name in changed, table) for name, *_ in described)
    order = KEYS[CAPTURE_MARK] if table in CAPTURE_TABLES else KEYS[MARK]
    rows = f"SELECT {shown}, element_at(m, {quoted(batch.batch_id)})[1] AS _to FROM {source} AS t, maps ORDER BY _to, {order}"
    folder = root / ".cloning"
    shutil.rmtree(folder, ignore_errors=True)
    said = f", KV_METADATA {{{VERSION_KEY}: {quoted(version)}}}" if version else ""
    con.execute("SET partitioned_write_max_open_files = 2000")
    con.execute(f"COPY ({rows}) TO {quoted(folder)} (FORMAT parquet, COMPRESSION zstd, PARTITION_BY (_to){said})")
    made = {part.name.partition("=")[2]: part for part in folder.iterdir()} if folder.exists() else {}
    empty = root / ".empty.parquet"
    if len(made) == 0:  # a table without rows, so all clones get the same file
        con.execute(f"COPY (SELECT * FROM {source}) TO {quoted(empty)} (FORMAT parquet, COMPRESSION zstd{said})")
    for (name,) in con.execute("SELECT new FROM ids WHERE old = ?", [batch.batch_id]).fetchall():
        target = table_file(root, table, Batch(name))
        target.parent.mkdir(parents=True, exist_ok=True)
        if not made:
            shutil.copy(empty, target)
            continue
        (file,) = made[name].iterdir()
        os.replace(file, target)
    empty.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _renamed(name: str, is_id: bool, table: str) -> str:
    if is_id:
        return f'coalesce(element_at(m, "{name}")[1], "{name}") AS "{name}"'
    if name == "path" and table == MARK:
        return "replace(path, '/in/', '/in' || k || '/') AS path"
    return f'"{name}"'


def _set_contents(con: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Rewrite `captures` with the hash of the traces that each clone has."""
    ours = {name for (name,) in con.execute("SELECT new FROM ids").fetchall()}
    marks = (root / CAPTURE_MARK).glob("day=*/*.parquet")
    for batch in (Batch(path.stem) for path in marks if path.stem in ours):
        members = table_file(root, CAPTURE_RANKS, batch)
        parts = con.execute(f"SELECT trace_id, rank, left_out_reason FROM {parquet_rows(members)}").fetchall()
        text = ";".join(sorted(f"{trace}:{rank}:{why}" for trace, rank, why in parts))
        content = hashlib.sha256(text.encode()).hexdigest()[:16]
        mark = table_file(root, CAPTURE_MARK, batch)
        version = load_catalog().version(CAPTURE_MARK)
        other = mark.with_suffix(".part")
        con.execute(
            f"COPY (SELECT * REPLACE ({quoted(content)} AS content) FROM {parquet_rows(mark)}) "
            f"TO {quoted(other)} (FORMAT parquet, KV_METADATA {{{VERSION_KEY}: {quoted(version)}}})"
        )
        os.replace(other, mark)


def measured(lake: Lake, folder: Path) -> Iterator[tuple[str, float]]:
    """Yield each step of adding the capture in `folder` to an up-to-date lake, and its CPU seconds."""
    catalog = load_catalog()
    column_types(catalog)  # cached per user
    yield "ingest", cpu(lambda: ingest([folder], lake))
    new = sorted(set(lake.batches()))[-1:]
    yield "models of the new batch", cpu(lambda: materialize(lake, batches=new, and_publish=False))
    yield "publish", cpu(lambda: publish(lake))
    yield "captures, one new", cpu(lambda: materialize_captures(lake, catalog.of_captures))

    # Wait, because changes of the last 0.1 s cannot be distinguished from each other.
    time.sleep(0.3)
    yield "first look after a change: models", cpu(lambda: materialize(lake, and_publish=False))
    yield "first look after a change: captures", cpu(lambda: materialize_captures(lake, catalog.of_captures))
    yield "models of the whole lake, nothing to do", cpu(lambda: materialize(lake, and_publish=False))
    yield "publish, nothing to do", cpu(lambda: publish(lake))
    yield "captures, nothing to do", cpu(lambda: materialize_captures(lake, catalog.of_captures))
    yield "list all captures (lake_captures)", cpu(lambda: lake_captures(lake))
    yield "look at all files of kernels (is_published)", cpu(lambda: is_published(lake, ["kernels"]))

    with analyst(lake) as con:
        (newest,) = con.execute("SELECT max(trace_id) FROM traces").fetchall()[0]
    by_id, by_subquery = quoted(newest), "(SELECT max(trace_id) FROM traces)"
    yield "query of one trace, by its id", cpu(lambda: _ask(lake, by_id))
    yield "query of one trace, by a subquery", cpu(lambda: _ask(lake, by_subquery))
    yield "`tracelake sql` of one trace, by a subquery", cpu(lambda: _run(lake, by_subquery))
    yield "plain DuckDB, by its id", cpu(lambda: _ask_duckdb(lake, by_id))
    yield "plain DuckDB, by a subquery", cpu(lambda: _ask_duckdb(lake, by_subquery))


def _query(trace_id: str) -> str:
    return f"SELECT count(*) FROM kernels WHERE trace_id = {trace_id}"


def _ask(lake: Lake, trace_id: str) -> None:
    """Run a query of one trace in this process, as `tracelake sql` does.

    `trace_id`: the trace as SQL, an id or a subquery.
    """
    with connect_parser() as parser:
        query = _query(trace_id)
        opened = open_named_traces(lake.root, query, tables_read(query, parser), parser, Limits())
    assert opened, "the lake is not up to date"
    with opened[0] as locked, locked.asked(opened[1]) as answer:
        assert answer.rows()[0][0] > 0


def _run(lake: Lake, trace_id: str) -> None:
    command = [sys.executable, "-m", "tracelake", "sql", _query(trace_id), "--lake", str(lake.root), "--format", "csv"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _ask_duckdb(lake: Lake, trace_id: str) -> None:
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        assert con.execute(_query(trace_id)).fetchall()[0][0] > 0


def cpu(step: Callable[[], object]) -> float:
    before = _used()
    step()
    return _used() - before


def _used() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def prepared(folder: Path, n: int) -> Lake:
    """Build and publish a lake of `n` captures in `folder`, or reuse the lake of an earlier run."""
    seed, root = seed_lake(folder / "seed"), folder / f"lake{n}"
    done = folder / f"lake{n}.made"
    if not done.exists():
        print(f"making a lake of {n} captures", file=sys.stderr)
        cloned(seed, root, n)
        done.write_text("")
    lake = Lake(root)
    materialize_all(lake)
    return lake


def main() -> None:
    """Measure and print the table. Exit with 1 if a row not in GROWING grows by more than RATIO from 10 to 1,000."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the lakes are made here, and kept")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--times", type=int, default=1, help="how often each is measured; the least counts")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    costs: dict[str, dict[int, float]] = {}
    for size in options.sizes:
        lake = prepared(options.folder, size)
        for number in range(options.times):
            stamp = f"{size}_{time.time_ns()}"
            spec = CaptureSpec(seed=time.time_ns() % 1_000_000 + number, **_SMALL)
            write_capture(spec, options.folder / "new" / stamp)
            for step, seconds in measured(lake, options.folder / "new" / stamp):
                least = costs.setdefault(step, {}).get(size, seconds)
                costs[step][size] = min(least, seconds)
                print(f"{size:5} {step:42} {seconds:8.2f}", file=sys.stderr, flush=True)
    print("| CPU s, by captures in the lake | " + " | ".join(f"{size:,}" for size in options.sizes) + " |")
    print("|---|" + "---|" * len(options.sizes))
    for step, row in costs.items():
        print(f"| {step} | " + " | ".join(f"{row[size]:.2f}" for size in options.sizes) + " |")
    print(json.dumps(costs), file=sys.stderr)
    if {_FROM, _TO} <= set(options.sizes):
        grown = {step: row[_TO] / row[_FROM] for step, row in costs.items() if row[_TO] > RATIO * row[_FROM]}
        for step, ratio in grown.items():
            known = GROWING.get(step, f"at most {RATIO}")
            print(f"{step}: {ratio:.1f} times as much in the lake of {_TO:,} as in that of {_FROM:,}; {known}")
        sys.exit(not grown.keys() <= GROWING.keys())


if __name__ == "__main__":
    main()
