"""Cache of slow results that depend only on texts, stored in the user's cache folder.

An installed wheel contains the results that its first command would otherwise compute (setup.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipelines.base.whole_file import write_whole

SHIPPED = Path(__file__).resolve().parents[1] / "_cache"
_DAY_S = 86_400


def digest_of(parts: Iterable[str | bytes]) -> str:
    """Return a hash over texts and their boundaries."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        digest.update(f"{len(data)}:".encode() + data)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the folder for recomputable data of this user, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracelake"


def remembered(name: str, digest: str, compute: Callable[[], Any], folder: Path | None = None) -> Any:
    """Return the JSON value cached under this name for this digest, or compute and cache it.

    The value may come from the wheel or from any process. The cache has one file per name, with the latest digest only,
    so it does not grow. With `folder`, which the value describes, it has one file per name and folder. A value of the
    wheel is valid for any folder if the digest is equal.
    """
    own = cache_folder() / (f"{name}-{digest_of([str(folder)])[:16]}.json" if folder else f"{name}.json")
    for path in (SHIPPED / f"{name}.json", own):
        try:
            cached = json.loads(path.read_text(encoding="utf-8"))
            if cached["digest"] == digest:
                return cached["value"]
        except (OSError, ValueError, KeyError, TypeError):  # absent, truncated or in another format: recompute
            pass
    value = compute()
    with suppress(OSError):  # a home directory that is full or not writable only costs time
        own.parent.mkdir(parents=True, exist_ok=True)
        write_whole(own, json.dumps({"digest": digest, "value": value}))
    return value


def kept_file(kind: str, digest: str) -> Path | None:
    """Return the cached database file for this digest, or None if the cache has no intact file.

    Its name ends with a checksum of its content, so that a corrupt file is not used.
    """
    for file in cache_folder().glob(f"{kind}-{digest[:16]}-*.duckdb"):
        try:
            if file.name == _name(kind, digest, file):
                os.utime(file)  # keep_file() deletes the files that were used least recently
                return file
            file.unlink()
        except OSError:  # deleted by another process, or not readable
            continue
    return None


def keep_file(kind: str, digest: str, made: Path, most: int) -> None:
    """Cache a copy of the file `made`, and delete all but the `most` last used files of its kind."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{kind}-", dir=folder) as temporary:
            copy = Path(shutil.copyfile(made, Path(temporary) / "copy.duckdb"))
            os.replace(copy, folder / _name(kind, digest, copy))
        for old in sorted(folder.glob(f"{kind}-*.duckdb"), key=os.path.getmtime)[:-most]:
            old.unlink(missing_ok=True)
        for leftover in folder.glob(f".{kind}-*"):  # left by a process that was killed
            if leftover.stat().st_mtime < time.time() - _DAY_S:
                shutil.rmtree(leftover, ignore_errors=True)
    except OSError:
        return  # a home directory that is not writable only costs time


def _name(kind: str, digest: str, file: Path) -> str:
    return f"{kind}-{digest[:16]}-{zlib.crc32(file.read_bytes()):08x}.duckdb"
