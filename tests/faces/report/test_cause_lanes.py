"""Charts in Dagster of traces as bars, which are split by causes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from pipelines.faces.report.cause_bars import colour_of
from pipelines.faces.report.pictures.cause_lanes import cause_lanes
from pipelines.faces.why import Why
from tests.critical_path.causes.answered import answers_of_all
from tests.harness import call, kernel, op

LONG = "a" * 100 + ".json"


def trace(length: float) -> list[dict[str, Any]]:
    return [
        op("aten::mm", 1, 20),
        call("cudaLaunchKernel", 5, 10, 1),
        kernel("gemm", 30, length, 1),
        call("cudaDeviceSynchronize", 40, length, 99),
    ]


@pytest.fixture(scope="module")
def answers() -> list[Why]:
    return answers_of_all([trace(40), trace(4000)])


def boxes(svg: str) -> list[dict[str, str]]:
    """Return the boxes with a tooltip, which are the segments of bars.

    Each is a dict of its attributes and the tooltip (`says`).
    """
    rects = [(box.attrib, box.findtext("{*}title")) for box in ET.fromstring(svg).iterfind(".//{*}rect")]
    return [{**attributes, "says": says} for attributes, says in rects if says]


def test_each_bar_is_as_long_as_the_others_and_split_by_its_causes(answers: list[Why]) -> None:
    svg = cause_lanes("causes", [("short.json", answers[0]), (LONG, answers[1])])
    assert svg
    lanes: dict[str, list[dict[str, str]]] = {}
    for box in boxes(svg):
        lanes.setdefault(box["y"], []).append(box)
    assert len(lanes) == 2
    for lane, answer in zip(lanes.values(), answers, strict=True):
        assert [box["fill"] for box in lane] == [colour_of(cause.kind["cause"]) for cause in answer.causes]
        assert sum(float(box["width"]) for box in lane) == pytest.approx(840, abs=0.1)
        ends = [float(box["x"]) + float(box["width"]) for box in lane]
        assert ends[:-1] == pytest.approx([float(box["x"]) for box in lane[1:]], abs=0.02)
    assert "GPU computing" in lanes[list(lanes)[1]][0]["says"] and LONG in lanes[list(lanes)[1]][0]["says"]


def test_names_are_cut_and_the_legend_has_what_can_be_seen(answers: list[Why]) -> None:
    svg = cause_lanes("causes", [(LONG, answers[1])])
    assert svg
    texts = [text.text or "" for text in ET.fromstring(svg).iterfind(".//{*}text")]
    assert LONG not in texts and any(text.startswith("aaa") and text.endswith("…") for text in texts)
    large = [cause.kind["title"] for cause in answers[1].causes if cause.share >= 1]
    small = [cause.kind["title"] for cause in answers[1].causes if cause.share < 1]
    assert large and small and set(large) <= set(texts) and not set(small) & set(texts)


def test_a_long_legend_takes_several_lines_inside_the_picture(answers: list[Why]) -> None:
    svg = cause_lanes("causes", [("a", answers[0])])
    assert svg
    root = ET.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["viewBox"].split()[3])
    for box in root.iterfind(".//{*}rect"):
        assert float(box.attrib["x"]) + float(box.attrib["width"]) <= width
        assert float(box.attrib["y"]) + float(box.attrib["height"]) <= height


def test_without_causes_there_is_no_picture() -> None:
    assert cause_lanes("causes", []) is None
