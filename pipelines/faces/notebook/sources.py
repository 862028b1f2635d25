"""Chooses the traces of an analysis: files that go into its lake, or what a lake holds; and finds one by rank or id."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.base.errors import TracelakeError
from pipelines.base.foreign_text import visible
from pipelines.base.paths import path_text
from pipelines.faces.drawings.overlay import PREFIX as OVERLAY
from pipelines.faces.incomplete import Incomplete, incomplete_traces
from pipelines.lake.lake import Lake
from pipelines.readers.ingest import expand, ingest
from pipelines.readers.kineto import TraceRejected

Files = Mapping[int, str | Path] | Iterable[str | Path] | str | Path


class TraceNotFound(TracelakeError, LookupError):
    """No trace matches, or several do; the message lists the traces."""


class TraceFilesInvalid(TraceRejected, ValueError):
    """A given file does not exist. Also a ValueError, as in HTA."""


@dataclass(frozen=True)
class RankTrace:
    """A trace of the lake. `rank` is the one it was given with, else the one in the file, else None."""

    trace_id: str
    rank: int | None
    path: str

    def __str__(self) -> str:
        return f"{'no rank' if self.rank is None else f'rank {self.rank}'}: {self.trace_id} ({Path(self.path).name})"


def take_in(lake: Lake, files: Files | None, folder: str | Path | None, job: str | None) -> list[RankTrace]:
    """Put files (by rank, listed, or one), or all files of a folder, into the lake; what it already holds stays.

    Raises TraceRejected for a given file that is not a trace, FileNotFoundError for a missing folder. In a folder,
    files that are not traces get a warning; if there are only such files, the first error is raised. Overlays written next to their traces are skipped: they are the same traces again.
    """
    by_rank = [(rank, Path(file)) for rank, file in files.items()] if isinstance(files, Mapping) else []
    if files is None:
        if not Path(folder or "").is_dir():
            raise FileNotFoundError(f"there is no folder {folder}")
        given = [file for file in expand([folder or ""]) if not file.name.startswith(OVERLAY)]
    elif isinstance(files, str | Path):
        given = [Path(files)]
    else:
        given = [file for _, file in by_rank] or [Path(str(file)) for file in files]
    rows = ingest(given, lake, job).rows
    rejections = [TraceRejected(row.path, row.byte_offset, row.reason or "") for row in rows if row.trace_id is None]
    known = {trace.trace_id: trace for trace in of_lake(lake)} if lake.exists else {}
    found = {row.path: known[row.trace_id] for row in rows if row.trace_id in known}
    if rejections and (files is not None or not found):
        raise rejections[0]
    for rejection in rejections:
        warnings.warn(f"left out: {visible(rejection)}", stacklevel=5)
    others = {row.path: row.reason for row in rows if row.path not in found and row.reason}  # such as execution traces
    if not found:
        what = "".join(f" ({path}: {why})" for path, why in list(others.items())[:1])
        raise TraceNotFound(f"there are no trace files in {folder or 'the given files'}{what}")
    if wrong := [text for _, file in by_rank if (text := path_text(file)) not in found]:
        why = others.get(wrong[0]) or "a folder; give one file per rank"
        raise TraceNotFound(f"{wrong[0]} is not a trace: {why}")
    ranked = [replace(found[path_text(file)], rank=rank) for rank, file in by_rank]
    return sorted(ranked or {trace.trace_id: trace for trace in found.values()}.values(), key=_order)


def of_lake(lake: Lake, job: str | None = None) -> list[RankTrace]:
    """Returns the traces of a lake, of one job or of all, by rank. Raises FileNotFoundError if the lake has none."""
    if not lake.exists:
        raise FileNotFoundError(f"no traces in the lake {lake.root}")
    with lake.connect(["traces"]) as con:
        rows = con.execute("SELECT trace_id, rank, path, job FROM traces").fetchall()
    traces = [RankTrace(*trace) for *trace, of in rows if job is None or of == job]
    if not traces:
        jobs = sorted({str(of) for *_, of in rows})
        raise TraceNotFound(f"no trace of job {job!r} in the lake {lake.root}; its jobs: {', '.join(jobs)}")
    return sorted(traces, key=_order)


def copied(address: str, lake: Lake, job: str | None) -> None:
    """Copy the traces of a DuckLake, or of one of its jobs, into a lake. Raises StoreError, and as `of_lake`."""
    from pipelines.runs.store.ducklake.recompute import copy_traces
    from pipelines.runs.store.ducklake.store import DuckLakeStore

    jobs = copy_traces(DuckLakeStore(address), lake, job)
    if not jobs:
        raise FileNotFoundError(f"no traces in the lake {address}")
    if job is not None and job not in jobs:
        raise TraceNotFound(f"no trace of job {job!r} in the lake {address}; its jobs: {', '.join(map(str, jobs))}")


def incomplete_of(lake: Lake, traces: Iterable[RankTrace]) -> list[Incomplete]:
    """Returns which of the traces lack a part of their run."""
    ids = {trace.trace_id for trace in traces}
    with lake.connect(["traces", "findings"]) as con:
        return [one for one in incomplete_traces(con) if one.trace_id in ids]


def _order(trace: RankTrace) -> tuple:
    return trace.rank is None, trace.rank or 0, trace.path


def find(traces: list[RankTrace], rank: int | str | None) -> RankTrace:
    """Returns the trace of a rank, or with this beginning of its id; None means the only trace. Raises TraceNotFound.

    A trace without a rank is rank 0 if it is the only one (as in HTA).
    """
    if rank is None:
        matching, what = traces, "rank None"
    elif isinstance(rank, str):
        matching, what = [trace for trace in traces if trace.trace_id.startswith(rank)], f"trace id {rank!r}"
    else:
        only = len(traces) == 1 and rank == 0
        matching = [trace for trace in traces if trace.rank == rank or (only and trace.rank is None)]
        what = f"rank {rank}"
    ids = {trace.trace_id for trace in matching}
    if len(ids) == 1:
        return matching[0]
    shown = (matching or traces)[:20]
    more = f"; and {len(matching or traces) - 20} more" if len(matching or traces) > 20 else ""
    fits = "matches several traces: give the trace id as rank, or one job" if ids else "matches no trace"
    raise TraceNotFound(f"{what} {fits}. Available: {'; '.join(map(str, shown))}{more}")
