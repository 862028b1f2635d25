"""Overlays of real traces: arrows have a slice at both ends, no GPU work is missing, counters match the tables."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pipelines.base import database
from pipelines.critical_path.answer.answer import critical_path
from pipelines.critical_path.graph.windows import WindowNotFound, WindowRequest
from pipelines.faces.drawings.counter_tracks import TABLES
from pipelines.faces.drawings.overlay import write_overlay
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import TraceRejected
from tests.shared_traces import is_trace

TRACES = Path(__file__).parents[4] / "shared" / "traces"
ONE_OF_EACH_KIND = {"single", "dialects", "critical_path"}
"""Folders whose traces are from different writers, of which all files are used.

In other folders the traces are of one program or job, so two are used.
"""


def _files() -> list[Path]:
    by_folder: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    for path in sorted(path for path in TRACES.rglob("*.json*") if is_trace(path)):
        by_folder[path.parent.relative_to(TRACES).parts[:2]].append(path)
    return [
        path for folder, paths in by_folder.items() for path in (paths if ONE_OF_EACH_KIND & {*folder} else paths[:2])
    ]


FILES = _files()
SMALL = {"alexnet"}  # the other files take seconds, because all of their JSON is read
"""An NVIDIA trace and an AMD trace with a graph. The other files are slow."""


def events(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    content = json.loads(text, parse_float=Decimal)
    return [
        event for event in (content["traceEvents"] if isinstance(content, dict) else content) if isinstance(event, dict)
    ]


def without_slice(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ends of arrows that no viewer could tie to a slice. Each end is checked separately."""
    slices: dict[tuple, list[tuple[float, float]]] = defaultdict(list)
    for event in drawn:
        if event["ph"] in ("X", "B"):  # the end of a B event is not looked up, because the slice is at least open
            end = event["ts"] + (event.get("dur") or 0) if event["ph"] == "X" else float("inf")
            slices[event["pid"], event["tid"]].append((event["ts"], end))
    places = {}
    for track, intervals in slices.items():
        intervals.sort()
        longest, until = float("-inf"), []
        for _, end in intervals:
            longest = max(longest, end)
            until.append(longest)
        places[track] = [start for start, _ in intervals], until

    def is_tied(event: dict[str, Any]) -> bool:
        starts, until = places.get((event["pid"], event["tid"]), ([], []))
        if event["ph"] == "f" and "bp" not in event:
            return bisect_left(starts, event["ts"]) < len(starts)
        place = bisect_right(starts, event["ts"]) - 1
        return place >= 0 and until[place] >= event["ts"]

    return [event for event in drawn if event["ph"] in ("s", "t", "f") and not is_tied(event)]


def arrow(event: dict[str, Any]) -> tuple:
    return str(event.get("cat")), str(event.get("name")), str(event.get("id"))


def part_arrows(drawn: list[dict[str, Any]]) -> set[tuple]:
    """Return the arrows without a start or without an end."""
    ends: dict[tuple, set[str]] = defaultdict(set)
    for event in drawn:
        if event["ph"] in ("s", "t", "f"):
            ends[arrow(event)].add(event["ph"])
    return {of for of, phases in ends.items() if not {"s", "f"} <= phases}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=name, marks=[] if name in SMALL else [pytest.mark.slow])
        for path in FILES
        if (
            name := f"{path.parent.name}-{path.name}".partition(".")[0]
            .removeprefix("critical_path-")
            .removeprefix("single-")
        )
    ],
)
def test_every_arrow_has_its_slices_and_no_gpu_work_is_missing(path: Path, tmp_path: Path) -> None:
    # In 2021 an arrow names its thread by a number, and slices name it by a text. The overlay writes both alike.
    trace_events = [event | {"tid": str(event.get("tid"))} for event in events(path) if event.get("ph")]
    source = [event for event in trace_events if event["ph"] in ("s", "t", "f")]
    wrong = part_arrows(trace_events) | {arrow(event) for event in without_slice(trace_events)}
    with database.connect() as con:
        try:
            trace_id = load_trace(con, path, folder=tmp_path, lean=False).trace_id
            critical_path(con, load_catalog(), WindowRequest(trace_id))
        except (TraceRejected, WindowNotFound) as none:
            pytest.skip(f"nothing to draw: {none}")
        run_models(con, load_catalog(), TABLES)
        changes = con.execute("SELECT count(DISTINCT (device, stream, at_ns)) FROM queue_length").fetchall()[0][0]
        steps = con.execute("SELECT count(*) FROM critical_path WHERE edge_type = 'KERNEL_LAUNCH_DELAY'").fetchall()[0][
            0
        ]
        names = con.execute("SELECT e.name FROM kernels JOIN events AS e USING (trace_id, event_id)").fetchall()
        for only_critical in (False, True):
            left_out: list[int] = []
            file = write_overlay(
                con, trace_id, path, tmp_path / "out", only_critical=only_critical, on_left_out=left_out.append
            )
            drawn = events(file)
            assert without_slice(drawn) == [] and part_arrows(drawn) == set()
            ours = sum(event["ph"] == "s" and event["cat"] == "critical_path" for event in drawn)
            own = sum(event["ph"] in ("s", "t", "f") and event["cat"] != "critical_path" for event in drawn)
            assert ours >= steps and own + left_out[0] == len(source)
            if not only_critical:  # only arrows that cannot be drawn are omitted, and no GPU work
                assert own == sum(arrow(event) not in wrong for event in source)
                assert (
                    Counter(name for (name,) in names) - Counter(e["name"] for e in drawn if e["ph"] == "X")
                    == Counter()
                )
            counted = [event for event in drawn if event["ph"] == "C"]
            assert sum(event["name"].startswith("queue length") for event in counted) == changes
            assert all(value >= 0 for event in counted if "GB/s" in event["args"] for value in event["args"].values())
