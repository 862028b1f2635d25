"""Records which tables a run found or made complete, so that the next run over the same lake need not check every file.

`.computed.json` in the lake's folder. It is valid only while the analysts' file shows everything that is committed and
is in the state in which the record was written. Any change since, or another version of a model or of this program,
makes the run check everything. A file that is gone is noticed; one whose size or content alone changed is found by
queries, which look at the files of the tables that they name, and by `tracelake check`. The record may be deleted at any time.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipelines.base import database
from pipelines.fleet.captures.roles import ROLES
from pipelines.lake.commit.manifest_index import Entry
from pipelines.lake.lake import Lake
from pipelines.lake.layout import ANALYST_TEMP, Batch
from pipelines.lake.publish.analyst_file import published_broken, published_state
from pipelines.lake.publish.user_causes import CAUSES
from pipelines.lake.publish.user_formulas import OP_FORMULAS
from pipelines.lake.publish.user_tables import content_of
from pipelines.lake.read.snapshot import Now
from pipelines.lake.read.snapshot import look as look_at
from pipelines.models.cache import digest_of
from pipelines.models.catalog import Catalog
from pipelines.models.sources import code_digest

COMPUTED = ".computed.json"


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
    try:
        told = json.loads((lake.root / COMPUTED).read_text())
        if not set(tables) <= set(told["tables"]):
            return False
        return told["state"] == [published_state(lake, catalog), _others(lake)]
    except (OSError, ValueError, KeyError, TypeError):  # never recorded, or truncated
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
    told = {"tables": sorted({*tables, *_noted(lake, [state, now.others])}), "state": [state, now.others]}
    text = json.dumps(told)
    try:
        with tempfile.TemporaryDirectory(prefix=ANALYST_TEMP, dir=lake.root) as folder:  # left by a killed run
            file = Path(folder) / COMPUTED
            file.write_text(text)
            os.replace(file, lake.root / COMPUTED)
    except OSError:
        return  # a lake that cannot be written only costs time


def _noted(lake: Lake, state: list[str]) -> list[str]:
    """Returns the tables that were noted as complete in this very state."""
    try:
        told = json.loads((lake.root / COMPUTED).read_text())
        return list(told["tables"]) if told["state"] == state else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def discard(lake: Lake) -> None:
    """Forget what was noted: a look at the files themselves found otherwise. Raises OSError."""
    (lake.root / COMPUTED).unlink(missing_ok=True)


def _others_of(seen: Seen, own: Iterable[str]) -> dict[str, str]:
    """Returns the stamps of the batches that are not a run's own."""
    return {name: stamp for name, stamp in seen.now.stamps.items() if name not in own}


def _version(entry: Entry | None, table: str) -> str | None:
    return entry.kind.versions.get(table) if entry else None


def _others(lake: Lake) -> str:
    """Returns what tables depend on besides the lake's files and their model versions: the roles, formulas, this program, and
    how much memory it may use, as traces that needed more are computed again.
    """
    memory = database.at_most(database.MODELS_GB)
    told = [content_of(lake.root / name) for name in (ROLES, OP_FORMULAS, CAUSES)]
    return digest_of([*told, code_digest(), memory])
