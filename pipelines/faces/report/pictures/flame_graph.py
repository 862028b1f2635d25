"""Flame graph of sampled stacks, the root on top: each function's weight, nested in its callers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pipelines.base.errors import WrongValue
from pipelines.base.foreign_text import visible
from pipelines.faces.report.pictures.layers import layers

_LINE = re.compile(r":\d+\)$")


@dataclass(frozen=True)
class Seen:
    """A sampled stack: thread name, frames ("function (file:line)", outermost first) and weight (samples or ns)."""

    thread: str | None
    frames: Sequence[str]
    weight: int


@dataclass
class _Node:
    weight: int = 0
    own: int = 0
    inside: dict[str, _Node] = field(default_factory=dict)


def flame(title: str, stacks: Iterable[Seen], unit: str) -> str:
    """Return SVG of the stacks, with one box per thread around its stacks. `unit`: name of the weights' unit in texts.

    The lines of a function are merged. The larger the self weight of a function (without its callees), the darker its
    box. Raise WrongValue if no stack has a positive weight.
    """
    root = _Node()
    for stack in stacks:
        if stack.weight > 0:
            node = root
            node.weight += stack.weight
            for name in (f"thread {stack.thread or '(of C code)'}", *(_LINE.sub(")", frame) for frame in stack.frames)):
                node = node.inside.setdefault(name, _Node())
                node.weight += stack.weight
            node.own += stack.weight
    if not root.weight:
        raise WrongValue(f"no stack has any {unit}: nothing to draw")
    boxes: list[dict] = []
    todo: list[tuple[str, _Node, int, int | None]] = [("all", root, 0, None)]
    while todo:
        name, node, start, parent = todo.pop()
        share = f"{100 * node.weight / root.weight:.1f} %"
        text = f"{name}: {node.weight:,} {unit}, {share}; {node.own:,} of them its own"
        boxes.append(
            {
                "span_id": len(boxes), "parent_id": parent, "name": name, "start_ns": start, "end_ns": start + node.weight,
                "own": node.own / node.weight, "says": text,
            }
        )  # fmt: skip
        position, number = start, len(boxes) - 1
        for inner, child in sorted(node.inside.items(), key=lambda item: (-item[1].weight, item[0])):
            todo.append((inner, child, position, number))
            position += child.weight
    return layers(
        title, boxes, "own", 0, root.weight, "share of its samples in its own code, not in what it calls", "share",
        box="a function", length=f"{root.weight:,} {unit}", unknown=None,
    )  # fmt: skip


def folded(stacks: Iterable[Seen]) -> str:
    """Return the stacks as lines `thread;outer;inner weight`, the folded format of other flame graph tools."""
    lines: dict[str, int] = {}
    for stack in stacks:
        names = (stack.thread or "(of C code)", *stack.frames)
        line = ";".join(visible(name).replace(";", ",") for name in names)
        lines[line] = lines.get(line, 0) + stack.weight
    return "".join(f"{line} {weight}\n" for line, weight in sorted(lines.items()) if weight > 0)


def frames_of(text: str) -> list[str]:
    """Return the frames of a row of `stack_samples`."""
    return json.loads(text)
