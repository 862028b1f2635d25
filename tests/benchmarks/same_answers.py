"""Whether two checkouts give the same answers: all tables row by row, the critical path's JSON byte by byte.

    python -m tests.benchmarks.same_answers make ../before .bench/before     # or --traces DIR, --only NAME
    python -m tests.benchmarks.same_answers make . .bench/after
    python -m tests.benchmarks.same_answers compare .bench/before .bench/after

`make` ingests all traces into one lake, computes all tables and asks every trace for its critical path; it also says
what that took in CPU seconds. `compare` ends with 1 where anything differs. Floats must be equal to the last bit.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "../shared/traces"
# What tells one run from another: ids of batches hold their time.
_OF_THE_RUN = ("batch_id", "ingested_at")
_PROFILES = ("default", "hta")
_SHOWN = 3


def main() -> int:
    """Parse the words and do it; 1 where answers differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    making = parts.add_parser("make", help="write a checkout's answers into a folder")
    making.add_argument("checkout", type=Path)
    making.add_argument("folder", type=Path)
    making.add_argument("--traces", type=Path, default=TRACES)
    making.add_argument("--only", default="", help="only traces whose path contains this")
    comparing = parts.add_parser("compare", help="compare two such folders")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    asked = parser.parse_args()
    if asked.part == "make":
        make(asked.checkout.resolve(), asked.folder.resolve(), asked.traces.resolve(), asked.only)
        return 0
    differences = list(compare(asked.before, asked.after))
    print("\n".join(differences) or "the same answers")
    return 1 if differences else 0


def make(checkout: Path, folder: Path, traces: Path, only: str = "") -> None:
    """Write the answers of a checkout: `lake/`, and `<trace>.<profile>.json` in `paths/`. Raises SystemExit."""
    if folder.exists():
        raise SystemExit(f"error: {folder} is there already; remove it")
    files = [file for file in sorted(traces.rglob("*.json*")) if only in str(file) and _is_trace(file)]
    if not files:
        raise SystemExit(f"error: no trace in {traces} has {only!r} in its path")
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


def _is_trace(file: Path) -> bool:
    return file.parent.name != "stragglers" and not file.name.startswith("execution_trace")


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


def compare(before: Path, after: Path) -> Iterator[str]:
    """A line for each table and path that differs, or that only one side has."""
    tables, more = ({p.name for p in (side / "lake").iterdir() if any(p.glob("day=*/*"))} for side in (before, after))
    yield from (f"only in one: table {name}" for name in sorted(tables ^ more))
    for name in sorted(tables & more):
        yield from _table(name, before / "lake", after / "lake")
    paths, others = ({p.name for p in (side / "paths").iterdir()} for side in (before, after))
    yield from (f"only in one: path of {name}" for name in sorted(paths ^ others))
    same = filecmp.cmpfiles(before / "paths", after / "paths", sorted(paths & others), shallow=False)[0]
    yield from (f"path of {name} differs" for name in sorted((paths & others) - set(same)))
    if not tables or not paths:
        yield "nothing to compare"


def _table(name: str, before: Path, after: Path) -> Iterator[str]:
    with duckdb.connect() as con:
        for side, lake in (("a", before), ("b", after)):
            rows = f"SELECT * FROM read_parquet('{lake / name}/day=*/*.parquet', hive_partitioning = false)"
            con.execute(f"CREATE VIEW {side} AS {rows}")
        kinds, others = (con.execute(f"SELECT column_name, column_type FROM (DESCRIBE {s})").fetchall() for s in "ab")
        if kinds != others:
            yield f"{name}: columns differ: {sorted(set(kinds) ^ set(others))}"
            return
        columns = ", ".join(f'"{column}"' for column, _ in kinds if column not in _OF_THE_RUN)
        for one, other, only in (("a", "b", "before"), ("b", "a", "after")):
            con.execute(
                f"CREATE OR REPLACE TABLE d AS SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}"
            )
            count = con.execute("SELECT count(*) FROM d").fetchall()[0][0]
            if count:
                shown = con.execute("SELECT * FROM d ORDER BY ALL LIMIT ?", [_SHOWN]).fetchall()
                yield f"{name}: {count:,} rows only {only}, such as {shown}"


if __name__ == "__main__":
    sys.exit(main())
