"""The record of the complete tables, so that the next run need not check every file.

The record is valid only while the analysts' file shows every committed row and has the state in which the record was
written. After any other change, or with another version of a model or of this program, a run checks everything. In
lakes with few files, a run also checks everything if a file is missing or has another size (`Lake.few_broken`). In
larger lakes, such a file is detected by queries, which check the files of the tables that they name, and by `tracelake
check`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.base import database
from pipelines.fleet.captures.roles import ROLES
from pipelines.lake.commit.catalog_file import note, record_of
from pipelines.lake.commit.manifest import Entry
from pipelines.lake.lake import Lake
from pipelines.lake.names import Batch
from pipelines.lake.publish.analyst_file import published_broken, published_state
from pipelines.lake.publish.user_causes import CAUSES
from pipelines.lake.publish.user_formulas import OP_FORMULAS
from pipelines.lake.publish.user_tables import content_of
from pipelines.lake.read.snapshot import Now
from pipelines.lake.read.snapshot import look as look_at
from pipelines.models.cache import digest_of
from pipelines.models.catalog import Catalog
from pipelines.models.sources import code_digest

COMPUTED = "computed"  # name of the record in the catalog


@dataclass(frozen=True)
class Seen:
    """The state at the start of a run: the lake's batches, and a hash over the run's other inputs."""

    now: Now
    others: str


def look(lake: Lake) -> Seen | None:
    """Return the current state, or None if a file was removed while it was read."""
    try:
        return Seen(look_at(lake.root), _others(lake))
    except OSError:
        return None


def is_complete(lake: Lake, catalog: Catalog, tables: Iterable[str]) -> bool:
    """Return whether these tables were complete when the lake was published, and no input has changed since."""
    requested = set(tables)
    try:
        record = record_of(lake.root, COMPUTED)
        if record is None or not requested <= set(record["tables"]):
            return False
        return record["state"] == [published_state(lake, catalog), _others(lake)] and not lake.few_broken(requested)
    except OSError:
        return False


def note_complete(
    lake: Lake, catalog: Catalog, tables: Iterable[str], before: Seen, made: Iterable[tuple[str, Batch]]
) -> None:
    """Record that a run completed these tables and published, unless files of other runs changed since its start.

    `before`: the state at the start. `made`: the files that the run committed.
    """
    now, state = look(lake), published_state(lake, catalog)
    if now is None or state is None or now.others != before.others:
        return
    own_tables: dict[str, set[str]] = {}
    for table, batch in made:
        own_tables.setdefault(batch.batch_id, set()).add(table)
    if _others_of(now, own_tables) != _others_of(before, own_tables) or published_broken(lake):
        return
    entries = now.now.entries
    if any(
        _version(entries.get(name), table) != catalog.version(table)
        for name, made_tables in own_tables.items()
        for table in made_tables
    ):
        return
    record, state = record_of(lake.root, COMPUTED), [state, now.others]
    complete_before = record["tables"] if record and record["state"] == state else []
    try:
        note(lake.root, COMPUTED, {"tables": sorted({*tables, *complete_before}), "state": state})
    except OSError:
        return  # without the record, the next run only takes longer


def discard(lake: Lake) -> None:
    """Delete the record, because checking the files has contradicted it. Raise OSError if that fails."""
    if record_of(lake.root, COMPUTED) is not None:
        note(lake.root, COMPUTED, None)


def _others_of(state: Seen, own_batches: Iterable[str]) -> dict[str, str]:
    """Return the stamps of the batches that the run did not write."""
    return {name: stamp for name, stamp in state.now.stamps.items() if name not in own_batches}


def _version(entry: Entry | None, table: str) -> str | None:
    return entry.kind.versions.get(table) if entry else None


def _others(lake: Lake) -> str:
    """Return a hash over the inputs of tables other than the lake's files and the model versions.

    These are the roles, formulas and causes, this program, and its memory limit. The limit is included because traces
    that needed more memory are recomputed with a higher limit.
    """
    memory = database.for_models()
    contents = [content_of(lake.root / name) for name in (ROLES, OP_FORMULAS, CAUSES)]
    return digest_of([*contents, code_digest(), memory])
