"""What a reader is asked for: which trace of which file, and where its events go."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.readers.kineto.limits import Limits


@dataclass(frozen=True)
class ReadRequest:
    """One trace to read: that of `path`, or `part` of a file with several (`EventInput.parts`), into a file in `folder`.

    A trace whose id is in `known` is not read further than its id. `on_bytes(n)` is called as compressed bytes are read.
    A `lean` file is for a single answer, not for a lake: it is not compressed, and a reader may leave out what no model
    reads.
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
        """The compression of the file of events."""
        return "none" if self.lean else "zstd"

    def events_path(self, trace_id: str) -> Path:
        """Return the Parquet file for the events of the trace with this id."""
        return self.folder / f"{trace_id}.parquet"
