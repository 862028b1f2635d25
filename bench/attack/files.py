"""Mutated trace files through ingestion and all models: each is ingested whole or with findings, or is rejected.

`python -m bench.attack.files --n 200 --seed 1` prints the tally and a JSON line for each failure. `--only NUMBER` tries
only that file. Every file is generated from the seed and its number, so a failure can be replayed alone.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import tempfile
import threading
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.table import Table

from bench.attack.account import silent_loss
from bench.attack.mutate import made
from bench.attack.tally import Tally
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.table_files import table_files
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs import TraceRow
from pipelines.runs.materialize.run_order import materialize_all

CHUNK = 40  # number of files that are ingested together, because one bad file must not stop the others
SECONDS = 60.0  # time limit of a chunk, plus 2 s per file; such small files take far less
_NO_SENTENCE = re.compile(r"^\W*$|Traceback|^\w+(Error|Exception)\b|^<")


@dataclass(frozen=True)
class Mutant:
    """A mutated file: its number under the seed, the kind of mutation, and its path."""

    number: int
    kind: str
    path: Path


@dataclass(frozen=True)
class Failure:
    """The failure of a file. `outcome`: traceback or silent."""

    seed: int
    number: int
    kind: str
    outcome: str
    why: str


def attack(n: int, seed: int, *, models: bool = True) -> Tally:
    """Try `n` mutated files. `models`: also compute all tables of the ingested files."""
    tally, _, _ = attacked(range(n), seed, models=models)
    return tally


def attacked(numbers: Sequence[int], seed: int, *, models: bool = True) -> tuple[Tally, Counter[str], list[Failure]]:
    """Try the files with these numbers.

    Return the tally, the number of files per outcome (went in, rejected, traceback, silent), and the failures.
    """
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    for at in range(0, len(numbers), CHUNK):
        with tempfile.TemporaryDirectory(prefix="tracelake-attack-") as folder:
            mutants = [_written(Path(folder) / "in", seed, number) for number in numbers[at : at + CHUNK]]
            for mutant, (outcome, why) in zip(mutants, _outcomes(mutants, Path(folder), models), strict=True):
                counts[outcome] += 1
                if outcome in ("traceback", "silent"):
                    failures.append(Failure(seed, mutant.number, mutant.kind, outcome, why))
    tally = Tally("mutated files", sum(counts.values()), counts["went in"] + counts["rejected"])
    tally.silent, tally.tracebacks = counts["silent"], counts["traceback"]
    tally.notes = [f"seed {f.seed}, file {f.number} ({f.kind}), {f.outcome}: {f.why}" for f in failures]
    return tally, counts, failures


def _written(folder: Path, seed: int, number: int) -> Mutant:
    kind, data = made(seed, number)
    folder.mkdir(exist_ok=True)
    path = folder / (f"{number}.json.gz" if data[:2] == b"\x1f\x8b" else f"{number}.json")
    path.write_bytes(data)
    return Mutant(number, kind, path)


def _outcomes(mutants: list[Mutant], folder: Path, models: bool) -> list[tuple[str, str]]:
    """Return the outcome of each file, after ingesting all of them into one lake.

    If that raises an exception, try each half, to find the file at fault.
    """
    lake = Lake(folder / f"lake-{mutants[0].number}-{mutants[-1].number}")
    try:
        return _tried(mutants, lake, models)
    except Exception as error:
        if len(mutants) == 1:
            return [("traceback", _last_line(error))]
        half = len(mutants) // 2
        outcomes = [*_outcomes(mutants[:half], folder, models), *_outcomes(mutants[half:], folder, models)]
        if not any(outcome == "traceback" for outcome, _ in outcomes):
            why = f"files {mutants[0].number} to {mutants[-1].number} together: {_last_line(error)}"
            outcomes[0] = ("traceback", why)
        return outcomes


def _tried(mutants: list[Mutant], lake: Lake, models: bool) -> list[tuple[str, str]]:
    """Return the outcome of each file. Exceptions of ingestion, the models and publishing pass through."""
    with _ended_after(SECONDS + 2 * len(mutants)):
        rows = {Path(row.path).name: row for row in ingest([mutant.path for mutant in mutants], lake).rows}
        if models and lake.exists:
            materialize_all(lake)
            publish(lake)
    (events, findings), superseded = _events_and_findings(lake), _superseded(lake)
    return [_outcome(mutant, rows.get(mutant.path.name), events, findings, superseded) for mutant in mutants]


def _outcome(
    mutant: Mutant,
    row: TraceRow | None,
    events: dict[str, list[dict[str, Any]]],
    findings: dict[str, dict[str, int]],
    superseded: str,
) -> tuple[str, str]:
    if row is None:
        return "silent", "the report has no row of it"
    if row.status == "rejected":
        has_sentence = not _NO_SENTENCE.search(row.reason or "")
        return ("rejected", "") if has_sentence else ("traceback", f"rejected without a sentence: {row.reason!r}")
    if row.trace_id is None:
        return "silent", f"{row.status}, and it has no id"
    if row.trace_id not in events and f"trace {row.trace_id} was truncated" in superseded:
        return "went in", ""  # another mutant of the same rank has all its events, as a row of rejects states
    if row.trace_id not in events and row.n_events:
        return "silent", f"{row.status}, and the lake has none of its events"
    why = silent_loss(mutant.path.read_bytes(), events.get(row.trace_id, []), findings.get(row.trace_id, {}))
    return ("silent", why) if why else ("went in", "")


def _superseded(lake: Lake) -> str:
    """Return the reasons in `rejects`, which name the traces that better traces replaced."""
    files = [str(path) for path in table_files(lake.root, "rejects")]
    reasons = duckdb.read_parquet(files).select("reason").fetchall() if files else []
    return "\n".join(reason for (reason,) in reasons)


def _events_and_findings(lake: Lake) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, int]]]:
    """Return the events of each trace in order, and the count of each finding, by trace id."""
    events: dict[str, list[dict[str, Any]]] = {}
    findings: dict[str, dict[str, int]] = {}
    if not lake.batches():
        return events, findings
    with lake.connect(["events", "findings"]) as con:
        for row in con.sql("SELECT * FROM events ORDER BY trace_id, event_id").to_arrow_table().to_pylist():
            events.setdefault(row["trace_id"], []).append(row)
        for trace_id, check, n in con.execute(
            "SELECT trace_id, check_name, sum(n) FROM findings GROUP BY ALL"
        ).fetchall():
            findings.setdefault(trace_id, {})[check] = int(n)
    return events, findings


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after `seconds`, if the platform and the thread allow signals."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def late(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _last_line(error: BaseException) -> str:
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "pipelines" in frame.filename]
    place = f" at {Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}" if ours else ""
    return ascii(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200])[1:-1] + place


def main(words: Sequence[str] | None = None) -> int:
    """Print the tally to stderr and a JSON line per failure to stdout. Return 1 if there is a failure, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200, help="how many files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="only the file of this number")
    parser.add_argument("--keep", type=Path, help="write the files that failed into this folder")
    parser.add_argument("--no-models", action="store_true", help="ingest only, which is several times quicker")
    options = parser.parse_args(words)
    numbers = range(options.n) if options.only is None else [options.only]
    tally, counts, failures = attacked(numbers, options.seed, models=not options.no_models)
    for failure in failures:
        print(json.dumps(asdict(failure)))
        if options.keep:
            _written(options.keep, failure.seed, failure.number)
    columns = ("tried", "went in", "rejected", "traceback", "silent")
    table = Table("", *columns, title=f"mutated files, seed {options.seed}", title_justify="left")
    table.add_row(tally.what, str(tally.tried), *(str(counts[name]) for name in columns[1:]))
    Console(stderr=True).print(table)
    return 0 if tally.passed else 1


if __name__ == "__main__":
    sys.exit(main())
