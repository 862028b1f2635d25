"""Ingestion of CUDA memory snapshots. Each file is a separate set, identified by its content."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from pipelines.models.sqltext import as_text
from pipelines.readers.inputs import Read, Reading, Rejected, SetInput
from pipelines.readers.inputs.row_files import RowFiles
from pipelines.readers.kineto.limits import Limits
from pipelines.readers.kineto.source import Source, TooLarge, head_of
from pipelines.readers.memory_snapshots.columns import COLUMNS, with_devices
from pipelines.readers.memory_snapshots.entries import Entries
from pipelines.readers.memory_snapshots.pickle_stream import BrokenPickle, PickleStream
from pipelines.readers.origin import rank_from_name

TABLE = "memory_snapshots"
_HEAD, _LARGEST_SETTINGS = 64, 1 << 16
LARGEST = 1 << 30  # bytes; memory and time are not measured for larger files (docs/memory-snapshots.md)


def snapshots(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """Return the files that begin like snapshots, each as its own set."""
    return {path: [path] for path in files if is_snapshot(path)}


def is_snapshot(path: Path) -> bool:
    """Return whether a file begins like a pickled snapshot, which is a dictionary with the first key `segments`."""
    head = head_of(path)[:_HEAD]
    return head[:1] == b"\x80" and b"segments" in head


def read_snapshot(reading: Reading, path: Path, _: Collection[Path]) -> Read:
    """Stage the tables of one snapshot.

    Raise Rejected if the file is broken, too large, or changes between the two passes.
    """
    content = _Content(path, reading.limits)
    for _piece in content:
        pass
    if content.key in reading.known:
        return Read(content.key, status="known")
    with tempfile.TemporaryDirectory() as folder:
        second_pass = _Content(path, reading.limits)
        with RowFiles(Path(folder), COLUMNS) as files:
            entries, has_annotations, settings, devices = _read(second_pass, files)
        if second_pass.key != content.key:
            raise Rejected("a memory snapshot that changed while it was read; ingest it again")
        for table in COLUMNS:
            paths = files.paths(table)
            if table == "snapshot_events" and paths:
                paths = [with_devices(paths[0], devices)]
            reading.add_files(table, paths)
    row = {
        **reading.file_columns(path),
        "rank": rank_from_name(path.name),
        "first_event_ns": entries.first_event_ns,
        "last_event_ns": entries.last_event_ns,
        "n_unknown_actions": entries.n_unknown_actions,
        "has_annotations": has_annotations,
        "allocator_settings": settings,
        "unpacked_bytes": content.n_bytes,
        **{f"n_{table.partition('_')[2]}": files.count(table) for table in COLUMNS if table != "snapshot_frames"},
    }
    reading.add_rows(TABLE, [row])
    return Read(content.key, files.count("snapshot_events") + files.count("snapshot_blocks"))


def _read(content: Iterable[bytes], files: RowFiles) -> tuple[Entries, bool, str | None, list[int]]:
    """Write the rows of all tables.

    Return the entries, whether annotations were recorded, the settings as JSON, and the device of each history.

    Raise Rejected if the pickle is broken.
    """
    entries = Entries(files)
    entries.stream = PickleStream(content, entries.fold, entries.append, entries.intern_list)
    try:
        top = entries.stream.load()
        for _piece in content:  # the hash covers the bytes after the pickle
            pass
        devices = entries.devices(top)
        return entries, "external_annotations" in top, _settings_text(top.get("allocator_settings")), devices
    except BrokenPickle as error:
        raise Rejected(f"a memory snapshot that cannot be read: {error}; dump or copy it again") from None


def _settings_text(settings: Any) -> str | None:
    """Return the settings as JSON, or None without settings.

    Raise BrokenPickle if they cannot be written as JSON, or are too long. A few hundred bytes of a pickle can describe
    values of any size, since values may refer to each other.
    """
    if not settings:
        return None
    text = ""
    try:
        for piece in json.JSONEncoder(default=str).iterencode(settings):
            text += piece
            if len(text) > _LARGEST_SETTINGS:
                raise ValueError(f"more than {_LARGEST_SETTINGS:,} characters")
    except (RecursionError, TypeError, ValueError) as error:
        raise BrokenPickle(f"allocator_settings cannot be stored: {error}") from None
    return as_text(text)


class _Content:
    """One pass over the decompressed content of a file. `key` and `n_bytes` cover the part that was read so far.

    Iteration raises Rejected if the content is too large.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self._digest, self._source = hashlib.sha256(), Source(path, limits=limits)
        self._pieces = self._source.chunks()

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._pieces:
                if self.n_bytes > LARGEST:
                    raise Rejected(
                        f"a memory snapshot of more than {LARGEST >> 20} MiB; record a shorter history (max_entries)"
                    )
                self._digest.update(piece)
                yield piece
        except TooLarge as error:
            raise Rejected(f"a memory snapshot that is too large: {error.reason}") from None

    @property
    def key(self) -> str:
        """The first 16 hex digits of the content's SHA-256, the key of the set."""
        return self._digest.hexdigest()[:16]

    @property
    def n_bytes(self) -> int:
        """Number of bytes of the decompressed content."""
        return self._source.unpacked_bytes


INPUT = SetInput(
    scope="memory_snapshot",
    suffixes=(".pickle", ".pkl", ".pickle.gz", ".pkl.gz"),
    recognise=snapshots,
    read=read_snapshot,
)
