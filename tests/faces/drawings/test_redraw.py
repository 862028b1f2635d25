"""The redrawn trace: unmoved without a change, in order with a change, and equal to sums done by hand."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from pipelines.critical_path.answer.answer import critical_path
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.critical_path.whatif.before_after import Path as LongestPath
from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.times import Clock
from pipelines.critical_path.whatif.window import Window, load
from pipelines.faces.drawings.overlay import write_overlay
from pipelines.faces.drawings.redraw import moved_events, write_redrawn
from pipelines.models.catalog import load_catalog
from pipelines.synthetic import CaptureSpec, write_capture
from tests.critical_path.whatif.test_of_saved import HELD_UP
from tests.critical_path.whatif.windows import opened, scaled
from tests.effort import first_of
from tests.harness import connect
from tests.synthetic.random_capture import random_capture
from tests.synthetic.textbook import textbook

SCENARIOS = [
    scaled(computation=0.5, launch_overhead=0),
    scaled(cpu=0.1),
    scaled(cpu=0, computation=0, kernel_gaps=0),
    Scenario((("computation", 5.0), ("aten::*", 2.0))),
]


def path_under(window: Window, scenario: Scenario) -> LongestPath:
    return next(what_if(window, [scenario])).after


def as_it_was(con: duckdb.DuckDBPyConnection) -> dict[str, np.ndarray]:
    return con.execute(
        "SELECT event_id, start_ns, coalesce(duration_ns, 0) AS duration_ns FROM events WHERE ph <> 'M' AND start_ns IS NOT NULL "
        "ORDER BY event_id"
    ).fetchnumpy()  # type: ignore[return-value]


@pytest.mark.slow
def test_without_a_change_nothing_moves(tmp_path: Path) -> None:
    """Without a change no event moves.

    This requires more than the path's rule, because time that the model does not explain must also stay.
    """
    spec = CaptureSpec(ranks=1, steps=3, seed=3, include_python_frames=True)
    traces = [random_capture(1), random_capture(2), write_capture(spec, tmp_path).ranks[0].path]
    for trace in traces:
        with opened(trace, "default") as (con, window):
            moved = moved_events(con, path_under(window, Scenario()))
            for name, values in as_it_was(con).items():
                assert (moved[name] == values).all(), name


@pytest.mark.parametrize(
    ("profile", "seed"), first_of([(profile, seed) for seed in (1, 29) for profile in ("default", "hta")], 2)
)
def test_order_holds_under_any_change(profile: str, seed: int) -> None:
    """No event ends before it starts, streams keep their order, and an event inside another event stays inside."""
    with opened(random_capture(seed), profile) as (con, window):
        slices = con.execute(
            "SELECT event_id, start_ns, duration_ns, cat IN ('kernel', 'gpu_memcpy', 'gpu_memset'), pid || '/' || tid FROM events "
            "WHERE ph = 'X' AND duration_ns IS NOT NULL ORDER BY pid, tid, start_ns, -duration_ns, event_id"
        ).fetchall()
        for scenario in SCENARIOS:
            moved = moved_events(con, path_under(window, scenario))
            assert (moved["duration_ns"] >= 0).all()
            new = {i: (ts, ts + dur) for i, ts, dur in zip(*(moved[k].tolist() for k in moved), strict=True)}
            for (i, ts, dur, gpu, track), (j, after, length, gpu_too, same_track) in pairwise(slices):
                if track != same_track:
                    continue
                assert new[i][0] <= new[j][0]
                if gpu == gpu_too and ts + dur <= after:
                    assert new[i][1] <= new[j][0]
                if after + length <= ts + dur and length:
                    assert new[j][1] <= new[i][1]


def drawn(trace: dict[str, Any] | Path, scenario: Scenario, folder: Path) -> dict[str, Any]:
    with opened(trace) as (con, window):
        path = write_redrawn(con, path_under(window, scenario), None, folder)
        assert con.execute("SELECT current_schema()").fetchall() == [("main",)]
        assert con.execute("SELECT count(*) FROM events").fetchall()[0][0] > 0
    assert path.name.startswith("overlaid_critical_path_what_if_")
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return json.load(file)


@pytest.mark.slow  # 2 s; without a change nothing moves, see above
def test_a_path_that_did_not_change_is_drawn_as_the_overlay_draws_it(tmp_path: Path) -> None:
    """An unchanged path is drawn as by the overlay.

    Both show the rows of `critical_path`, even if a step waits for work of the previous step.
    """
    for number, (trace, annotation) in enumerate(((random_capture(1), ""), (HELD_UP, "ProfilerStep"))):
        con, trace_id = connect(trace)
        request = WindowRequest(trace_id, "w", "default", annotation)
        with con:
            assert critical_path(con, load_catalog(), request).success
            overlay = write_overlay(con, trace_id, Path("a.json"), tmp_path, window_id="w", only_critical=False)
            same = path_under(load(con, load_catalog(), request), Scenario())
            drawn = write_redrawn(con, same, Path("a.json"), tmp_path / str(number))
        overlay_events, redrawn_events = (json.loads(file.read_text())["traceEvents"] for file in (overlay, drawn))
        assert overlay_events == redrawn_events


def test_a_chain_of_halved_kernels(tmp_path: Path) -> None:
    """Kernels of 25 instead of 50 us follow each other 1 us apart.

    The sync and the events after it come 125 us earlier.
    """
    before = json.loads(textbook("chain").text)
    after = drawn(before, scaled(computation=0.5), tmp_path)["traceEvents"]

    def slices(events: list[dict], *cats: str) -> list[tuple[float, float]]:
        return [(e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e.get("cat") in cats]

    first = slices(before["traceEvents"], "kernel")[0][0]
    assert slices(after, "kernel") == [(first + 26 * i, 25) for i in range(5)]
    old, new = (slices(events, "cuda_runtime") for events in (before["traceEvents"], after))
    assert new[:-1] == old[:-1]
    assert new[-1] == (old[-1][0], old[-1][1] - 125)
    old, new = (slices(events, "cuda_sync", "user_annotation") for events in (before["traceEvents"], after))
    assert [sum(times) for times in new] == [sum(times) - 125 for times in old]
    starts = {e["args"]["correlation"]: e["ts"] for e in after if e.get("cat") == "kernel"}
    flows = [(e["ts"], starts[e["id"]]) for e in after if e["ph"] == "f" and e.get("cat") == "ac2g"]
    assert len(flows) == 5 and all(at == start for at, start in flows)
    track = slices(after, "critical_path")
    assert sum(dur for _, dur in track) == 1 + 6 + 5 * 25 + 4 + 2 + 1
    assert all(a + dur <= b for (a, dur), (b, _) in pairwise(track))


def test_a_kernel_made_slower_pushes_the_next_one(tmp_path: Path) -> None:
    """A slower kernel pushes the next kernel on its stream.

    The stream is idle between the two kernels, so the graph has no edge between them. The drawing keeps them apart.
    """
    trace = json.loads(textbook("cpu_bound").text)
    kernels = [e for e in drawn(trace, scaled(computation=30), tmp_path)["traceEvents"] if e.get("cat") == "kernel"]
    assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(kernels))
    assert {e["dur"] for e in kernels} == {300}


def test_a_clock_keeps_other_events_in_place() -> None:
    """Events outside the graph keep their distance to graph events, but do not pass any of these.

    Graph events 10-20 and 30-50 move to 10-15 and 25-35.
    """
    clock = Clock(np.array([10, 20, 30, 50]), np.array([10, 15, 25, 35]), np.array([False, True, False, True]))
    starts = clock.move(np.array([0, 9, 10, 12, 18, 20, 25, 29, 30, 45, 50, 60]), ends=False)
    assert starts.tolist() == [0, 9, 10, 12, 15, 15, 20, 24, 25, 35, 35, 45]
    touching = Clock(np.array([10, 20, 20, 30]), np.array([10, 15, 18, 28]), np.array([False, True, False, True]))
    assert touching.move(np.array([20]), ends=True).tolist() == [15]
    assert touching.move(np.array([20]), ends=False).tolist() == [18]
