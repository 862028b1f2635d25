"""The catalog row of each batch, with the sizes and digests of its files and the keys in its markers.

A file is announced (`pending`) before it is renamed into place, and confirmed afterwards. If a writer is killed in
between, the next process that reads the row checks whether the file is in place. If so, it confirms the announcement,
otherwise it drops the announcement. The rename of a marker therefore commits its batch, also for readers that see only
the Parquet files.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pipelines.base.paths import UnusablePath
from pipelines.lake.commit.batch_rows import Failure, Manifest, Record, from_row, merged_away, to_row
from pipelines.lake.commit.catalog_file import LOCK, Content, Row, Writer, batch_summary, content, writing
from pipelines.lake.commit.locks import held, is_held
from pipelines.lake.names import DIGEST, KEYS, REJECTS, Batch, mark_of, table_file


@dataclass(frozen=True)
class Kind:
    """The part of a row that many batches share: the index of each table into `sizes`, and its model's version."""

    places: dict[str, int]
    versions: dict[str, str]

    @cached_property
    def is_digest(self) -> bool:
        """Return whether only a digest of the traces or captures remains (pipelines/lake/retain/digest_files.py)."""
        return DIGEST in self.versions.values()

    @cached_property
    def leftovers(self) -> tuple[str, ...]:
        """Return the tables that a killed run left without any marker table. `rejects` needs no marker."""
        return () if KEYS.keys() & self.places else tuple(table for table in self.places if table != REJECTS)


@dataclass(frozen=True)
class Entry:
    """A batch's parsed catalog row. `sizes`: the sizes of its files in bytes, by table index. `keys`: JSON.

    `is_plain`: False while a writer works on the batch, and after a writer was killed in a lake that is now read-only.
    """

    batch: Batch
    row: Row
    kind: Kind
    sizes: tuple[int, ...]
    keys: str
    is_plain: bool
    failures: Mapping[str, tuple[Failure, ...]] = field(default_factory=dict)
    written_at_ns: int = 0
    takes: tuple[str, ...] = ()

    def key_paths(self) -> dict[str, str | None] | None:
        """Return the keys of the batch's marker with their source paths, or None if they were not recorded."""
        return json.loads(self.keys)

    @property
    def file_names(self) -> list[str]:
        """Return the batch's files, relative to the lake's folder."""
        end = f"day={self.batch.day}/{self.batch.batch_id}.parquet"
        return [f"{table}/{end}" for table in self.kind.places]

    def is_committed(self, table: str) -> bool:
        """Return whether the marker of this table is committed. `rejects` needs no marker."""
        return table == REJECTS or mark_of(table) in self.kind.places


@dataclass(frozen=True)
class Seen:
    """A lake's batches by id in one state of the catalog. `shown`: the batches that no notice or merge hides."""

    content: Content
    entries: Mapping[str, Entry]
    shown: Mapping[str, Entry]
    kinds: dict[str, Kind]


_memory: dict[Path, Seen] = {}


def entries(root: Path) -> Mapping[str, Entry]:
    """Return the batches of a lake by id, oldest first, the same object until the next commit. Raise OSError."""
    return seen(root).entries


def shown(root: Path) -> Mapping[str, Entry]:
    """Return the `entries` that neither retention nor a merge hides."""
    return seen(root).shown


def read(root: Path, batch: Batch) -> Manifest | None:
    """Return the manifest of a batch, or None if the batch is not in the catalog."""
    for _ in range(2):
        row = content(root).batches.get(batch.batch_id)
        if row is None:
            return None
        detail = batch_summary(root, batch.batch_id)
        if str(zlib.crc32(detail.encode())) == row.brief.split("\n")[4]:
            return from_row(batch, row.brief, row.keys, detail)
    return from_row(batch, row.brief, row.keys, "")  # without digests and row counts


def read_keys(root: Path, batch: Batch) -> dict[str, str | None] | None:
    """Return the keys in the batch's marker with their source paths, or None if they were not recorded."""
    entry = entries(root).get(batch.batch_id)
    return entry.key_paths() if entry else None


def note_put(
    root: Path,
    writer: Writer,
    batch: Batch,
    records: Mapping[str, Record],
    keys: Mapping[str, str | None] | None,
    takes: Iterable[str],
) -> None:
    """Announce files to be moved into place, and the keys in their marker. If `keys` is None, the keys stay the same.

    The caller commits the announcement before it moves the files.
    """
    manifest = _finished(root, read(root, batch) or Manifest(batch), writer)
    manifest.pending = dict(records)
    manifest.new_keys = None if keys is None else dict(keys)
    manifest.takes = [*takes] or manifest.takes
    writer.batch(batch.batch_id, *to_row(manifest))


def note_done(root: Path, writer: Writer, batch: Batch) -> None:
    """Record that the announced files are in place."""
    manifest = read(root, batch) or Manifest(batch)
    _confirm(manifest, manifest.pending, writer)
    writer.batch(batch.batch_id, *to_row(manifest))


