"""Provenance as torch 2.13 writes it.

`torch_2_13_cpu.log` is a shortened real log of a two-layer network on CPU, forward and backward; the other logs are
hand-made. A graph is {kernel: {node: [nodes before]}}, and a kernel's key is its name and its number in the graph.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

GENUINE = Path(__file__).with_name("torch_2_13_cpu.log")
MAPPINGS = "inductor_provenance_tracking_node_mappings"
STACKS = "inductor_provenance_tracking_kernel_stack_traces"
Nodes = Mapping[str, Mapping[str, list[str]]]


def mapping(graph: Nodes, **more: Any) -> dict[str, Any]:
    """Return Inductor's node mappings of a graph."""
    to_pre = {node: before for nodes in graph.values() for node, before in nodes.items() if before}
    return {"postToPre": to_pre, "cppCodeToPost": {key: list(nodes) for key, nodes in graph.items()}, **more}


def stack(*lines: tuple[str, int, str]) -> str:
    """Return a stack as Python prints it, innermost frame last."""
    return "".join(
        f'  File "{file}", line {line}, in {function}\n    x = 1\n      ^\n' for file, line, function in lines
    )


def head(metadata: dict[str, Any], pid: int = 41, rank: int | None = None) -> str:
    """Return a line of the log."""
    fields = metadata if rank is None else metadata | {"rank": rank}
    return f"V1123 14:25:29.066000 {pid} torch/_inductor/compile_fx.py:1624] {json.dumps(fields)}"


def artifact(name: str, payload: Any, number: int = 0, **of: Any) -> list[str]:
    """Return the lines of an artifact, with its payload. `number` is the number of its compilation."""
    ids = {"frame_id": number, "frame_compile_id": 0, "attempt": 0}
    metadata = {
        "artifact": {"name": name, "encoding": "json"},
        **ids,
        "has_payload": "09dbb16fab3866ef2fcb70ea4c21fdb9",
    }
    return [head(metadata, **of), "\t" + json.dumps(payload)]


def graph_lines(graph: Nodes, stacks: Mapping[str, list[str]] | None = None, number: int = 0, **of: Any) -> list[str]:
    """Return the lines of a graph."""
    lines = artifact(MAPPINGS, mapping(graph, version=2.0), number, **of)
    return lines if stacks is None else lines + artifact(STACKS, stacks, number, **of)


def written(path: Path, lines: Iterable[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def folder_file(folder: Path, graph: Nodes, pid: int | None = 41, name: str = MAPPINGS) -> Path:
    """Write the file of a debug folder below `folder`."""
    run = "run" if pid is None else f"run_2026_11_23_14_25_29_077668-pid_{pid}"
    inside = folder / "torch_compile_debug" / run / "torchinductor" / "model__0_forward_1.0"
    return written(inside / f"{name}.json", [json.dumps(mapping(graph))])
