"""Tables that a query or a command asks a lake for: computed where they are missing or out of date, or told to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import TracelakeError
from pipelines.lake.names import CAPTURE_MARK, KEYS, Batch
from pipelines.lake.publish.prices import PRICE_TABLE, PRICES, read_prices
from pipelines.lake.read.damage import Broken, BrokenFiles
from pipelines.runs.materialize.per_capture import Part, part_of, stale_captures, trace_tables
from pipelines.runs.materialize.per_trace import stale_batches

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake

_SHOWN = 10


class NoTraces(TracelakeError, LookupError):
    """The lake has nothing to answer from; `hint` says what to do."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(
            f"no traces in the lake {lake.root}", f"Ingest some: tracelake ingest FILES --lake {lake.root}"
        )


@dataclass(frozen=True)
class AskedTables:
    """Those that are stored: `of_traces`, `of_captures`; and the `part` of the lake that is asked about, None for all."""

    lake: Lake
    of_traces: list[str]
    of_captures: list[str]
    part: Part | None

    @property
    def stored(self) -> list[str]:
        """All of them."""
        return [*self.of_traces, *self.of_captures]

    @property
    def read(self) -> list[str]:
        """They and all tables that they depend on."""
        return [*self.stored, *trace_tables(self.lake.catalog(), self.of_captures)]

    @property
    def are_stale(self) -> bool:
        """Whether one of them is missing or out of date somewhere."""
        catalog = self.lake.catalog()
        if self.of_traces and stale_batches(self.lake, catalog, self.of_traces, self._batches):
            return True
        return stale_captures(self.lake, catalog, self.of_captures, self.part)

    def bring_up(self, on_step: Callable[[str], Any] | None = None) -> list[str]:
        """Bring them up to date, where they are not; returns what an answer lacks where the lake cannot be written."""
        if not self.are_stale:
            return []
        if not self.lake.is_writable:
            root = self.lake.root
            return [f"{root} cannot be written: the answer is from what is computed there", *self.lacks(here=False)]
        self.compute(on_step)
        return []

    def compute(self, on_step: Callable[[str], Any] | None = None) -> None:
        """Bring them up to date; `on_step(text)` is called before each model. Raises BrokenFiles where that cannot be."""
        from pipelines.runs.materialize.computed_tables import discard
        from pipelines.runs.materialize.run_order import materialize_all

        discard(self.lake)
        materialize_all(self.lake, self.stored, on_step=on_step, part=self.part)

    def lacks(self, here: bool = True) -> list[str]:
        """Returns what an answer from them lacks while they are as they are, as sentences that say what to do; not `here`: it
        cannot be done here.
        """
        lake, catalog, batches = self.lake, self.lake.catalog(), self._batches
        told = [f"left out: {one}" for one in told_broken(left_out(lake))]
        missing: dict[int, list[str]] = {}
        if self.of_traces and stale_batches(lake, catalog, self.of_traces, batches):
            for name in self.of_traces:
                if n := len(stale_batches(lake, catalog, [name], batches)):
                    missing.setdefault(n, []).append(name)
        for n, names in missing.items():
            what, it = ("is", "it") if len(names) == 1 else ("are", "them")
            lacks = (
                f"{', '.join(names)} {what} not computed, or of an older model, for {n:,} of {len(batches):,} batches"
            )
            told.append(f"{lacks} of traces; {_how(it, names, lake, here)}")
        if stale_captures(lake, catalog, self.of_captures):
            lacks = f"of the newest traces there is nothing in {', '.join(self.of_captures)} yet"
            told.append(f"{lacks}; {_how('them', self.of_captures, lake, here)}")
        return told

    @property
    def _batches(self) -> list[Batch]:
        return sorted(self.part.batches if self.part else self.lake.batches())


def _how(what: str, names: Sequence[str], lake: Lake, here: bool) -> str:
    """Returns how to compute tables of a lake: here, or where the lake can be written."""
    command = f"tracelake materialize {' '.join(names)}"
    if here:
        return f"to compute {what}: {command} --lake {lake.root}"
    return f"to compute {what}, where the lake can be written: {command}"


def asked_tables(lake: Lake, tables: Iterable[str], of: str = "") -> AskedTables:
    """Returns those of the named tables that a lake stores.

    `of`: only of traces or captures whose ids begin with this; if none does, only the mark of captures is needed. Raises
    NoTraces, BrokenFiles for a lake that has lost its marks, CatalogError for a prices.csv that is needed and cannot be read.
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
        return AskedTables(lake, [], [CAPTURE_MARK], None)
    of_traces = [name for name in catalog.materialized if name in named]
    return AskedTables(lake, of_traces, [name for name in catalog.of_captures if name in named], part)


def left_out(lake: Lake) -> list[Broken]:
    """Returns the files that answers of a lake `without_broken` leave out."""
    return lake.broken() if lake.without_broken else []


def told_broken(broken: Sequence[Broken]) -> list[str]:
    """Returns a few of these files, and how many more there are."""
    more = len(broken) - _SHOWN
    rest = [f"{more:,} more files; `tracelake check` names them"] if more > 0 else []
    return [*map(str, broken[:_SHOWN]), *rest]
