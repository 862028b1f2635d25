"""A batch's row in the catalog, which contains the records of its files as text."""

from __future__ import annotations

import json
import re
import time
import zlib
from dataclasses import astuple, dataclass, field
from typing import Any

from pipelines.base import database
from pipelines.lake.names import Batch

LEFT_OUT, OPTIMIZER_OFF = "left_out", "optimizer_off"
_INTERRUPTED = re.compile("^(RuntimeError: Query interrupted|InterruptException: )|failed to offload data block")
_MEMORY = re.compile(r"needs more memory than the ([0-9]+)MiB")


@dataclass(frozen=True)
class Failure:
    """A failure on a trace of a model that a table needs, and the outcome for the table.

    `outcome`: `LEFT_OUT` if the table does not contain the trace. `OPTIMIZER_OFF` if the table is complete, because the
    model succeeded with DuckDB's optimizer off. `trace_id`: None for models of captures, which are computed together.
    """

    trace_id: str | None
    model: str
    reason: str
    outcome: str = LEFT_OUT

    @property
    def is_no_fault_of_data(self) -> bool:
        """Return whether the model may succeed when it is rerun.

        This is true if the model was interrupted, the disk was full, or the model had less memory than is available
        now. Older versions of tracelake and small machines wrote such rows.
        """
        return bool(_INTERRUPTED.search(self.reason)) or 0 < memory_mib(self.reason) < _now()


@dataclass(frozen=True)
class Record:
    """The record of a table's file in a batch, as written.

    `n_rows`: None if not counted. `version`: the version of the table's model, None if unknown.
    """

    size: int
    n_rows: int | None
    digest: str
    failures: tuple[Failure, ...] = ()
    version: str | None = None


@dataclass
class Manifest:
    """The records of a batch's files.

    `records`: the records of the committed files, by table. `keys`: the keys of its marker tables with the paths of
    their source files, None if not recorded. `pending` and `new_keys`: the same for announced files. `takes`: the ids
    of the batches that this batch replaces when its marker is committed.
    """

    batch: Batch
    records: dict[str, Record] = field(default_factory=dict)
    keys: dict[str, str | None] | None = None
    pending: dict[str, Record] = field(default_factory=dict)
    new_keys: dict[str, str | None] | None = None
    takes: list[str] = field(default_factory=list)


def memory_mib(reason: str) -> int:
    """Return the memory limit in MiB that was too low for a model, or 0 if the reason is a different one."""
    limit = _MEMORY.search(reason)
    return int(limit[1]) if limit else 0


def merged_away(into: str) -> str:
    """Return the notice of a batch whose traces were merged into batch `into`, as JSON."""
    return json.dumps({"traces": [], "hidden_at": None, "merged_into": into})


def _now() -> int:
    return int(database.for_models().removesuffix("MiB"))


def to_row(manifest: Manifest) -> tuple[str, str, str]:
    """Return the brief, keys and detail of a batch's catalog row.

    The brief has one line each for tables and versions, sizes, failures, pending files, the checksum of the detail, and
    the time (ns since the epoch). The detail contains the row counts and digests.
    """
    records = manifest.records
    kind = {"tables": list(records), "versions": {t: r.version for t, r in records.items() if r.version}}
    failed = {table: [astuple(failure) for failure in r.failures] for table, r in records.items() if r.failures}
    detail = json.dumps([[r.n_rows, r.digest] for r in records.values()])
    files = {table: _written(record) for table, record in manifest.pending.items()}
    pending = json.dumps([files, manifest.new_keys, manifest.takes]) if files or manifest.takes else ""
    first = map(json.dumps, (kind, [r.size for r in records.values()], failed))
    lines = (*first, pending, str(zlib.crc32(detail.encode())), str(time.time_ns()))
    return "\n".join(lines), json.dumps(manifest.keys), detail


def from_row(batch: Batch, brief: str, keys: str, detail: str) -> Manifest:
    """Return the manifest that a catalog row contains. Without `detail`, digests are empty and row counts None."""
    kind, sizes, failed, pending, *_ = brief.split("\n")
    tables, failures_by_table = json.loads(kind), json.loads(failed)
    rows_and_digests = json.loads(detail) if detail else [[None, ""] for _ in tables["tables"]]
    records = {
        table: _record([size, *rows, failures_by_table.get(table, []), tables["versions"].get(table)])
        for table, size, rows in zip(tables["tables"], json.loads(sizes), rows_and_digests, strict=True)
    }
    files, new_keys, takes = json.loads(pending) if pending else ({}, None, [])
    return Manifest(batch, records, json.loads(keys), {t: _record(r) for t, r in files.items()}, new_keys, takes)


def _written(record: Record) -> list[Any]:
    return [
        record.size,
        record.n_rows,
        record.digest,
        [astuple(failure) for failure in record.failures],
        record.version,
    ]


def _record(fields: list[Any]) -> Record:
    size, n_rows, digest, failures, version = fields
    return Record(size, n_rows, digest, tuple(Failure(*values) for values in failures), version)
