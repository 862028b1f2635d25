"""Caches results that are slow to compute and depend only on texts, in the user's cache folder between processes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_DAY_S = 86_400


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


def kept_file(kind: str, digest: str) -> Path | None:
    """Returns the database file that was made from what has this digest; its name ends with a checksum of its content, so that a
    corrupt one is not used.
    """
    for kept in cache_folder().glob(f"{kind}-{digest[:16]}-*.duckdb"):
        try:
            if kept.name == _name(kind, digest, kept):
                os.utime(kept)  # used: see keep_file
                return kept
            kept.unlink()
        except OSError:  # another process deleted it, or we may not read it
            continue
    return None


def keep_file(kind: str, digest: str, made: Path, most: int) -> None:
    """Keep a copy of a file for the next process; of its kind, only the `most` that were used last stay."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{kind}-", dir=folder) as own:
            copy = Path(shutil.copyfile(made, Path(own) / "copy.duckdb"))
            os.replace(copy, folder / _name(kind, digest, copy))
        for old in sorted(folder.glob(f"{kind}-*.duckdb"), key=os.path.getmtime)[:-most]:
            old.unlink(missing_ok=True)
        for left in folder.glob(f".{kind}-*"):  # left by a process that was killed
            if left.stat().st_mtime < time.time() - _DAY_S:
                shutil.rmtree(left, ignore_errors=True)
    except OSError:
        return  # a home directory that is not writable only costs time


def _name(kind: str, digest: str, file: Path) -> str:
    return f"{kind}-{digest[:16]}-{zlib.crc32(file.read_bytes()):08x}.duckdb"
