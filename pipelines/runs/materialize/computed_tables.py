"""Records which tables a run found or made complete, so that the next run over the same lake need not check every file.

It is valid only while the analysts' file shows everything that is committed and
is in the state in which the record was written. Any change since, or another version of a model or of this program,
makes the run check everything. Where files are few, one that is gone or has another size makes it, too (`Lake.few_broken`);
otherwise it is found by queries, which look at the files of the tables that they name, and by `tracelake check`.
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

COMPUTED = "computed"  # the record in the catalog


@dataclass(frozen=True)
class Seen:
    """What a run found: the lake's batches, and a hash over its other inputs."""

    now: Now
    others: str


def look(lake: Lake) -> Seen | None:
    """Returns the current state; None if a file was removed while it was read."""
    try:
        return Seen(look_at(lake.root), _others(lake))
    except OSError:
        return None


def is_complete(lake: Lake, catalog: Catalog, tables: Iterable[str]) -> bool:
    """Whether these tables were complete when the lake was published, and nothing changed since."""
    asked = set(tables)
    try:
        told = record_of(lake.root, COMPUTED)
        if told is None or not asked <= set(told["tables"]):
            return False
        return told["state"] == [published_state(lake, catalog), _others(lake)] and not lake.few_broken(asked)
    except OSError:
        return False


def note_complete(
    lake: Lake, catalog: Catalog, tables: Iterable[str], before: Seen, made: Iterable[tuple[str, Batch]]
) -> None:
    """Record that a run completed these tables and published, unless something other than its own files changed
    meanwhile.

    `before`: what it found at its start. `made`: the files that it put in place.
    """
    now, state = look(lake), published_state(lake, catalog)
    if now is None or state is None or now.others != before.others:
        return
    own: dict[str, set[str]] = {}
    for table, batch in made:
        own.setdefault(batch.batch_id, set()).add(table)
    if _others_of(now, own) != _others_of(before, own) or published_broken(lake):
        return
    entries = now.now.entries
    if any(_version(entries.get(name), table) != catalog.version(table) for name, of in own.items() for table in of):
        return
    told, state = record_of(lake.root, COMPUTED), [state, now.others]
    before_it = told["tables"] if told and told["state"] == state else []
    try:
        note(lake.root, COMPUTED, {"tables": sorted({*tables, *before_it}), "state": state})
    except OSError:
        return  # a lake that cannot be written only costs time


def discard(lake: Lake) -> None:
    """Forget what was noted: a look at the files themselves found otherwise. Raises OSError."""
    if record_of(lake.root, COMPUTED) is not None:
        note(lake.root, COMPUTED, None)


def _others_of(seen: Seen, own: Iterable[str]) -> dict[str, str]:
    """Returns the stamps of the batches that are not a run's own."""
    return {name: stamp for name, stamp in seen.now.stamps.items() if name not in own}


def _version(entry: Entry | None, table: str) -> str | None:
    return entry.kind.versions.get(table) if entry else None


def _others(lake: Lake) -> str:
    """Returns what tables depend on besides the lake's files and their model versions: the roles, formulas, this program, and
    how much memory it may use, as traces that needed more are computed again.
    """
    memory = database.for_models()
    told = [content_of(lake.root / name) for name in (ROLES, OP_FORMULAS, CAUSES)]
    return digest_of([*told, code_digest(), memory])
