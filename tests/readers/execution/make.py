"""Small execution traces in both of PyTorch's schemas; each tensor is named by a number."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Op:
    """A node of an execution trace.

    The tensors in `reads` and `makes` are ids; a pair (tensor, storage) is a view of other memory.
    """

    name: str
    reads: list[Any] = field(default_factory=list)
    makes: list[Any] = field(default_factory=list)
    inside: list[Op] = field(default_factory=list)
    tid: int = 1
    schema: str = ""
    rf_id: int = 0


def tensor(what: Any) -> list[Any]:
    """Return the observer's tuple: tensor, storage, offset, elements, bytes per element, device."""
    number, storage = what if isinstance(what, tuple) else (what, 1000 + what)
    return [number, storage, 0, 4, 4, "cpu"]


def write(path: Path, ops: list[Op], schema: str = "1.0.1") -> Path:
    """Write the nodes as the observer does: numbered by start, and ordered by end."""
    nodes: list[dict[str, Any]] = []
    ids: dict[int, int] = {}
    count = iter(range(1, 1 << 30))

    def visit(op: Op, parent: int) -> None:
        number, rf_id = (next(count) + 100, op.rf_id or next(count))
        for part in op.inside:
            visit(part, number)
        nodes.append(node(op, number, parent, rf_id))

    def node(op: Op, number: int, parent: int, rf_id: int) -> dict[str, Any]:
        reads, makes = [tensor(t) for t in op.reads], [tensor(t) for t in op.makes]
        types = [["Tensor(float)"] * len(side) for side in (reads, makes)]
        more = {"rf_id": rf_id, "tid": op.tid, "op_schema": op.schema, "fw_parent": 0, "seq_id": -1, "scope": 0}
        if schema == "1.0.1":
            sides = {"inputs": reads, "input_types": types[0], "outputs": makes, "output_types": types[1]}
            return {"name": op.name, "id": number, "parent": parent, **more, **sides}
        attrs = [{"name": key, "type": "x", "value": value} for key, value in more.items()]
        sides = {
            side: {"values": values, "types": kinds, "shapes": [], "strides": []}
            for side, values, kinds in (("inputs", reads, types[0]), ("outputs", makes, types[1]))
        }
        return {"id": number, "name": op.name, "ctrl_deps": parent, **sides, "attrs": attrs}

    for op in ops:
        if op.tid not in ids:
            ids[op.tid] = next(count) + 1
            thread = Op("[pytorch|profiler|execution_trace|thread]", tid=op.tid)
            nodes.append({**node(thread, ids[op.tid], 1, 0)})
        visit(op, ids[op.tid])
    path.write_text(json.dumps({"schema": schema, "pid": 100, "start_ts": 1, "nodes": nodes, "finish_ts": 2}))
    return path
