"""Which tables a run found or made complete, so that the next over the same lake need not look at every file.

`.computed.json` in the lake's folder. It counts only while the analysts' file shows all that is committed and that is
the state in which it was written: whatever came, went or changed since, and every other version of a model or of this
program, has the run look at everything. It is no part of the truth, and may be removed.
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
    """What a run found when it began: the stamps of all public tables' files, and a hash over what else it reads."""

    stamps: Stamps
    others: str


def look(lake: Lake, catalog: Catalog) -> Seen | None:
    """What is there at this moment; None if something was taken away while it was looked at."""
    try:
        return Seen(committed_stamps(lake, catalog.public), _others(lake))
    except OSError:
        return None


def is_complete(lake: Lake, catalog: Catalog, tables: Iterable[str]) -> bool:
    """These tables were complete when the lake was published, and nothing changed since."""
    try:
        told = json.loads((lake.root / COMPUTED).read_text())
        if not set(tables) <= set(told["tables"]):
            return False
        return told["state"] == [published_state(lake, catalog), _others(lake)]
    except (OSError, ValueError, KeyError, TypeError):  # never told, or cut off
        return False


def note_complete(
    lake: Lake, catalog: Catalog, tables: Iterable[str], before: Seen, made: Iterable[tuple[str, Batch]]
) -> None:
    """Note that a run completed these tables and published, unless something else than what it made changed meanwhile.

    `before`: what it found when it began. `made`: the files that it put in place.
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
        with tempfile.TemporaryDirectory(prefix=ANALYST_TEMP, dir=lake.root) as folder:  # a killed run's is swept
            file = Path(folder) / COMPUTED
            file.write_text(text)
            os.replace(file, lake.root / COMPUTED)
    except OSError:
        return  # a lake that cannot be written only costs time


def _files(seen: Seen, own: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The files that are not a run's own."""
    found = ((table, stamp) for table, stamps in seen.stamps.items() for stamp in stamps)
    return {(table, stamp) for table, stamp in found if (table, stamp.partition(".")[0]) not in own}


def _others(lake: Lake) -> str:
    """What tables are made of beside the lake's files and what their versions tell: the roles, and this program."""
    return digest_of([content_of(lake.root / ROLES), code_digest()])
