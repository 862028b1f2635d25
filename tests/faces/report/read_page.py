"""A parsed page of `tracelake report`: its tables, bars, charts and texts."""

from __future__ import annotations

import json
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from pipelines.base.foreign_text import visible
from pipelines.faces.cli.app import app

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """A page's sections, exact values of table cells, parts of bars, curves, texts and tags. Tags must balance."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tables: defaultdict[str, list[dict[str, str | None]]] = defaultdict(list)
        self.parts: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
        self.texts: defaultdict[str, str] = defaultdict(str)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.lines: dict[str, list[tuple[float, float]]] = {}
        self.answer: dict[str, Any] = {}  # the output of --json
        self.open: list[str] = []
        self.links: list[str] = []
        self.sections: list[str] = []
        self.section = self.table = self.key = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.add(tag)
        self.attributes |= set(attributes)
        self.links += [attributes["href"] or ""] if "href" in attributes else []
        self.sections += [attributes["id"] or ""] if tag == "section" else []
        if tag not in VOID:
            self.open.append(tag)
        self.section = attributes.get("id") or self.section if tag == "section" else self.section
        self.table = attributes.get("data-table") or self.table
        if tag == "tr":
            self.tables[self.table].append({})
        if tag == "td":
            self.key = attributes["data-key"] or ""
            self.tables[self.table][-1][self.key] = attributes.get("data-value")
        if "data-kind" in attributes:
            self.parts[self.section].append((attributes["data-kind"] or "", float(attributes["data-value"] or "nan")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "polyline":
            points = [point.split(",") for point in (dict(attrs)["points"] or "").split()]
            self.lines[dict(attrs)["class"] or ""] = [(float(x), float(y)) for x, y in points]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts[self.section] += data

    def rows(self, table: str) -> list[dict[str, str | None]]:
        return [row for row in self.tables[table] if row]


def report(tmp_path: Path, *words: object) -> Page:
    """Run the command, and return its page, parsed."""
    target = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["report", *map(str, words), "--out", str(target), "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["path"], said["bytes"]) == (str(target), target.stat().st_size)
    page = Page(target.read_text(encoding="utf-8"))
    page.answer = said
    sentences = [
        visible(answer["sentence"]) for answer in (said.get("capture"), said) if answer and "sentence" in answer
    ]
    places = [page.texts["verdict"].find(sentence) for sentence in sentences]
    assert -1 not in places and places == sorted(places)
    return page
