"""Kernels of a compiled graph, each with the graph nodes and source lines from which it was generated.

Source: torch/_inductor/debug.py (`dump_inductor_provenance_info`, `set_kernel_post_grad_provenance_tracing`) of torch
2.13, node mappings of version 2.0, and https://docs.pytorch.org/docs/main/torch.compiler_inductor_provenance.html.
`cppCodeToPost` has the kernels of all languages. A key is the kernel's name, a colon and the number of its call in the
graph.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipelines.models.sqltext import as_text

NEWEST = 2.0  # version of the node mappings; files of debug folders have none
LONGEST_NAME = 4096  # characters; Inductor cuts kernel names to far fewer
_HANDLE = re.compile(r"(.+):(0|[1-9][0-9]{0,8})", re.DOTALL)
_NUMBER = re.compile(r"(?<=.)_\d+$")
_FRAME = re.compile(r'^  File "(.*)", line (\d{1,9}), in (.*)$')
_CODE = re.compile(r"^ {4}(?=\S)")


class WrongForm(ValueError):
    """Content that Inductor does not write. The message names the location."""


@dataclass(frozen=True)
class Frame:
    """A line of a source file outside of torch."""

    file: str
    line: int
    function: str
    code: str | None


@dataclass(frozen=True)
class Kernel:
    """A call of a kernel.

    `post_nodes`: its nodes after the graph passes, each with the original nodes before the passes. `is_mapped`: whether
    the mapping contains the kernel, possibly without nodes. `stacks`: innermost frame last, None if the kernel has no
    stack traces.
    """

    name: str
    handle: int | None
    is_mapped: bool
    post_nodes: dict[str, list[str]]
    stacks: list[list[Frame]] | None


@dataclass
class Graph:
    """A compiled graph. `mapping`, `stacks`: parsed JSON of the artifact, None if the artifact is missing."""

    compile_id: str | None = None
    mapping: dict[str, Any] | None = None
    stacks: dict[str, Any] | None = None

    @property
    def key(self) -> str:
        """Hash of the kernels and nodes, 16 hex digits. It does not depend on the kind of file."""
        mapping = self.mapping or {}
        content: Any = [mapping.get("cppCodeToPost") or {}, mapping.get("postToPre") or {}]
        if not content[0]:
            content = sorted(self.stacks or {})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def kernels(self) -> Iterator[Kernel]:
        """Yield the kernels. Raise WrongForm if the content does not have Inductor's format."""
        mapping = self.mapping or {}
        version = mapping.get("version", NEWEST)
        if not isinstance(version, int | float) or not version <= NEWEST:
            raise WrongForm(f"version {as_text(str(version))[:40]} of the node mappings is unknown, only {NEWEST}")
        to_post = _table(mapping, "cppCodeToPost")
        to_pre = _table(mapping, "postToPre")
        pre_nodes_by_node: dict[str, list[str]] = {}  # shared, because many kernels may name a node with a long list
        keys: dict[str, None] = dict.fromkeys([*to_post, *(self.stacks or {})])
        for key in keys:
            match = _HANDLE.fullmatch(_name(key, "a kernel"))
            name, handle = (match[1], int(match[2])) if match else (key, None)
            nodes = {}
            for node in _names(to_post.get(key, []), "cppCodeToPost", key):
                if node not in pre_nodes_by_node:
                    pre_nodes_by_node[node] = _names(to_pre.get(node, []), "postToPre", node)
                nodes[as_text(node)] = pre_nodes_by_node[node]
            stacks = None
            if self.stacks is not None and key in self.stacks:
                stacks = [_frames(text) for text in _texts(self.stacks[key], "the stack traces", key)]
            yield Kernel(as_text(name), handle, key in to_post, nodes, stacks)


def operator_of(node: str) -> str:
    """Return the operator after which a node is named: `addmm_1` → addmm, `convolution_default` → convolution."""
    return _NUMBER.sub("", node).removesuffix("_default")


def _table(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    value = mapping.get(key, {})
    if not isinstance(value, dict):
        raise WrongForm(f"{key} is a {type(value).__name__}, not names by name")
    return value


def _texts(value: Any, table: str, key: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise WrongForm(f"{table} of {as_text(key)[:80]} are not a list of texts")
    return value


def _names(value: Any, table: str, key: str) -> list[str]:
    unique_names: dict[str, None] = dict.fromkeys(_texts(value, table, key))
    return [_name(name, "a node") for name in unique_names]


def _name(value: str, kind: str) -> str:
    if not 0 < len(value) <= LONGEST_NAME:
        raise WrongForm(f"the name of {kind} has {len(value):,} characters, not 1 to {LONGEST_NAME:,}")
    return value


def _frames(text: str) -> list[Frame]:
    """Parse the frames of a stack that Python prints: a line with the location, then a line with the code if known."""
    frames, lines = [], text.split("\n")
    for line, next_line in zip(lines, [*lines[1:], ""], strict=True):
        if match := _FRAME.match(line):
            code = as_text(next_line.strip())[:LONGEST_NAME] if _CODE.match(next_line) else None
            file, function = (as_text(match[group])[:LONGEST_NAME] for group in (1, 3))
            frames.append(Frame(file, int(match[2]), function, code))
    return frames
