"""Foreign text shown as text: one function per output format, each tested with all nasty names."""

from __future__ import annotations

import html
import io
import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from pipelines.base.foreign_text import JOINER, in_markdown, in_spreadsheet, in_xml, visible
from pipelines.faces.cli.console import make_console, styled
from tests.effort import first_of
from tests.nasty import MARKUP, NASTY, RAW, TERMINAL


@given(st.one_of(st.sampled_from(NASTY), st.text(st.characters(), max_size=30)))
def test_visible_text_is_whole_and_harmless(name: str) -> None:
    shown = visible(name)
    assert not RAW.search(shown) and all(c.isprintable() or unicodedata.category(c) == "Zs" for c in shown)
    assert shown == name or len(shown) > len(name)
    shown.encode()  # fails on a lone surrogate


@given(st.one_of(st.sampled_from(NASTY), st.text(st.characters(), max_size=30)))
def test_xml_and_html_give_the_name_back(name: str) -> None:
    escaped = in_xml(name)
    element = ElementTree.fromstring(f'<t a="{escaped}">{escaped}</t>')
    assert element.text in (visible(name), None if not name else ...) and element.get("a") == visible(name)
    assert not list(element) and html.unescape(escaped) == visible(name)
    parser = _Tags()
    parser.feed(f'<p title="{escaped}">{escaped}</p>')
    assert parser.tags == ["p"]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


@pytest.mark.parametrize("name", NASTY)
def test_markdown_has_no_active_sign(name: str) -> None:
    """Backslashes escape every character that is special in a Markdown cell.

    Without the backslashes, the text is unchanged.
    """
    cell = in_markdown(name)
    plain, signs, at = "", "", 0
    while at < len(cell):
        if cell[at] == "\\":
            plain, at = plain + cell[at + 1], at + 2
        else:
            signs, plain, at = signs + cell[at], plain + cell[at], at + 1
    assert plain.replace(JOINER, "") == visible(name) and "\n" not in cell
    assert not set(signs) & set("\\`*[]|<>&~$")
    assert not signs.startswith("_") and not signs.endswith("_")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("https://x.io/a", "https\\://x.io/a"),
        ("www.x.io", f"www{JOINER}.x.io"),
        ("by @octocat, #12", f"by @{JOINER}octocat, #{JOINER}12"),
        ("ProfilerStep#5", "ProfilerStep#5"),
        ("at::native", "at::native"),
    ],
)
def test_markdown_mentions_and_links_nothing(name: str, shown: str) -> None:
    """GitHub links addresses and mentions users and issues even without Markdown syntax."""
    assert in_markdown(name) == shown


@pytest.mark.parametrize("name", NASTY)
def test_a_spreadsheet_takes_no_text_for_a_formula(name: str) -> None:
    cell = in_spreadsheet(name)
    assert cell.removeprefix("'") == name.removeprefix("'")
    assert cell[:1] not in tuple("=@\t\r\n") and (cell[:1] not in "+-" or float(cell) == float(name))
    assert in_spreadsheet(-5) == -5 and in_spreadsheet("-5") == "-5" and in_spreadsheet(None) is None


ON_TERMINALS = [(terminal, name) for terminal in (True, False) for name in NASTY]
TELLING = [
    *((True, name) for name in (*MARKUP, *TERMINAL)),
    *((False, name) for name in (*MARKUP[:3], *TERMINAL[:3])),
]


@pytest.mark.parametrize(
    ("terminal", "name"), first_of([*TELLING, *(case for case in ON_TERMINALS if case not in TELLING)], len(TELLING))
)
def test_the_terminal_shows_the_name_and_nothing_else(terminal: bool, name: str) -> None:
    """In a cell, a heading, a title and a line, the only escape sequences are the console's own colours."""
    for put in (_cell, _heading, _title, _line):
        console = make_console(
            file=io.StringIO(), width=2000, force_terminal=terminal, color_system="standard" if terminal else None
        )
        put(console, name)
        output = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
        output = _without_colours(output) if terminal else output
        assert not RAW.search(output), put
        assert visible(name).strip() in output, put


def _without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def _cell(console: Console, name: str) -> None:
    table = Table("a")
    table.add_row(name)
    console.print(table)


def _heading(console: Console, name: str) -> None:
    console.print(Table(name, title="x"))


def _title(console: Console, name: str) -> None:
    table = Table("some column", title=name, min_width=len(visible(name)) + 20, caption=name)
    table.add_row("x")
    console.print(table)


def _line(console: Console, name: str) -> None:
    console.print(styled("[red]told:[/] {} [bold]{name}[/]", name, name=name))
    console.print(name)
