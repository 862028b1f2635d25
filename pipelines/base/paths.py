"""Paths as users enter them, and their text as it is stored and shown.

A URL is rejected before a folder with the name of its scheme is created. A file's name is bytes, which need not be
UTF-8.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from pipelines.base.errors import TracelakeError

# A single letter is a drive. A Path has one slash where a URL has two: Path("s3://bucket") is s3:/bucket.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
DUCKLAKE = "ducklake:"
_ESCAPED = re.compile(r"\\(?:\\|x([0-9a-f]{2}))")


class UnusablePath(TracelakeError, ValueError):
    """A path that cannot be used. The message gives the path and the reason."""


def local_path(path: str | Path) -> Path:
    """Return the path of a file or folder on this machine.

    Raise UnusablePath for a URL or an address: s3://…, file://…, host:/…, ducklake:….
    """
    if str(path).startswith(DUCKLAKE):
        raise UnusablePath(
            f"{path} is the address of a DuckLake, and this needs a folder; commands that only read accept it as --lake, and in "
            "Python tracelake.open_tables(address) opens its tables, tracelake.open_store(address) the rest"
        )
    match = _SCHEME.match(str(path))
    # A Path from ./s3:/x looks the same.
    if match is None or (isinstance(path, Path) and Path(f"{match[1]}:").exists()):
        return Path(path)
    hint = "write the path alone" if match[1].lower() == "file" else "copy or mount it, and give the path here"
    raise UnusablePath(f"{path}: {match[1]}:// is not supported, only paths on this machine; {hint}")


def without_parents(path: Path) -> Path:
    """Return the path unchanged, or if it contains `..`, as an absolute path without it.

    Folders are compared by their paths, so `../inbox` must become the path that `inbox` has. Links are resolved only if
    `..` depends on them.
    """
    if ".." not in path.parts:
        return path
    shortened, real = os.path.abspath(path), os.path.realpath(path)
    return Path(shortened if os.path.realpath(shortened) == real else real)


def path_text(path: str | Path) -> str:
    r"""Return a path as text that can be stored, hashed and printed. The inverse is `text_path`.

    The text is the path itself if its bytes are UTF-8. Otherwise (`caf\xe9.json` in Latin-1), each other byte becomes
    `\x` and two hex digits, and each backslash becomes two. A path with `\x` also has its backslashes doubled.
    """
    text = str(path)
    if "\\x" in text or any("\udc80" <= char <= "\udcff" for char in text):
        text = text.replace("\\", "\\\\")
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def text_path(text: str) -> Path:
    """Return the path whose `path_text` is this text."""
    if "\\x" not in text:
        return Path(text)
    raw = bytearray()
    pos = 0
    for match in _ESCAPED.finditer(text):
        raw += text[pos : match.start()].encode()
        raw += bytes.fromhex(match[1]) if match[1] else b"\\"
        pos = match.end()
    return Path(os.fsdecode(bytes(raw + text[pos:].encode())))


def utf8_path(path: Path) -> Path:
    """Return the path if DuckDB can open it. Raise UnusablePath if its bytes are not UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        text = path_text(path)
        raise UnusablePath(f"{text}: the path is not valid UTF-8, so DuckDB cannot open it; rename it") from None
    return path


def is_file(path: Path) -> bool:
    """Return whether the path is a regular file.

    Return True for an inaccessible path, because reading it then raises the error.
    """
    try:
        return path.is_file()
    except OSError:
        return True


def is_folder(path: Path) -> bool:
    """Return whether the path is an accessible folder."""
    try:
        return path.is_dir()
    except OSError:
        return False


def files_under(folder: Path) -> list[Path]:
    """Return all files in a folder except hidden files, recursively and sorted, without following links to folders.

    The list includes each folder that cannot be listed, because reading its path then raises the error.
    """
    files: list[Path] = []
    folders = [folder]
    while folders:
        current = folders.pop()
        try:
            with os.scandir(current) as entries:
                children = [current / entry.name for entry in entries if not entry.name.startswith(".")]
        except OSError:
            files.append(current)
            continue
        for path in children:
            if is_folder(path):
                folders += [] if path.is_symlink() else [path]
            elif is_file(path):
                files.append(path)
    return sorted(files)


def is_under(folder: Path) -> Callable[[Path], bool]:
    """Return a function that returns whether a path is the folder or inside it, directly or through symbolic links."""
    real_folder = os.path.realpath(folder)
    name = os.path.basename(real_folder)

    @cache  # many files have the same parent
    def holds(parent: Path) -> bool:
        return parent.is_relative_to(folder) or Path(os.path.realpath(parent)).is_relative_to(real_folder)

    def is_inside(path: Path) -> bool:
        path = path.absolute()
        return holds(path.parent) or path == folder or (path.name == name and os.path.realpath(path) == real_folder)

    return is_inside


def total_size(files: Iterable[Path]) -> int:
    """Return the total size in bytes of the accessible files."""
    size = 0
    for path in files:
        try:
            size += path.stat().st_size if path.is_file() else 0
        except OSError:  # the code that reads the file reports the error
            continue
    return size
