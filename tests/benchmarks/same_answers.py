"""Whether two checkouts give the same answers: all tables as queries see them, the critical path's JSON byte by byte.

    python -m tests.benchmarks.same_answers make ../before .bench/before     # or --traces DIR, --only NAME (repeatable)
    python -m tests.benchmarks.same_answers make . .bench/after
    python -m tests.benchmarks.same_answers compare .bench/before .bench/after

`make` ingests all traces into one lake, computes all tables and asks every trace for its critical path; it also says
what that took in CPU seconds, and writes `hashes.json`: by table its columns, how many rows it has, and a hash of the sorted
rows. `compare` ends with 1 where anything differs, and shows rows. Floats must be equal to the last bit. With `--common` it
compares the tables and columns that both have, and only says which are in one.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from tests.shared_traces import is_trace

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "../shared/traces"
# What tells one run from another: ids of batches hold their time, and where a trace's clock tells none, jobs begin when they
# were ingested.
_OF_THE_RUN = ("batch_id", "ingest_batch_id", "ingested_at", "seen_at", "jobs.began_at", "job_days.began_on")
_PROFILES = ("default", "hta")
_SHOWN = 3
_FILE = "analyst.duckdb"
# Files of traces; what lies beside a *_kernel_trace.csv is found by its name.
_TRACES = ("*.json", "*.json.gz", "*.sqlite", "*.db", "*_kernel_trace.csv", "*.pftrace")


def main() -> int:
    """Parse the words and do it; 1 where answers differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    making = parts.add_parser("make", help="write a checkout's answers into a folder")
    making.add_argument("checkout", type=Path)
    making.add_argument("folder", type=Path)
    making.add_argument("--traces", type=Path, default=TRACES)
    making.add_argument("--only", action="append", default=[], help="only traces whose path contains one of these")
    comparing = parts.add_parser("compare", help="compare two such folders")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--common", action="store_true", help="of tables and columns only those that both have")
    asked = parser.parse_args()
    if asked.part == "make":
        make(asked.checkout.resolve(), asked.folder.resolve(), asked.traces.resolve(), asked.only)
        return 0
    found = list(compare(asked.before, asked.after, asked.common))
    differences = [line for line in found if not (asked.common and line.startswith(_ONLY))]
    print("\n".join(found))
    print(f"{len(differences)} differences" if differences else "the same answers")
    return 1 if differences else 0


def make(checkout: Path, folder: Path, traces: Path, only: Sequence[str] = ()) -> None:
    """Write the answers of a checkout: `lake/`, `hashes.json`, and `<trace>.<profile>.json` in `paths/`.

    Raises SystemExit.
    """
    if folder.exists():
        raise SystemExit(f"error: {folder} is there already; remove it")
    files = sorted(file for kind in _TRACES for file in traces.rglob(kind) if is_trace(file))
    files = [file for file in files if not only or any(one in str(file) for one in only)]
    if not files:
        raise SystemExit(f"error: no trace in {traces} has any of {only!r} in its path")
    (folder / "paths").mkdir(parents=True)
    lake = ("--lake", str(folder / "lake"))
    _told("ingest", _run(checkout, None, "ingest", *map(str, files), *lake))
    _told("materialize", _run(checkout, None, "materialize", *lake))
    total = 0.0
    for file in files:
        for profile in _PROFILES:
            name = "_".join(file.relative_to(traces).parts)
            out = folder / "paths" / f"{name}.{profile}.json"
            total += _run(checkout, out, "critical-path", str(file), "--profile", profile, "--json")
    _told("critical paths", total)
    hashes = write_hashes(folder)
    print(f"{len(hashes)} tables, {sum(one['rows'] for one in hashes.values()):,} rows", flush=True)


def write_hashes(folder: Path) -> dict[str, Any]:
    """Write and return, by table of `lake/`, its columns, how many rows it has, and the hash of these."""
    with duckdb.connect(folder / "lake" / _FILE, read_only=True) as con:
        tables = [name for (name,) in con.execute("SHOW TABLES").fetchall()]
        hashes = {table: _hashed(con, table) for table in tables}
    (folder / "hashes.json").write_text(json.dumps(hashes, indent=1), encoding="utf-8")
    return hashes


def _told(what: str, seconds: float) -> None:
    print(f"{what}: {seconds:.2f} CPU s", flush=True)


