"""Paths as users give them, and their text as it is stored and shown.

A URL is rejected before a folder is made that is named like its scheme. A file's name is bytes, which need not be UTF-8.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from pipelines.base.errors import TracelakeError

# One letter is a drive. A Path has one slash where a URL has two: Path("s3://bucket") is s3:/bucket.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
DUCKLAKE = "ducklake:"
_ESCAPED = re.compile(r"\\(?:\\|x([0-9a-f]{2}))")


class UnusablePath(TracelakeError, ValueError):
    """A path that cannot be used; the message names it and says why."""


def local_path(given: str | Path) -> Path:
    """Returns the path. Raises UnusablePath for what is not a path of this machine: s3://…, file://…, host:/…, ducklake:…"""
    if str(given).startswith(DUCKLAKE):
        raise UnusablePath(
            f"{given} is the address of a DuckLake, and this needs a folder; the commands that read take it as --lake, and in "
            "Python tracelake.open_tables(address) has its tables, tracelake.open_store(address) the rest"
        )
    found = _SCHEME.match(str(given))
    # A Path that was given as ./s3:/x looks the same.
    if found is None or (isinstance(given, Path) and Path(f"{found[1]}:").exists()):
        return Path(given)
    hint = "write the path alone" if found[1].lower() == "file" else "copy or mount it, and give the path here"
    raise UnusablePath(f"{given}: {found[1]}:// is not supported, only paths on this machine; {hint}")


def path_text(path: str | Path) -> str:
    r"""A path as text that can be stored, hashed and printed; `text_path` gives the path back.

    It is the path itself, except where its bytes are not UTF-8 (`caf\xe9.json` in Latin-1): these become `\x` and two hex
    digits, and a backslash becomes two. A path that holds `\x` anyway has its backslashes doubled, too.
    """
    text = str(path)
    if "\\x" in text or any("\udc80" <= char <= "\udcff" for char in text):
        text = text.replace("\\", "\\\\")
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def text_path(text: str) -> Path:
    """The path whose `path_text` this is."""
    if "\\x" not in text:
        return Path(text)
    raw = bytearray()
    at = 0
    for found in _ESCAPED.finditer(text):
        raw += text[at : found.start()].encode()
        raw += bytes.fromhex(found[1]) if found[1] else b"\\"
        at = found.end()
    return Path(os.fsdecode(bytes(raw + text[at:].encode())))


def utf8_path(path: Path) -> Path:
    """The path, if DuckDB can open it. Raises UnusablePath for one with bytes that are not UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        text = path_text(path)
        raise UnusablePath(f"{text}: the path is not valid UTF-8, so DuckDB cannot open it; rename it") from None
    return path


def is_file(path: Path) -> bool:
    """Whether it is a regular file, or something that cannot be accessed: trying to read that says why."""
    try:
        return path.is_file()
    except OSError:
        return True


def is_folder(path: Path) -> bool:
    """Whether it is a folder that can be accessed."""
    try:
        return path.is_dir()
    except OSError:
        return False


def files_under(folder: Path) -> list[Path]:
    """Returns all files in a folder except hidden ones, recursively and sorted; links to folders are not followed.

    A folder that cannot be listed is itself in the list, so that reading it says why.
    """
    found: list[Path] = []
    folders = [folder]
    while folders:
        at = folders.pop()
        try:
            with os.scandir(at) as entries:
                inside = [at / entry.name for entry in entries if not entry.name.startswith(".")]
        except OSError:
            found.append(at)
            continue
        for path in inside:
            if is_folder(path):
                folders += [] if path.is_symlink() else [path]
            elif is_file(path):
                found.append(path)
    return sorted(found)


def total_size(files: Iterable[Path]) -> int:
    """Returns the bytes of those files that can be accessed."""
    size = 0
    for path in files:
        try:
            size += path.stat().st_size if path.is_file() else 0
        except OSError:  # reading it says so
            continue
    return size
