"""The page in a real browser: the actions of a user, and hostile names without effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from pipelines.base.foreign_text import visible
from pipelines.faces import untrusted_queries
from pipelines.faces.why import TABLES
from pipelines.lake import Lake
from pipelines.runs.materialize.run_order import materialize_all
from tests.faces.serve.browser import Page, browser
from tests.faces.serve.world import FOREVER, HOSTILE, Server, hostile_lake, serving, until

pytestmark = pytest.mark.slow(together="page of the console")
ROWS = "[...document.querySelectorAll('.tabulator-row')].map(r => [...r.querySelectorAll('.tabulator-cell')].map(c => c.innerText.trim()))"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return hostile_lake(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def server(lake: Lake) -> Iterator[Server]:
    with serving(lake.root, rows=1_000) as running:
        yield running


@pytest.fixture(scope="module")
def chrome() -> Iterator[Page]:
    with browser() as page:
        yield page


@pytest.fixture
def page(server: Server, chrome: Page) -> Iterator[Page]:
    """Yield the reopened console.

    Check afterwards that its policy blocked nothing, nothing failed, and nothing came from elsewhere.
    """
    chrome.messages.clear()
    chrome.asked_for.clear()
    chrome.size(1280, 800)
    chrome.open(f"http://127.0.0.1:{server.port}/")
    chrome.until("document.body && document.body.dataset.ready")
    yield chrome
    assert [message for message in chrome.messages if "status of 400" not in message] == []
    ours = (f"http://127.0.0.1:{server.port}/", "about:blank", f"blob:http://127.0.0.1:{server.port}/")
    assert [url for url in chrome.asked_for if not url.startswith(ours)] == []


def run(page: Page, sql: str) -> list[list[str]]:
    """Type a query, press Ctrl+Enter, and return the rows of the grid."""
    page.js(f"document.getElementById('sql').value = {json.dumps(sql)}; document.getElementById('sql').focus(); 1")
    for kind in ("keyDown", "keyUp"):
        page.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, modifiers=2)
    page.until("!running && (document.querySelector('.tabulator-row') || !document.getElementById('error').hidden)")
    return page.js(ROWS)


def click(page: Page, selector: str) -> None:
    assert page.js(f"(e => e ? (e.click(), 1) : 0)(document.querySelector({json.dumps(selector)}))"), selector


def test_it_opens_on_why_the_newest_takes_so_long(page: Page, lake: Lake) -> None:
    page.until("document.querySelector('#why .sentence')")
    shown = page.js("document.getElementById('why').innerText")
    assert "The newest trace of job <b>train</b>: rank1.json, rank 1" in shown and "tracelake materialize" in shown
    materialize_all(lake, [*TABLES])
    page.js("showWhy()")
    assert "Of 320.0 us the GPU computes 80.0 us; 240.0 us it waits for" in page.js(
        "document.querySelector('#why .sentence').innerText"
    )
    assert page.js("document.querySelectorAll('#why li code').length") == 3
    assert page.js("document.querySelectorAll('#why img, #why b').length") == 0
    run(page, "SELECT 42")
    assert page.js("document.getElementById('why').hidden")


def test_a_query_is_answered_sorted_and_shared(page: Page, server: Server) -> None:
    sql = "SELECT range AS n, range * 1500 AS wait_ns, NULL AS nothing FROM range(3)"
    assert run(page, sql) == [["0", "0", "NULL"], ["1", "15001.5 us", "NULL"], ["2", "30003 us", "NULL"]]
    click(page, ".tabulator-col[tabulator-field=c0]")
    click(page, ".tabulator-col[tabulator-field=c0]")
    assert [row[0] for row in page.js(ROWS)] == ["2", "1", "0"]
    address = page.js("location.href")
    page.asked_for.clear()
    page.open(address)
    page.until("document.body && document.body.dataset.ready")
    assert page.js("document.getElementById('sql').value") == sql
    page.js("new Promise(done => setTimeout(done, 300))")
    assert not [url for url in page.asked_for if url.endswith("/query")]  # a link does not run its query


def test_numbers_beyond_javascript_are_sorted_and_shown_exactly(page: Page) -> None:
    sql = "SELECT unnest([9007199254740993, NULL, -5, 9007199254740992, 9007199254740994]) AS n"
    run(page, sql)
    click(page, ".tabulator-col[tabulator-field=c0]")
    assert [n for (n,) in page.js(ROWS)] == ["NULL", "-5", "9007199254740992", "9007199254740993", "9007199254740994"]


def test_hostile_names_are_text_everywhere(page: Page) -> None:
    shown = run(
        page, 'SELECT name AS "<img src=x onerror=document.title=\'owned\'>", name AS "a.b" FROM kernels LIMIT 1'
    )
    assert shown == [[visible(HOSTILE)] * 2]
    assert (
        page.js("document.querySelector('.tabulator-col-title').innerText")
        == "<img src=x onerror=document.title='owned'>"
    )
    run(page, "SELECT nope FROM \"<img src=x onerror=document.title='owned'>\"")
    assert "<img src=x" in page.js("document.getElementById('error').innerText")
    assert page.js("document.title") != "owned"
    assert page.js("document.querySelectorAll('main img, #grid script').length") == 0


def test_saved_questions_have_a_form(page: Page) -> None:
    what_is_here = "#questions .question[data-words^=inventory] form"
    click(page, f"{what_is_here} button")
    page.until("document.querySelector('.tabulator-row')")
    assert "One row per job" in page.js("document.getElementById('reading').innerText")
    assert page.js(ROWS)[0][0] == "<b>train</b>"
    page.js(f"document.querySelector('{what_is_here} input[name=job]').value = 'no such job'; 1")
    click(page, f"{what_is_here} button")
    page.until("document.querySelector('.tabulator-placeholder')")
    assert "no such job" in page.js("document.getElementById('sql').value")


def test_tables_are_found_and_explained(page: Page) -> None:
    page.js("(s => { s.value = 'exposed'; s.dispatchEvent(new Event('input')) })(document.getElementById('search')); 1")
    shown = "[...document.querySelectorAll('.table')].filter(t => t.offsetParent).map(t => t.querySelector('summary').innerText)"
    names = page.js(shown)
    assert "temporal_breakdown" in names and "kernels" not in names
    page.js(
        "[...document.querySelectorAll('.table')].find(t => t.innerText.includes('temporal_breakdown')).open = true; 1"
    )
    page.until("document.querySelector('.table[open] dd')")
    assert "BIGINT" in page.js("document.querySelector('.table[open] dl').innerText")
    click(page, ".table[open] button")
    page.until("document.querySelector('.tabulator-row')")
    assert page.js("document.getElementById('sql').value") == "SELECT *\nFROM temporal_breakdown"


def test_cancel_ends_the_query_on_the_server(page: Page, server: Server) -> None:
    page.js(f"document.getElementById('sql').value = {json.dumps(FOREVER)}; document.getElementById('run').click(); 1")
    until(lambda: server.n_running == 1)
    click(page, "#cancel")
    until(lambda: server.n_running == 0)
    page.until("document.getElementById('status').innerText === 'cancelled'")
    assert run(page, "SELECT 42") == [["42"]]


def test_limits_and_caveats_stand_above_the_rows(page: Page) -> None:
    run(page, "SELECT repeat('x', 10001) FROM range(2000)")
    assert page.js("document.getElementById('status').innerText").startswith(
        "the first 1,000 rows; there are more (a header sorts these only; CSV and Parquet have all)"
    )
    assert "cells cut to 10,000 characters" in page.js("document.getElementById('caveats').innerText")


def test_downloads_arrive(page: Page, tmp_path: Path) -> None:
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.js("document.getElementById('sql').value = 'SELECT range AS n FROM range(3)'; 1")
    click(page, "#csv")
    until(lambda: (tmp_path / "answer.csv").exists())
    assert (tmp_path / "answer.csv").read_text() == '"n"\n0\n1\n2\n'


def test_a_download_shows_its_caveats(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caveats of a download are shown below those of the rows, until the next download."""
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    run(page, "SELECT repeat('x', 10001)")
    monkeypatch.setattr(untrusted_queries, "caveats", lambda *_: ["kernels lacks <b>rank1.json</b>"])
    shown = "[...document.getElementById('caveats').children].map(item => item.innerText)"
    for kind in ("csv", "parquet"):
        click(page, f"#{kind}")
        until((tmp_path / f"answer.{kind}").exists)
        page.until("!running")
        rows, file = page.js(shown)
        assert "1 cell cut" in rows and file == f"answer.{kind}: kernels lacks <b>rank1.json</b>"


