"""Lists of the sensor in the lake's folder `.sensor/`: the files that each run is to ingest, and the requests so far.

A run's configuration and the sensor's cursor contain only the name of a list, so they stay small with any number of
waiting files. A list is written atomically and never changed. `clean` removes unused lists.
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
"""Number of file lists kept for reruns. Lists of older runs are removed."""


class ListGone(Exception):
    """A missing or damaged list of a run's files. The message names the list and the remedy."""


def put_files(lake: Lake, name: str, files: Iterable[Path]) -> str:
    """Write the list of a run's files, and return the list's name. Raise OSError."""
    return _write(lake, f"run-{name}", [path_text(path) for path in files])


def files_of(lake: Lake, name: str) -> list[Path]:
    """Return the files of a run. Raise ListGone."""
    paths = _read(lake, name)
    if not isinstance(paths, list):
        raise ListGone(
            f"{_path(lake, name)}, which lists the files of this run, is {'missing' if paths is None else 'damaged'}; start "
            "a run without it, which reads the whole watched folder (files that the lake knows are skipped)"
        )
    return [text_path(text) for text in paths]


def put_asked(lake: Lake, asked: Mapping[str, Any]) -> str:
    """Write the sensor's requests by path, and return the list's name. Raise OSError."""
    return _write(lake, f"asked-{digest_of([json.dumps(asked, sort_keys=True)])[:16]}", dict(asked))


def asked_of(lake: Lake, name: str) -> dict[str, Any] | None:
    """Return the requests in the list with this name, or None if the list is missing or damaged."""
    content = _read(lake, name)
    return content if isinstance(content, dict) else None


def clean(lake: Lake, asked: str | None) -> None:
    """Remove unused lists.

    These are lists of requests other than `asked`, lists of old runs, and leftovers of killed processes.
    """
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
    """Return the content of a list, None if its file does not exist, or False if the file is damaged."""
    try:
        record = json.loads(_path(lake, name).read_text(encoding="utf-8"))
        return record["content"] if record["sum"] == _sum(record["content"]) else False
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _sum(content: Any) -> str:
    return digest_of([json.dumps(content, sort_keys=True)])[:16]
