"""Small text files that are written completely or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

PART = ".part"
"""Suffix of a file that is not complete. Its name begins with a dot."""


def write_whole(path: Path, text: str) -> None:
    """Replace a file atomically and flush it, so that it survives a power loss. Raise OSError if it cannot be written.

    The umask determines its permissions. (`tempfile` would make it readable by its owner only.)
    """
    temporary = path.with_name(f".{path.name.lstrip('.')}-{secrets.token_hex(4)}{PART}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
