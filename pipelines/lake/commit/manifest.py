"""What was written for each batch: `.manifest/<batch_id>`, a log with one line per step, which stays correct if killed.

A file's size, rows and SHA-256 are recorded before it is put in place, and its arrival afterward. So for each table the
valid files are the one put last, and any that a killed writer may have put since. Every line begins with a checksum of
the rest. Batches of older versions have no log: their files are "not recorded".
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from pipelines.base import database
from pipelines.lake.layout import MANIFEST, Batch

LEFT_OUT, OPTIMIZER_OFF = "left_out", "optimizer_off"
_INTERRUPTED = re.compile("^(RuntimeError: Query interrupted|InterruptException: )|failed to offload data block")
_MEMORY = re.compile(r"needs more memory than the ([0-9]+)MiB")


@dataclass(frozen=True)
class Failure:
    """A model that a table needs failed on a trace, and what came of it: the table lacks the trace (`LEFT_OUT`), or it
    is whole, as the model was run again (`OPTIMIZER_OFF`). `trace_id` None: of captures, which are computed together.
    """

    trace_id: str | None
    model: str
    reason: str
    outcome: str = LEFT_OUT

    @property
    def is_no_fault_of_data(self) -> bool:
        """Whether the model may succeed when it runs again: it was interrupted, the disk was full, or it had less memory than
        now. Such rows are of older versions of tracelake, and of small machines.
        """
        told = _MEMORY.search(self.reason)
        return bool(_INTERRUPTED.search(self.reason)) or bool(told and int(told[1]) < _now())


@dataclass(frozen=True)
class Record:
    """A table's file in a batch, as it was written; `n_rows` None: not counted; `version`: that of its model, if known."""

    size: int
    n_rows: int | None
    digest: str
    failures: tuple[Failure, ...] = ()
    version: str | None = None


@dataclass
class Manifest:
    """The log of a batch. `records`: by table, what its file may be; first the one known to be in place.

    `done`: tables whose file was put in place; `damaged`: lines that cannot be read.
    """

    batch: Batch
    records: dict[str, list[Record]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    damaged: int = 0


def _now() -> int:
    return int(database.at_most(database.MODELS_GB).removesuffix("MiB"))


def path_of(root: Path, batch: Batch) -> Path:
    """Returns where the log of a batch is."""
    return root / MANIFEST / batch.batch_id


def describe(
    path: Path, n_rows: int | None = None, failures: tuple[Failure, ...] = (), version: str | None = None
) -> Record:
    """Returns the record of a file as it is now."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Record(path.stat().st_size, n_rows, digest, failures, version)


def note_put(root: Path, batch: Batch, records: Mapping[str, Record], keys: Mapping[str, str | None]) -> None:
    """Record files that are about to be put in place, and the keys in a mark with the paths that they came from."""
    if keys:
        _append(root, batch, {"keys": dict(keys)})
    _append(root, batch, {"put": {table: _written(record) for table, record in records.items()}})


def note_done(root: Path, batch: Batch, records: Mapping[str, Record]) -> None:
    """Record that these files are in place. Called under the lock under which they were put."""
    _append(root, batch, {"done": {table: record.digest for table, record in records.items()}})


def rewrite(root: Path, batch: Batch, records: Mapping[str, Record], keys: Mapping[str, str | None]) -> None:
    """Rewrite a batch's log: these files and no others are in place. Without files the log is removed."""
    target = path_of(root, batch)
    if not records:
        target.unlink(missing_ok=True)
        return
    temporary = target.with_name(f".{target.name}.part")
    temporary.unlink(missing_ok=True)
    temporary.parent.mkdir(exist_ok=True)
    note_put(root, Batch(temporary.name), records, keys)
    note_done(root, Batch(temporary.name), records)
    os.replace(temporary, target)


def read(root: Path, batch: Batch) -> Manifest | None:
    """Returns the log of a batch; None if there is none."""
    try:
        data = path_of(root, batch).read_bytes()
    except FileNotFoundError:
        return None
    found = Manifest(batch)
    lines = data.split(b"\n")
    found.damaged += lines.pop() != b""  # the last line is also terminated
    for line in lines:
        if line[9:15] != b'{"keys':  # many, and rarely needed
            entry = _entry(line)
            found.damaged += entry is None
            _apply(found, entry or {})
        elif not _is_whole(line):
            found.damaged += 1
    return found


def read_keys(root: Path, batch: Batch) -> dict[str, str | None] | None:
    """Returns the keys in the batch's mark, with the paths that they came from; None if they were not recorded."""
    try:
        lines = path_of(root, batch).read_bytes().split(b"\n")
    except FileNotFoundError:
        return None
    found = [entry["keys"] for line in lines if (entry := _entry(line)) and "keys" in entry]
    return found[-1] if found else None


def logged_batches(root: Path) -> list[Batch]:
    """Returns the batches that have a log, oldest first."""
    try:
        return [Batch(name) for name in sorted(os.listdir(root / MANIFEST)) if not name.startswith(".")]
    except FileNotFoundError:
        return []


def _written(record: Record) -> list[Any]:
    failures = [astuple(one) for one in record.failures]
    more = [failures, record.version] if record.version else [failures] if failures else []
    return [record.size, record.n_rows, record.digest, *more]


def _apply(found: Manifest, entry: Mapping[str, Any]) -> None:
    for table, (size, n_rows, digest, *more) in entry.get("put", {}).items():
        failures = tuple(Failure(*one) for one in (more[0] if more else ()))
        version = more[1] if len(more) > 1 else None
        found.records.setdefault(table, []).append(Record(size, n_rows, digest, failures, version))
    for table, digest in entry.get("done", {}).items():
        records = found.records.get(table, [])
        places = [i for i, record in enumerate(records) if record.digest == digest]
        if places:
            found.records[table] = records[places[-1] :]
            found.done.add(table)


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        return json.loads(line[9:]) if _is_whole(line) else None
    except ValueError:
        return None


def _is_whole(line: bytes) -> bool:
    return line[:9] == _checksum(line[9:])


def _checksum(text: bytes) -> bytes:
    return b"%08x " % zlib.crc32(text)


def _append(root: Path, batch: Batch, entry: Mapping[str, Any]) -> None:
    """Append a line, whole or not at all. The caller holds the lock.

    The log is replaced by a longer one, so that the time of the folder tells that a log has changed (looked.py).
    """
    text = json.dumps(entry, separators=(",", ":")).encode()
    path = path_of(root, batch)
    path.parent.mkdir(exist_ok=True)
    try:
        before = path.read_bytes()
    except FileNotFoundError:
        before = b""
    torn = b"\n" if before and not before.endswith(b"\n") else b""
    longer = path.with_name(f".{batch.batch_id.lstrip('.')}.next")
    try:
        with longer.open("wb") as file:
            file.write(before + torn + _checksum(text) + text + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(longer, path)
    except OSError:
        longer.unlink(missing_ok=True)
        raise
    flush_names(path.parent)


def flush_names(folder: Path) -> None:
    """Write a folder's names to the disk, so that they are as they are now after a power loss."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
