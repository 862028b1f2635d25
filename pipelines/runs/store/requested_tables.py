"""The tables that a query or a command needs.

In a folder lake, missing or outdated tables are computed, or reported in caveats.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import TracelakeError
from pipelines.lake.names import CAPTURE_MARK, EVENTS, KEYS, Batch
from pipelines.lake.publish.prices import PRICE_TABLE, PRICES, read_prices
from pipelines.lake.read.damage import Broken, BrokenFiles
from pipelines.lake.retain.digest_files import OF_CAPTURES, OF_TRACES
from pipelines.runs.materialize.per_capture import Part, part_of, stale_captures, trace_tables
from pipelines.runs.materialize.per_trace import stale_batches

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake

_SHOWN = 10


class NoTraces(TracelakeError, LookupError):
    """A lake without traces. `hint` states the remedy."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(
            f"no traces in the lake {lake.root}",
            f"Ingest some: tracelake ingest FILES --lake {shlex.quote(str(lake.root))}",
        )


@dataclass(frozen=True)
class TablesOfLake:
    """The requested tables that a folder lake stores, per trace (`of_traces`) and per capture (`of_captures`).

    `part`: the requested part of the lake, or None for the whole lake. `names`: all requested tables.
    """

    lake: Lake
    of_traces: list[str]
    of_captures: list[str]
    part: Part | None
    names: frozenset[str] = frozenset()

    @property
    def stored(self) -> list[str]:
        """Return all requested tables that the lake stores."""
        return [*self.of_traces, *self.of_captures]

    @property
    def read(self) -> list[str]:
        """Return the requested tables, and the stored tables of traces that the requested tables of captures read."""
        return [*self.stored, *trace_tables(self.lake.catalog(), self.of_captures)]

    @property
    def skipped(self) -> list[str]:
        """Return sentences about the broken files that the answer omits, if `lake.without_broken` is set."""
        return broken_file_sentences(self.lake.broken()) if self.lake.without_broken else []

    @property
    def reduced(self) -> list[str]:
        """Return a sentence about the batches with only a digest, if the digest does not contain a requested table."""
        gone = [name for name in (EVENTS, *self.stored) if name in self.names - {*OF_TRACES, *OF_CAPTURES}]
        digests = [batch for batch in self._batches if self.lake.is_digest(batch)] if gone else []
        if not digests:
            return []
        batches = f"{len(digests):,} batch{'es' * (len(digests) > 1)} of traces, ingested until {digests[-1].day}"
        have = "has" if len(gone) == 1 else "have"
        return [f"{', '.join(gone)} {have} no rows of {batches}: only their digest is kept (retention --keep digest)"]

    @property
    def can_compute(self) -> bool:
        """Return whether a table is missing or outdated, and this process can write the lake."""
        return self.are_stale and self.lake.is_writable

    def without_captures(self) -> TablesOfLake:
        """Return the request without tables of captures."""
        return replace(self, of_captures=[])

    @property
    def are_stale(self) -> bool:
        """Return whether a requested table is missing or outdated for any trace or capture of the part."""
        catalog = self.lake.catalog()
        if self.of_traces and stale_batches(self.lake, catalog, self.of_traces, self._batches):
            return True
        return stale_captures(self.lake, catalog, self.of_captures, self.part)

    def bring_up(self) -> list[str]:
        """Update missing and outdated tables. If there are any but the lake is read-only, return caveats instead."""
        if not self.are_stale:
            return []
        if not self.lake.is_writable:
            root = self.lake.root
            return [f"{root} cannot be written: the answer is from the tables computed there", *self.lacks()]
        self.compute()
        return []

    def compute(self, on_step: Callable[[str], Any] | None = None) -> None:
        """Compute missing and outdated tables.

        Call `on_step(text)` before each model. Raise BrokenFiles if damaged files prevent the computation.
        """
        from pipelines.runs.materialize.computed_tables import discard
        from pipelines.runs.materialize.run_order import materialize_all

        discard(self.lake)
        materialize_all(self.lake, self.stored, on_step=on_step, part=self.part)

    def lacks(self) -> list[str]:
        """Return caveats about skipped files and missing or outdated tables, with the command to compute the tables."""
        lake, catalog, batches = self.lake, self.lake.catalog(), self._batches
        caveats = [f"left out: {file}" for file in self.skipped]
        missing: dict[int, list[str]] = {}
        if self.of_traces and stale_batches(lake, catalog, self.of_traces, batches):
            for name in self.of_traces:
                if n := len(stale_batches(lake, catalog, [name], batches)):
                    missing.setdefault(n, []).append(name)
        for n, names in missing.items():
            verb, pronoun = ("is", "it") if len(names) == 1 else ("are", "them")
            lacks = (
                f"{', '.join(names)} {verb} not computed, or of an older model, for {n:,} of {len(batches):,} batches"
            )
            caveats.append(f"{lacks} of traces; {_how(pronoun, names, lake)}")
        if stale_captures(lake, catalog, self.of_captures):
            lacks = f"no rows of the newest traces in {', '.join(self.of_captures)} yet"
            caveats.append(f"{lacks}; {_how('them', self.of_captures, lake)}")
        return caveats

    @property
    def _batches(self) -> list[Batch]:
        return sorted(self.part.batches if self.part else self.lake.batches())


