"""A batch's row in the catalog: what is known of its files, as text."""

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
        return bool(_INTERRUPTED.search(self.reason)) or 0 < memory_mib(self.reason) < _now()


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
    """What is known of a batch's files. `records`: by table, of those in place; `keys`: of its marks, with the paths that they
    came from, None: not recorded; `takes`: the batches that it takes the place of once its mark is in place.
    """

    batch: Batch
    records: dict[str, Record] = field(default_factory=dict)
    keys: dict[str, str | None] | None = None
    pending: dict[str, Record] = field(default_factory=dict)
    new_keys: dict[str, str | None] | None = None
    takes: list[str] = field(default_factory=list)


def memory_mib(reason: str) -> int:
    """Returns how many MiB were too few for a model; 0 where it failed for another reason."""
    limit = _MEMORY.search(reason)
    return int(limit[1]) if limit else 0


def merged_away(into: str) -> str:
    """Returns the notice of a batch whose traces are in another one."""
    return json.dumps({"traces": [], "hidden_at": None, "merged_into": into})


def _now() -> int:
    return int(database.for_models().removesuffix("MiB"))


def to_row(found: Manifest) -> tuple[str, str, str]:
    """Returns a row's brief, keys and told. A line of the brief each: tables and versions, sizes, failures, what is pending, the
    checksum of `told` (rows and digests), the time.
    """
    records = found.records
    kind = {"tables": list(records), "versions": {t: r.version for t, r in records.items() if r.version}}
    failed = {table: [astuple(one) for one in r.failures] for table, r in records.items() if r.failures}
    told = json.dumps([[r.n_rows, r.digest] for r in records.values()])
    files = {table: _written(record) for table, record in found.pending.items()}
    pending = json.dumps([files, found.new_keys, found.takes]) if files or found.takes else ""
    first = map(json.dumps, (kind, [r.size for r in records.values()], failed))
    lines = (*first, pending, str(zlib.crc32(told.encode())), str(time.time_ns()))
    return "\n".join(lines), json.dumps(found.keys), told


def from_row(batch: Batch, brief: str, keys: str, told: str) -> Manifest:
    """Returns what a row says; without `told`, digests and rows are not known."""
    kind, sizes, failed, pending, *_ = brief.split("\n")
    tables, of_failed = json.loads(kind), json.loads(failed)
    more = json.loads(told) if told else [[None, ""] for _ in tables["tables"]]
    records = {
        table: _record([size, *rows, of_failed.get(table, []), tables["versions"].get(table)])
        for table, size, rows in zip(tables["tables"], json.loads(sizes), more, strict=True)
    }
    files, new_keys, takes = json.loads(pending) if pending else ({}, None, [])
    return Manifest(batch, records, json.loads(keys), {t: _record(r) for t, r in files.items()}, new_keys, takes)


def _written(record: Record) -> list[Any]:
    return [record.size, record.n_rows, record.digest, [astuple(one) for one in record.failures], record.version]


def _record(told: list[Any]) -> Record:
    size, n_rows, digest, failures, version = told
    return Record(size, n_rows, digest, tuple(Failure(*one) for one in failures), version)