def _run(checkout: Path, out: Path | None, *words: str) -> float:
    """Run a command of the checkout, its stdout into a file; CPU seconds. A path that is refused is an answer, too."""
    before = _cpu()
    command = [sys.executable, "-m", "pipelines.faces.cli.app", *words]
    done = subprocess.run(command, cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)}, capture_output=True)
    if out:
        out.write_bytes(done.stdout + done.stderr)
    if done.returncode and (not out or b"Traceback" in done.stderr):
        raise SystemExit(f"error: {' '.join(words)}: {done.stderr.decode()[-2000:]}")
    return _cpu() - before


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _columns(con: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    """Columns with their types, in order, without those of the run."""
    rows = con.execute(f"SELECT column_name, column_type FROM (DESCRIBE {table})").fetchall()
    return {name: kind for name, kind in rows if not {name, f"{table}.{name}"} & {*_OF_THE_RUN}}


def _hashed(con: duckdb.DuckDBPyConnection, table: str) -> dict[str, Any]:
    """Columns, number of rows, and a hash over the sorted rows; each row is hashed by itself, so that sorting is cheap."""
    columns = _columns(con, table)
    listed = ", ".join(f'"{name}"' for name in columns)
    rows = con.execute(f"SELECT md5(to_json(t)::VARCHAR) FROM (SELECT {listed} FROM {table}) AS t ORDER BY 1")
    digest, n_rows = hashlib.sha256(), 0
    while batch := rows.fetchmany(100_000):
        n_rows += len(batch)
        digest.update("".join(one for (one,) in batch).encode())
    return {"columns": columns, "rows": n_rows, "hash": digest.hexdigest()}


_ONLY = "only in one: "


def compare(before: Path, after: Path, common: bool = False) -> Iterator[str]:
    """A line for each table and path that differs, or that only one side has (these begin with `only in one`)."""
    told, other = (json.loads((side / "hashes.json").read_text(encoding="utf-8")) for side in (before, after))
    yield from (f"{_ONLY}table {name}" for name in sorted(told.keys() ^ other.keys()))
    both = sorted(told.keys() & other.keys())
    differing = [name for name in both if told[name] != other[name]]
    with duckdb.connect() as con:
        for side, folder in (("a", before), ("b", after)):
            con.execute(f"ATTACH '{folder.resolve() / 'lake' / _FILE}' AS {side} (READ_ONLY)")
        for name in differing:
            yield from _table(con, name, told[name]["columns"], other[name]["columns"], common)
    paths, others = ({p.name for p in (side / "paths").iterdir()} for side in (before, after))
    yield from (f"{_ONLY}path of {name}" for name in sorted(paths ^ others))
    same = filecmp.cmpfiles(before / "paths", after / "paths", sorted(paths & others), shallow=False)[0]
    yield from (f"path of {name} differs" for name in sorted((paths & others) - set(same)))
    if not both or not paths & others:
        yield "nothing to compare"


def _table(
    con: duckdb.DuckDBPyConnection, name: str, kinds: dict[str, str], others: dict[str, str], common: bool
) -> Iterator[str]:
    if gone := [*(kinds.keys() - others.keys()), *(others.keys() - kinds.keys())]:
        yield f"{_ONLY}columns of {name}: {', '.join(sorted(gone))}"
    shared = [column for column in kinds if column in others]
    if shared != [column for column in others if column in kinds]:
        yield f"{name}: the columns have another order"
    if changed := [column for column in shared if kinds[column] != others[column]]:
        yield f"{name}: other types: {', '.join(f'{c} {kinds[c]} -> {others[c]}' for c in changed)}"
        return
    if gone and not common:
        return
    columns = ", ".join(f'"{column}"' for column in shared)
    for one, other, only in (("a", "b", "before"), ("b", "a", "after")):
        rows = f"SELECT {columns} FROM {one}.main.{name} EXCEPT ALL SELECT {columns} FROM {other}.main.{name}"
        con.execute(f"CREATE OR REPLACE TEMP TABLE d AS {rows}")
        count = con.execute("SELECT count(*) FROM d").fetchall()[0][0]
        if count:
            shown = con.execute("SELECT * FROM d ORDER BY ALL LIMIT ?", [_SHOWN]).fetchall()
            yield f"{name}: {count:,} rows only {only}, such as {shown}"


if __name__ == "__main__":
    sys.exit(main())
