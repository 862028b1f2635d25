"""What NCCL's NVTX ranges say of communicators: size and rank in it, by process.

nccl writes them as payloads of `ncclCommInitRank…` (nvtx_payload_schemas.h). An export has these only where it was asked for
them: as JSON (`nsys export --include-json true`) or as bytes with the schema beside them (`--include-blobs true`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pipelines.readers.nsys.schema import STRINGS, process_key
from pipelines.readers.sqlite_exports.opened import Exported, column

_RANGES, _SCHEMAS, _ENTRIES = "NVTX_EVENTS", "NVTX_PAYLOAD_SCHEMAS", "NVTX_PAYLOAD_SCHEMA_ENTRIES"
_OPENING = "ncclCommInit"
_SIZE, _RANK = "No. of ranks", "Rank"
_FEW = 65_536  # a process opens some communicators
_INT = 4  # bytes of both fields
_HEADER = 32  # domain, schema, size and offset of what follows, 8 bytes each
_SCHEMA = (_SIZE, _RANK)


def communicators(export: Exported, keys: Sequence[int]) -> dict[int, set[tuple[int, int]]]:
    """Returns (number of ranks, rank) of each communicator that these processes opened, as far as the export tells."""
    found: dict[int, set[tuple[int, int]]] = {key: set() for key in keys}
    fields = _fields(export)
    for thread, text, blob in _opened(export):
        key = process_key(thread)
        if key in found and (pair := _of_json(text) or _of_bytes(blob, fields)):
            found[key].add(pair)
    return found


def _opened(export: Exported) -> Iterator[tuple[int, Any, Any]]:
    """The ranges that open communicators: their thread, JSON and bytes."""
    there = export.columns(_RANGES)
    strings = {"id", "value"} <= export.columns(STRINGS)
    if not {"globalTid"} <= there or not there & {"jsonText", "jsonTextId", "binaryData"}:
        return
    with_json = [column("jsonText")] if "jsonText" in there else []
    names = [column("text")] if "text" in there else []
    if strings:
        value = f"(SELECT value FROM {column(STRINGS)} WHERE id = "
        with_json += [f"{value}{column('jsonTextId')})"] if "jsonTextId" in there else []
        begin = f"SELECT id FROM {column(STRINGS)} WHERE substr(value, 1, {len(_OPENING)}) = '{_OPENING}'"
        is_named = [f"{column('textId')} IN ({begin})"] if "textId" in there else []
    else:
        is_named = []
    is_named += [f"substr({name}, 1, {len(_OPENING)}) = '{_OPENING}'" for name in names]
    if not is_named:
        return
    text = f"coalesce({', '.join(with_json)}, NULL)" if with_json else "NULL"
    blob = column("binaryData") if "binaryData" in there else "NULL"
    query = (
        f"SELECT {column('globalTid')}, {text}, {blob} FROM {column(_RANGES)} WHERE ({' OR '.join(is_named)}) "
        f"AND typeof({column('globalTid')}) = 'integer' LIMIT {_FEW}"
    )
    yield from export.rows(_RANGES, query)


def _of_json(text: object) -> tuple[int, int] | None:
    try:
        said = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    while isinstance(said, dict) and _SIZE not in said and len(said) == 1:  # under a name of the payload
        (said,) = said.values()
    values = [said.get(name) for name in _SCHEMA] if isinstance(said, dict) else []
    whole = [int(value) for value in values if isinstance(value, int) or (isinstance(value, str) and value.isdigit())]
    return (whole[0], whole[1]) if len(whole) == len(_SCHEMA) else None


def _fields(export: Exported) -> dict[tuple[int, int], list[int]]:
    """Where both fields lie in a payload, by its domain and schema."""
    needed = {"domainId", "schemaId", "name", "offset"}
    if not needed <= export.columns(_ENTRIES):
        return {}
    query = f"SELECT domainId, schemaId, name, coalesce(offset, 0) FROM {column(_ENTRIES)} WHERE name IN ('{_SIZE}', '{_RANK}') LIMIT {_FEW}"
    places: dict[tuple[int, int], dict[str, int]] = {}
    for domain, schema, name, offset in export.rows(_ENTRIES, query):
        if isinstance(offset, int) and 0 <= offset < 1 << 16:
            places.setdefault((domain, schema), {})[name] = offset
    return {key: [of[name] for name in _SCHEMA] for key, of in places.items() if len(of) == len(_SCHEMA)}


def _of_bytes(blob: object, fields: dict[tuple[int, int], list[int]]) -> tuple[int, int] | None:
    if not isinstance(blob, bytes) or len(blob) < _HEADER:
        return None
    domain, schema, size, begin = (int.from_bytes(blob[at : at + 8], "little") for at in range(0, _HEADER, 8))
    offsets = fields.get((domain, schema), [])
    payload = blob[begin : begin + size] if begin >= _HEADER else b""
    if not offsets or any(at + _INT > len(payload) for at in offsets):
        return None
    ranks, rank = (int.from_bytes(payload[at : at + _INT], "little", signed=True) for at in offsets)
    return ranks, rank
