"""Records which tables a run found or made complete, so that the next run over the same lake need not check every file.

`.computed.json` in the lake's folder. It is valid only while the analysts' file shows everything that is committed and
is in the state in which the record was written. Any change since, or another version of a model or of this program,
makes the run check everything. Damage that changes neither a file's size nor its modification time is found by `tracelake
check`, and by queries, which look at the files of the tables that they name. The record may be deleted at any time.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pipelines.fleet.roles import ROLES
from pipelines.lake.layout import ANALYST_TEMP, Batch
from pipelines.lake.publish import Stamps, committed_stamps, published_state
from pipelines.lake.store import Lake
from pipelines.lake.told import content_of
from pipelines.models.cache import digest_of
from pipelines.models.catalog import Catalog
from pipelines.models.sources import code_digest

COMPUTED = ".computed.json"


@dataclass(frozen=True)
class Seen:
    """What a run found at its start: the stamps of all public tables' files, and a hash over its other inputs."""

    stamps: Stamps
    others: str


def look(lake: Lake, catalog: Catalog) -> Seen | None:
    """Returns the current state; None if a file was removed while it was read."""
    try:
        return Seen(committed_stamps(lake, catalog.public), _others(lake))
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
    now = look(lake, catalog)
    state = now and published_state(lake, catalog, now.stamps)
    if now is None or state is None or now.others != before.others:
        return
    own = {(table, batch.batch_id) for table, batch in made}
    if _files(now, own) != _files(before, own) or any(lake.broken(catalog.public)):
        return
    text = json.dumps({"tables": sorted(set(tables)), "state": [state, now.others]})
    try:
        with tempfile.TemporaryDirectory(prefix=ANALYST_TEMP, dir=lake.root) as folder:  # left by a killed run
            file = Path(folder) / COMPUTED
            file.write_text(text)
            os.replace(file, lake.root / COMPUTED)
    except OSError:
        return  # a lake that cannot be written only costs time


def discard(lake: Lake) -> None:
    """Forget what was noted: a look at the files themselves found otherwise. Raises OSError."""
    (lake.root / COMPUTED).unlink(missing_ok=True)


def _files(seen: Seen, own: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Returns the files that are not a run's own."""
    found = ((table, stamp) for table, stamps in seen.stamps.items() for stamp in stamps)
    return {(table, stamp) for table, stamp in found if (table, stamp.partition(".")[0]) not in own}


def _others(lake: Lake) -> str:
    """Returns what tables depend on besides the lake's files and their model versions: the roles, and this program."""
    return digest_of([content_of(lake.root / ROLES), code_digest()])
