"""Nodes of an execution trace. PyTorch's schemas are recognized by their fields and read into one form.

Schema 1.0.1 (before PyTorch 2.2) has `parent`, `rf_id`, `tid`, … next to `inputs` and `input_types`. The schemas
1.0.2-chakra.0.0.4 to 1.1.1-chakra.0.0.4 have `ctrl_deps`, `inputs: {values, shapes, types}`, and all other fields in
`attrs: [{name, type, value}]`.
Source: pytorch torch/csrc/profiler/standalone/execution_trace_observer.cpp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from pipelines.models.sqltext import as_text

PROCESS_AND_THREADS = "[pytorch|profiler|execution_"
"""Prefixes of the names of the nodes for the process and its threads, which are not operators."""


class Tensor(NamedTuple):
    """A tensor that an operator received or returned. Ids are the observer's. `storage_id` 0 means no memory."""

    position: int  # index of the argument or result, from 0
    tensor_id: int
    storage_id: int
    offset: int  # number of elements
    n_elements: int
    element_bytes: int
    device: str
    is_mutated: bool  # according to the operator's schema, it writes this argument in place


@dataclass(frozen=True, slots=True)
class Node:
    """An operator or annotation. `place`: its index in the file, to which nodes are written when they end."""

    node_id: int  # ascends in the order in which operators start
    parent_id: int
    place: int
    name: str
    rf_id: int
    fw_parent_id: int
    seq_id: int
    scope: int
    tid: int
    op_schema: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def is_operator(self) -> bool:
        """Whether the node is an operator or annotation, not a process or a thread."""
        return not self.name.startswith(PROCESS_AND_THREADS)


def parse_node(raw: dict[str, Any], place: int) -> Node:
    """Return one node of either schema. Raise ValueError with the missing or wrong field."""
    number = raw.get("id")
    if type(number) is not int or _number(number) != number:
        raise ValueError(f"node {place} has no id of 64 bits")
    attrs = raw.get("attrs")
    if isinstance(attrs, list):
        more = {a["name"]: a.get("value") for a in attrs if isinstance(a, dict) and isinstance(a.get("name"), str)}
        parent = raw.get("ctrl_deps")
        inputs, outputs = (_pairs(number, side, raw.get(side)) for side in ("inputs", "outputs"))
    elif "rf_id" in raw:
        more, parent = raw, raw.get("parent")
        inputs = _lists(number, "inputs", raw.get("inputs"), raw.get("input_types"))
        outputs = _lists(number, "outputs", raw.get("outputs"), raw.get("output_types"))
    else:
        raise ValueError(f"node {number} has neither rf_id nor attrs: its schema is unknown")
    schema = as_text(str(more.get("op_schema") or ""))
    return Node(
        node_id=number,
        parent_id=_number(parent),
        place=place,
        name=as_text(str(raw.get("name", ""))),
        rf_id=_number(more.get("rf_id")),
        fw_parent_id=_number(more.get("fw_parent")),
        seq_id=_number(more.get("seq_id"), -1),
        scope=_number(more.get("scope")),
        tid=_number(more.get("tid")),
        op_schema=schema,
        inputs=tuple(_tensors(*inputs, mutated_arguments(schema))),
        outputs=tuple(_tensors(*outputs, frozenset())),
    )


def _number(value: Any, missing: int = 0) -> int:
    """Return the value if it is an int64, else `missing`.

    Examples of other values are `true`, and the large unsigned number that results from casting -1.
    """
    return value if type(value) is int and -(2**63) <= value < 2**63 else missing


def _pairs(number: int, name: str, side: Any) -> tuple[list[Any], list[Any]]:
    if side and not isinstance(side, dict):
        raise ValueError(f"node {number}: {name} is not an object with values and types")
    return _lists(number, name, side.get("values"), side.get("types")) if side else ([], [])


def _lists(number: int, name: str, values: Any, types: Any) -> tuple[list[Any], list[Any]]:
    if not all(isinstance(items or [], list) for items in (values, types)):
        raise ValueError(f"node {number}: {name} or their types are not a list")
    return values or [], types or []


def _tensors(values: list[Any], types: list[Any], mutated: frozenset[int]) -> Iterator[Tensor]:
    for position, value in enumerate(values):
        # Other lists of numbers do not look like a tensor, but the type is checked first if it is recorded.
        if position >= len(types) or "Tensor" in str(types[position]):
            yield from _tensors_in(position, value, position in mutated)


def _tensors_in(position: int, value: Any, is_mutated: bool) -> Iterator[Tensor]:
    """Yield the tensors in a value: the value itself, or the tensors in a list or tuple."""
    if not isinstance(value, list):
        return
    if len(value) == 6 and isinstance(value[5], str) and all(type(part) is int for part in value[:5]):
        tensor, storage, offset, n_elements, element_bytes = (_number(part) for part in value[:5])
        yield Tensor(position, tensor, storage, offset, n_elements, element_bytes, as_text(value[5]), is_mutated)
        return
    for part in value:
        yield from _tensors_in(position, part, is_mutated)


@lru_cache(maxsize=4096)
def mutated_arguments(op_schema: str) -> frozenset[int]:
    """Return the positions (from 0) of the arguments that a schema marks as written.

    Example: `aten::add_(Tensor(a!) self, …) -> Tensor(a!)`.
    """
    depth, position, mutated = 0, 0, set()
    blank = True  # a lone * separates positional from keyword arguments and is not an argument
    for char in op_schema[op_schema.find("(") + 1 :] if "!" in op_schema else "":
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
            if depth < 0:
                break
        elif char == "!":
            mutated.add(position)
        if char == "," and not depth:
            position, blank = position + (not blank), True
        elif char not in " *":
            blank = False
    return frozenset(mutated)
