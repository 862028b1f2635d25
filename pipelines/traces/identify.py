"""What a file is when it is no profiler trace, so that its rejection says something useful."""

from __future__ import annotations

import json
from pathlib import Path

_BY_BYTES = (
    (b"PAR1", "a Parquet file"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed: unpack it first"),
    (b"BZh", "bzip2-compressed: unpack it first"),
    (b"\xfd7zXZ", "xz-compressed: unpack it first"),
    (b"SQLite format 3", "an SQLite database (an nsys export?)"),
    (b"\x89PNG", "a picture"),
    (b"%PDF", "a PDF"),
)
_LIMIT = 64 << 20


def identify(path: Path, head: bytes) -> str:
    """One phrase for a file whose unpacked text begins with `head`."""
    for magic, what in _BY_BYTES:
        if head.startswith(magic):
            return f"it is {what}"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text:
        return "the file is empty"
    if text[:1] in b"{[":
        return _identify_json(text)
    if text[:1] == b"<":
        return "it is HTML or XML"
    if path.suffix in (".yaml", ".yml"):
        return "it is YAML"
    if b"\0" in text[:4096]:
        return "it is binary"
    return "it is text, not JSON"


def _identify_json(text: bytes) -> str:
    try:
        value, _ = json.JSONDecoder(strict=False).raw_decode(text[:_LIMIT].decode("utf-8", "replace"))
    except ValueError:
        return "it is JSON without a readable key traceEvents"
    if not isinstance(value, dict):
        return "it is a JSON array whose elements are no events"
    keys = set(value)
    if {"schema", "nodes"} <= keys:
        return f"it is a PyTorch execution trace ({value['schema']}), not a profiler trace"
    if {"tori", "tideal"} <= keys or "job_meta" in keys:
        return "it is the result of a straggler analysis"
    if {"pg_config", "entries"} & keys:
        return "it is a Flight Recorder dump"
    return f"it is JSON without traceEvents; its keys are {', '.join(sorted(keys)[:6])}"
