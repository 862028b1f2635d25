"""What was written for each batch: a row of the catalog with its files, their sizes and digests, and the keys in its marks.

A file is announced (`pending`) before it is put in place, and confirmed afterwards. What a killed writer announced is
confirmed or dropped by whoever looks next, by what is in place: so the rename of a mark commits its batch, as readers of the
Parquet alone see it.
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
from pipelines.lake.commit.catalog_file import LOCK, Content, Row, Writer, content, told_of, writing
from pipelines.lake.commit.locks import held, is_held
from pipelines.lake.names import KEYS, REJECTS, Batch, mark_of, table_file


@dataclass(frozen=True)
class Kind:
    """What most batches have in common: their tables, by place in `sizes`, and with which version each was computed."""

    places: dict[str, int]
    versions: dict[str, str]

    @cached_property
    def is_marked(self) -> bool:
        """Whether a mark, or `rejects`, is among the tables: the batch was not left by a killed run."""
        return any(table in KEYS or table == REJECTS for table in self.places)


@dataclass(frozen=True)
class Entry:
    """A batch's row in brief. `sizes`: of its files, by place of the table; `keys`: JSON.

    `is_plain`: no writer is at work on it at this moment, nor was one killed at it in a lake that may not be written.
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
        """Returns the keys of the batch's mark with their paths; None if they were not recorded."""
        return json.loads(self.keys)

    @property
    def file_names(self) -> list[str]:
        """The batch's files, below the lake's folder."""
        end = f"day={self.batch.day}/{self.batch.batch_id}.parquet"
        return [f"{table}/{end}" for table in self.kind.places]

    def files(self, root: Path) -> list[Path]:
        """Returns the batch's files."""
        return [root / name for name in self.file_names]

    def is_committed(self, table: str) -> bool:
        """Whether the mark of this table is in place."""
        return table == REJECTS or mark_of(table) in self.kind.places


@dataclass(frozen=True)
class Seen:
    """Batches by id; `shown` without those that retention or a merge hides."""

    content: Content
    entries: Mapping[str, Entry]
    shown: Mapping[str, Entry]
    kinds: dict[str, Kind]


_memory: dict[Path, Seen] = {}


def entries(root: Path) -> Mapping[str, Entry]:
    """Returns the batches of a lake by id, oldest first: the same object as long as nothing was committed. Raises OSError."""
    return seen(root).entries


def shown(root: Path) -> Mapping[str, Entry]:
    """Returns those `entries` that neither retention nor a merge hides."""
    return seen(root).shown


def read(root: Path, batch: Batch) -> Manifest | None:
    """Returns what is known of a batch; None if it is not in the catalog."""
    for _ in range(2):
        row = content(root).batches.get(batch.batch_id)
        if row is None:
            return None
        told = told_of(root, batch.batch_id)
        if str(zlib.crc32(told.encode())) == row.brief.split("\n")[4]:
            return from_row(batch, row.brief, row.keys, told)
    return from_row(batch, row.brief, row.keys, "")  # without digests


def read_keys(root: Path, batch: Batch) -> dict[str, str | None] | None:
    """Returns the keys in the batch's mark, with the paths that they came from; None if they were not recorded."""
    found = entries(root).get(batch.batch_id)
    return found.key_paths() if found else None


def note_put(
    root: Path,
    writer: Writer,
    batch: Batch,
    records: Mapping[str, Record],
    keys: Mapping[str, str | None],
    takes: Iterable[str] = (),
) -> None:
    """Announce files that are about to be put in place, with the keys in a mark. The caller commits before it does so."""
    found = _finished(root, read(root, batch) or Manifest(batch), writer)
    found.pending = dict(records)
    found.new_keys = dict(keys) if keys else None
    found.takes = [*takes] or found.takes
    writer.batch(batch.batch_id, *to_row(found))


def note_done(root: Path, writer: Writer, batch: Batch) -> None:
    """Confirm that what was announced is in place."""
    found = read(root, batch) or Manifest(batch)
    _confirm(found, found.pending, writer)
    writer.batch(batch.batch_id, *to_row(found))


def note_gone(root: Path, writer: Writer, batch: Batch, tables: Iterable[str]) -> None:
    """Record that a batch has no files of these tables any more. Without files its row goes."""
    if (found := read(root, batch)) is None:
        return
    found = _finished(root, found, writer)
    for table in tables:
        found.records.pop(table, None)
    if found.records:
        writer.batch(batch.batch_id, *to_row(found))
    else:
        writer.batch(batch.batch_id, None)


