"""Ingestion in child processes, for files that crashed a run: a file that kills its process becomes a row in rejects.

Files are split in halves until the culprit is alone. Trouble with the lake is not a file's fault: it is raised.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb

from pipelines.lake.lake import Lake
from pipelines.readers.ingest import IngestReport, TraceRow, ingest, reject_files

LAKE_FAILED = 75  # as sendmail's EX_TEMPFAIL: try again later
_ASKED_TO_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_DEATHS = 2
_CHILD = ("-m", "pipelines.readers.child_processes")


class Stopped(RuntimeError):
    """The ingesting process was asked to stop, so nothing is known about its files."""


def ingest_isolated(
    files: Sequence[Path], lake: Lake, job: str | None = None, on_file: Callable[[TraceRow], Any] | None = None
) -> IngestReport:
    """Ingest files in child processes. The report has rows for files that killed their process twice when alone.

    Raises OSError if the lake cannot be written, Stopped if somebody ended a child.
    """
    rows: list[TraceRow] = []
    todo = [list(files)] if files else []
    while todo:
        part = todo.pop()
        why = _run(part, lake, job)
        if why is None:
            continue
        if len(part) > 1:
            half = len(part) // 2
            todo += [part[half:], part[:half]]
        elif why := _again(part, lake, job):
            reason = f"reading it crashed the process {_DEATHS} times: {why}"
            rows += reject_files({part[0]: reason}, lake).rows
            if on_file:
                on_file(rows[-1])
    return IngestReport(rows)


def _again(part: list[Path], lake: Lake, job: str | None) -> str | None:
    """How the last of the other attempts ended; None if one of them succeeded."""
    ends = (_run(part, lake, job) for _ in range(_DEATHS - 1))
    why = None
    for end in ends:
        if end is None:
            return None
        why = end
    return why


def _run(files: list[Path], lake: Lake, job: str | None) -> str | None:
    """Ingest in a child; how it died, or None."""
    command = [sys.executable, *_CHILD, str(lake.root), *([job] if job else [])]
    project = Path(__file__).resolve().parents[2]
    given = b"\0".join(os.fsencode(path) for path in files)
    child = subprocess.run(command, input=given, capture_output=True, cwd=project, check=False)
    last = (child.stderr.decode("utf-8", "replace").strip().splitlines() or ["no word"])[-1][:300]
    if child.returncode == 0:
        return None
    if child.returncode == LAKE_FAILED:
        raise OSError(f"the lake {lake.root} cannot be written: {last}")
    if -child.returncode in _ASKED_TO_STOP:
        raise Stopped(f"the process that read {len(files)} files was asked to stop")
    if child.returncode < 0:
        return f"killed by {signal.Signals(-child.returncode).name} (out of memory?)"
    return last


def main() -> int:
    """The child: files come on stdin, each ended by NUL."""
    folder, *job = sys.argv[1:]
    files = [Path(os.fsdecode(name)) for name in sys.stdin.buffer.read().split(b"\0") if name]
    try:
        ingest(files, Lake(folder), job[0] if job else None)
    except (OSError, duckdb.IOException) as error:
        print(error, file=sys.stderr)
        return LAKE_FAILED
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
