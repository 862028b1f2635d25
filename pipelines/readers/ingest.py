"""Ingestion of files of every kind into the lake. A rejected file becomes a row of `rejects`."""

from __future__ import annotations

import glob
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from pipelines.base.paths import files_under, is_folder, is_under, path_text, text_path, without_parents
from pipelines.lake.commit.ingested_files import Outcome, settle, states_of
from pipelines.lake.lake import Lake
from pipelines.models.sqltext import as_text
from pipelines.readers.inputs import TraceRow
from pipelines.readers.inputs.events import EventBatch
from pipelines.readers.inputs.file_sets import ingest_sets
from pipelines.readers.inputs.find import classify_files
from pipelines.readers.kineto.limits import Limits


@dataclass(frozen=True)
class IngestReport:
    """Result of an ingestion: a row per file, in the order in which files were read."""

    rows: list[TraceRow] = field(default_factory=list)

    @property
    def rejected(self) -> list[TraceRow]:
        """The rows of the files that were rejected."""
        return [file for file in self.rows if file.status == "rejected"]


_IN_THE_LAKE = "it is in the lake's own folder, which cannot contain input; move it out and ingest it again"


def expand(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files that paths of files, folders and globs name, each once, in order.

    Folders are read recursively, without hidden files. Inaccessible paths are included (an unlistable folder represents
    its files), so that they are rejected by name.
    """
    files: dict[Path, None] = {}
    for pattern in paths:
        path = without_parents(Path(pattern))
        if is_folder(path):
            files.update(dict.fromkeys(files_under(path)))
        elif not glob.has_magic(str(pattern)) or _exists(path):
            files[path] = None
        else:
            matches = [Path(p) for p in sorted(glob.glob(str(pattern), recursive=True))]
            files.update(dict.fromkeys(expand(matches)) if matches else {path: None})
    return list(files)


def listed(file: Path) -> list[Path]:
    """Return the paths in a file, one per line or NUL-terminated as `find -print0` writes them.

    Raise OSError if the file cannot be read.
    """
    content = file.read_bytes()
    names = content.split(b"\0") if b"\0" in content else content.splitlines()
    return [Path(os.fsdecode(name)) for name in names if name]


def _exists(path: Path) -> bool:
    """Return whether a path exists. Return True for an inaccessible path, because reading it then raises the error."""
    try:
        return path.exists()
    except OSError:
        return True


def ingest(
    paths: Iterable[str | Path],
    lake: Lake,
    job: str | None = None,
    on_file: Callable[[TraceRow], Any] | None = None,
    on_bytes: Callable[[int], Any] | None = None,
    limits: Limits | None = None,
    process: str | None = None,
) -> IngestReport:
    """Ingest files, folders and globs into the lake. Skip content that is already in the lake.

    `on_file(row)` is called after each file, `on_bytes(n)` as compressed bytes are read. `process`: the trace to read
    from a file with several traces (`EventInput.parts`). Files larger than `limits` (by default the environment's) are
    rejected.

    Files with a single trace are committed in batches of 500 traces or 2 GiB of JSON. A crash thus loses at most the
    current batch, and another run completes it. Files of the lake itself are skipped, or rejected if `paths` names
    them. The inputs (`pipelines/readers/inputs`) determine which other files are read, and how, such as runs of
    schedules, op-level jobs, Flight Recorder dumps and recordings.

    Raise WrongLimit, and duckdb.IOException or OSError if the lake cannot be written.
    """
    lake.sweep()
    report = IngestReport()
    requested = list(paths)
    is_own = is_under(lake.root)
    files_to_read = [path for path in expand(requested) if not is_own(path)]
    states = states_of(files_to_read)  # before they are read
    sets_by_kind, single_files, failed = classify_files(files_to_read)
    named = [without_parents(Path(path)) for path in requested]
    failed |= {path: _IN_THE_LAKE for path in named if is_own(path)}
    files = deque(single_files)
    while files:
        with EventBatch(lake, job, limits, process) as batch:
            rows: list[TraceRow] = []
            while files and not batch.full:
                added = batch.add(files.popleft(), on_bytes)
                rows += added
                if on_file:
                    for row in added:
                        on_file(row)
            rows += _counters(batch, lake, job, on_file)  # before the commit, because a known trace is not read again
            already_committed = batch.commit()
            report.rows.extend(replace(r, status="known") if r.trace_id in already_committed else r for r in rows)
    for rows in chain(
        [_rejected(failed)], (ingest_sets(kind, sets, lake, job, on_bytes, limits) for kind, sets in sets_by_kind)
    ):
        _put_rejects(rows, lake)
        report.rows.extend(rows)
        for row in rows:
            if on_file:
                on_file(row)
    settle(lake, outcomes(states, report.rows))
    return report


def _counters(
    batch: EventBatch, lake: Lake, job: str | None, on_file: Callable[[TraceRow], Any] | None
) -> list[TraceRow]:
    """Ingest the hardware counters of a batch's traces.

    Return a rejection for each trace whose counters cannot be read.
    """
    if not batch.counted:
        return []
    from pipelines.readers.counters.ranges import counters_of  # few traces have counters

    kind = counters_of(batch.counted)
    rows = ingest_sets(kind, kind.recognise(batch.counted), lake, job)
    rejected = [
        replace(row, path=path_text(batch.counted[text_path(row.path)].path))
        for row in rows
        if row.status == "rejected"
    ]
    _put_rejects(rejected, lake)
    if on_file:
        for row in rejected:
            on_file(row)
    return rejected


_OF_ANY = ("known", "rejected")  # statuses that also count for the files of a set, whose rows have no size


def outcomes(states: Mapping[Path, str], rows: Iterable[TraceRow]) -> dict[Path, Outcome]:
    """Return the outcome of every requested file, without files that were modified while they were read.

    The files of a rejected folder are rejected, so that they are retried. A file of several traces is rejected if one
    of its traces is.
    """
    rows_by_path: defaultdict[Path, list[TraceRow]] = defaultdict(list)
    for row in rows:
        rows_by_path[text_path(row.path).absolute()].append(row)

    def status_of(path: Path) -> str:
        own = {row.status for row in rows_by_path.get(path, ()) if row.unpacked_bytes or row.status in _OF_ANY}
        if not own:
            return "rejected" if any(row.status == "rejected" for row in rows_by_path.get(path.parent, ())) else "part"
        return "rejected" if "rejected" in own else next(iter(own - {"known"}), "known")

    def outcome_of(path: Path, state: str) -> Outcome:
        of_set = next((place for place in (path, *path.parents) if place in rows_by_path), path)
        ids = {row.trace_id for row in rows_by_path.get(of_set, ()) if row.trace_id}
        return Outcome(state, status_of(path), tuple(sorted(ids)))

    unchanged = states_of(states).items() & states.items()
    return {path: outcome_of(path, state) for path, state in unchanged}


def reject_files(reasons: Mapping[Path, str], lake: Lake) -> IngestReport:
    """Add files to `rejects` for these reasons, without reading them."""
    states = states_of(reasons)
    rows = _rejected(reasons)
    _put_rejects(rows, lake)
    settle(lake, outcomes(states, rows))
    return IngestReport(rows)


def _rejected(reasons: Mapping[Path, str]) -> list[TraceRow]:
    return [TraceRow(path_text(path), "rejected", reason=as_text(reason)) for path, reason in reasons.items()]


def _put_rejects(rows: Iterable[TraceRow], lake: Lake) -> None:
    """Write rejects in a separate batch, because retention removes old rejects with their batch, but keeps sets."""
    if rejected := [row for row in rows if row.status == "rejected"]:
        with EventBatch(lake, None) as batch:
            for row in rejected:
                batch.reject(text_path(row.path), row.reason or "", None, row.seconds)
            batch.commit()
