"""Declaration of an input, and the result for each file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import TracelakeError

if TYPE_CHECKING:
    import duckdb

    from pipelines.lake.lake import Lake
    from pipelines.readers.inputs.reading import Reading
    from pipelines.readers.kineto import KnownTrace, ReadRequest, ReadTrace
    from pipelines.readers.kineto.limits import Limits


@dataclass(frozen=True)
class TraceRow:
    """The result for one file. `status`: ok, repaired, partial, known (its content is in the lake, or was until
    retention removed it) or rejected.

    A set of files that are ingested together is one row. Then `path` is their folder (for an op-level job, its Parquet
    file), `trace_id` is the key of the set (run_id, job_id, set_id, recording_id), and `n_events` counts its timings,
    ops, calls or samples.
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
    """Files that an input recognized but cannot read. The message gives the reason and the remedy."""


@dataclass(frozen=True)
class Read:
    """A set that was read. `key`: its key in the commit marker. `status`: ok, partial (with the `reason`) or known.

    `state`: the value that `SetInput.state` would now return for its row.
    """

    key: str
    n_rows: int | None = None
    status: str = "ok"
    reason: str | None = None
    state: Any = None


@dataclass(frozen=True)
class SetInput:
    """An input whose files fill the tables of a scope in sets, each once by its key in the scope's commit marker.

    `scope` and `suffixes` (of file names, () for any file) must be literals, because they are read without an import.
    `recognise(files)` returns the files of each set, by the path that represents it. `read(reading, path, files)`
    stages the tables of one set, or returns None if none of its files could be read. An exception (of `refusals` or any
    other) rejects only this set. `state(row)` returns the state of a set from its row in the commit marker.
    `is_news(stored, read)` returns whether a set with the state `read` replaces the set with the state `stored` in the
    lake (default: never). `before_put(con, lake)` is called under the lake's lock before the tables are written.
    """

    scope: str
    suffixes: tuple[str, ...]
    recognise: Callable[[Iterable[Path]], Mapping[Path, Collection[Path]]]
    read: Callable[[Reading, Path, Collection[Path]], Read | None]
    refusals: tuple[type[Exception], ...] = (Rejected,)
    state: Callable[[Mapping[str, Any]], Any] | None = None
    is_news: Callable[[Any, Any], bool] = lambda stored, read: False
    before_put: Callable[[duckdb.DuckDBPyConnection, Lake], None] | None = None

    def settled(self, known: Mapping[str, Any], read: Mapping[str, Any]) -> set[str]:
        """Return the keys of the lake that no set replaces.

        `known`: state by key in the lake. `read`: state by key read.
        """
        return {key for key, stored in known.items() if key not in read or not self.is_news(stored, read[key])}


@dataclass(frozen=True)
class EventInput:
    """An input whose files are traces: rows of `events`, `traces` and `findings`, which all models of traces read.

    `suffixes` (of file names, () for any file) must be literals, because they are read without an import.
    `recognise(path)` returns whether the input reads a file; it is None if the input reads the files that no other
    input recognizes. `read(request)` writes the requested trace to its `events_path`, unless its id is `known`. It
    raises TraceRejected, or OSError if a file cannot be read. `parts(path, limits)` returns the names of the traces in
    a file of several traces, [] for other files. A request has one of these names as `part`; without it, `read` raises
    TraceRejected for such a file. `read_with(path)` returns the file with which this file forms one trace, or None.
    Ingestion then reads that file, even if only this file is passed.
    """

    suffixes: tuple[str, ...]
    read: Callable[[ReadRequest], ReadTrace | KnownTrace]
    recognise: Callable[[Path], bool] | None = None
    parts: Callable[[Path, Limits], Sequence[str]] = lambda *_: ()
    read_with: Callable[[Path], Path | None] | None = None


@dataclass(frozen=True)
class TraceFile:
    """A file, and the input `kind` that reads it. `part`: the name of one of its traces, or None for all."""

    path: Path
    kind: EventInput
    part: str | None = None

    def traces(self, limits: Limits) -> list[TraceFile]:
        """Return each trace of the file, or only the `part`.

        Raise TraceRejected, or OSError if the file cannot be read.
        """
        names = self.kind.parts(self.path, limits) if self.part is None else ()
        return [replace(self, part=name) for name in names] or [self]