def test_a_trace_leads_to_its_report(page: Page, server: Server) -> None:
    ((trace, _), *_) = run(page, "SELECT trace_id, rank FROM traces ORDER BY rank")
    link = page.js("document.querySelector('.tabulator-cell a').href")
    assert link == f"http://127.0.0.1:{server.port}/report/{trace}"
    page.open(link)
    page.until("location.pathname.startsWith('/reports/') && document.querySelector('h2')", 120)
    assert "owned" not in page.js("document.title") and page.js("document.querySelectorAll('script').length") == 0
    page.open(f"http://127.0.0.1:{server.port}/report/nope")
    page.until("document.getElementById('error') && !document.getElementById('error').hidden")
    assert page.js("document.getElementById('error').innerText") == "no trace or capture has the id 'nope'"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_the_window_and_is_readable(page: Page, width: int, dark: bool) -> None:
    page.size(width, 800, dark)
    page.open(page.js("location.href"))
    page.until("document.body && document.body.dataset.ready")
    run(page, "SELECT trace_id, name, duration_ns FROM kernels")
    assert page.js("document.documentElement.scrollWidth") <= width
    assert page.js("document.getElementById('grid').getBoundingClientRect().height") >= 250
    if width == 390:  # only the page scrolls, not a part within it
        assert page.js("getComputedStyle(document.getElementById('why')).overflowY") == "visible"
    luminance = "(c => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 765)"
    cell = "getComputedStyle(document.querySelector('.tabulator-cell'))"
    row = "getComputedStyle(document.querySelector('.tabulator-row'))"
    text, paper = page.js(f"{luminance}({cell}.color)"), page.js(f"{luminance}({row}.backgroundColor)")
    assert abs(text - paper) > 0.5 and (paper < 0.5) == dark
