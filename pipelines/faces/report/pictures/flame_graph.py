"""Draws sampled stacks as a flame graph, the root on top: how often each function was seen, nested in its callers."""

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
    """A stack: the thread's name, frames ("function (file:line)", outermost first), and its weight (samples, or ns)."""

    thread: str | None
    frames: Sequence[str]
    weight: int


@dataclass
class _Node:
    weight: int = 0
    own: int = 0
    inside: dict[str, _Node] = field(default_factory=dict)


def flame(title: str, stacks: Iterable[Seen], unit: str) -> str:
    """Returns SVG of the stacks, with one box per thread around its stacks. `unit`: of the weights, for people.

    Lines of one function are merged; its box is darker the more of its weight is its own and not its callees'. Raises
    ValueError if no stack has a weight.
    """
    root = _Node()
    for seen in stacks:
        if seen.weight > 0:
            node = root
            node.weight += seen.weight
            for name in (f"thread {seen.thread or '(of C code)'}", *(_LINE.sub(")", frame) for frame in seen.frames)):
                node = node.inside.setdefault(name, _Node())
                node.weight += seen.weight
            node.own += seen.weight
    if not root.weight:
        raise WrongValue(f"no stack has any {unit}: nothing to draw")
    boxes: list[dict] = []
    todo: list[tuple[str, _Node, int, int | None]] = [("all", root, 0, None)]
    while todo:
        name, node, start, parent = todo.pop()
        share = f"{100 * node.weight / root.weight:.1f} %"
        said = f"{name}: {node.weight:,} {unit}, {share}; {node.own:,} of them its own"
        boxes.append(
            {
                "span_id": len(boxes), "parent_id": parent, "name": name, "start_ns": start, "end_ns": start + node.weight,
                "own": node.own / node.weight, "says": said,
            }
        )  # fmt: skip
        at, number = start, len(boxes) - 1
        for inner, of in sorted(node.inside.items(), key=lambda item: (-item[1].weight, item[0])):
            todo.append((inner, of, at, number))
            at += of.weight
    return layers(
        title, boxes, "own", 0, root.weight, "share of its samples in its own code, not in what it calls", "share",
        box="a function", length=f"{root.weight:,} {unit}", unknown=None,
    )  # fmt: skip


def folded(stacks: Iterable[Seen]) -> str:
    """Returns the stacks as lines `thread;outer;inner weight`, the folded format that other flame graph tools read."""
    lines: dict[str, int] = {}
    for seen in stacks:
        names = (seen.thread or "(of C code)", *seen.frames)
        line = ";".join(visible(name).replace(";", ",") for name in names)
        lines[line] = lines.get(line, 0) + seen.weight
    return "".join(f"{line} {weight}\n" for line, weight in sorted(lines.items()) if weight > 0)


def frames_of(text: str) -> list[str]:
    """Returns the frames of a row of `stack_samples`."""
    return json.loads(text)
