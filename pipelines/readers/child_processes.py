"""Ingestion in child processes, for files that crashed a run. A file that kills its process becomes a row of `rejects`.

Sets of files are halved until the crashing file is alone. An error of the lake or of a setting is raised, because a
file does not cause it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base.database import TooLittleMemory
from pipelines.base.errors import TracelakeError
from pipelines.base.processes import import_path
from pipelines.lake.lake import Lake
from pipelines.readers.ingest import IngestReport, ingest, reject_files
from pipelines.readers.inputs import TraceRow

LAKE_FAILED = 75  # as sendmail's EX_TEMPFAIL: try again later
WRONG_SETTING = 78  # as sendmail's EX_CONFIG
ASKED_TO_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_DEATHS = 2
_CHILD = ("-m", "pipelines.readers.child_processes")


class Stopped(RuntimeError):
    """A signal stopped the ingesting process, so the result for its files is unknown."""


def ingest_isolated(
    files: Sequence[Path], lake: Lake, job: str | None = None, on_file: Callable[[TraceRow], Any] | None = None
) -> IngestReport:
    """Ingest files in child processes. A file that kills its process twice when alone is rejected.

    Raise OSError if the lake cannot be written, TracelakeError for a wrong setting or a damaged lake, and Stopped if a
    signal stopped a child.
    """
    rows: list[TraceRow] = []
    pending = [list(files)] if files else []
    while pending:
        part = pending.pop()
        result = _run(part, lake, job)
        if isinstance(result, str) and len(part) > 1:
            half = len(part) // 2
            pending += [part[half:], part[:half]]
            continue
        for _ in range(_DEATHS - 1):
            if isinstance(result, str):
                result = _run(part, lake, job)
        if isinstance(result, str):
            reason = f"reading it crashed the process {_DEATHS} times: {result}"
            result = reject_files({part[0]: reason}, lake).rows
        rows += result
        if on_file:
            for row in result:
                on_file(row)
    return IngestReport(rows)


def _run(files: list[Path], lake: Lake, job: str | None) -> list[TraceRow] | str:
    result = run_child(_CHILD, str(lake.root), files, job)
    return result if isinstance(result, str) else [TraceRow(**row) for row in result]


def run_child(module: Sequence[str], address: str, files: Sequence[Path], job: str | None) -> Any:
    """Run `module` in a child process that ingests files. Return the JSON value that it printed, or how it died.

    Raise OSError if the lake cannot be written, TracelakeError for a wrong setting or a damaged lake, and Stopped if a
    signal such as Ctrl-C stopped the child.
    """
    command = [sys.executable, "-P", *module, address, *([job] if job else [])]
    names = b"\0".join(os.fsencode(path) for path in files)
    # The child stays in this folder, because settings like TRACELAKE_INBOX may be relative paths.
    env = {**os.environ, "PYTHONPATH": import_path()}
    child = subprocess.run(command, input=names, capture_output=True, env=env, check=False)
    last_line = (child.stderr.decode("utf-8", "replace").strip().splitlines() or ["no word"])[-1][:300]
    if child.returncode == 0:
        return json.loads(child.stdout)
    if child.returncode == LAKE_FAILED:
        raise OSError(f"the lake {address} cannot be written: {last_line}")
    if child.returncode == WRONG_SETTING:
        raise TracelakeError(last_line)
    if -child.returncode in ASKED_TO_STOP:
        raise Stopped(f"the process that read {len(files)} files was asked to stop")
    if child.returncode < 0:
        return f"killed by {signal.Signals(-child.returncode).name} (out of memory?)"
    return last_line


def request_of_parent() -> tuple[str, str | None, list[Path]]:
    """Return the address, the job and the files that `run_child` passed to this process."""
    address, *job = sys.argv[1:]
    files = [Path(os.fsdecode(name)) for name in sys.stdin.buffer.read().split(b"\0") if name]
    return address, job[0] if job else None, files


def main() -> int:
    """Ingest the files whose NUL-terminated names come on stdin, and print their rows as JSON.

    Return the exit status.
    """
    folder, job, files = request_of_parent()
    try:
        report = ingest(files, Lake(folder), job)
    except (OSError, duckdb.IOException) as error:
        print(error, file=sys.stderr)
        return LAKE_FAILED
    except TooLittleMemory:  # a file may be the cause, and fewer files may fit
        raise
    except TracelakeError as error:  # not caused by a file, which would become a row of `rejects`
        print(error, file=sys.stderr)
        return WRONG_SETTING
    print(json.dumps([asdict(row) for row in report.rows]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