def _confirm(found: Manifest, placed: Mapping[str, Record], writer: Writer | None) -> None:
    found.records |= placed
    if any(table in KEYS for table in placed):
        if found.new_keys is not None:
            found.keys = found.new_keys
        if writer:  # else it is only looked at
            for name in found.takes:
                writer.notice(name, merged_away(found.batch.batch_id))
            found.takes = []
    found.pending, found.new_keys = {}, None


def _finished(root: Path, found: Manifest, writer: Writer | None) -> Manifest:
    """Confirms what is in place of what a killed writer announced. Without `writer` it may still be at work: only sizes are
    compared.
    """
    placed = {
        table: record for table, record in found.pending.items() if _is_it(root, found.batch, table, record, writer)
    }
    if any(table in KEYS for table in found.pending) and not any(table in KEYS for table in placed):
        placed.pop(REJECTS, None)  # it has no mark of its own, and counts with the one that it was announced with
    _confirm(found, placed, writer)
    return found


def _is_it(root: Path, batch: Batch, table: str, record: Record, writer: Writer | None) -> bool:
    path = table_file(root, table, batch)
    try:
        return path.stat().st_size == record.size and (writer is None or describe(path).digest == record.digest)
    except FileNotFoundError:
        return False


def _finish(root: Path, names: Iterable[str]) -> bool:
    """Finish what killed writers began; returns whether that could be done: a writer may be at work."""
    if is_held(root, LOCK):  # what is being put in place at this moment may be our own
        return False
    try:
        with held(root, LOCK, wait=False) as is_ours:
            if not is_ours:
                return False
            with writing(root) as writer:
                for name in names:
                    if (found := read(root, Batch(name))) is not None:
                        found = _finished(root, found, writer)
                        writer.batch(name, *(to_row(found) if found.records else (None, "", "")))
            return True
    except (OSError, UnusablePath):  # a lake that may not be written
        return False


def seen(root: Path) -> Seen:
    """Returns all that the catalog says of batches at one moment. Raises OSError."""
    now, before = content(root), _memory.get(root)
    if before and before.content is now and all(entry.is_plain for entry in before.entries.values()):
        return before
    old, kinds = (before.entries, before.kinds) if before else ({}, {})
    made: dict[str, Entry] = {}
    for name in sorted(now.batches):
        row, known = now.batches[name], old.get(name)
        made[name] = known if known and known.row is row and known.is_plain else _entry(root, Batch(name), row, kinds)
    open_ones = [name for name, entry in made.items() if not entry.is_plain]
    if open_ones and _finish(root, open_ones):
        return seen(root)
    hidden = {
        *now.notices,
        *(one for name in open_ones for one in made[name].takes if made[name].is_committed("traces")),
    }
    found = made if hidden.isdisjoint(made) else {name: made[name] for name in made if name not in hidden}
    _memory[root] = Seen(now, made, found, kinds)  # never changed in place: another thread may look, too
    return _memory[root]


def _entry(root: Path, batch: Batch, row: Row, kinds: dict[str, Kind]) -> Entry:
    kind, sizes, failed, pending, _, at = row.brief.split("\n")
    keys, takes = row.keys, ()
    is_plain = not pending or not json.loads(pending)[0]
    if not is_plain:
        found = _finished(root, from_row(batch, row.brief, row.keys, ""), None)
        (kind, sizes, failed, *_), keys, takes = (
            to_row(found)[0].split("\n"),
            json.dumps(found.keys),
            tuple(found.takes),
        )
    if kind not in kinds:
        told = json.loads(kind)
        kinds[kind] = Kind({table: place for place, table in enumerate(told["tables"])}, told["versions"])
    failures = {table: tuple(Failure(*one) for one in rows) for table, rows in json.loads(failed).items()}
    return Entry(batch, row, kinds[kind], tuple(json.loads(sizes)), keys, is_plain, failures, int(at), takes)


def describe(
    path: Path, n_rows: int | None = None, failures: tuple[Failure, ...] = (), version: str | None = None
) -> Record:
    """Returns the record of a file as it is now."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Record(path.stat().st_size, n_rows, digest, failures, version)


def flush_names(folder: Path) -> None:
    """Write a folder's names to the disk, so that they are as they are now after a power loss."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
