"""Size of each NCCL communicator and the process's rank in it, by process, from NCCL's NVTX ranges.

NCCL writes both as payloads of `ncclCommInitRank…` (nvtx_payload_schemas.h). An export contains payloads only if an
option requests them, as JSON (`nsys export --include-json true`) or as bytes plus a schema (`--include-blobs true`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pipelines.readers.nsys.schema import STRINGS, process_key
from pipelines.readers.sqlite_exports.open_export import Exported, column

_RANGES, _SCHEMAS, _ENTRIES = "NVTX_EVENTS", "NVTX_PAYLOAD_SCHEMAS", "NVTX_PAYLOAD_SCHEMA_ENTRIES"
_OPENING = "ncclCommInit"
_SIZE, _RANK = "No. of ranks", "Rank"
_FEW = 65_536  # rows; a process opens far fewer communicators
_INT = 4  # bytes of each of the two fields
_HEADER = 32  # bytes: domain, schema, size and offset of the payload, 8 bytes each
_SCHEMA = (_SIZE, _RANK)


def communicators(export: Exported, keys: Sequence[int]) -> dict[int, set[tuple[int, int]]]:
    """Return, by process, the (number of ranks, rank) of each communicator that it opened and the export describes."""
    pairs_by_process: dict[int, set[tuple[int, int]]] = {key: set() for key in keys}
    fields = _fields(export)
    for thread, text, blob in _opened(export):
        key = process_key(thread)
        if key in pairs_by_process and (pair := _of_json(text) or _of_bytes(blob, fields)):
            pairs_by_process[key].add(pair)
    return pairs_by_process


def _opened(export: Exported) -> Iterator[tuple[int, Any, Any]]:
    """Yield (thread, JSON, bytes) of the ranges that open communicators."""
    columns_present = export.columns(_RANGES)
    has_strings = {"id", "value"} <= export.columns(STRINGS)
    if not {"globalTid"} <= columns_present or not columns_present & {"jsonText", "jsonTextId", "binaryData"}:
        return
    with_json = [column("jsonText")] if "jsonText" in columns_present else []
    names = [column("text")] if "text" in columns_present else []
    if has_strings:
        value_query = f"(SELECT value FROM {column(STRINGS)} WHERE id = "
        with_json += [f"{value_query}{column('jsonTextId')})"] if "jsonTextId" in columns_present else []
        matching_ids = f"SELECT id FROM {column(STRINGS)} WHERE substr(value, 1, {len(_OPENING)}) = '{_OPENING}'"
        is_named = [f"{column('textId')} IN ({matching_ids})"] if "textId" in columns_present else []
    else:
        is_named = []
    is_named += [f"substr({name}, 1, {len(_OPENING)}) = '{_OPENING}'" for name in names]
    if not is_named:
        return
    text = f"coalesce({', '.join(with_json)}, NULL)" if with_json else "NULL"
    blob = column("binaryData") if "binaryData" in columns_present else "NULL"
    query = (
        f"SELECT {column('globalTid')}, {text}, {blob} FROM {column(_RANGES)} WHERE ({' OR '.join(is_named)}) "
        f"AND typeof({column('globalTid')}) = 'integer' LIMIT {_FEW}"
    )
    yield from export.rows(_RANGES, query)


def _of_json(text: object) -> tuple[int, int] | None:
    try:
        payload = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    # The payload may be nested under its name.
    while isinstance(payload, dict) and _SIZE not in payload and len(payload) == 1:
        (payload,) = payload.values()
    values = [payload.get(name) for name in _SCHEMA] if isinstance(payload, dict) else []
    integers = [
        int(value) for value in values if isinstance(value, int) or (isinstance(value, str) and value.isdigit())
    ]
    return (integers[0], integers[1]) if len(integers) == len(_SCHEMA) else None


def _fields(export: Exported) -> dict[tuple[int, int], list[int]]:
    """Return the offsets of both fields in a payload, in bytes, by (domain, schema)."""
    needed = {"domainId", "schemaId", "name", "offset"}
    if not needed <= export.columns(_ENTRIES):
        return {}
    query = f"SELECT domainId, schemaId, name, coalesce(offset, 0) FROM {column(_ENTRIES)} WHERE name IN ('{_SIZE}', '{_RANK}') LIMIT {_FEW}"
    offsets_by_schema: dict[tuple[int, int], dict[str, int]] = {}
    for domain, schema, name, offset in export.rows(_ENTRIES, query):
        if isinstance(offset, int) and 0 <= offset < 1 << 16:
            offsets_by_schema.setdefault((domain, schema), {})[name] = offset
    return {
        key: [offset_by_name[name] for name in _SCHEMA]
        for key, offset_by_name in offsets_by_schema.items()
        if len(offset_by_name) == len(_SCHEMA)
    }


def _of_bytes(blob: object, fields: dict[tuple[int, int], list[int]]) -> tuple[int, int] | None:
    if not isinstance(blob, bytes) or len(blob) < _HEADER:
        return None
    domain, schema, size, begin = (
        int.from_bytes(blob[offset : offset + 8], "little") for offset in range(0, _HEADER, 8)
    )
    field_offsets = fields.get((domain, schema), [])
    payload = blob[begin : begin + size] if begin >= _HEADER else b""
    if not field_offsets or any(offset + _INT > len(payload) for offset in field_offsets):
        return None
    n_ranks, rank = (int.from_bytes(payload[offset : offset + _INT], "little", signed=True) for offset in field_offsets)
    return n_ranks, rank
