"""What an input declares, and the result for each file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import TracelakeError

if TYPE_CHECKING:
    import duckdb

    from pipelines.lake.lake import Lake
    from pipelines.readers.inputs.reading import Reading
    from pipelines.readers.kineto.reading_result import KnownTrace, ReadTrace


@dataclass(frozen=True)
class TraceRow:
    """The result for one file. `status`: ok, repaired, partial, known (its content is in the lake, or was until
    retention removed it) or rejected.

    Files that are ingested together as a set are one row: `path` is their folder (for an op-level job, its Parquet file),
    `trace_id` is the key of the set (run_id, job_id, set_id, recording_id), `n_events` counts its timings, ops, calls or
    samples.
    """

    path: str
    status: str
    trace_id: str | None = None
    rank: int | None = None
    n_events: int | None = None
    unpacked_bytes: int | None = None
    seconds: float = 0.0
    reason: str | None = None
    byte_offset: int | None = None


class Rejected(TracelakeError):
    """The files are not what they seemed to be; the message says why and what to do."""


@dataclass(frozen=True)
class Read:
    """A set that was read. `key`: of its mark. `status`: ok, partial (with the `reason`) or known.

    `state`: what `SetInput.known` would say of it now.
    """

    key: str
    n_rows: int | None = None
    status: str = "ok"
    reason: str | None = None
    state: Any = None


@dataclass(frozen=True)
class SetInput:
    """Files that fill the tables of a scope together, once by the key of the scope's mark.

    `scope`, `suffixes` (of names; none: any file) are literals. `recognise(files)`: the sets among files, by the path
    that each is known by, with its files. `read(reading, path, files)` stages one set's tables, or returns None where none
    of its files could be read; it raises one of `refusals`, or anything, and only this set is rejected. `known(lake)`: the
    keys in the lake and what is known of them; `settled(known)`: those of them that stay as they are, by default all.
    `before_put(con, lake)`: called under the lake's lock before the tables are written.
    """

    scope: str
    suffixes: tuple[str, ...]
    recognise: Callable[[Iterable[Path]], Mapping[Path, Collection[Path]]]
    read: Callable[[Reading, Path, Collection[Path]], Read | None]
    refusals: tuple[type[Exception], ...] = (Rejected,)
    known: Callable[[Lake], dict[str, Any]] | None = None
    settled: Callable[[dict[str, Any]], Set[str]] = set
    before_put: Callable[[duckdb.DuckDBPyConnection, Lake], None] | None = None


@dataclass(frozen=True)
class EventInput:
    """Files that are each one trace: rows of `events`, `traces` and `findings`, on which all models of traces work.

    `suffixes` (of names; none: any file) are literals. `recognise(path)`; None: it takes what no other input does.
    `read(path, folder, batch_id, known, on_bytes, lean, limits)` writes `<folder>/<trace_id>.parquet`, as `load_events`
    does (pipelines/readers/kineto/events_file.py), unless the id is in `known`. Raises TraceRejected, or OSError if a file cannot be read.
    `parts(path)`: names of the traces in a file that holds several, [] for others; `read` gets each as `part`. Without it
    `read` raises TraceRejected for such a file. `read_with(path)`: the other file with which this one is read, as a part
    of the same trace; None for a file that is read for itself. Of files given together only the others are read.
    """

    suffixes: tuple[str, ...]
    read: Callable[..., ReadTrace | KnownTrace]
    recognise: Callable[[Path], bool] | None = None
    parts: Callable[[Path], Sequence[str]] | None = None
    read_with: Callable[[Path], Path | None] | None = None
