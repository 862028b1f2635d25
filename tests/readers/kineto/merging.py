"""The file that SGLang's ProfileMerger writes for the traces of several ranks.

The source is python/sglang/srt/utils/profile_merger.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

Trace = dict[str, Any]


def merged(traces: Mapping[str, Trace]) -> Trace:
    """Return the merged trace of all ranks, by label (TP00, TP01-PP00), in merge order."""
    whole: Trace = {"traceEvents": []}
    devices: list[Any] = []
    for label, trace in traces.items():
        own = deepcopy(trace)
        for event in own.pop("traceEvents"):
            event["pid"] = f"[{label}] {event['pid']}"
            whole["traceEvents"].append(event)
        devices += own.pop("deviceProperties", [])
        whole = {**own, **whole}
    return {"traceEvents": whole.pop("traceEvents"), **whole, **({"deviceProperties": devices} if devices else {})}
