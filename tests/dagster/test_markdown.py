"""Markdown tables in Dagster's metadata: names from a trace stay in their cells."""

from __future__ import annotations

import re

from assets.metadata import markdown_table
from pipelines.base.foreign_text import in_markdown, visible
from tests.nasty import NASTY

_CELL = re.compile(r"(?<!\\)(?:\\\\)*\|")


def test_every_name_stays_in_its_cell() -> None:
    for name in NASTY:
        text = markdown_table(["name", name], [(name, 1), (None, name)], width=400)
        lines = text.split("\n")
        assert len(lines) == 4
        for line in (lines[0], *lines[2:]):
            assert len(_CELL.findall(line)) == 3, (name, line)
        assert lines[2] == f"| {in_markdown(name)} | 1 |"


def test_long_names_are_cut_before_they_are_escaped() -> None:
    (_, _, line) = markdown_table(["name"], [("|" * 500,)], width=10).split("\n")
    assert line == "| " + "\\|" * 9 + "… |"
    (_, _, line) = markdown_table(["name"], [("\x1b" * 500,)], width=10).split("\n")
    assert line == "| " + visible("\x1b" * 9).replace("\\", "\\\\") + "… |"
