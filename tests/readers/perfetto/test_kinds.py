"""Copies and memsets have Kineto's names if the file records their kind, and a finding counts the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("perfetto", reason="reading Perfetto traces needs the extra 'perfetto'")

from tests.readers.perfetto.test_events import BEGIN, END, event, loaded
from tests.readers.perfetto.writer import Written, annotate

# Arguments as torch/profiler/_cupti/monitor_trace.py writes them, with a number for a kind without a name.
COPIES = [
    ({"copy kind": "HtoD", "src kind": "pageable", "dst kind": "device"}, "Memcpy HtoD (Pageable -> Device)"),
    ({"copy kind": "DtoH", "src kind": "device", "dst kind": "pinned"}, "Memcpy DtoH (Device -> Pinned)"),
    ({"copy kind": 8, "src kind": 3, "dst kind": "managed_static"}, "Memcpy DtoD (Device -> Managed Static)"),
    ({"copy kind": 9}, "Memcpy HtoH"),
    ({"copy kind": 99, "src kind": "device", "dst kind": "device"}, "Memcpy"),
    ({}, "Memcpy"),
]
MEMSETS = [({"memory kind": 3}, "Memset (Device)"), ({"memory kind": 0}, "Memset (Unknown)"), ({}, "Memset")]


def slices(kind: str, cases: list[tuple[dict[str, Any], str]]) -> Written:
    """Return the cases as slices, as the first PyTorch versions wrote them."""
    written = Written()
    track = written.track(0, 7, "stream 7")
    for i, (args, _) in enumerate(cases):
        begin = event(written, 10 * i, BEGIN, track, kind)
        for key, value in {"bytes": 64, **args}.items():
            annotate(begin.track_event.debug_annotations.add(name=key), value)
        event(written, 10 * i + 5, END, track)
    return written


def stages(cat: str, cases: list[tuple[dict[str, Any], str]]) -> Written:
    """Return the cases as render stages, as later PyTorch versions write them."""
    written = Written()
    written.track(7, 8, "main")
    for i, (args, _) in enumerate(cases):
        written.stage({"cat": cat, "ts": i, "dur": 0.5, "tid": 7, "args": {"bytes": 64, **args}}, 0)
    return written


@pytest.mark.parametrize("make", [slices, stages])
def test_copies(tmp_path: Path, make: Any) -> None:
    content = make("Memcpy" if make is slices else "gpu_memcpy", COPIES).bytes()
    con, trace = loaded(tmp_path / "a.pftrace", content)
    rows = con.execute("SELECT name, cat FROM events WHERE ph = 'X' ORDER BY start_ns").fetchall()
    assert rows == [(name, "gpu_memcpy") for _, name in COPIES]
    assert [finding.n for finding in trace.findings if finding.check_name == "perfetto_no_direction"] == [2]


@pytest.mark.parametrize("make", [slices, stages])
def test_memsets(tmp_path: Path, make: Any) -> None:
    content = make("Memset" if make is slices else "gpu_memset", MEMSETS).bytes()
    con, trace = loaded(tmp_path / "a.pftrace", content)
    rows = con.execute("SELECT name, cat FROM events WHERE ph = 'X' ORDER BY start_ns").fetchall()
    assert rows == [(name, "gpu_memset") for _, name in MEMSETS]
    assert not [finding for finding in trace.findings if finding.check_name == "perfetto_no_direction"]
