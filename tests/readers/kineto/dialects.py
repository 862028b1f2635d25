"""A trace in the spellings of other writers.

The writers are Cuspy (PyTorch's backend of late 2026), Kineto before 2022, and Kineto on XPU. Cuspy's spelling is that
of torch/profiler/_cuspy/trace.py and torch/profiler/_chrome_trace_export.py (pytorch 2.14).
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

Event = dict[str, Any]
LANE = 1 << 20
"""First lane to which `on_lanes` moves the work of graphs."""
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_OF_2021 = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "gpu_memset": "Memset", "cuda_runtime": "Runtime"}
_COPY = re.compile(r"Memcpy (\w+)(?: \(([\w ]+) -> ([\w ]+)\))?")
_SET = re.compile(r"Memset \(([\w ]+)\)")
_MEMORY = ("unknown", "pageable", "pinned", "device", "array", "managed", "device_static", "managed_static")


def document(path: Path) -> dict[str, Any]:
    """Return the trace in a file."""
    packed = path.read_bytes()
    return json.loads(gzip.decompress(packed) if path.suffix == ".gz" else packed)


def spelled(trace: dict[str, Any], change: Callable[[Event], None], every: int = 1) -> dict[str, Any]:
    """Return the trace with `change` applied to one in `every` of its GPU events and calls."""
    changed, n = deepcopy(trace), 0
    for event in changed["traceEvents"]:
        if event.get("ph") == "X" and (event.get("cat") in _ON_GPU or str(event.get("cat")).startswith("cuda_")):
            n += 1
            if n % every == 0:
                change(event)
    return changed


def as_cuspy(event: Event) -> None:
    """Describe copies and memsets in arguments, and remove External ids."""
    args = event["args"]
    args.pop("External id", None)
    if copy := _COPY.fullmatch(event["name"]):
        kind, source, target = copy.groups()
        args |= {"copy kind": 9 if kind == "HtoH" else kind, "flags": 0}
        args |= {"src kind": _memory(source), "dst kind": _memory(target)} if source else {}
        event["name"] = "Memcpy"
    elif fill := _SET.fullmatch(event["name"]):
        args |= {"memory kind": _MEMORY.index(_memory(fill[1])), "value": 0, "flags": 0}
        event["name"] = "Memset"


def _memory(kind: str) -> str:
    return kind.lower().replace(" ", "_")


def on_lanes(event: Event) -> None:
    """Move the work of a graph to the lane of its node."""
    args = event["args"]
    if event["cat"] in _ON_GPU and args.get("graph node id"):
        lane = LANE + args["graph node id"] % 3
        args |= {"original_stream": args["stream"], "stream": lane}
        event["tid"] = lane


def as_of_2021(event: Event) -> None:
    """Rename the category to its name in Kineto before 2022."""
    event["cat"] = _OF_2021[event["cat"]]


def on_queues(event: Event) -> None:
    """Replace the stream with a queue, except for the work of a graph."""
    args = event["args"]
    if event["cat"] in _ON_GPU and not args.get("graph node id"):
        args["sycl queue"] = args.pop("stream")
