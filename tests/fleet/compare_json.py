"""Numbers of a comparison of real traces, counted from their JSON."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any


def json_of(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    read = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw, strict=False)
    return read if isinstance(read, list) else read["traceEvents"]


GPU = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")


CPU = ("cpu_op", "operator", "cuda_runtime", "runtime", "cuda_driver", "hip_runtime")


def cat(event: dict[str, Any]) -> str:
    return str(event.get("cat", "")).lower()


def all_gpu_us(path: Path) -> float:
    return sum(e["dur"] for e in json_of(path) if e.get("ph") == "X" and cat(e) in GPU and "dur" in e)


def traces_in(shared: Path) -> list[Path]:
    paths = [
        path
        for folder in ("critical_path", "single", "ranks", "dialects")
        for path in (shared / "traces" / folder).rglob("*.json*")
    ]
    return sorted(path for path in paths if "execution_trace" not in path.name)


def launches_of(events: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """Return the launch calls by the correlation id that links them to their work."""
    return {e["args"]["correlation"]: e for e in events if cat(e) in CPU and "correlation" in e.get("args", {})}


def from_before(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return GPU work from before the trace: it has no launch, and precedes all work with a launch on its stream."""
    launches, first = launches_of(events), {}
    work = [e for e in events if cat(e) in GPU]
    streams = [(e["pid"], e["tid"]) for e in work]
    for event, stream in zip(work, streams, strict=True):
        if event["args"].get("correlation") in launches:
            first[stream] = min(first.get(stream, event["ts"]), event["ts"])
    return [
        event
        for event, stream in zip(work, streams, strict=True)
        if event["args"].get("correlation") not in launches and event["ts"] < first.get(stream, event["ts"])
    ]


RULED = Path(__file__).parents[2] / "sql" / "rules" / "operators" / "op_kinds.csv"


def modelled() -> dict[str, bool]:
    """Return, for each operator with a formula, whether it owns the work that is launched below it."""
    lines = [line for line in RULED.read_text().splitlines() if not line.startswith("#")]
    return {row["op"]: row["owns_below"] == "true" for row in csv.DictReader(lines)}


def launched_by_hand(path: Path, first_step: int | None) -> dict[str, list[float]]:
    """Return the number and the us of GPU activities by their operator, in one step or in the whole trace.

    The operator is the outermost operator around the launch that owns all work below it. Otherwise it is the innermost
    with a formula, otherwise the innermost.
    """
    events = [e for e in json_of(path) if e.get("ph") == "X" and "dur" in e]
    window = (-float("inf"), float("inf"))
    for event in events:
        if event["name"] == f"ProfilerStep#{first_step}" and cat(event) == "user_annotation":
            window = (event["ts"], event["ts"] + event["dur"])
    launches = launches_of(events)
    earlier = {id(event) for event in from_before(events)} if first_step else set()
    rules, work_by_operator = modelled(), defaultdict(lambda: [0, 0.0])
    threads = defaultdict(list)
    for event in events:
        if cat(event) in ("cpu_op", "operator") and event["dur"] > 0:
            threads[event["pid"], event["tid"]].append(event)
    for event in events:
        if cat(event) not in GPU or id(event) in earlier:
            continue
        launch = launches.get(event.get("args", {}).get("correlation"))
        at = (launch or event)["ts"]
        if not window[0] <= at < window[1]:
            continue
        around: list[str] = []
        if launch:
            inside = [e for e in threads[launch["pid"], launch["tid"]] if e["ts"] <= at < e["ts"] + e["dur"]]
            around = [e["name"] for e in sorted(inside, key=lambda e: (e["ts"], -e["dur"]))]
        owning = [name for name in around if rules.get(name)]
        known = [name for name in around if name in rules]
        name = owning[:1] or known[-1:] or around[-1:]
        work = work_by_operator[name[0] if name else "(no operator)" if launch else "(launch not in the trace)"]
        work[0] += 1
        work[1] += event["dur"]
    return work_by_operator


def kernels_of_the_first_step(path: Path) -> dict[str, list[float]]:
    """Return count and us of the GPU work that was launched in the first step, by name, from the JSON."""
    events = [e for e in json_of(path) if e.get("ph") == "X"]
    steps = [e for e in events if e["name"].startswith("ProfilerStep#") and cat(e) == "user_annotation"]
    first = min(steps, key=lambda e: e["ts"])
    launches, earlier = launches_of(events), {id(event) for event in from_before(events)}
    work_by_name: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for event in events:
        if cat(event) in GPU and id(event) not in earlier:
            at = launches.get(event["args"].get("correlation"), event)["ts"]
            if first["ts"] <= at < first["ts"] + first["dur"]:
                work_by_name[event["name"]][0] += 1
                work_by_name[event["name"]][1] += event["dur"]
    return work_by_name


def shape(dims: Any) -> Any:
    return tuple(map(shape, dims)) if isinstance(dims, list | tuple) else dims
