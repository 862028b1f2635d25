"""The Gantt chart: it contains everything of the timeline, and any name is valid."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.schedule.pictures.gantt import gantt, tick_step, write_gantt
from pipelines.schedule.simulation.simulated import Span, Stall, Timeline, simulate
from tests.effort import examples
from tests.schedule.simulation_help import FUSED_NS, chain, fused_sparse_dist

SVG = "{http://www.w3.org/2000/svg}"


def boxes(svg: str, kind: str) -> list[ElementTree.Element]:
    """Return the boxes of one class that have a title, which excludes the legend's."""
    rects = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    return [r for r in rects if r.get("class") == kind and r.find(f"{SVG}title") is not None]


def says(box: ElementTree.Element) -> str:
    return box.findtext(f"{SVG}title") or ""


def texts(svg: str) -> list[str]:
    return [t.text or "" for t in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_every_span_and_every_stall_is_drawn() -> None:
    """SWP-46 as a picture: lanes are streams, boxes are tasks of iterations, and stalls show their cause."""
    timeline = simulate(fused_sparse_dist(), FUSED_NS, iterations=6)
    svg = gantt(timeline, title="clocked")
    assert len(boxes(svg, "task")) == len(timeline.spans)
    assert len(boxes(svg, "stall")) == sum(len(span.stalls) for span in timeline.spans) > 0
    assert {"clocked", "memcpy", "data_dist", "emb_lookup", "default", "time in us"} <= set(texts(svg))
    assert "Backward i3" in texts(svg)
    assert any("event: EmbLookup i2, 700000 ns" in says(stall) for stall in boxes(svg, "stall"))
    assert any("retire: i0" in says(stall) for stall in boxes(svg, "stall"))


def test_boxes_are_where_the_times_are() -> None:
    """SWP-71: at 1 pixel per microsecond, T1 of iteration 1 extends from 14 to 24."""
    timeline = simulate(chain(2), {"T0": 4_000, "T1": 10_000}, iterations=2)
    svg = gantt(timeline, width=24)
    left = {says(box).split(":")[0]: (float(box.get("x", 0)), float(box.get("width", 0))) for box in boxes(svg, "task")}
    zero = left["T0 i0 on S0"][0]
    assert {name: (x - zero, wide) for name, (x, wide) in left.items()} == {
        "T0 i0 on S0": (0, 4),
        "T0 i1 on S0": (4, 4),
        "T1 i0 on S1": (4, 10),
        "T1 i1 on S1": (14, 10),
    }
    lanes = {says(box).split(" on ")[1][:2]: box.get("y") for box in boxes(svg, "task")}
    assert lanes["S0"] != lanes["S1"]
    (stall,) = boxes(svg, "stall")
    assert (float(stall.get("x", 0)) - zero, float(stall.get("width", 0))) == (0, 4)
    assert says(stall) == "waits 4 us before T1 i0: event: T0 i0, 4000 ns"


def test_a_part_of_the_run() -> None:
    """SWP-46: only spans in the window are drawn, clipped at its edges, with their own ticks."""
    timeline = simulate(chain(2), {"T0": 4_000, "T1": 10_000}, iterations=50)
    svg = gantt(timeline, start_ns=100_000, end_ns=120_000, width=200)
    drawn = [says(box).split(" on ")[0] for box in boxes(svg, "task")]
    assert "T1 i10" in drawn and "T1 i0" not in drawn and "T1 i49" not in drawn
    for box in boxes(svg, "task"):
        assert float(box.get("x", 0)) >= 120 and float(box.get("x", 0)) + float(box.get("width", 0)) <= 320.5
    assert {"100", "110", "120"} <= set(texts(svg))


@settings(max_examples=examples(100), deadline=None)
@given(st.text(min_size=1), st.text(min_size=1), st.text())
def test_any_name_gives_well_formed_xml(task: str, stream: str, title: str) -> None:
    """SWP-3: a name is any string. Markup, quotes, control characters and lone surrogates do not break the file."""
    span = Span(task, 0, stream, 0, 5_000, 90_000, (Stall("event", 5_000, task, 0),))
    ElementTree.fromstring(gantt(Timeline("recorded", [span]), title=title))


def test_markup_in_a_name_is_text() -> None:
    """SWP-3: the name can be read back unchanged."""
    name = "<script>alert('&\"')</script>"
    svg = gantt(Timeline("recorded", [Span(name, 3, "a & b", 0, 0, 9_000)]))
    assert "<script" not in svg
    assert says(boxes(svg, "task")[0]).startswith(f"{name} i3 on a & b: 0 to 9 us (9 us)")
    assert "a & b" in texts(svg)


def test_nothing_from_elsewhere(tmp_path: Path) -> None:
    """Issue 3: no server. The file refers only to the SVG name space and its own hatching."""
    path = write_gantt(simulate(fused_sparse_dist(), FUSED_NS, iterations=3), tmp_path / "run.svg", width=300)
    svg = path.read_text(encoding="utf-8")
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
    assert re.findall(r"url\(([^)]*)\)", svg) == ["#hatch"]
    assert "href" not in svg and "<script" not in svg


def test_empty_run_and_empty_part() -> None:
    assert boxes(gantt(Timeline("recorded", [])), "task") == []
    with pytest.raises(ValueError, match="nothing to draw"):
        gantt(Timeline("recorded", []), start_ns=5, end_ns=5)
    with pytest.raises(ValueError, match="nothing to draw"):
        gantt(Timeline("recorded", []), width=0)


@pytest.mark.parametrize(("span", "step"), [(1, 1), (8, 1), (9, 2), (17, 5), (41, 10), (60_000, 10_000), (81, 20)])
def test_ticks(span: int, step: int) -> None:
    """There are at most 8 steps of 1, 2 or 5 times a power of ten."""
    assert tick_step(span) == step
