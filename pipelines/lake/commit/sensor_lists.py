"""What the sensor keeps in the lake, in `.sensor/`: the files that a run was asked to ingest, and what it asked for so far.

A run's configuration and the sensor's cursor only name these files, so that they stay small however many files wait. A
file is written in one step and never changed; `clean` removes those that nothing names any more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipelines.base.paths import path_text, text_path
from pipelines.lake.lake import Lake, write_json
from pipelines.models.cache import digest_of

FOLDER = ".sensor"
KEPT_RUNS = 100
"""How many lists of files stay for runs that are started again; those of older runs are removed."""


class ListGone(Exception):
    """The list of a run's files is missing or damaged; the message names it and says what to do."""


def put_files(lake: Lake, name: str, files: Iterable[Path]) -> str:
    """Write the files of a run; returns the list's name. Raises OSError."""
    return _write(lake, f"run-{name}", [path_text(path) for path in files])


def files_of(lake: Lake, name: str) -> list[Path]:
    """Returns the files of a run. Raises ListGone."""
    found = _read(lake, name)
    if not isinstance(found, list):
        raise ListGone(
            f"{_path(lake, name)}, which lists the files of this run, is {'missing' if found is None else 'damaged'}; start "
            "a run without it, which takes the whole watched folder (what the lake knows is skipped)"
        )
    return [text_path(text) for text in found]


def put_asked(lake: Lake, asked: Mapping[str, Any]) -> str:
    """Write what the sensor asked for, by path; returns the name. Raises OSError."""
    return _write(lake, f"asked-{digest_of([json.dumps(asked, sort_keys=True)])[:16]}", dict(asked))


def asked_of(lake: Lake, name: str) -> dict[str, Any] | None:
    """Returns what was written under the name; None if it is missing or damaged."""
    found = _read(lake, name)
    return found if isinstance(found, dict) else None


def clean(lake: Lake, asked: str | None) -> None:
    """Remove what nothing names any more: what was asked before `asked`, lists of old runs, what a kill left."""
    folder = lake.root / FOLDER
    runs = sorted(folder.glob("run-*.json"), key=lambda path: path.stat().st_mtime_ns)
    old = [path for path in folder.glob("asked-*.json") if path.stem != asked]
    for path in [*runs[:-KEPT_RUNS], *old, *folder.glob("*.part")]:
        path.unlink(missing_ok=True)


def _path(lake: Lake, name: str) -> Path:
    return lake.root / FOLDER / f"{Path(name).name}.json"


def _write(lake: Lake, name: str, content: Any) -> str:
    write_json(_path(lake, name), {"content": content, "sum": _sum(content)})
    return name


def _read(lake: Lake, name: str) -> Any:
    """Returns the content; None if there is no such file, False if it is damaged."""
    try:
        found = json.loads(_path(lake, name).read_text(encoding="utf-8"))
        return found["content"] if found["sum"] == _sum(found["content"]) else False
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _sum(content: Any) -> str:
    return digest_of([json.dumps(content, sort_keys=True)])[:16]
