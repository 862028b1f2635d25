"""The critical path of a capture as an answer, with numbers for the user and a JSON object for programs.

It is read from the published tables, so files and a lake give the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.errors import TracelakeError
from pipelines.lake.read.one_trace import refuse_digest
from pipelines.models.sqltext import quoted

TABLES = ("captures", "capture_ranks", "clock_offsets", "capture_critical_path", "capture_paths")
_SHOWN, _FILES_SHOWN = 10, 2  # maximum number of captures in a message, and of files per capture
_OF_FILES = (
    "Give the files of one capture (one job, one folder). Or `tracelake ingest FOLDER --lake LAKE`, and give the id of one "
    "and --lake LAKE."
)


class NoCapture(TracelakeError, LookupError):
    """An id prefix that does not match exactly one capture. The message lists captures."""

    hint = "Give the files of one capture (one job, one folder), or its id."


class PathRefused(TracelakeError, LookupError):
    """A capture without a path through its ranks. The message contains the reason."""

    hint = "See tables capture_quality and collective_groups."


@dataclass(frozen=True)
class PathSegment:
    """A segment for display, with times in us from the path's start. `owner`: the human-readable owner of its time."""

    seq: int
    rank: int
    kind: str
    start_us: float
    dur_us: float
    event_id: int
    owner_event_id: int | None
    name: str | None
    guessed: bool
    collective_id: int | None
    owner: str
    owner_cat: str | None


@dataclass(frozen=True)
class Stretch:
    """Consecutive segments of the path on one rank."""

    rank: int
    start_us: float
    dur_us: float


@dataclass(frozen=True)
class CapturePath:
    """The critical path of a capture to a target. Times are in us, shares in percent. The times add up to the span.

    left_out: ranks of the capture whose clocks are not connected to the others. owner_us: the time by owner.
    unowned_us: the part of the gaps that neither an annotation nor a Python function owns. heaviest_us: the longest
    path of the joined graph, in which all ranks begin at 0. n_nodes, n_edges: size of the joined graph. matched_by: the
    weakest evidence for the matches of its collectives.
    """

    capture_id: str
    job: str | None
    target: str
    span_us: float
    n_ranks: int
    left_out: list[int]
    share_us: dict[int, float]
    share_percent: dict[int, float]
    kind_us: dict[str, float]
    kind_percent: dict[str, float]
    owner_us: dict[str, float]
    gap_percent: float
    unowned_us: float
    guessed_us: float
    n_guessed: int
    heaviest_us: float
    n_nodes: int
    n_edges: int
    matched_by: str | None
    stretches: list[Stretch]
    segments: list[PathSegment]

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return asdict(self)


def find_capture(con: duckdb.DuckDBPyConnection, beginning: str) -> str:
    """Return the id of the capture whose id starts with `beginning`. An empty prefix matches every capture.

    Raise NoCapture if the number of matching captures is not one.
    """
    captures = con.execute(
        "SELECT capture_id, job, n_ranks, started_at FROM captures WHERE NOT is_gone ORDER BY n_ranks DESC, 1"
    ).fetchall()
    matching_ids = [capture_id for capture_id, *_ in captures if capture_id.startswith(beginning)]
    if len(matching_ids) == 1:
        return matching_ids[0]
    available = "; ".join(_described(con, *capture) for capture in captures[:_SHOWN])
    problem = "several captures" if matching_ids else f"no capture id starts with {beginning!r}"
    raise NoCapture(f"{problem}. Available captures: {available or 'none'}", "" if beginning else _OF_FILES)


def _described(con: duckdb.DuckDBPyConnection, capture_id: str, job: str | None, n_ranks: int, start: Any) -> str:
    """Return the id of a capture with its ranks, job, start and files, by which the user can recognize it."""
    rows = con.execute(
        f"SELECT file FROM traces WHERE capture_id = {quoted(capture_id)} ORDER BY rank, file"
    ).fetchall()
    files = [file for (file,) in rows]
    more = f" and {len(files) - _FILES_SHOWN} more" if len(files) > _FILES_SHOWN else ""
    began = "" if start is None else f", {start:%Y-%m-%d %H:%M:%S} UTC"
    return f"{capture_id} ({n_ranks} ranks of {job or 'a job without name'}{began}: {', '.join(files[:_FILES_SHOWN])}{more})"


