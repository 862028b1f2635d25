"""Ingestion of logs of the NCCL Inspector. Each file is a separate set.

A log that has grown replaces its earlier version.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path

import pyarrow as pa

from pipelines.readers.inputs import Read, Reading, Rejected, SetInput
from pipelines.readers.inputs.lines import lines
from pipelines.readers.inputs.row_files import RowFiles
from pipelines.readers.kineto.source import Source, head_of
from pipelines.readers.nccl_inspector.records import Records

TABLE, COLLECTIVES, FINDINGS = "inspector_logs", "inspector_collectives", "inspector_findings"
_HEAD = 4096
_KEYS = (b'"inspector_output_format_version"', b'"header"')
_WHOLE, _TEXT, _REAL = pa.int64(), pa.string(), pa.float64()
COLUMNS = {
    COLLECTIVES: {
        **{"line": _WHOLE, "communicator_id": _TEXT, "communicator_name": _TEXT, "rank": _WHOLE, "n_ranks": _WHOLE},
        **{"n_nodes": _WHOLE, "kind": _TEXT, "name": _TEXT, "seq": _WHOLE, "peer": _WHOLE, "algorithm": _TEXT},
        **{"protocol": _TEXT, "size_bytes": _WHOLE, "duration_ns": _WHOLE, "timing_source": _TEXT},
        **{
            "algorithm_gigabytes_per_s": _REAL,
            "bus_gigabytes_per_s": _REAL,
            "dumped_ns": _WHOLE,
            "enqueued_ns": _WHOLE,
        },
    }
}


def logs(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """Return the files that begin like logs of the Inspector, each as its own set."""
    return {path: [path] for path in files if is_log(path)}


def is_log(path: Path) -> bool:
    """Return whether a file begins like a log of the Inspector, with a JSON object that has its keys."""
    head = head_of(path)[:_HEAD]
    return head.lstrip()[:1] == b"{" and all(key in head for key in _KEYS)


def read_log(reading: Reading, path: Path, _: Collection[Path]) -> Read:
    """Stage the tables of one log.

    Raise Rejected if the log has no complete line, or the log or a line is too large.
    """
    source, records, first_line = Source(path, limits=reading.limits), Records(), b""
    with tempfile.TemporaryDirectory() as folder:
        with RowFiles(Path(folder), COLUMNS) as files:
            is_cut = False
            for line, is_whole in lines(source, "a log of the NCCL Inspector"):
                is_cut = not is_whole
                if is_whole and line.strip():
                    first_line = first_line or line
                    if row := records.row(line):
                        files.add(COLLECTIVES, row)
            records.finish(is_cut)
        if not first_line:
            advice = f"copy it again ({source.damage})" if source.damage else "ingest it again when it has grown"
            raise Rejected(f"a log of the NCCL Inspector without a whole line; {advice}")
        log_id = hashlib.sha256(first_line).hexdigest()[:16]
        n_rows = files.count(COLLECTIVES)
        if (ingested_bytes := reading.known.get(log_id)) is not None and ingested_bytes >= source.unpacked_bytes:
            return Read(log_id, status="known")
        reading.add_files(COLLECTIVES, files.paths(COLLECTIVES))
    n_bad = records.faults.n_warnings
    if source.damage:
        records.faults.add("damaged", "warning", source.damage)
    reading.add_rows(FINDINGS, records.faults.rows())
    row = {
        **reading.file_columns(path),
        "host": records.host,
        "pid": records.pid,
        "version": records.version,
        "n_lines": records.n_lines,
        "n_collectives": n_rows,
        "n_dropped": records.n_dropped,
        "unpacked_bytes": source.unpacked_bytes,
    }
    reading.add_rows(TABLE, [row])
    reason = f"{n_bad:,} lines could not be read or are missing: inspector_findings" if n_bad else source.damage
    return Read(log_id, n_rows, "partial" if reason else "ok", reason, source.unpacked_bytes)


INPUT = SetInput(
    scope="inspector",
    suffixes=(".log", ".json", ".jsonl", ".gz"),
    recognise=logs,
    read=read_log,
    state=lambda row: row["unpacked_bytes"],
    is_news=lambda stored_bytes, read_bytes: read_bytes > stored_bytes,
)
