"""The pictures of docs/critical-path.md: boxes on lanes in time, and the edges between their starts and ends.

`python docs/images/critical-path/draw.py` writes them next to this file. Times are invented, in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

_LEFT, _TOP, _LANE, _BOX, _END = 76, 14, 52, 24, 12
_WIDTH = 640
_COLOURS = {"time": "#b3261e", "order": "#57606a", "off": "#8c959f"}
_STYLE = (
    "text{font:12px sans-serif;fill:#1f2328}.lane{fill:#57606a}.cpu{fill:#dbe9ff}.gpu{fill:#ffe3c2}"
    ".box{stroke:#57606a;stroke-width:1}.say{font-size:11px}.time{fill:#b3261e}.order{fill:#57606a}.off{fill:#8c959f}"
    ".page{fill:#fff}.say.time,.say.order,.say.off{stroke:#fff;stroke-width:4;paint-order:stroke}"
)


@dataclass(frozen=True)
class Box:
    """An event: its lane, start and duration."""

    name: str
    lane: str
    start: int
    dur: int
    depth: int = 0  # nesting level: a call is drawn inside its operator


@dataclass(frozen=True)
class Edge:
    """An edge between two starts or ends of boxes, each as ("a", "end").

    `kind` is time, order (weight 0) or off (no edge).
    """

    src: tuple[str, str]
    dst: tuple[str, str]
    say: str
    kind: str = "time"
    lift: int = 0  # how far the line bends, so that labels do not overlap


@dataclass(frozen=True)
class Picture:
    """A picture, which becomes one SVG file."""

    name: str
    lanes: tuple[str, ...]
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]


def _call(name: str, start: int, dur: int = 10) -> Box:
    return Box(name, "CPU", start, dur)


PICTURES = (
    Picture(
        "operator",
        ("CPU", "stream 7"),
        (Box("aten::linear", "CPU", 0, 60), Box("launch", "CPU", 20, 20, 1), Box("gemm", "stream 7", 30, 70)),
        (
            Edge(("aten::linear", "start"), ("launch", "start"), "20", lift=-20),
            Edge(("launch", "start"), ("launch", "end"), "20", lift=30),
            Edge(("launch", "end"), ("aten::linear", "end"), "20", lift=-20),
            Edge(("gemm", "start"), ("gemm", "end"), "70, the kernel's time", lift=28),
        ),
    ),
    Picture(
        "dependency",
        ("CPU",),
        (Box("aten::linear", "CPU", 0, 35), Box("aten::relu", "CPU", 65, 35)),
        (
            Edge(("aten::linear", "start"), ("aten::linear", "end"), "35", lift=28),
            Edge(("aten::linear", "end"), ("aten::relu", "start"), "0: order, no time", "order", lift=28),
            Edge(("aten::relu", "start"), ("aten::relu", "end"), "35", lift=28),
        ),
    ),
    Picture(
        "launch-delay",
        ("CPU", "stream 7"),
        (_call("launch", 0, 15), Box("gemm", "stream 7", 35, 65)),
        (
            Edge(("launch", "start"), ("gemm", "start"), "35: the stream was idle", lift=0),
            Edge(("gemm", "start"), ("gemm", "end"), "65", lift=28),
        ),
    ),
    Picture(
        "kernel-delay",
        ("CPU", "stream 7"),
        (_call("launch 1", 0, 14), _call("launch 2", 16, 14), Box("gemm", "stream 7", 22, 38), Box("relu", "stream 7", 68, 32)),
        (
            Edge(("launch 2", "start"), ("relu", "start"), "0: it was not the launch", "order", lift=0),
            Edge(("gemm", "start"), ("gemm", "end"), "38", lift=28),
            Edge(("gemm", "end"), ("relu", "start"), "8", lift=28),
            Edge(("relu", "start"), ("relu", "end"), "32", lift=28),
        ),
    ),
    Picture(
        "sync-streams",
        ("CPU", "stream 7", "stream 20"),
        (
            _call("record", 10, 12), _call("wait", 24, 10), _call("launch", 36, 12),
            Box("gemm", "stream 7", 14, 46), Box("all-reduce", "stream 20", 64, 36),
        ),
        (
            Edge(("gemm", "start"), ("gemm", "end"), "46", lift=28),
            Edge(("gemm", "end"), ("all-reduce", "start"), "0: waited for the event", "order", lift=0),
            Edge(("all-reduce", "start"), ("all-reduce", "end"), "36", lift=28),
        ),
    ),
    Picture(
        "sync-cpu",
        ("CPU", "stream 7"),
        (_call("launch", 0, 14), _call("cudaStreamSynchronize", 20, 66), Box("gemm", "stream 7", 12, 68)),
        (
            Edge(("gemm", "start"), ("gemm", "end"), "68", lift=28),
            Edge(("gemm", "end"), ("cudaStreamSynchronize", "end"), "0: it waited", "order", lift=0),
            Edge(("cudaStreamSynchronize", "start"), ("cudaStreamSynchronize", "end"), "0 instead of 66", "order", lift=-22),
        ),
    ),
    Picture(
        "graph",
        ("CPU", "stream 7", "stream 8"),
        (
            _call("graph launch", 0, 24),
            Box("a", "stream 7", 12, 28), Box("c", "stream 7", 78, 22), Box("b", "stream 8", 44, 30),
        ),
        (
            Edge(("graph launch", "start"), ("a", "start"), "12", lift=0),
            Edge(("a", "start"), ("a", "end"), "28", lift=28),
            Edge(("a", "end"), ("b", "start"), "4", lift=0),
            Edge(("b", "start"), ("b", "end"), "30", lift=28),
            Edge(("b", "end"), ("c", "start"), "4", lift=0),
            Edge(("a", "end"), ("c", "start"), "0: order of the stream", "order", lift=-22),
            Edge(("c", "start"), ("c", "end"), "22", lift=28),
        ),
    ),
    Picture(
        "overlap",
        ("a, on stream 7", "b, on stream 7"),
        (Box("a", "a, on stream 7", 0, 60), Box("b", "b, on stream 7", 45, 55)),
        (
            Edge(("a", "start"), ("b", "start"), "45: a's time until b began", lift=0),
            Edge(("a", "end"), ("b", "end"), "0: not done before a", "order", lift=0),
            Edge(("b", "start"), ("b", "end"), "55", lift=28),
        ),
    ),
    Picture(
        "slack",
        ("stream 7", "stream 8"),
        (
            Box("gemm", "stream 7", 0, 60), Box("copy", "stream 8", 0, 35), Box("relu", "stream 7", 60, 40),
        ),
        (
            Edge(("gemm", "start"), ("gemm", "end"), "on the path: slack 0, drag 25", lift=-22),
            Edge(("copy", "start"), ("copy", "end"), "slack 25, drag 0", "off", lift=28),
            Edge(("copy", "end"), ("relu", "start"), "25 to spare", "off", lift=0),
            Edge(("relu", "start"), ("relu", "end"), "slack 0, drag 40", lift=-22),
        ),
    ),
)  # fmt: skip


def svg(picture: Picture) -> str:
    """Return the picture as SVG text."""
    boxes = {box.name: box for box in picture.boxes}
    height = _TOP + _LANE * len(picture.lanes) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">',
        f"<style>{_STYLE}</style>",
        "<defs>",
        *(
            f'<marker id="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>'
            for kind, colour in _COLOURS.items()
        ),
        "</defs>",
        f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
        *(line for box in picture.boxes for line in _box(picture, box)),
        *(
            f'<text class="lane" x="4" y="{_y(picture, lane) + 16}">{escape(lane.partition(",")[2].strip() or lane)}</text>'
            for lane in picture.lanes
        ),
        *(line for edge in picture.edges for line in _edge(picture, boxes, edge)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _x(time: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - _END) * time / 100


def _y(picture: Picture, lane: str) -> int:
    return _TOP + 10 + _LANE * picture.lanes.index(lane)


def _box(picture: Picture, box: Box) -> Iterator[str]:
    x, y, width = _x(box.start), _y(picture, box.lane), _x(box.dur) - _LEFT
    side = "cpu" if box.lane == "CPU" else "gpu"
    inset = 3 * box.depth
    yield (
        f'<rect class="box {side}" x="{x:.1f}" y="{y + inset}" width="{width:.1f}" height="{_BOX - 2 * inset}" rx="2"/>'
    )
    nests = any(other.depth > box.depth and other.lane == box.lane for other in picture.boxes)
    at = (x + 5, "start") if nests else (x + width / 2, "middle")
    yield f'<text class="say" x="{at[0]:.1f}" y="{y + 16}" text-anchor="{at[1]}">{escape(box.name)}</text>'


def _edge(picture: Picture, boxes: dict[str, Box], edge: Edge) -> Iterator[str]:
    (x1, y1, low1), (x2, y2, _) = (_point(picture, boxes, at) for at in (edge.src, edge.dst))
    if edge.lift:  # along one lane: below the boxes if positive, above them if negative
        y = low1 + 2 if edge.lift > 0 else y1 - 2
        bend = y + edge.lift * 0.6
        path = f"M{x1:.1f} {y}Q{(x1 + x2) / 2:.1f} {bend:.1f} {x2:.1f} {y}"
        x, say_y = (x1 + x2) / 2, (y + bend) / 2 + (12 if edge.lift > 0 else -3)
    else:
        down = y2 > y1
        begin, end = (low1, y2) if down else (y1, y2 + _BOX)
        path = f"M{x1:.1f} {begin}L{x2:.1f} {end}"
        x, say_y = (x1 + x2) / 2 + 8, (begin + end) / 2 + 4
    dash = "" if edge.kind == "time" else ' stroke-dasharray="4 3"'
    yield (
        f'<path d="{path}" fill="none" stroke="{_COLOURS[edge.kind]}" stroke-width="1.6"{dash} '
        f'marker-end="url(#{edge.kind})"/>'
    )
    anchor = "middle" if edge.lift else "start"
    yield f'<text class="say {edge.kind}" x="{x:.1f}" y="{say_y:.1f}" text-anchor="{anchor}">{escape(edge.say)}</text>'


def _point(picture: Picture, boxes: dict[str, Box], at: tuple[str, str]) -> tuple[float, int, int]:
    box = boxes[at[0]]
    y = _y(picture, box.lane)
    return _x(box.start + (box.dur if at[1] == "end" else 0)), y, y + _BOX


def files() -> dict[str, str]:
    """Return the SVG text by file name."""
    return {f"{picture.name}.svg": svg(picture) for picture in PICTURES}


if __name__ == "__main__":
    for name, text in files().items():
        Path(__file__).with_name(name).write_text(text, encoding="utf-8")