def capture_path(con: duckdb.DuckDBPyConnection, capture_id: str, target: str) -> CapturePath:
    """Return the path of a capture from `TABLES` and `findings` in `con`.

    Raise PathRefused with the reason if the capture has no path. Raise OnlyDigest if only its digest remains.
    """
    paths = rows_of(
        con,
        "SELECT p.refused_reason, p.span_ns / 1000.0 AS span_us, p.n_ranks, p.n_guessed, "
        "p.guessed_ns / 1000.0 AS guessed_us, p.gap_percent, p.unowned_ns / 1000.0 AS unowned_us, p.heaviest_ns / 1000.0 AS heaviest_us, p.n_nodes, "
        "p.n_edges, p.matched_by, c.job FROM capture_paths AS p JOIN captures AS c USING (capture_id) "
        f"WHERE capture_id = {quoted(capture_id)} AND p.target = {quoted(target)}",
    )
    if not paths:
        raise PathRefused(f"the capture has no path through its ranks: {why_no_path(con, capture_id)}")
    path = paths[0]
    if refused := path.pop("refused_reason"):
        raise PathRefused(f"the capture has no path through its ranks: {refused}")
    refuse_digest(con, capture_id)  # a digest has the length of the path, but no segments
    rows = con.execute(
        "SELECT seq, rank, kind, (start_ns - min(start_ns) OVER ()) / 1000.0, duration_ns / 1000.0, event_id, "
        "owner_event_id, name, guessed, collective_id, owner, owner_cat FROM capture_critical_path "
        f"WHERE capture_id = {quoted(capture_id)} AND target = {quoted(target)} ORDER BY seq"
    ).fetchall()
    segments = [PathSegment(*values) for values in rows]
    by_rank, by_kind = _sums(segments, "rank"), _sums(segments, "kind")
    return CapturePath(
        capture_id=capture_id,
        target=target,
        **path,
        left_out=_left_out(con, capture_id),
        share_us=by_rank,
        share_percent=_percent(by_rank, path["span_us"]),
        kind_us=by_kind,
        kind_percent=_percent(by_kind, path["span_us"]),
        owner_us=_sums(segments, "owner"),
        stretches=[_stretch(rank, list(part)) for rank, part in groupby(segments, key=lambda s: s.rank)],
        segments=segments,
    )


def why_no_path(con: duckdb.DuckDBPyConnection, capture_id: str) -> str:
    """Return why a capture has no path through its ranks, and the remedy. Read `TABLES` in `con`."""
    of_capture = f"capture_id = {quoted(capture_id)}"
    ((n_paths, refused),) = con.execute(
        f"SELECT count(*), max(refused_reason) FROM capture_paths WHERE {of_capture}"
    ).fetchall()
    if refused:
        return refused
    ((n_ranks, n_used, n_without_rank),) = con.execute(
        "SELECT count(*), count(*) FILTER (left_out_reason IS NULL), count(*) FILTER (left_out_reason = 'no_rank') "
        f"FROM capture_ranks WHERE {of_capture}"
    ).fetchall()
    if not n_paths and (n_used or not n_ranks):  # happens in a read-only lake
        return "table capture_paths is not computed for it. Where the lake can be written, run `tracelake materialize capture_paths`"
    if n_without_rank:
        return (
            f"{n_without_rank} of its files do not say which rank they are (no distributedInfo, no rank in the file's name): "
            "name them rank0.json.gz, rank1.json.gz, …, or call torch.distributed.init_process_group before you profile"
        )
    return "none of the capture's traces is used; see table capture_ranks"


def _sums(segments: Sequence[PathSegment], attribute: str) -> dict[Any, float]:
    """Return the time by rank, kind or owner, us, the largest first."""
    time_by_key: dict[Any, float] = {}
    for segment in segments:
        key = getattr(segment, attribute)
        time_by_key[key] = time_by_key.get(key, 0.0) + segment.dur_us
    return dict(sorted(time_by_key.items(), key=lambda item: -item[1]))


def _percent(times: dict[Any, float], span_us: float) -> dict[Any, float]:
    return {key: 100 * time / span_us for key, time in times.items()}


def _stretch(rank: int, part: Sequence[PathSegment]) -> Stretch:
    return Stretch(rank, part[0].start_us, sum(segment.dur_us for segment in part))


def _left_out(con: duckdb.DuckDBPyConnection, capture_id: str) -> list[int]:
    rows = con.execute(
        "SELECT r.rank FROM capture_ranks AS r JOIN clock_offsets AS o USING (capture_id, rank) "
        f"WHERE capture_id = {quoted(capture_id)} AND r.left_out_reason IS NULL AND o.offset_ns IS NULL ORDER BY r.rank"
    ).fetchall()
    return [rank for (rank,) in rows]
