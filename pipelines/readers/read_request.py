"""Request to a reader for one trace of a file, with the folder for its events."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.readers.kineto.limits import Limits


@dataclass(frozen=True)
class ReadRequest:
    """One trace to read into a file in `folder`: the only trace of `path`, or its trace `part` (`EventInput.parts`).

    The reader computes the trace's id, and stops if the id is in `known`. `on_bytes(n)` is called as compressed bytes
    are read. A `lean` file is for a single answer, not for a lake. It is not compressed, and the reader may omit values
    that no model reads.
    """

    path: Path
    folder: Path
    part: str | None = None
    batch_id: str = ""
    known: Set[str] = frozenset()
    on_bytes: Callable[[int], Any] | None = None
    lean: bool = False
    limits: Limits = field(default_factory=Limits.from_environment)

    @property
    def compression(self) -> str:
        """The compression of the Parquet file of events."""
        return "none" if self.lean else "zstd"

    def events_path(self, trace_id: str) -> Path:
        """Return the Parquet file for the events of the trace with this id."""
        return self.folder / f"{trace_id}.parquet"
