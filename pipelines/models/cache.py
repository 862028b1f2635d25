"""Caches results that are slow to compute and depend only on texts, in the user's cache folder between processes."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def digest_of(parts: Iterable[str | bytes]) -> str:
    """Returns a hash over texts that also separates each text from the next."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        digest.update(f"{len(data)}:".encode() + data)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Returns the folder where the user's programs keep data that can be recomputed; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracelake"


def remembered(name: str, digest: str, compute: Callable[[], Any]) -> Any:
    """Returns what `compute` returned (any JSON value) for the same digest before, in any process; else computes it.

    One file per name, with the last digest only, so the folder does not grow.
    """
    path = cache_folder() / f"{name}.json"
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if known["digest"] == digest:
            return known["value"]
    except (OSError, ValueError, KeyError, TypeError):  # absent, truncated or another format: computed again
        pass
    value = compute()
    _write(path, json.dumps({"digest": digest, "value": value}))
    return value


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError:
        return  # a home directory that is not writable only costs time
