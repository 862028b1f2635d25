"""Pictures of the report (README) and of the merged timeline (docs/commands.md): `python docs/images/first_screen.py`.

The capture is synthetic: four ranks, of which rank 2 is late, with clocks that disagree. Chromium (or Chrome) takes the
screenshots, so it must be on the PATH. This script draws the timeline from the file that `tracelake timeline` writes:
the GPU streams of the ranks during two steps, and the arrows through each collective.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from pipelines.base import svg
from pipelines.synthetic import CaptureSpec, write_capture

HERE = Path(__file__).parent
SPEC = CaptureSpec(ranks=4, steps=4, straggler=2, clock_offset_ns=(0, 2_000_000, -1_000_000, 500_000), seed=2)
STEPS = (2, 3)
_WIDTH, _LEFT, _TOP, _LANE, _STREAMS = 1180, 110, 56, 30, 2
_COLOURS = {"compute": "#2cb98e", "communication": "#e8874e", "copy": "#56b4e9"}


def main() -> None:
    browser = next((path for name in ("chromium", "chrome", "google-chrome") if (path := shutil.which(name))), None)
    if browser is None:
        sys.exit("chromium or chrome is not on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_capture(SPEC, work / "job42")
        tracelake("report", work / "job42", "--out", work / "report.html")
        photograph(browser, work, work / "report.html", HERE / "report.png", 1180, 900)
        tracelake("timeline", work / "job42", "--out", work / "timeline.json")
        drawn = timeline(json.loads((work / "timeline.json").read_text(encoding="utf-8"))["traceEvents"])
        (work / "timeline.html").write_text(f"<body style='margin:0'>{drawn}</body>", encoding="utf-8")
        photograph(
            browser,
            work,
            work / "timeline.html",
            HERE / "timeline.png",
            _WIDTH,
            _TOP + SPEC.ranks * _STREAMS * _LANE + 10,
        )


def tracelake(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "tracelake", *map(str, words)], check=True)


def photograph(browser: str, work: Path, page: Path, target: Path, width: int, height: int) -> None:
    """Write the top of a page as a PNG."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
    where = [f"--user-data-dir={work / 'profile'}", f"--window-size={width},{height}", f"--screenshot={target}"]
    subprocess.run([browser, *options, *where, page.as_uri()], check=True, capture_output=True, timeout=120)


def timeline(events: list[dict[str, Any]]) -> str:
    """Return an SVG of the GPU streams of all ranks on one clock, with the arrows between ranks."""
    steps = [e for e in events if e["ph"] == "X" and e["name"] in {f"ProfilerStep#{n}" for n in STEPS}]
    start, end = min(e["ts"] for e in steps), max(e["ts"] + e["dur"] for e in steps)
    work = [e for e in events if e["ph"] == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    busy: dict[int, dict[tuple[int, int, int], float]] = defaultdict(lambda: defaultdict(float))
    for event in work:
        rank = event["pid"] // 10_000
        busy[rank][rank, event["pid"], event["tid"]] += event["dur"]
    shown = (lane for own in busy.values() for lane in sorted(own, key=own.__getitem__)[-_STREAMS:])
    lanes = {lane: i for i, lane in enumerate(sorted(shown))}
    work = [e for e in work if (e["pid"] // 10_000, e["pid"], e["tid"]) in lanes]
    pixels = (_WIDTH - _LEFT - 10) / (end - start)

    def x(ts: float) -> float:
        return _LEFT + (ts - start) * pixels

    def y(event: dict[str, Any]) -> float:
        return _TOP + lanes[event["pid"] // 10_000, event["pid"], event["tid"]] * _LANE

    parts = [
        svg.text(
            10, 20, "tracelake timeline: all ranks on one clock; an arrow ties the kernels of a collective", "title"
        ),
        svg.text(
            10,
            38,
            f"The {_STREAMS} busiest GPU streams of each rank in two steps. In each collective the others wait (orange) until rank 2 comes.",
        ),
    ]
    for (rank, _, tid), lane in lanes.items():
        parts.append(svg.text(10, _TOP + lane * _LANE + 17, f"rank {rank}, stream {tid}"))
    for event in work:
        if event["ts"] < end and event["ts"] + event["dur"] > start:
            left, right = x(max(event["ts"], start)), x(min(event["ts"] + event["dur"], end))
            kind = (
                "communication"
                if "nccl" in event["name"].lower()
                else "copy"
                if event["cat"] != "kernel"
                else "compute"
            )
            parts.append(svg.rect(left, y(event), max(right - left, 1), _LANE - 12, "", _COLOURS[kind]))
    arrows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "collective" and start <= event["ts"] < end:
            arrows[event["id"]].append(event)
    for ends in arrows.values():
        for earlier, later in pairwise(ends):
            middle = (_LANE - 12) / 2
            parts.append(svg.line(x(earlier["ts"]), y(earlier) + middle, x(later["ts"]), y(later) + middle, "arrow"))
    style = ".arrow{stroke:#333;stroke-width:1.2}"
    return svg.picture(_WIDTH, _TOP + len(lanes) * _LANE + 10, parts, style)


if __name__ == "__main__":
    main()
