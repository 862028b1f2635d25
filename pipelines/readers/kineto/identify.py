"""Descriptions of files that are not profiler traces, for the user who supplied them."""

import os
import re
from pathlib import Path

from pipelines.base.paths import UnusablePath, local_path

_MAGIC = (
    (
        b"PAR1",
        "a Parquet file, not a trace: give a saved path to `tracelake critical-path` or `tracelake what-if`, and an op-level "
        "job trace (columns optype, dp_rank and stage) to `tracelake op-job`",
    ),
    (
        b"SQLite format 3",
        "an SQLite database: name an export of Nsight Systems *.sqlite, a database of rocprofv3 *.db; others are not read",
    ),
    (b"PK\x03\x04", "a zip archive: unpack it and give the .json files in it"),
    (b"\x28\xb5\x2f\xfd", "zstd data: decompress it with zstd -d first"),
    (b"\xfd7zXZ", "xz data: decompress it with xz -d first"),
    (b"BZh", "bzip2 data: decompress it with bunzip2 first"),
    (b"\xff\xfe", "UTF-16 text: convert it to UTF-8 first"),
    (b"\xfe\xff", "UTF-16 text: convert it to UTF-8 first"),
    *(
        (
            bytes((0x80, n)),
            "a Python pickle, not a trace: give a memory snapshot of PyTorch to `tracelake memory` or `tracelake ingest`",
        )
        for n in range(2, 6)
    ),
)


def identify_path(path: Path) -> str | None:
    """Return why a path cannot be read, or None for a regular file with content."""
    try:
        local_path(path)
    except UnusablePath as error:
        return str(error)
    if path.is_dir():
        try:
            os.scandir(path).close()
        except OSError as error:
            return f"the folder cannot be listed: {error.strerror}"
        return "a folder: give its trace files, or the folder to `tracelake ingest`"
    if not path.exists():
        return "there is no such file"
    if not path.is_file():
        return "not a regular file"
    return None if path.stat().st_size else "the file is empty: profile again or copy it again"


def identify_text(head: bytes, keys: list[str]) -> str | None:
    """Return a description of decompressed content, from its first bytes and its top-level keys."""
    for magic, meaning in _MAGIC:
        if head.startswith(magic):
            return meaning
    key_set = set(keys)
    if "nodes" in key_set or "schema" in key_set:
        return "an execution trace (PyTorch / Chakra: operators as nodes), not a timeline; give the matching profiler trace"
    if "entries" in key_set and "version" in key_set:
        return (
            "a Flight Recorder dump, not a profiler trace: give it to `tracelake flight-recorder` or `tracelake ingest`"
        )
    if "rocprofiler-sdk-tool" in key_set:
        return "rocprofv3's JSON: name it *results.json (compressed: *results.json.gz), as rocprofv3 does"
    if b"Counter_Value" in head or b'"Kernel Name"' in head:
        return (
            "hardware counters of kernels, without a timeline: give them to `tracelake ingest` and ask kernel_counters"
        )
    text = head.lstrip()
    if text[:1] in (b"{", b"["):
        if any("slowdown" in key or "dp_rank" in key or key.startswith(("M_", "result")) for key in key_set):
            return "a what-if result in JSON, not a profiler trace"
        return "JSON (a result or a configuration), but not a profiler trace"
    if text[:1] == b"<":
        return "HTML or XML (perhaps a download's error page), not a trace"
    if b"\0" in head[:4096]:
        return "binary data, not a trace"
    if re.match(rb"(?:---|#.*\n|[\w-]+:(?:\s|$))", text):
        return "YAML (a job's description), not a trace"
    return "plain text, not a trace" if text else "blank: the file contains no text"