def note_gone(root: Path, writer: Writer, batch: Batch, tables: Iterable[str]) -> None:
    """Record that a batch no longer has files of these tables. If no files remain, remove its row."""
    if (manifest := read(root, batch)) is None:
        return
    manifest = _finished(root, manifest, writer)
    for table in tables:
        manifest.records.pop(table, None)
    if manifest.records:
        writer.batch(batch.batch_id, *to_row(manifest))
    else:
        writer.batch(batch.batch_id, None)


def _confirm(manifest: Manifest, placed: Mapping[str, Record], writer: Writer | None) -> None:
    manifest.records |= placed
    if any(table in KEYS for table in placed):
        if manifest.new_keys is not None:
            manifest.keys = manifest.new_keys
        if writer:  # without a writer, do not change the catalog
            for name in manifest.takes:
                writer.notice(name, merged_away(manifest.batch.batch_id))
            manifest.takes = []
    manifest.pending, manifest.new_keys = {}, None


def _finished(root: Path, manifest: Manifest, writer: Writer | None) -> Manifest:
    """Confirm the announced files that are in place, and drop the other announcements.

    Without `writer`, compare only sizes, because the announcing process may still be running.
    """
    placed = {
        table: record
        for table, record in manifest.pending.items()
        if _is_it(root, manifest.batch, table, record, writer)
    }
    if any(table in KEYS for table in manifest.pending) and not any(table in KEYS for table in placed):
        placed.pop(REJECTS, None)  # `rejects` has no marker, and counts only with the marker that was announced with it
    _confirm(manifest, placed, writer)
    return manifest


def _is_it(root: Path, batch: Batch, table: str, record: Record, writer: Writer | None) -> bool:
    path = table_file(root, table, batch)
    try:
        return path.stat().st_size == record.size and (writer is None or describe(path).digest == record.digest)
    except FileNotFoundError:
        return False


def _finish(root: Path, names: Iterable[str]) -> bool:
    """Complete the announcements of killed writers, and return whether that was possible.

    Completion is impossible while a writer may be running, or if the lake is read-only.
    """
    if is_held(root, LOCK):  # this thread may be moving the pending files into place
        return False
    try:
        with held(root, LOCK, wait=False) as is_ours:
            if not is_ours:
                return False
            with writing(root) as writer:
                for name in names:
                    if (manifest := read(root, Batch(name))) is not None:
                        manifest = _finished(root, manifest, writer)
                        writer.batch(name, *(to_row(manifest) if manifest.records else (None, "", "")))
            return True
    except (OSError, UnusablePath):  # the lake is read-only
        return False


def seen(root: Path) -> Seen:
    """Return all batches in the current state of the catalog. Raise OSError."""
    now, previous = content(root), _memory.get(root)
    if previous and previous.content is now and all(entry.is_plain for entry in previous.entries.values()):
        return previous
    old, kinds = (previous.entries, previous.kinds) if previous else ({}, {})
    current: dict[str, Entry] = {}
    for name in sorted(now.batches):
        row, old_entry = now.batches[name], old.get(name)
        current[name] = (
            old_entry
            if old_entry and old_entry.row is row and old_entry.is_plain
            else _entry(root, Batch(name), row, kinds)
        )
    open_ones = [name for name, entry in current.items() if not entry.is_plain]
    if open_ones and _finish(root, open_ones):
        return seen(root)
    hidden = {
        *now.notices,
        *(replaced for name in open_ones for replaced in current[name].takes if current[name].is_committed("traces")),
    }
    visible = current if hidden.isdisjoint(current) else {name: current[name] for name in current if name not in hidden}
    _memory[root] = Seen(now, current, visible, kinds)  # replaced, never mutated, because another thread may read it
    return _memory[root]


def _entry(root: Path, batch: Batch, row: Row, kinds: dict[str, Kind]) -> Entry:
    kind, sizes, failed, pending, _, written_at_ns = row.brief.split("\n")
    keys, takes = row.keys, ()
    is_plain = not pending or not json.loads(pending)[0]
    if not is_plain:
        manifest = _finished(root, from_row(batch, row.brief, row.keys, ""), None)
        (kind, sizes, failed, *_), keys, takes = (
            to_row(manifest)[0].split("\n"),
            json.dumps(manifest.keys),
            tuple(manifest.takes),
        )
    if kind not in kinds:
        tables_and_versions = json.loads(kind)
        kinds[kind] = Kind(
            {table: index for index, table in enumerate(tables_and_versions["tables"])}, tables_and_versions["versions"]
        )
    failures = {table: tuple(Failure(*values) for values in rows) for table, rows in json.loads(failed).items()}
    return Entry(batch, row, kinds[kind], tuple(json.loads(sizes)), keys, is_plain, failures, int(written_at_ns), takes)


def describe(
    path: Path, n_rows: int | None = None, failures: tuple[Failure, ...] = (), version: str | None = None
) -> Record:
    """Return the record of a file in its current state."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Record(path.stat().st_size, n_rows, digest, failures, version)


def flush_names(folder: Path) -> None:
    """Flush a folder's directory entries to disk, so that they survive a power loss."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
