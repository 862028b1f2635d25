"""Foreign text as text: one function for each surface, each with the whole list of nasty names."""

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
    shown.encode()  # no lone surrogate is left


@given(st.one_of(st.sampled_from(NASTY), st.text(st.characters(), max_size=30)))
def test_xml_and_html_give_the_name_back(name: str) -> None:
    told = in_xml(name)
    element = ElementTree.fromstring(f'<t a="{told}">{told}</t>')
    assert element.text in (visible(name), None if not name else ...) and element.get("a") == visible(name)
    assert not list(element) and html.unescape(told) == visible(name)
    parser = _Tags()
    parser.feed(f'<p title="{told}">{told}</p>')
    assert parser.tags == ["p"]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


@pytest.mark.parametrize("name", NASTY)
def test_markdown_has_no_active_sign(name: str) -> None:
    """Every sign that means something inside of a cell stands behind a backslash, and without these the text is there."""
    told = in_markdown(name)
    plain, signs, at = "", "", 0
    while at < len(told):
        if told[at] == "\\":
            plain, at = plain + told[at + 1], at + 2
        else:
            signs, plain, at = signs + told[at], plain + told[at], at + 1
    assert plain.replace(JOINER, "") == visible(name) and "\n" not in told
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
    """Of GitHub, which links addresses and mentions users and issues without any sign of Markdown."""
    assert in_markdown(name) == shown


@pytest.mark.parametrize("name", NASTY)
def test_a_spreadsheet_takes_no_text_for_a_formula(name: str) -> None:
    told = in_spreadsheet(name)
    assert told.removeprefix("'") == name.removeprefix("'")
    assert told[:1] not in tuple("=@\t\r\n") and (told[:1] not in "+-" or float(told) == float(name))
    assert in_spreadsheet(-5) == -5 and in_spreadsheet("-5") == "-5" and in_spreadsheet(None) is None


ON_TERMINALS = [(terminal, name) for terminal in (True, False) for name in NASTY]
TELLING = [
    *((True, name) for name in (*MARKUP, *TERMINAL)),
    *((False, name) for name in (*MARKUP[:3], *TERMINAL[:3])),
]


@pytest.mark.parametrize(
    ("terminal", "name"), first_of([*TELLING, *(one for one in ON_TERMINALS if one not in TELLING)], len(TELLING))
)
def test_the_terminal_shows_the_name_and_nothing_else(terminal: bool, name: str) -> None:
    """In a cell, a heading, a title, a line; the console's only escape sequences are its own colours."""
    for put in (_cell, _heading, _title, _line):
        console = make_console(
            file=io.StringIO(), width=2000, force_terminal=terminal, color_system="standard" if terminal else None
        )
        put(console, name)
        told = console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
        told = _without_colours(told) if terminal else told
        assert not RAW.search(told), put
        assert visible(name).strip() in told, put


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
