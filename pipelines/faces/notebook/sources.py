"""Choice of an analysis's traces, from files (which are ingested) or a lake, and lookup of a trace by rank or id."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.base.errors import TracelakeError
from pipelines.base.foreign_text import visible
from pipelines.base.paths import path_text, text_path
from pipelines.faces.drawings.overlay import PREFIX as OVERLAY
from pipelines.faces.limiting_findings import LimitingFinding, findings_of_traces
from pipelines.lake.lake import Lake
from pipelines.lake.names import CAPTURE_TABLES
from pipelines.readers.ingest import expand, ingest
from pipelines.readers.kineto import TraceRejected

Files = Mapping[int, str | Path] | Iterable[str | Path] | str | Path


class TraceNotFound(TracelakeError, LookupError):
    """Raised if no trace or several traces match. The message lists the traces."""


class TraceFilesInvalid(TraceRejected, ValueError):
    """Raised if an input file does not exist. Also a ValueError, as in HTA."""


@dataclass(frozen=True)
class RankTrace:
    """A trace of the lake. `rank`: the rank that the caller assigned, or else the rank in the file, or else None.

    `has_other_rank`: whether the caller assigned another rank than the lake has.
    """

    trace_id: str
    rank: int | None
    path: str
    has_other_rank: bool = False

    def __str__(self) -> str:
        return f"{'no rank' if self.rank is None else f'rank {self.rank}'}: {self.trace_id} ({Path(self.path).name})"


def take_in(lake: Lake, files: Files | None, folder: str | Path | None, job: str | None) -> list[RankTrace]:
    """Ingest files (by rank, a list, or a single file), or all files of a folder, and return their traces by rank.

    Other traces in the lake are kept. In a folder, warn about files that are not traces, but raise the first error if
    no file is a trace. Skip overlays in a folder, because they duplicate their traces. Raise TraceRejected if one of
    `files` is not a trace, FileNotFoundError if the folder is missing, TraceNotFound if there are no traces, or several
    in a file that is assigned to a rank.
    """
    by_rank = [(rank, Path(file)) for rank, file in files.items()] if isinstance(files, Mapping) else []
    if files is None:
        if not Path(folder or "").is_dir():
            raise FileNotFoundError(f"there is no folder {folder}")
        paths = [file for file in expand([folder or ""]) if not file.name.startswith(OVERLAY)]
    elif isinstance(files, str | Path):
        paths = [Path(files)]
    else:
        paths = [file for _, file in by_rank] or [Path(str(file)) for file in files]
    rows = ingest(paths, lake, job).rows
    rejections = [
        TraceRejected(text_path(row.path), row.byte_offset, row.reason or "") for row in rows if row.trace_id is None
    ]
    lake_traces = {trace.trace_id: trace for trace in of_lake(lake)} if lake.exists else {}
    traces_by_path: dict[str, list[RankTrace]] = {}  # a file of several ranks has several traces
    for row in rows:
        if row.trace_id in lake_traces:
            traces_by_path.setdefault(row.path, []).append(lake_traces[row.trace_id])
    if rejections and (files is not None or not traces_by_path):
        raise rejections[0]
    for rejection in rejections:
        warnings.warn(f"left out: {visible(rejection)}", stacklevel=5)
    reason_by_path = {
        row.path: row.reason for row in rows if row.path not in traces_by_path and row.reason
    }  # such as execution traces
    if not traces_by_path:
        example = "".join(f" ({path}: {why})" for path, why in list(reason_by_path.items())[:1])
        raise TraceNotFound(f"there are no trace files in {folder or 'the given files'}{example}")
    if wrong := [text for _, file in by_rank if (text := path_text(file)) not in traces_by_path]:
        why = reason_by_path.get(wrong[0]) or "a folder; give one file per rank"
        raise TraceNotFound(f"{wrong[0]} is not a trace: {why}")
    for rank, file in by_rank:
        if len(contained := traces_by_path[path_text(file)]) > 1:
            raise TraceNotFound(
                f"{path_text(file)} contains {len(contained)} traces, so it cannot be rank {rank}: pass the file in a list, "
                f"and its traces keep their ranks: {'; '.join(map(str, contained))}"
            )
    of_files = ((rank, traces_by_path[path_text(file)][0]) for rank, file in by_rank)
    ranked = [replace(trace, rank=rank, has_other_rank=trace.rank != rank) for rank, trace in of_files]
    traces = {trace.trace_id: trace for contained in traces_by_path.values() for trace in contained}
    return sorted(ranked or traces.values(), key=_order)


def of_lake(lake: Lake, job: str | None = None) -> list[RankTrace]:
    """Return the traces of a lake, of one job or of all jobs, by rank.

    Raise FileNotFoundError if the lake has no traces, TraceNotFound if the job has none.
    """
    if not lake.exists:
        raise FileNotFoundError(f"no traces in the lake {lake.root}")
    with lake.connect(["traces"]) as con:
        rows = con.execute("SELECT trace_id, rank, path, job FROM traces").fetchall()
    traces = [RankTrace(*trace) for *trace, trace_job in rows if job is None or trace_job == job]
    if not traces:
        jobs = sorted({str(trace_job) for *_, trace_job in rows})
        raise TraceNotFound(f"no trace of job {job!r} in the lake {lake.root}; its jobs: {', '.join(jobs)}")
    return sorted(traces, key=_order)


def copied(address: str, lake: Lake, job: str | None) -> None:
    """Copy the traces of a DuckLake, or of one of its jobs, into a lake. Raise StoreError, or the errors of `of_lake`."""
    from pipelines.runs.store.ducklake.connection import DuckLake
    from pipelines.runs.store.ducklake.copied_traces import copy_traces

    jobs = copy_traces(DuckLake(address), lake, job)
    if not jobs:
        raise FileNotFoundError(f"no traces in the lake {address}")
    if job is not None and job not in jobs:
        raise TraceNotFound(f"no trace of job {job!r} in the lake {address}; its jobs: {', '.join(map(str, jobs))}")


def rank_caveats(traces: Iterable[RankTrace], tables: Iterable[str]) -> list[str]:
    """Return a caveat if some of these tables are tables of captures, which have the ranks in the files.

    Return [] if the caller assigned no other ranks.
    """
    of_captures = sorted(set(CAPTURE_TABLES).intersection(tables))
    if not of_captures or not any(trace.has_other_rank for trace in traces):
        return []
    return [f"{', '.join(of_captures)}: ranks are those in the files, not those assigned by trace_files"]


def incomplete_of(lake: Lake, traces: Iterable[RankTrace]) -> list[LimitingFinding]:
    """Return the findings that limit answers about these traces, such as that a file is truncated."""
    ids = {trace.trace_id for trace in traces}
    with lake.connect(["traces", "findings"]) as con:
        return [finding for finding in findings_of_traces(con) if finding.trace_id in ids]


def _order(trace: RankTrace) -> tuple:
    return trace.rank is None, trace.rank or 0, trace.path


def find(traces: list[RankTrace], rank: int | str | None) -> RankTrace:
    """Return the trace with this rank or id prefix, or the only trace if `rank` is None. Raise TraceNotFound.

    The only trace counts as rank 0 if it has no rank (as in HTA).
    """
    if rank is None:
        matching, description = traces, "rank None"
    elif isinstance(rank, str):
        matching, description = [trace for trace in traces if trace.trace_id.startswith(rank)], f"trace id {rank!r}"
    else:
        only = len(traces) == 1 and rank == 0
        matching = [trace for trace in traces if trace.rank == rank or (only and trace.rank is None)]
        description = f"rank {rank}"
    ids = {trace.trace_id for trace in matching}
    if len(ids) == 1:
        return matching[0]
    candidates = (matching or traces)[:20]
    more = f"; and {len(matching or traces) - 20} more" if len(matching or traces) > 20 else ""
    fits = "matches several traces: give the trace id as rank, or one job" if ids else "matches no trace"
    raise TraceNotFound(f"{description} {fits}. Available: {'; '.join(map(str, candidates))}{more}")