def _how(pronoun: str, names: Sequence[str], lake: Lake) -> str:
    """Return the instruction for computing tables on this machine, or on a machine that can write the lake."""
    command = f"tracelake materialize {' '.join(names)}"
    if lake.is_writable:
        return f"to compute {pronoun}: {command} --lake {shlex.quote(str(lake.root))}"
    return f"to compute {pronoun}, where the lake can be written: {command}"


@dataclass(frozen=True)
class CommittedTables:
    """Tables that a query reads as committed, without computing them first. The attributes are as in TablesOfLake."""

    read: list[str]
    stored: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    reduced: list[str] = field(default_factory=list)
    can_compute: bool = False

    def without_captures(self) -> CommittedTables:
        """See TablesOfLake."""
        return self

    def compute(self, on_step: Callable[[str], Any] | None = None) -> None:
        """See TablesOfLake."""

    def bring_up(self) -> list[str]:
        """See TablesOfLake."""
        return []

    def lacks(self) -> list[str]:
        """See TablesOfLake."""
        return []


RequestedTables = TablesOfLake | CommittedTables
"""The tables that must be computed before a query of some tables is answered."""


def requested_tables(lake: Lake, tables: Iterable[str], of: str = "") -> TablesOfLake:
    """Return the tables among `tables` that a lake stores.

    `of`: prefix of the ids of traces or captures to which the request is limited. If no id matches, only the commit
    marker of captures is needed. Raise NoTraces. Raise BrokenFiles if the lake has lost its commit markers. Raise
    CatalogError if prices.csv is needed and cannot be read.
    """
    if not lake.exists:
        if broken := lake.broken(KEYS):
            raise BrokenFiles(broken)
        raise NoTraces(lake)
    named, catalog = set(tables), lake.catalog()
    if PRICE_TABLE in named:
        read_prices(lake.root / PRICES)
    part = part_of(lake, of) if of else None
    if part and not part.captures and not part.batches:
        return TablesOfLake(lake, [], [CAPTURE_MARK], None)
    of_traces = [name for name in catalog.materialized if name in named]
    of_captures = [name for name in catalog.of_captures if name in named]
    return TablesOfLake(lake, of_traces, of_captures, part, frozenset(named))


def broken_file_sentences(broken: Sequence[Broken]) -> list[str]:
    """Return sentences about the first _SHOWN broken files and about the number of further files."""
    more = len(broken) - _SHOWN
    further = [f"{more:,} more files; `tracelake check` names them"] if more > 0 else []
    return [*map(str, broken[:_SHOWN]), *further]
