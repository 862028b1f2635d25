"""Ingestion into a store in a child process, for files that crashed a run.

If the child process dies, its files are rejected. A unit that fails with an error is only reported as failed, so that
its files are retried.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import duckdb

from pipelines.base.errors import TracelakeError
from pipelines.base.paths import path_text
from pipelines.engines.in_process import InProcess
from pipelines.engines.private_lake import Setting
from pipelines.engines.run import FailedUnit, Followed, ingest_on
from pipelines.engines.unit_work import reject_unread
from pipelines.readers.child_processes import LAKE_FAILED, WRONG_SETTING, request_of_parent, run_child
from pipelines.readers.inputs import TraceRow

_CHILD = ("-m", "pipelines.engines.isolated")


def ingest_in_child(address: str, paths: Sequence[Path], job: str | None) -> Followed:
    """Ingest files that belong together in a child process. If the process dies, reject the files.

    Raise OSError or TracelakeError if the store cannot be opened. Raise Stopped if a signal stopped the child process,
    such as the signal that stops `tracelake ui` and its runs.
    """
    result = run_child(_CHILD, address, paths, job)
    if isinstance(result, dict):
        failed = [FailedUnit(**{**unit, "items": tuple(unit["items"])}) for unit in result["failed"]]
        return Followed(rows=[TraceRow(**row) for row in result["rows"]], failed=failed)
    reasons = {path_text(path): f"its process died: {result}" for path in paths}
    reject_unread(Setting.here(address, None), reasons)
    return Followed(rows=[TraceRow(name, "rejected", reason=reason) for name, reason in reasons.items()])


def main() -> int:
    """Ingest the files of `run_child`, and print rows and failed units as JSON. Return the exit status."""
    address, job, files = request_of_parent()
    try:
        run = ingest_on(InProcess(), address, files, job)
    except (OSError, duckdb.Error) as error:
        print(error, file=sys.stderr)
        return LAKE_FAILED
    except TracelakeError as error:
        print(error, file=sys.stderr)
        return WRONG_SETTING
    print(json.dumps({"rows": [asdict(row) for row in run.rows], "failed": [asdict(unit) for unit in run.failed]}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
