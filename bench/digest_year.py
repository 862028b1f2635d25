"""A year of digests: their size per step and rank, and the seconds of each fleet page, by days in the lake.

`python -m bench.digest_year FOLDER [--days 30 365] [--gpus 1000]`. A capture of 8 ranks is really ingested, computed and
reduced to a digest. Each day of the lake has one copy of it per 8 GPUs, with new ids and one of 20 jobs. Times and
shares are multiplied by random numbers, because equal rows would take no space.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from pipelines.faces.limiting_findings import findings_of_newest
from pipelines.faces.report.fleet import fleet_page
from pipelines.faces.why import TABLES as WHY
from pipelines.faces.why import why
from pipelines.fleet.trends.comparison import DIGEST_TABLES, WITH_CAUSES
from pipelines.fleet.trends.fleet_today import TABLES, fleet_today
from pipelines.fleet.trends.history import regressions
from pipelines.lake import Lake
from pipelines.lake.commit.catalog_file import rebuild
from pipelines.lake.commit.manifest import entries
from pipelines.lake.commit.parquet import options
from pipelines.lake.names import Batch, table_file
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.retain.merge import ORDER_OF_DIGEST
from pipelines.lake.version import mark_layout
from pipelines.models.sqltext import parquet_rows, quoted
from pipelines.readers.ingest import ingest
from pipelines.runs.digest import reduce_old
from pipelines.runs.store import open_store
from pipelines.synthetic import CaptureSpec, write_capture

RANKS, STEPS, JOBS = 8, 5, 20
_IDS = ("trace_id", "capture_id", "group_id")
_TIMES = ("started_at", "ingested_at", "began_at")


def seed_lake(folder: Path) -> Lake:
    """Return a lake with the digest of one capture."""
    lake = Lake(folder / "lake")
    if not lake.exists:
        spec = CaptureSpec(ranks=RANKS, steps=STEPS, straggler=2, seed=1, layers=4)
        ingest(write_capture(spec, folder / "in").paths, lake, job="job")
        reduce_old(lake, 1, timedelta(0), now=datetime.now(UTC) + timedelta(days=3))
    return lake


def year(seed: Lake, root: Path, days: int, gpus: int) -> Lake:
    """Return a new lake with the digests of `gpus` ranks for each of the last `days` days."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    mark_layout(root)
    for day in range(days):
        for name, entry in entries(seed.root).items():
            at = datetime.now(UTC) - timedelta(days=days - 1 - day)
            batch = Batch(f"{at:%Y%m%d}{name[8:]}")
            for table in entry.kind.places:
                _copy(table_file(seed.root, table, Batch(name)), table_file(root, table, batch), day, days, gpus)
    rebuild(root)
    return Lake(root)


def _copy(source: Path, target: Path, day: int, days: int, gpus: int) -> None:
    """Write a day's file of a table: the source's rows once per capture, with the capture's ids, job and date."""
    rows = parquet_rows(source)
    with duckdb.connect() as con:
        columns = {name: kind for name, kind, *_ in con.execute(f"DESCRIBE FROM {rows}").fetchall()}
        footer = con.execute(f"SELECT decode(value) FROM parquet_kv_metadata({quoted(source)})").fetchall()
        new = {
            name: f"CAST({name} * (0.9 + random() / 5) AS {kind})"
            for name, kind in columns.items()
            if kind in ("BIGINT", "DOUBLE") and name.endswith(("_ns", "percent"))
        }
        new |= {name: f"substr(sha256(concat({name}, ' {day} ', c)), 1, 16)" for name in _IDS}
        new |= {name: f"{name} - INTERVAL {days - 1 - day} DAY" for name in _TIMES}
        new |= {"batch_id": quoted(target.stem), "job": f"concat('job', c % {JOBS})"}
        new |= {"path": f"concat('/fleet/{day}/', c, '/', file)"} if "file" in columns else {}
        replaced = ", ".join(f"{text} AS {name}" for name, text in new.items() if name in columns)
        target.parent.mkdir(parents=True, exist_ok=True)
        con.execute(
            f"COPY (SELECT * EXCLUDE (c) REPLACE ({replaced}) FROM {rows}, range({gpus // RANKS}) AS of_day (c) "
            f"{ORDER_OF_DIGEST}) TO {quoted(target)} ({options(footer[0][0] if footer else None, (), of_digest=True)})"
        )


def pages(lake: Lake) -> Iterator[tuple[str, float]]:
    """Yield the name of each page of the fleet, and its seconds in a process that has opened the lake."""
    store = open_store(lake.root)
    with store.analyst() as con:
        ((trace_id, other),) = con.execute("SELECT min(trace_id), max(trace_id) FROM traces").fetchall()
        yield "jobs", _seconds(lambda: con.execute("FROM jobs").fetchall())
        yield "regressions", _seconds(lambda: regressions(con))
        yield "fleet", _seconds(lambda: _fleet_page(con, None))
        yield "fleet, one job", _seconds(lambda: _fleet_page(con, "job3"))
        yield "why, one trace", _seconds(lambda: why(con, trace_id))
        of_two = f"trace_id IN ({quoted(trace_id)}, {quoted(other)})"
        query = f"SELECT count(*) FROM digest_work WHERE {of_two}"
        yield "digest_work of two traces", _seconds(lambda: con.execute(query).fetchall())
    yield "are tables up to date", _seconds(lambda: store.asked((*TABLES, *WHY, *WITH_CAUSES, *DIGEST_TABLES)).reduced)


def _fleet_page(con: duckdb.DuckDBPyConnection, job: str | None) -> str:
    fleet = fleet_today(con, job)
    return fleet_page(fleet, {}, "now", findings_of_newest(con, fleet.jobs))


def _seconds(step: Callable[[], object]) -> float:
    step()  # reads files, which are in memory for the timed run
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def main() -> None:
    """Print bytes per step and rank, and the seconds of each page, by days."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the lakes are made here, and kept")
    parser.add_argument("--days", type=int, nargs="*", default=[30, 365])
    parser.add_argument("--gpus", type=int, default=1000)
    asked = parser.parse_args()
    seed = seed_lake(asked.folder / "seed")
    rows: dict[str, dict[int, str]] = {}
    for days in asked.days:
        root = asked.folder / f"year{days}"
        lake = Lake(root) if root.exists() else year(seed, root, days, asked.gpus)
        publish(lake)
        n_bytes = sum(path.stat().st_size for path in root.glob("*/day=*/*.parquet"))
        steps = days * (asked.gpus // RANKS) * RANKS * STEPS
        rows.setdefault("GB", {})[days] = f"{n_bytes / 1e9:.2f}"
        rows.setdefault("bytes per step and rank", {})[days] = f"{n_bytes / steps:,.0f}"
        for page, seconds in pages(lake):
            rows.setdefault(f"{page}, s", {})[days] = f"{seconds:.2f}"
            print(days, page, f"{seconds:.2f}", file=sys.stderr, flush=True)
    print(f"| {asked.gpus:,} GPUs, {STEPS} steps a day each, days | {' | '.join(map(str, asked.days))} |")
    print("|---|" + "---:|" * len(asked.days))
    for row, values in rows.items():
        print(f"| {row} | {' | '.join(values[days] for days in asked.days)} |")


if __name__ == "__main__":
    main()
